"""The configs of evaluations: which tasks, on which data sets, by which protocol. No torch."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

from antiphase.config import InputError, Names, check_fields
from antiphase.data.catalog import CATALOG, MMVP, entry_of, find_folder
from antiphase.data.corruption_table import CORRUPTIONS, SEVERITIES, check_corruption, check_severity
from antiphase.data.pair_catalog import PAIR_CATALOG, TILES, is_captioned
from antiphase.store import Question, Work

Task = Literal["zero-shot", "probe", "few-shot", "retrieval", "pairs", "corrupted"]
TASKS: tuple[Task, ...] = ("zero-shot", "probe", "few-shot", "retrieval", "pairs", "corrupted")
NEED_TEXT: tuple[Task, ...] = ("zero-shot", "retrieval", "pairs")
BY_PROMPTS: tuple[Task, ...] = ("zero-shot", "corrupted")  # a CLIP classifies by prompts of the class names
GROUPS = {  # a group gets the mean over its data sets where all were evaluated
    "downstream": (
        "caltech101",
        "dtd",
        "pets",
        "flowers",
        "sun397",
        "aircraft",
        "cifar10",
        "cifar100",
        "food101",
    ),
    "captions": ("flickr30k", "flickr8k", "coco"),
    "ood": ("imagenet-v2", "imagenet-a", "imagenet-r", "imagenet-sketch"),
}
MEAN_PER_CLASS = ("caltech101", "pets", "flowers", "aircraft")  # how their probes are scored (El Banani, Kornblith)
PAIRS = "mmvp"
CORRUPTED = "corrupted"  # to evaluate on: the test images of the data that the run was trained on, under corruptions
EVERY = "all"
CORRUPTING = 3  # forward passes' worth of one corrupted image: making it, its answer and its maps


@dataclass(frozen=True, kw_only=True)
class EvalConfig:
    """The protocols. Defaults are the papers' where they say: 96 costs, 5-way 5-shot."""

    costs: int = 96  # values of C tried by a linear probe, log-spaced from 1e-6 to 1e6
    iterations: int = 1000  # of L-BFGS at most, for each C
    ways: int = 5  # classes of a few-shot episode
    shots: int = 5  # training images of each class
    queries: int = 6  # test images of each class
    episodes: int = 1000  # at least 1000, so that the interval is narrow
    center: bool = False  # subtract the mean of an episode's training features first
    split: Literal["test", "all"] = "test"  # of captioned images; all: where no image was trained on
    corruptions: Names = Names(EVERY)  # of the task `corrupted`, as in gaussian_noise,fog; or all
    severities: Names = Names("1,2,3,4,5")  # of corruptions
    seed: int = 0  # of subsets, the validation split, the episodes and the corruptions

    def __post_init__(self) -> None:
        check_fields(self, costs=2, iterations=1, ways=2, shots=1, queries=1, episodes=1000, seed=0)
        for name in self.corruption_names:
            check_corruption(name)
        self.corruption_question(self.corruption_names[0])

    @property
    def corruption_names(self) -> tuple[str, ...]:
        """Each once; `all` stands for every one of the table."""
        listed = tuple(each for name in self.corruptions for each in (CORRUPTIONS if name == EVERY else (name,)))
        if not listed:
            raise InputError(
                "no corruption is named: give --corruptions, as in --corruptions gaussian_noise,fog, or all"
            )
        return tuple(dict.fromkeys(listed))

    def corruption_question(self, corruption: str) -> CorruptionQuestion:
        wrong = [word for word in self.severities if word not in map(str, SEVERITIES)]
        if wrong or not self.severities:
            what = f"severity {wrong[0]!r} does not exist" if wrong else "no severity is named"
            raise InputError(f"{what}: --severities takes some of {','.join(map(str, SEVERITIES))}")
        severities = tuple(sorted({int(word) for word in self.severities}))
        return CorruptionQuestion(corruption=corruption, severities=severities, seed=self.seed)


