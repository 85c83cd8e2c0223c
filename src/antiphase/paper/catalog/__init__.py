"""Every study by name; one small file each. Importing them loads nothing heavy."""

from __future__ import annotations

import re
from collections.abc import Sequence
from difflib import get_close_matches
from functools import cache
from importlib import import_module

from antiphase.config import InputError
from antiphase.paper.grid import Grid
from antiphase.paper.questions import OtherEncoder, TrainClip
from antiphase.paper.study import Study
from antiphase.scales import ScaleName

FILES = (  # in this order each study trains what the later ones share
    "table1",
    "fig1",
    "fig2",
    "lambda_dynamics",
    "fig4",
    "fig3",
    "fig3c",
    "fig3d",
    "fig5",
    "table2",
    "table3",
    "fig6",
    "noise_vs_attack",
    "theory_audit",
    "controls",
    "training_length",
    "fragility_over_training",
    "alignment_sign",
    "map_correlation",
    "certificates",
    "corrupted",
    "remedies",
    "certified_remedies",
    "fig2_clip",
    "fig4_clip",
    "other_encoder",
    "clip_fgsm_pgd",
    "clip_ablation",
    "clip_quality",
    "clip_tiles",
    "focus",
)


NO_SURROGATES: tuple[ScaleName, ...] = ("cpu", "desk")  # `smoke` takes seconds, at `paper` nothing stands in


@cache
def studies() -> dict[str, Study]:
    """All of them, in the order in which they are best run."""
    listed = [study for file in FILES for study in import_module(f"antiphase.paper.catalog.{file}").STUDIES]
    return {study.name: study for study in listed}


def groups() -> dict[str, tuple[str, ...]]:
    """fig2 -> fig2a, fig2b, ...: what the paper draws in one figure."""
    parts: dict[str, tuple[str, ...]] = {}
    for name in studies():
        if part := re.fullmatch(r"(fig\d)[a-d]", name):
            parts[part[1]] = (*parts.get(part[1], ()), name)
    return parts


def chosen(names: Sequence[str]) -> list[Study]:
    """The studies that are named, each once; none named: all of them. An unknown name suggests the nearest."""
    known = studies()
    several = groups() | {alias: (name,) for name, study in known.items() for alias in study.aliases}
    wanted: dict[str, Study] = {}
    for name in names or known:
        word = name.lower().replace("_", "-")
        if word not in known and word not in several and word != "all":
            near = get_close_matches(word, [*known, *several], n=1, cutoff=0.5)
            hint = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(known)}"
            raise InputError(f"there is no study {name!r}: {hint}")
        for one in known if word == "all" else several.get(word, (word,)):
            wanted[one] = known[one]
    return list(wanted.values())


def to_run(names: Sequence[str], grid: Grid, *, surrogates: bool = False) -> tuple[list[Study], list[Study]]:
    """The studies that `run` does, and those that it leaves out: surrogates decide no claim and take long, so a study that
    trains them is part of `all` only if it is named as well, or surrogates are asked for."""
    wanted = chosen(names)
    if surrogates or grid.scale not in NO_SURROGATES:
        return wanted, []
    by_name = [name for name in names if name.lower() != "all"]
    named = {study.name for study in chosen(by_name)} if by_name else set()
    left_out = [study for study in wanted if study.name not in named and _trains_surrogates(study, grid)]
    return [study for study in wanted if study not in left_out], left_out


def _trains_surrogates(study: Study, grid: Grid) -> bool:
    """With a pair of the user's own a study that takes it trains none."""
    return any(isinstance(cell, TrainClip | OtherEncoder) for cell in study.cells(grid))
