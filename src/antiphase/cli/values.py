"""How a value is written on the command line, type by type: what the help calls it, and what is refused. No torch.

tyro has rules of its own, but their refusals name Python's types, offer the word None and list choices in changing order.
"""

from __future__ import annotations

import types
import typing
from collections.abc import Callable
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Literal

from tyro.constructors import ConstructorRegistry, PrimitiveConstructorSpec, PrimitiveTypeInfo

from antiphase.config import Budget, InputError, Names, shown
from antiphase.models import attention_syntax
from antiphase.models.config import Attention
from antiphase.training import penalty_syntax
from antiphase.training.config import Penalty

NONE = "None"  # what sets a flag back to "not given", where that is a value of its type


class Unfit(ValueError):
    """A word that is no value of its type, as what is said of a flag: "takes a whole number, got '1.5'"."""


@dataclass(frozen=True, kw_only=True)
class Value:
    """A type whose values are written as one word, so that a positional argument may follow."""

    metavar: str
    takes: str  # in words
    read: Callable[[str], Any]
    instance: Any
    write: Callable[[Any], str] = str
    several: bool = False  # or as several words, if no positional argument follows
    choices: tuple[str, ...] = ()  # its words, where it has few


def _whole_numbers(word: str) -> tuple[int, ...]:
    try:
        return tuple(map(int, word.split(",")))
    except ValueError:
        raise InputError(f"{word!r} is no list of whole numbers: write them with commas, such as 1,2") from None


def _numbers(word: str) -> tuple[float, ...]:
    try:
        return tuple(map(float, word.split(",")))
    except ValueError:
        raise InputError(f"{word!r} is no list of numbers: write them with commas, such as 0.12,0.25") from None


def _with_commas(value: Any) -> str:
    return ",".join(map(str, value))


INTEGER = Value(metavar="INT", takes="a whole number", read=int, instance=int)
FLOAT = Value(metavar="FLOAT", takes="a number", read=float, instance=float | int)
TEXT = Value(metavar="STR", takes="a text", read=str, instance=str)
PATH = Value(metavar="PATH", takes="a path", read=Path, instance=Path)
BUDGET = Value(metavar="EPS", takes="a budget", read=Budget, instance=Budget)
BUDGETS = Value(
    metavar="EPS[,EPS...]",
    takes="budgets",
    read=lambda word: tuple(map(Budget, word.split(","))),
    instance=tuple,
    write=_with_commas,
)
INTEGERS = Value(metavar="N[,N...]", takes="whole numbers", read=_whole_numbers, instance=tuple, write=_with_commas)
FLOATS = Value(
    metavar="X[,X...]",
    takes="numbers",
    read=_numbers,
    instance=tuple,
    write=lambda value: ",".join(f"{number:g}" for number in value),
    several=True,
)
NAMES = Value(metavar="NAME[,NAME...]", takes="names", read=Names, instance=Names)
ATTENTION = Value(
    metavar="KIND[:KEY=VALUE,...]",
    takes="a kind of attention",
    read=attention_syntax.parse_attention,
    instance=Attention,
    write=attention_syntax.attention_text,
)
PENALTY = Value(
    metavar="TERM[:KEY=VALUE,...]",
    takes="a penalty",
    read=penalty_syntax.parse_penalty,
    instance=Penalty | types.NoneType,
    write=penalty_syntax.penalty_text,
)
BY_TYPE: dict[Any, Value] = {
    int: INTEGER,
    float: FLOAT,
    str: TEXT,
    Path: PATH,
    Budget: BUDGET,
    tuple[Budget, ...]: BUDGETS,
    tuple[int, ...]: INTEGERS,
    tuple[float, ...]: FLOATS,
    Names: NAMES,
    frozenset(typing.get_args(Attention)): ATTENTION,
    frozenset((Penalty, types.NoneType)): PENALTY,
}


def value_of(kind: Any) -> Value | None:
    """How values of this type are written; None: as tyro has it (booleans are flags, several words a tuple)."""
    origin, members = typing.get_origin(kind), typing.get_args(kind)
    union = origin in (typing.Union, types.UnionType)
    name = frozenset(members) if union else kind
    if name in BY_TYPE:
        return BY_TYPE[name]
    if origin is Literal:
        words = {str(member): member for member in members}
        listed = "{" + ",".join(words) + "}"
        return Value(metavar=listed, takes=_listed(words), read=words.__getitem__, instance=object, choices=(*words,))
    if not union:
        return None
    values = [value_of(member) for member in members if member is not types.NoneType]
    known = [value for value in values if value is not None]
    return _any_of(known, or_none=types.NoneType in members) if known and len(known) == len(values) else None


def _any_of(values: list[Value], *, or_none: bool) -> Value:
    """A word is read as the first of these that takes it."""

    def read(word: str) -> Any:
        if or_none and word == NONE:
            return None
        refusals = []
        for value in values:
            try:
                return value.read(word)
            except (ValueError, KeyError) as refusal:
                refusals.append(refusal)
        raise next((refusal for refusal in refusals if isinstance(refusal, InputError)), refusals[-1])

    def write(of: Any) -> str:
        return NONE if of is None else next(value for value in values if _is_of(of, value)).write(of)

    return Value(
        metavar="|".join(value.metavar for value in values),
        takes=_listed([word for value in values for word in value.choices or [value.takes]]),
        read=read,
        instance=object,
        write=write,
        several=any(value.several for value in values),
        choices=tuple(word for value in values for word in value.choices),
    )


def _is_of(value: Any, kind: Value) -> bool:
    return str(value) in kind.choices if kind.choices else isinstance(value, kind.instance)


def _listed(words: typing.Iterable[str]) -> str:
    *most, last = words
    return f"{', '.join(most)} or {last}" if most else last


def read_word(value: Value, word: str) -> Any:
    """Refused with what is taken instead, and the nearest of few choices."""
    try:
        return value.read(word)
    except InputError:
        raise
    except (ValueError, KeyError):
        near = get_close_matches(word, value.choices, n=1)
        hint = f": did you mean {near[0]!r}?" if near else ""
        raise Unfit(f"takes {value.takes}, got {shown(word)}{hint}") from None


def registry() -> ConstructorRegistry:
    """These rules, as tyro takes them."""
    rules = ConstructorRegistry()

    @rules.primitive_rule
    def one_word(info: PrimitiveTypeInfo) -> PrimitiveConstructorSpec[Any] | None:
        value = value_of(info.type)
        if value is None:
            return None
        return PrimitiveConstructorSpec(
            nargs="*" if value.several else 1,
            metavar=value.metavar,
            instance_from_str=lambda words: read_word(value, ",".join(words)),
            is_instance=lambda instance: isinstance(instance, value.instance),
            str_from_instance=lambda instance: [value.write(instance)],
        )

    @rules.primitive_rule
    def several_words(info: PrimitiveTypeInfo) -> PrimitiveConstructorSpec[Any] | None:
        of, *more = typing.get_args(info.type) or (None,)
        value = value_of(of)
        if info.type_origin is not tuple or more != [...] or value is None or value_of(info.type) is not None:
            return None
        return PrimitiveConstructorSpec(
            nargs="*",
            metavar=f"{value.metavar} ...",
            instance_from_str=lambda words: tuple(read_word(value, word) for word in words),
            is_instance=lambda instance: isinstance(instance, tuple),
            str_from_instance=lambda instance: [value.write(one) for one in instance],
        )

    return rules