@dataclass(frozen=True, kw_only=True)
class EvalQuestion(Question):
    """One task on one data set."""

    kind: ClassVar[str] = "eval"
    folder: ClassVar[str] = "evals"
    shared: ClassVar[bool] = True
    task: Task
    settings: Mapping[str, Any]  # what of the protocol and of the training data the answer depends on
    seed: int = 0

    def fields(self) -> dict[str, Any]:
        return {"eval": self.task, **self.settings, "seed": self.seed}


@dataclass(frozen=True, kw_only=True)
class CorruptionQuestion(Question):
    """Is the model right and sure about images under one corruption, clean and at each severity? And what do its maps do?"""

    kind: ClassVar[str] = "corrupted"
    folder: ClassVar[str] = "evals"
    corruption: str
    severities: tuple[int, ...] = SEVERITIES
    seed: int = 0

    def __post_init__(self) -> None:
        check_fields(self, seed=0)
        check_corruption(self.corruption)
        for severity in self.severities:
            check_severity(severity)

    @property
    def title(self) -> str:
        return f"{self.corruption} at {', '.join(map(str, self.severities))}"

    def fields(self) -> dict[str, Any]:
        return {"eval": self.kind, "corruption": self.corruption, "severities": self.severities, "seed": self.seed}

    @property
    def work(self) -> Work:
        return Work(per_image=1 + CORRUPTING * len(self.severities))


def expand_groups(names: tuple[str, ...]) -> tuple[str, ...]:
    """Every data set once, with groups replaced by their members; an unknown name is refused with a suggestion."""
    if not any(names):
        raise InputError("nothing is named to evaluate on: give --on, as in --on cifar10,flickr8k")
    expanded = dict.fromkeys(each for name in names for each in GROUPS.get(name, (name,)))
    known = (*CATALOG, *PAIR_CATALOG, PAIRS)
    for name in expanded:
        if name not in (*known, CORRUPTED) and not Path(name).is_dir() and not is_captioned(name):
            near = difflib.get_close_matches(name, [*known, *GROUPS, CORRUPTED], n=1)
            every = dict.fromkeys([*known, *GROUPS, CORRUPTED])
            hint = f"did you mean {near[0]!r}?" if near else f"known are {', '.join(every)}"
            raise InputError(f"there is no data set {name!r} to evaluate on: {hint}")
    return tuple(expanded)


def check_data_exists(names: tuple[str, ...], root: Path | None) -> None:
    """Refuse a data set without a folder, before hours are spent on another."""
    for name in names:
        entry = MMVP if name == PAIRS else PAIR_CATALOG.get(name) or entry_of(name)
        if entry.folders:
            find_folder(name, entry, root)


def tasks_on(name: str, wanted: tuple[Task, ...], *, text: bool) -> tuple[Task, ...]:
    """The tasks evaluated on this data set: those wanted of the ones it can serve, or by default the usual ones."""
    served = _tasks_served(name)
    if wanted:
        return tuple(task for task in wanted if task in served)
    served = tuple(task for task in served if task != "corrupted")  # 85 times the images: only if asked
    if name in TILES:
        return ("zero-shot", "retrieval", "pairs") if text else ("probe", "few-shot")
    if name in PAIR_CATALOG:  # COCO serves as a set of classes too, but only if asked
        return ("retrieval",)
    usual = ("zero-shot",) if name == "imagenet" else served  # a probe on 1.3 million images only if asked
    return tuple(task for task in usual if text or task not in NEED_TEXT) or usual


def _tasks_served(name: str) -> tuple[Task, ...]:
    """All tasks that a data set can be used for."""
    if name == PAIRS:
        return ("pairs",)
    retrieval: tuple[Task, ...] = ("retrieval",) if is_captioned(name) else ()
    if retrieval and name not in CATALOG:
        return retrieval
    classes: tuple[Task, ...] = ("zero-shot", "probe", "few-shot")
    statements: tuple[Task, ...] = ("pairs",) if name in TILES else ()
    return (*(classes if "train" in entry_of(name).splits else classes[:1]), *retrieval, *statements, "corrupted")
