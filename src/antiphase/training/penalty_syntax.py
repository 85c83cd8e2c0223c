"""How a penalty is written on the command line and in tables: `amplification`, `noise-change:weight=0.3,eps=4/255`. No torch."""

from __future__ import annotations

from dataclasses import fields
from typing import get_args

from antiphase.config import Budget, InputError, from_plain, split_options
from antiphase.training.config import Penalty, PenaltyTerm

NONE = "none"
SYNTAX = f"{'|'.join((NONE, *get_args(PenaltyTerm)))}[:key=value,...]"

ABOUT = {
    NONE: "nothing is added",
    "amplification": "log of the differential map's sensitivity over that of A1, isolated layer",
    "kappa": "how far kappa = |lambda| ||J2|| / ||J1|| is above a limit",
    "alignment": "1 - cos(J1, J2): the two branches should react alike",
    "jasmin": "sensitivity of the softmax of any row of any map, from its two largest entries",
    "noise-change": "relative change of (A1 - lambda A2) V when every pixel moves by eps at random",
    "attack-change": "the same along the sign of the loss's gradient",
    "gradient": "by how much the loss rises at budget eps, to first order",
}
VALUES = {  # what each key takes
    "weight": "of the term beside the loss",
    "share": "of the images of a batch on which it is computed; the cost is proportional to it",
    "eps": "a budget, of noise-change, attack-change and gradient",
    "above": "the limit of kappa",
}


def explained() -> str:
    """Every term in half a line, and the keys: a part of the help."""
    terms = [f"  {term:<16}{about}" for term, about in ABOUT.items()]
    default = Penalty(term="amplification")
    keys = [f"  {key:<16}{values}; {_text(getattr(default, key))} when not given" for key, values in VALUES.items()]
    return "\n".join((*terms, "\nkeys of every term but none:", *keys))


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
