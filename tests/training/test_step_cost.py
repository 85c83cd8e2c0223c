"""What a recipe costs: the same training beside itself costs as much, one with a penalty more."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from antiphase.config import InputError
from antiphase.models.config import ViTConfig
from antiphase.models.run import Run
from antiphase.training.config import Penalty, TrainConfig
from antiphase.training.loop import train
from antiphase.training.step_cost import step_seconds

SMALL = ViTConfig(width=32, depth=1, heads=2, patch=2)


@pytest.fixture(scope="module")
def runs(digits, tmp_path_factory):
    folder, plain = tmp_path_factory.mktemp("cost"), TrainConfig(epochs=1, batch_size=32, augment="none")
    dear = replace(plain, penalty=Penalty(term="attack-change", weight=0.1, share=1.0))
    few = [images.subset(64) for images in digits]
    return [train(SMALL, config, *few, folder / name) for name, config in (("plain", plain), ("dear", dear))]


def test_a_training_beside_itself_costs_as_much_and_one_with_a_penalty_more(runs, digits):
    plain, dear = runs

    def ratio(one, other):
        seconds = step_seconds((one, other), digits[0], rounds=40)
        assert seconds.shape == (40, 2)
        return float(np.median(seconds[:, 0] / seconds[:, 1]))

    assert ratio(plain, plain) == pytest.approx(1, abs=0.2)
    assert ratio(dear, plain) > 1.5


def test_what_is_no_classifier_has_no_step_to_time(runs, digits):
    clip = Run(Path(__file__).parents[2] / "results" / "clip-pair" / "CLIP")
    with pytest.raises(InputError, match="there is no training step to time"):
        step_seconds((clip, runs[0]), digits[0], rounds=1)
