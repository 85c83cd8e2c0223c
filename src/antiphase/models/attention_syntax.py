"""How attention is written on the command line and in tables: `softmax`, `differential-v2`,
`differential:lambda_init=0.5,out_scale=fixed`."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from antiphase.config import InputError, from_plain, split_options
from antiphase.models.config import (
    Attention,
    BoundedDifferential,
    Differential,
    DifferentialV2,
    Dint,
    GroupedDifferential,
    LowRankDifferential,
    Schedule,
    Softmax,
)

KINDS: dict[str, type[Attention]] = {
    "softmax": Softmax,
    "differential": Differential,
    "differential-v2": DifferentialV2,
    "grouped": GroupedDifferential,
    "bounded": BoundedDifferential,
    "low-rank": LowRankDifferential,
    "dint": Dint,
}
ABOUT = {
    "softmax": "one map, softmax(QK'/sqrt(d)) V",
    "differential": "(A1 - lambda A2) V, then a norm per head and a gain",
    "differential-v2": "lambda of every token and head, no norm and no gain",
    "grouped": "differential, several signal maps to one noise map",
    "bounded": "differential, lambda stays below a bound",
    "low-rank": "differential, the second branch is the first with a difference of low rank",
    "dint": "differential plus lambda times the mean map, so that rows sum to 1",
}
VALUES = {  # what each key takes
    "lambda_init": "a number, 0.2/0.4/... (one per layer), schedule or schedule/a/b/c/base",
    "learned": "true, or false: lambda stays lambda_init",
    "head_norm": "rms or none",
    "out_scale": "the gain: official (1 - lambda_init), fixed (0.2) or none (1)",
    "ratio": "heads that share a noise map",
    "bound": "of lambda, above 0",
    "rank": "of the difference",
}
WHOLE = {"ratio": "of heads that share a noise map", "rank": "of the difference of the two branches"}
SYNTAX = f"{'|'.join(KINDS)}[:key=value,...]"


def explained() -> str:
    """Every kind in half a line, and the keys that it takes: a part of the help."""
    kinds = [f"  {name:<16}{ABOUT[name]}" for name in KINDS]
    keys = []
    for key, values in VALUES.items():
        defaults = {name: value_text(getattr(kind(), key)) for name, kind in KINDS.items() if hasattr(kind(), key)}
        first, *others = defaults
        of = "" if others else f" (of {first})"
        unlike = [f" ({name}: {defaults[name]})" for name in others if defaults[name] != defaults[first]]
        keys.append(f"  {key:<16}{values}{of}; {defaults[first]}{''.join(unlike)} when not given")
    *most, last = [name for name, kind in KINDS.items() if fields(kind)]
    return "\n".join((*kinds, f"\nkeys of {', '.join(most)} and {last}:", *keys))


def parse_attention(text: str) -> Attention:
    """The attention that a word names; lambda_init is a number, 0.2/0.4/... (one per layer), schedule or schedule/a/b/c/base."""
    kind, options = split_options(text, "attention")
    if kind not in KINDS:
        raise InputError(f"attention {text!r} is not known: write {SYNTAX}")
    if options and not fields(KINDS[kind]):
        raise InputError(f"attention {kind} has no options: write {kind} alone")
    plain = {key: _value(key, value) for key, value in options.items()}
    return from_plain(KINDS[kind], plain, where="attention")


def _value(key: str, text: str) -> Any:
    if key == "learned":
        if text not in ("true", "false"):
            raise InputError(f"attention learned={text!r}: it takes true or false")
        return text == "true"
    if key in WHOLE:
        if not text.isdecimal():
            raise InputError(f"attention {key}={text!r}: it takes a whole number, {WHOLE[key]}")
        return int(text)
    if key != "lambda_init":
        return text
    name, *numbers = text.split("/")
    try:
        if name == "schedule" and len(numbers) <= 4:
            coefficients: dict[str, Any] = dict(zip("abc", map(float, numbers)))
            return {"kind": "Schedule", **coefficients, **({"index_base": int(numbers[3])} if numbers[3:] else {})}
        return [float(n) for n in (name, *numbers)] if numbers else float(name)
    except ValueError:
        raise InputError(
            f"attention lambda_init={text!r}: it takes a number, 0.2/0.4/..., or schedule[/a/b/c/base]"
        ) from None


def attention_text(attention: Attention) -> str:
    """The inverse of `parse_attention`, with defaults left out."""
    kind = next(name for name, known in KINDS.items() if known is type(attention))
    default = type(attention)()
    options = []
    for field in fields(attention):
        value = getattr(attention, field.name)
        if value != getattr(default, field.name):
            options.append(f"{field.name}={value_text(value)}")
    return ":".join([kind, ",".join(options)]) if options else kind


def value_text(value: Any, digits: int | None = None) -> str:
    """An option's value as it is written; for a title in so many significant digits."""
    if isinstance(value, Schedule):
        numbers = (value_text(part, digits) for part in (value.a, value.b, value.c, value.index_base))
        return "/".join(("schedule", *numbers))
    if isinstance(value, tuple):
        return "/".join(value_text(part, digits) for part in value)
    if isinstance(value, float) and digits is not None:
        return str(float(f"{value:.{digits}g}"))
    return str(value).lower() if isinstance(value, bool) else str(value)
