"""CLIP quality: the evaluations of DiffCLIP's paper (Z1 to Z6) for CLIP and DiffCLIP."""

from __future__ import annotations

from typing import Any

from antiphase.evals.config import GROUPS, Task
from antiphase.evals.published import published
from antiphase.paper.grid import CLIP_NAMES, Setting
from antiphase.paper.questions import Cell, Evaluated
from antiphase.paper.study import SURROGATE, Found, Line, Missing, Study


def _plan(setting: Setting) -> list[tuple[str, Task]]:
    """The paper's tasks and data sets; of surrogates what they have learned from, and captions they have not seen."""
    if not setting.published:
        own = setting.clip_data["imagenet"]
        captions: list[tuple[str, Task]] = [] if setting.scale == "smoke" else [("flickr8k", "retrieval")]
        classes: tuple[Task, ...] = ("zero-shot", "probe", "few-shot")
        return [*((own, task) for task in classes), *captions]
    shown: list[tuple[str, Task]] = [("imagenet", "zero-shot")]
    shown += [(data, "zero-shot") for data in GROUPS["ood"]]
    shown += [(data, "probe") for data in GROUPS["downstream"]]
    shown += [(data, "few-shot") for data in GROUPS["downstream"]]
    shown += [(data, "retrieval") for data in GROUPS["captions"]]
    return [*shown, ("mmvp", "pairs")]


def _wordings(setting: Setting, task: Task) -> tuple[str | None, ...]:
    """ImageNet's 80 templates, and one for comparison; a surrogate knows only the words it was trained with."""
    return ("imagenet80", "a") if setting.published and task == "zero-shot" else (None,)


def _cells(setting: Setting, name: str, data: str, task: Task, prompts: str | None) -> list[Evaluated]:
    s = setting.s
    sizes: dict[str, Any] = {"n": s.eval_images, "train_n": s.probe_images, "costs": s.probe_costs}
    return [Evaluated(of=model, data=data, task=task, prompts=prompts, **sizes) for model in setting.clips(name)]


def _asked(setting: Setting) -> list[tuple[str, Evaluated]]:
    """By the name of the model."""
    return [
        (name, cell)
        for data, task in _plan(setting)
        for prompts in _wordings(setting, task)
        for name in CLIP_NAMES
        for cell in _cells(setting, name, data, task, prompts)
    ]


def cells(setting: Setting) -> list[Cell]:
    return [cell for _, cell in _asked(setting)]


def lines(setting: Setting, found: Found) -> list[Line]:
    """Each seed on its own: an evaluation has its own interval. The printed numbers are those of CC12M."""
    table: list[Line] = []
    for name, cell in _asked(setting):
        worded = f", prompts {cell.prompts}" if cell.prompts else ""
        label = f"{name}, {cell.data}{worded}, seed {cell.of.run_seed}"
        try:
            rows = found(cell)["rows"]
        except Missing:
            table.append(Line(label=label, reading=cell.task, note="not run yet"))
            continue
        table += [_line(label, row, cell, name) for row in rows]
    return table


def _line(label: str, row: dict[str, Any], cell: Evaluated, name: str) -> Line:
    surrogate = cell.of.surrogate
    told = None if surrogate or cell.prompts == "a" else published(row["name"], cell.data, "CC12M", name)
    printed: float | str | None = None
    if told is not None:
        printed = told["value"] / 100 if "value" in told else f"CLIP +{told['gain']}"
    return Line(
        label=label,
        reading=row["name"],
        value=row["value"],
        interval=tuple(row["interval"]),
        n=row["n"],
        seeds=1,
        reference=printed,
        note=SURROGATE if surrogate else "",
    )


STUDIES = (
    Study(
        name="clip-quality",
        title="CLIP quality: zero-shot, out of distribution, probes, few-shot, retrieval, MMVP",
        question="What does differential attention do to what a CLIP is for?",
        minutes=7.3,
        priced=True,
        cells=cells,
        lines=lines,
        clip=True,
    ),
)
