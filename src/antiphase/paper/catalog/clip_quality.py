"""CLIP quality: the evaluations of DiffCLIP's paper (Z1 to Z6) for CLIP and DiffCLIP."""

from __future__ import annotations

from typing import Any

from antiphase.evals.config import GROUPS, Task
from antiphase.evals.published import published
from antiphase.paper.grid import CLIP_NAMES, Grid
from antiphase.paper.questions import Evaluate
from antiphase.paper.study import SURROGATE, Answers, Label, Line, Study, TableRow


def _plan(grid: Grid) -> list[tuple[str, Task]]:
    """The paper's tasks and data sets; of other pairs, which know no captions, what they are looked at on (for captions see
    clip_tiles.py)."""
    own = grid.clip_data["imagenet"]
    if not grid.published or grid.pair_data is not None:
        classes: tuple[Task, ...] = ("zero-shot", "probe", "few-shot")
        return [(own, task) for task in classes]
    shown: list[tuple[str, Task]] = [("imagenet", "zero-shot")]
    shown += [(data, "zero-shot") for data in GROUPS["ood"]]
    shown += [(data, "probe") for data in GROUPS["downstream"]]
    shown += [(data, "few-shot") for data in GROUPS["downstream"]]
    shown += [(data, "retrieval") for data in GROUPS["captions"]]
    return [*shown, ("mmvp", "pairs")]


def _wordings(grid: Grid, task: Task) -> tuple[str | None, ...]:
    """ImageNet's 80 templates, and one for comparison; a surrogate knows only the words it was trained with."""
    return ("imagenet80", "a") if grid.published and task == "zero-shot" else (None,)


def _cells(grid: Grid) -> list[tuple[str, Evaluate]]:
    """With the name of the model."""
    s = grid.s
    sizes: dict[str, Any] = {"n": s.eval_images, "train_n": s.probe_images, "costs": s.probe_costs}
    return [
        (name, Evaluate(of=model, data=data, task=task, prompts=prompts, **sizes))
        for data, task in _plan(grid)
        for prompts in _wordings(grid, task)
        for name in CLIP_NAMES
        for model in grid.clips(name)
    ]


def lines(grid: Grid) -> list[Line]:
    """Each seed on its own: an evaluation has its own interval. The printed numbers are those of CC12M."""
    return [_lines_of(name, cell) for name, cell in _cells(grid)]


def _lines_of(name: str, cell: Evaluate) -> Line:
    label = Label(name, cell.data, f"prompts {cell.prompts}" if cell.prompts else "", f"seed {cell.of.run_seed}")

    def read(answers: Answers) -> list[TableRow]:
        return [_row(label, row, cell, name) for row in answers(cell)["rows"]]

    return Line(label=label, reading=cell.task, cells=(cell,), read=read)


def _row(label: Label, row: dict[str, Any], cell: Evaluate, name: str) -> TableRow:
    surrogate = cell.of.surrogate
    reference = None if surrogate or cell.prompts == "a" else published(row["name"], cell.data, "CC12M", name)
    printed: float | str | None = None
    if reference is not None:
        printed = reference["value"] / 100 if "value" in reference else f"CLIP +{reference['gain']}"
    return TableRow.about(
        label,
        row["name"],
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
        minutes=36.1,
        lines=lines,
        clip=True,
    ),
)
