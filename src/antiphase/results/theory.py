"""The theory held against a trained run and its softmax baseline, as a cell: verdicts and the numbers they come from."""

from __future__ import annotations

from pathlib import Path

import torch

from antiphase.config import InputError
from antiphase.data.imageset import ImageSet
from antiphase.models.run import Cell, Run, cell, check_base, identity_of
from antiphase.results.compare import differences
from antiphase.theory.collect import collect
from antiphase.theory.evidence import Evidence, plain, read
from antiphase.theory.table import audit


def audit_cell(
    run: Run,
    base: Run | None,
    images: ImageSet,
    *,
    probes: int,
    draws: int,
    seed: int = 0,
    device: torch.device | str = "cpu",
) -> Cell:
    """What was measured is kept in the run's folder; the verdicts are read from it each time, so they are never stale."""
    if not run.config.is_differential:
        raise InputError(f"{run.folder} has no layer with two branches (it is all softmax): the theory is about those")
    check_base(run, base)

    def compute(_: Path) -> Cell:
        model = run.classifier_for(images, device)
        other = None if base is None else base.classifier_for(images, device)
        found = collect(model, other, images, probes=probes, draws=draws, seed=seed, device=device)
        return {
            "baseline": None if base is None else {"model": base.config.title, "run": base.name},
            "differences": [] if base is None else differences(run, base),
            "ids": images.ids.tolist(),
            "probes": probes,
            "draws": draws,
            "evidence": plain(found),
        }

    question = {
        "measure": "theory",
        "base": identity_of(base),
        "probes": probes,
        "draws": draws,
        "seed": seed,
    }
    kept = cell(run, "measures", images, question, compute)
    rows = audit(read(Evidence, kept["evidence"]))
    return {**kept, "rows": [row.plain() for row in rows]}
