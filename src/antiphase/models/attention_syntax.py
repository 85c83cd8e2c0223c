"""How attention is written on the command line and in tables: `softmax`, `differential:lambda_init=0.5,out_scale=fixed`."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from antiphase.config import InputError, from_plain
from antiphase.models.config import Attention, Differential, Schedule, Softmax

SYNTAX = "softmax|differential[:key=value,...]"


def parse_attention(text: str) -> Attention:
    """The attention that a word names; lambda_init is a number, 0.2/0.4/... (one per layer), schedule or schedule/a/b/c/base."""
    kind, _, options = text.partition(":")
    if kind == "softmax" and not options:
        return Softmax()
    if kind != "differential":
        raise InputError(f"attention {text!r} is not known: write {SYNTAX}")
    plain: dict[str, Any] = {}
    for option in filter(None, options.split(",")):
        key, equals, value = option.partition("=")
        if not equals:
            raise InputError(f"attention option {option!r} needs a value: write {key}=...")
        plain[key] = _value(key, value)
    return from_plain(Differential, plain, where="attention")


def _value(key: str, text: str) -> Any:
    if key == "learned":
        if text not in ("true", "false"):
            raise InputError(f"attention learned={text!r}: it takes true or false")
        return text == "true"
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
    if isinstance(attention, Softmax):
        return "softmax"
    default = Differential()
    options = []
    for field in fields(Differential):
        value = getattr(attention, field.name)
        if value != getattr(default, field.name):
            options.append(f"{field.name}={_text(value)}")
    return ":".join(["differential", ",".join(options)]) if options else "differential"


def _text(value: Any) -> str:
    if isinstance(value, Schedule):
        return f"schedule/{value.a}/{value.b}/{value.c}/{value.index_base}"
    if isinstance(value, tuple):
        return "/".join(map(str, value))
    return str(value).lower() if isinstance(value, bool) else str(value)
