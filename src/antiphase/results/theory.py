"""The theory held against a trained run and its softmax baseline: what was measured is kept, the verdicts are read from it."""

from __future__ import annotations

from pathlib import Path

import torch

from antiphase.config import InputError
from antiphase.data.imageset import ImageSet
from antiphase.models.run import Run, check_baseline
from antiphase.results.compare import differences
from antiphase.store import Content, Entry
from antiphase.theory.collect import collect
from antiphase.theory.evidence import Evidence, plain, read
from antiphase.theory.question import AuditQuestion
from antiphase.theory.table import audit


def theory(
    run: Run, images: ImageSet, question: AuditQuestion, *, base: Run | None = None, device: torch.device | str = "cpu"
) -> Entry:
    """The evidence, kept in the run's folder."""
    if not run.config.is_differential:
        raise InputError(f"{run.folder} has no layer with two branches (it is all softmax): the theory is about those")
    check_baseline(run, base)

    def compute(_: Path) -> Content:
        model = run.classifier_for(images, device)
        other = None if base is None else base.classifier_for(images, device)
        sizes = {"probes": question.probes, "draws": question.draws, "seed": question.seed}
        evidence = collect(model, other, images, **sizes, device=device)
        return {
            "baseline": None if base is None else {"model": base.config.title, "run": base.name},
            "differences": [] if base is None else differences(run, base),
            "ids": images.ids.tolist(),
            "probes": question.probes,
            "draws": question.draws,
            "evidence": plain(evidence),
        }

    return run.answer_on(question, images, compute, base=base)


def audited(content: Content) -> Content:
    """The kept evidence with the verdict on every statement; computed each time, so verdicts are never stale."""
    return {**content, "rows": [row.plain() for row in audit(read(Evidence, content["evidence"]))]}
