"""What a recipe costs: processor time of its training steps beside those of another recipe, in turns on the same images."""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray

from antiphase.config import InputError, from_plain
from antiphase.data.imageset import ImageSet
from antiphase.models.config import ViTConfig
from antiphase.models.run import Run
from antiphase.training.config import TrainConfig
from antiphase.training.loop import Learner
from antiphase.training.tasks import as_trained_on, classification_objective

WARM_UP = 2  # steps that are not counted


def step_seconds(
    runs: tuple[Run, Run], images: ImageSet, *, rounds: int = 60, device: torch.device | str = "cpu"
) -> NDArray[np.float64]:
    """(rounds, 2): seconds of a step of each, in turns, so that what else the machine does meets both alike. On a CPU processor
    time is counted, which a busy machine lengthens less than the clock's (caches are shared); the stored weights stay as they
    are."""
    device = torch.device(device)
    steps = [_stepper(run, images, device) for run in runs]
    seconds = np.array([[step(number) for step in steps] for number in range(WARM_UP + rounds)])
    return seconds[WARM_UP:]


def _stepper(run: Run, images: ImageSet, device: torch.device) -> Callable[[int], float]:
    if not isinstance(run.config, ViTConfig) or not run.about.get("training"):
        raise InputError(f"{run.folder} was not trained as a classifier here: there is no training step to time")
    config = from_plain(TrainConfig, run.about["training"], "training")
    learner = Learner(run.classifier(device), config, classification_objective(config))
    learner.model.train()
    clock = time.process_time if device.type == "cpu" else time.perf_counter

    def step(number: int) -> float:
        rows = (np.arange(config.batch_size) + number * config.batch_size) % len(images)
        began = clock()
        batch = as_trained_on(images.batch(rows), config, number, device)
        learner.update(batch, lr=config.lr, epoch=number)
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        return clock() - began

    return step
