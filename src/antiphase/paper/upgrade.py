"""A ledger of the layout before questions had configs of their own, converted in place: `antiphase study upgrade`. No torch.

Rows of trained models are as they were. A row of a question gets the config and the key that the question has now; its answer,
which that layout kept in the row, stays there.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from antiphase.attacks.config import APGD, CW, FAB, PGD, AutoAttack, Square
from antiphase.attacks.question import AttackQuestion
from antiphase.config import Budget, InputError, Names, from_plain, to_plain
from antiphase.files import Damaged
from antiphase.measures.questions import (
    AlignmentQuestion,
    CancellationQuestion,
    CorrelationQuestion,
    DepthQuestion,
    LipschitzQuestion,
    PredictionQuestion,
)
from antiphase.paper.ledger import Ledger, Row
from antiphase.paper.questions import Ask, Cell, Evaluate, Images, Model, OtherEncoder, Train, TrainClip, UserClip
from antiphase.results.questions import BranchPictureQuestion
from antiphase.store import Question
from antiphase.theory.question import AuditQuestion

Plain = dict[str, Any]
RENAMED = {"Given": "UserClip", "Evaluated": "Evaluate", "Foreign": "OtherEncoder"}


def _attack(plain: Plain) -> Any:
    kinds: Any = PGD | APGD | FAB | Square | AutoAttack | CW
    return from_plain(kinds, plain, "attack")


def _sizes(config: Plain, *names: str) -> Plain:
    return {name: config[name] for name in (*names, "seed") if name in config}


def _perturbed(config: Plain) -> Plain:
    named = {"perturbations": Names(config["perturbations"]), "eps": Budget(config["eps"])}
    return named | _sizes(config)


QUESTIONS: dict[str, Callable[[Plain], Question]] = {
    "Predicted": lambda c: PredictionQuestion(**_sizes(c)),
    "Attacked": lambda c: AttackQuestion(attack=_attack(c["attack"]), **_sizes(c)),
    "Lipschitz": lambda c: LipschitzQuestion(**_sizes(c, "draws", "estimator", "level")),
    "Aligned": lambda c: AlignmentQuestion(**_sizes(c, "reading", "probes", "max_probes")),
    "Cancelled": lambda c: CancellationQuestion(**_perturbed(c)),
    "Propagated": lambda c: DepthQuestion(**_perturbed(c)),
    "Correlated": lambda c: CorrelationQuestion(**_sizes(c)),
    "Audited": lambda c: AuditQuestion(**_sizes(c, "probes", "draws")),
    "Looked": lambda c: BranchPictureQuestion(attack=_attack(c["attack"]), **_sizes(c)),
}


def upgrade(ledger: Ledger) -> dict[str, int]:
    """How many rows were converted, and how many were as they should be; damaged ones are left where they are."""
    counts = {"converted": 0, "present": 0, "damaged": 0}
    for entry in list(ledger.rows.entries()):
        if isinstance(entry, Damaged):
            counts["damaged"] += 1
            continue
        row = entry.content
        cell = converted(row["config"])
        if cell is None:
            counts["present"] += 1
            continue
        if not ledger.has(cell):
            ledger.keep(cell, _row(row, cell))
        entry.path.unlink()
        counts["converted"] += 1
    return counts


def _row(row: Row, cell: Cell) -> Row:
    needs = [need.key for need in cell.needs]
    return {**row, "key": cell.key, "kind": cell.kind, "title": cell.title, "config": to_plain(cell), "needs": needs}


def converted(config: Plain) -> Cell | None:
    """The cell that an old config stands for; None for one that is still written so."""
    kind = config["kind"]
    if kind in QUESTIONS:
        base = config.get("base")
        return Ask(
            of=_model(config["of"]),
            images=from_plain(Images, config["images"], "images"),
            question=QUESTIONS[kind](config),
            base=None if base is None else _model(base),
            prompts=config.get("prompts"),
        )
    if kind not in RENAMED:
        return None
    renamed = {**config, "kind": RENAMED[kind]}
    if kind == "Given":
        return from_plain(UserClip, renamed, "row")
    if kind == "Evaluated":
        plain = {name: value for name, value in renamed.items() if name not in ("kind", "of")}
        return Evaluate(of=_model(config["of"]), **plain)
    renamed["tested_on"] = renamed.pop("judged")
    return from_plain(OtherEncoder, renamed, "row")


def _model(plain: Plain) -> Model:
    kinds: dict[str, type[Model]] = {"Train": Train, "TrainClip": TrainClip, "Given": UserClip, "UserClip": UserClip}
    kind = kinds.get(plain["kind"])
    if kind is None:
        raise InputError(f"a row is about {plain['kind']!r}, which no layout of a ledger knows")
    return from_plain(kind, {**plain, "kind": kind.__name__}, "of")
