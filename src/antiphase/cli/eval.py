"""antiphase eval"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import tyro

from antiphase.config import InputError, check_fields
from antiphase.data.tolerance import allowed
from antiphase.evals.config import TASKS, EvalConfig, Task, check_data_exists, expand_groups
from antiphase.files import require_run
from antiphase.models.prompts import check_prompts
from antiphase.scales import SCALES, ScaleName

EXAMPLES = """\
  antiphase eval runs/diffvit --on digits
  antiphase eval runs/diffvit --on corrupted --corruptions gaussian_noise,fog --severities 1,3,5
  antiphase eval runs/diffclip --on flickr8k --split all --scale paper
  antiphase eval runs/diffclip --on imagenet,ood --prompts imagenet80 --scale paper --published CC12M
  antiphase eval runs/diffclip --on downstream --tasks probe,few-shot --scale paper --episodes 5000 --center
  antiphase eval runs/clip --on cifar10,mmvp --json"""
TAKES = "one run"


@dataclass(frozen=True, kw_only=True)
class Command:
    run: tyro.conf.Positional[Path]  # folder of a run: a CLIP; a ViT for probe, few-shot and corrupted
    on: str  # data sets, separated by commas; the groups downstream, captions, ood; corrupted: its own data under corruptions
    tasks: str | None = None  # zero-shot, probe, few-shot, retrieval, pairs, corrupted; None: what the data are for
    scale: ScaleName = "smoke"  # sizes of everything here, where a flag does not say otherwise
    data_root: Path | None = None  # where data sets lie; $ANTIPHASE_DATA when not given
    images: int | None = None  # at most so many test images; None: all
    train_images: int | None = None  # at most so many training images for probes and episodes; None: all
    allow: str = ""  # what may be left out of captioned images, and is counted: missing, empty, broken
    prompts: str | None = None  # of a CLIP: paper, a, digit, imagenet80, a file; None: its own, or the fallback paper
    settings: EvalConfig = EvalConfig()
    published: Literal["CC3M", "CC12M"] | None = None  # the B/16 of the paper, trained on it: show its numbers too
    cache: bool = True  # keep features on disk and read them
    device: str = "auto"  # auto, cpu, cuda, cuda:1, mps
    json: bool = False  # print the result as JSON on stdout

    @classmethod
    def defaults(cls, scale: ScaleName) -> Command:
        s = SCALES[scale]
        return cls(
            run=tyro.MISSING,
            on=tyro.MISSING,
            scale=scale,
            images=s.eval_images,
            train_images=s.probe_images,
            settings=EvalConfig(costs=s.probe_costs),
        )

    def __post_init__(self) -> None:
        check_fields(self, images=1, train_images=1)
        allowed(self.allow)
        if self.prompts is not None:
            check_prompts(self.prompts)
        if isinstance(self.on, str):  # tyro builds the defaults without it
            self.names()
        self.wanted()

    def names(self) -> tuple[str, ...]:
        return expand_groups(tuple(word.strip() for word in self.on.split(",")))

    def wanted(self) -> tuple[Task, ...]:
        tasks: list[Task] = []
        for word in [] if self.tasks is None else self.tasks.split(","):
            known = [task for task in TASKS if task == word.strip()]
            if not known:
                raise InputError(f"task {word.strip()!r} is not known: --tasks takes {', '.join(TASKS)}")
            tasks += known
        return tuple(tasks)


def run(command: Command) -> dict[str, Any]:
    folder, names = require_run(command.run), command.names()
    check_data_exists(names, command.data_root)
    from antiphase.evals.evaluate import evaluate
    from antiphase.models.run import Run
    from antiphase.runtime import pick_device

    result = evaluate(
        Run(folder, command.prompts),
        names,
        command.wanted(),
        command.settings,
        root=command.data_root,
        images=command.images,
        train_images=command.train_images,
        allow=allowed(command.allow),
        pretraining=command.published,
        device=pick_device(command.device),
        keep=command.cache,
    )
    return {"scale": command.scale, **result}


def show(result: dict[str, Any]) -> None:
    from antiphase.report.terminal.eval import show_evaluation

    show_evaluation(result)
