"""The trained models of this repository by name: `ap.zoo("desk-diffvit-d1-s0")` is a run.

`results/zoo.json` has their names, folders and measured accuracies; `make zoo` writes it. A wheel does not contain the models:
without a clone, the variable ANTIPHASE_ZOO names the folder `results` of one.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any, overload

from antiphase import files
from antiphase.config import InputError
from antiphase.models.run import Run
from antiphase.tables import Shown, Table, with_interval

INDEX = "zoo.json"


@dataclass(frozen=True)
class Zoo(Shown):
    """What there is, with clean accuracy and accuracy under AutoAttack."""

    folder: Path  # the index lies here, and folders of runs are given from here
    under: str  # the attack
    models: dict[str, dict[str, Any]]

    def __contains__(self, name: object) -> bool:
        return name in self.models

    def __len__(self) -> int:
        return len(self.models)

    def run(self, name: str) -> Run:
        """The run of this name, if its weights are those that the index is about."""
        if name not in self.models:
            near = get_close_matches(name, self.models, 1)
            hint = f": did you mean {near[0]!r}?" if near else f": there are {', '.join(self.models)}"
            raise InputError(f"the zoo has no model {name!r}{hint}")
        run = Run(files.require_run(self.folder / self.models[name]["folder"]))
        if run.weights_digest != self.models[name]["weights"]:
            raise InputError(f"{run.folder} is not the {name!r} that was measured: its weights changed; run make zoo")
        return run

    def summary(self) -> dict[str, Any]:
        return {"under": self.under, "models": self.models}

    def records(self) -> list[dict[str, Any]]:
        return [{"name": name, **model} for name, model in self.models.items()]

    def table(self) -> Table:
        rows = [
            (name, with_interval(model["accuracy"]), with_interval(model["robust_accuracy"]))
            for name, model in self.models.items()
        ]
        clean, attacked = (
            " or ".join(f"{n:,}" for n in sorted({model[rate]["n"] for model in self.models.values()}))
            for rate in ("accuracy", "robust_accuracy")
        )
        notes = (f"under attack: {self.under}; n = {clean} test images, {attacked} of them under attack",)
        return Table("trained models", ("name", "accuracy", "under attack"), rows, notes)


def _folder() -> Path:
    """`results` of the clone that this package lies in, or what ANTIPHASE_ZOO names."""
    named = os.environ.get("ANTIPHASE_ZOO")
    folder = Path(named) if named else Path(__file__).parents[3] / "results"
    if not (folder / INDEX).is_file():
        where = f"ANTIPHASE_ZOO={named} has" if named else "this installation has"
        raise InputError(
            f"{where} no {INDEX}: the models lie in the folder results of a clone; name it in the variable ANTIPHASE_ZOO"
        )
    return folder


@overload
def zoo(name: None = None) -> Zoo: ...
@overload
def zoo(name: str) -> Run: ...
def zoo(name: str | None = None) -> Zoo | Run:
    """A trained model of this repository by name, as a run; without a name what there is, which prints as a table."""
    folder = _folder()
    index = files.read_json(folder / INDEX, "under", "models")
    listed = Zoo(folder, index["under"], index["models"])
    return listed if name is None else listed.run(name)
