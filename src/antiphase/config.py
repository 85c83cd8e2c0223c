"""Configs as data: dataclass <-> plain values, pixel budgets written "4/255", and the fingerprint of a config.

Nothing here imports torch, so a bad value is refused before the slow imports begin.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import math
import types
import typing
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import yaml

T = TypeVar("T")


class InputError(ValueError):
    """Something the user gave cannot be used. The message is one sentence: the value, the rule and, if short, the fix."""


class Budget(float):
    """A perturbation size in pixel units ([0,1]); `Budget("4/255")` reads the usual notation."""

    def __new__(cls, value: str | float) -> Budget:
        try:
            if isinstance(value, str) and "/" in value:
                over, under = value.split("/")
                number = float(over) / float(under)
            else:
                number = float(value)
        except (ValueError, ZeroDivisionError):
            raise InputError(
                f"{value!r} is not a budget: write a number such as 0.03 or a fraction such as 4/255"
            ) from None
        if not 0 <= number < float("inf"):  # NaN fails both comparisons
            raise InputError(f"a budget is a finite number >= 0, got {value!r}")
        return super().__new__(cls, number)

    def __str__(self) -> str:
        """In 255ths where that is short ("0.5/255"), else as a number."""
        if not self:
            return "0"
        in_255ths = float(self) * 255
        short = f"{in_255ths:.6g}"
        return f"{short}/255" if len(short) <= 5 else f"{float(self):.6g}"


class Names(tuple[str, ...]):
    """Several names, which the command line takes as one word: `Names("sign,pgd")`."""

    def __new__(cls, value: str | Iterable[str] = ()) -> Names:
        names = value.split(",") if isinstance(value, str) else value
        return super().__new__(cls, [name.strip() for name in names if name.strip()])

    def __str__(self) -> str:
        return ",".join(self)


def check_fields(config: Any, /, **least: float) -> None:
    """Every number of a config is finite, and no named one is below its least value."""
    for field in dataclasses.fields(config):
        value = getattr(config, field.name)
        if isinstance(value, float) and not math.isfinite(value):
            raise InputError(f"{field.name}={value} must be a finite number")
    for name, minimum in least.items():
        value = getattr(config, name)
        if value is not None and value < minimum:
            raise InputError(f"{name}={value} must be at least {minimum:g}")


def stored_name(field: dataclasses.Field[Any]) -> str:
    """The name of a field in plain values, and so in files and keys: its own, or the one it had before it was renamed.

    A renamed field is declared with `field(default=..., metadata={"stored": "former_name"})`.
    """
    return str(field.metadata.get("stored", field.name))


def to_plain(value: Any) -> Any:
    """Dataclasses become mappings tagged with their class name under "kind", tuples lists, paths strings."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        plain = {stored_name(f): to_plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
        return {"kind": type(value).__name__, **plain}
    if isinstance(value, Mapping):
        return {str(k): to_plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [to_plain(v) for v in value]
    if isinstance(value, Path):
        return str(value)
    return float(value) if isinstance(value, Budget) else value


def from_plain(kind: type[T], plain: Any, where: str = "config") -> T:
    """The inverse of `to_plain` for the type `kind`; unknown keys and misfits are refused by name."""
    value: T = _read(kind, plain, where)
    return value


def _read(hint: Any, plain: Any, where: str) -> Any:
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if origin is typing.Annotated:
        return _read(args[0], plain, where)
    if origin in (typing.Union, types.UnionType):
        return _read_union(args, plain, where)
    if origin is typing.Literal:
        if plain not in args:
            raise InputError(f"{where} is {plain!r}; it takes {', '.join(map(str, args))}")
        return plain
    if origin is tuple and isinstance(plain, str | int | float):
        plain = plain.split(",") if isinstance(plain, str) else [plain]
    if origin is tuple and isinstance(plain, list | tuple):
        return tuple(_read(args[0], v, f"{where}[{i}]") for i, v in enumerate(plain))
    if dataclasses.is_dataclass(hint) and isinstance(hint, type) and isinstance(plain, Mapping):
        return _read_dataclass(hint, plain, where)
    if hint is Budget and isinstance(plain, int | float | str):
        return Budget(plain)
    if hint is Names and isinstance(plain, str | list | tuple):
        return Names(plain)
    if hint is Path and isinstance(plain, str):
        return Path(plain)
    if hint is float and isinstance(plain, int | float | str) and not isinstance(plain, bool):
        with contextlib.suppress(ValueError):  # YAML reads 5e-4 as a word
            return float(plain)
    if isinstance(hint, type) and isinstance(plain, hint) and (hint is bool or not isinstance(plain, bool)):
        return plain
    raise InputError(f"{where} is {plain!r}, which is not a {getattr(hint, '__name__', hint)}")


def _read_union(members: tuple[Any, ...], plain: Any, where: str) -> Any:
    if plain is None and type(None) in members:
        return None
    if isinstance(plain, Mapping) and "kind" in plain:  # a tagged dataclass picks its own member
        named = [m for m in members if getattr(m, "__name__", None) == plain["kind"]]
        if not named:
            kinds = ", ".join(m.__name__ for m in members if dataclasses.is_dataclass(m) and isinstance(m, type))
            raise InputError(f"{where} has kind {plain['kind']!r}; it takes {kinds}")
        return _read(named[0], plain, where)
    if len(given := [member for member in members if member is not type(None)]) == 1:
        return _read(given[0], plain, where)
    for member in members:
        try:
            return _read(member, plain, where)
        except InputError:
            continue
    raise InputError(
        f"{where} is {plain!r}, which fits none of {', '.join(getattr(m, '__name__', str(m)) for m in members)}"
    )


def _read_dataclass(hint: type[Any], plain: Mapping[str, Any], where: str) -> Any:
    hints = typing.get_type_hints(hint, include_extras=True)
    fields = dataclasses.fields(hint)
    names = {f.name: f.name for f in fields} | {stored_name(f): f.name for f in fields}  # a renamed field has two
    unknown = set(plain) - set(names) - {"kind"}
    if unknown:
        known = ", ".join(sorted(f.name for f in fields))
        raise InputError(f"{where} has no field {sorted(unknown)[0]!r}; it takes {known}")
    values = {names[k]: _read(hints[names[k]], v, f"{where}.{k}") for k, v in plain.items() if k != "kind"}
    return hint(**values)


def read_yaml(path: Path) -> dict[str, Any]:
    """The sections of a YAML (or JSON) file."""
    try:
        plain = yaml.safe_load(path.read_text())
    except OSError as error:
        raise InputError(f"cannot read the config {path}: {error.strerror}") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise InputError(f"{path} is not YAML: {' '.join(str(error).split())}") from None
    if not isinstance(plain, dict):
        raise InputError(f"{path} is not a config: it holds no sections such as 'model:'")
    return plain


def overlaid(config: T, plain: Any, where: str) -> T:
    """The config with the fields that `plain` names set anew."""
    if not isinstance(plain, dict):
        raise InputError(f"{where} is {plain!r}, not a list of fields")
    return from_plain(type(config), {**to_plain(config), **plain}, where)


def dump_yaml(value: Any) -> str:
    return yaml.safe_dump(to_plain(value), sort_keys=False)


def fingerprint(value: Any) -> str:
    """Twelve hex digits that change when any value in the config changes, and only then."""
    canonical = json.dumps(to_plain(value), sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()[:12]
