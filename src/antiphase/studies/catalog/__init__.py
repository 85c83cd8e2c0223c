"""Every study by name; one small file each. Importing them loads nothing heavy."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches
from functools import cache
from importlib import import_module

from antiphase.config import InputError
from antiphase.studies.study import Study

FILES = ("table1", "fig2", "fig5")


@cache
def studies() -> dict[str, Study]:
    """All of them, in the order of the paper."""
    found = [study for file in FILES for study in import_module(f"antiphase.studies.catalog.{file}").STUDIES]
    return {study.name: study for study in found}


@cache
def groups() -> dict[str, tuple[str, ...]]:
    """fig2 -> fig2a, fig2b, ...: files of several studies, by the file's name."""
    by_file = {file: import_module(f"antiphase.studies.catalog.{file}").STUDIES for file in FILES}
    return {file: tuple(s.name for s in found) for file, found in by_file.items() if len(found) > 1}


def chosen(names: Sequence[str]) -> list[Study]:
    """The studies that are named, each once; none named: all of them. An unknown name suggests the nearest."""
    known, several = studies(), groups()
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
