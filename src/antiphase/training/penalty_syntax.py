"""How a penalty is written on the command line and in tables: `amplification`, `noise-change:weight=0.3,eps=4/255`. No torch."""

from __future__ import annotations

from dataclasses import fields
from typing import get_args

from antiphase.config import Budget, InputError, from_plain, split_options
from antiphase.training.config import Penalty, PenaltyTerm

NONE = "none"
SYNTAX = f"{'|'.join((NONE, *get_args(PenaltyTerm)))}[:key=value,...]"


def parse_penalty(text: str) -> Penalty | None:
    """The penalty that a word names; its options are the fields of `Penalty`."""
    if text == NONE:
        return None
    term, options = split_options(text, "penalty")
    if term not in get_args(PenaltyTerm):
        raise InputError(f"penalty {text!r} is not known: write {SYNTAX}")
    return from_plain(Penalty, {"term": term, **options}, where="penalty")


def penalty_text(penalty: Penalty | None) -> str:
    """The inverse of `parse_penalty`, with defaults left out."""
    if penalty is None:
        return NONE
    default = Penalty(term=penalty.term)
    changed = [f.name for f in fields(penalty) if getattr(penalty, f.name) != getattr(default, f.name)]
    options = [f"{name}={_text(getattr(penalty, name))}" for name in changed]
    return ":".join([penalty.term, ",".join(options)]) if options else penalty.term


def _text(value: float) -> str:
    return str(value) if isinstance(value, Budget) else f"{value:g}"
