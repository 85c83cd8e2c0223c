"""Configs as data: dataclass <-> plain values, pixel budgets written "4/255", and the fingerprint of a config.

Nothing here imports torch, so a bad value is refused before the slow imports begin.
"""

from __future__ import annotations

import contextlib
import dataclasses
import difflib
import functools
import hashlib
import inspect
import json
import math
import numbers
import reprlib
import stat
import types
import typing
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeVar, cast

import yaml

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])


class InputError(ValueError):
    """Something the user gave cannot be used. The message is one sentence: the value, the rule and, if short, the fix."""


LARGEST_INTEGER = 2**53  # up to here whole numbers are the same in JSON, floats and every library


class _Short(reprlib.Repr):
    """`repr` with bounds on everything."""

    def __init__(self) -> None:
        super().__init__()
        self.maxlevel, self.maxdict, self.maxlist, self.maxtuple = 3, 6, 8, 8
        self.maxstring, self.maxlong, self.maxother = 200, 40, 200

    def repr_int(self, x: int, level: int) -> str:
        return super().repr_int(x, level) if x.bit_length() < 4096 else "a number of thousands of digits"


_short = _Short()


def shown(value: Any) -> str:
    """A value as a refusal shows it: on one line, and short however large or deep it is."""
    return " ".join(_short.repr(value).split())


class Budget(float):
    """A perturbation size in pixel units ([0,1]); `Budget("4/255")` reads the usual notation."""

    def __new__(cls, value: str | float) -> Budget:
        try:
            if isinstance(value, bool):
                raise TypeError
            if isinstance(value, str) and "/" in value:
                over, under = value.split("/")
                number = float(over) / float(under)
            else:
                number = float(value)
        except (ValueError, TypeError, ZeroDivisionError, OverflowError):
            raise InputError(
                f"{shown(value)} is not a budget: write a number such as 0.03 or a fraction such as 4/255"
            ) from None
        if not 0 <= number < float("inf"):  # NaN fails both comparisons
            raise InputError(f"a budget is a finite number >= 0, got {shown(value)}")
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


def split_options(text: str, what: str) -> tuple[str, dict[str, str]]:
    """A word of the command line that has options, "kind:key=value,...": its kind, and the options as they were written."""
    kind, _, options = text.partition(":")
    written = {}
    for option in filter(None, options.split(",")):
        key, equals, value = option.partition("=")
        if not equals:
            raise InputError(f"{what} option {option!r} needs a value: write {key}=...")
        written[key] = value
    return kind, written


def check_fields(config: Any, /, **least: float) -> None:
    """Every field of a config has its type, every number is finite, and no named one is below its least value."""
    kind: Any = type(config)
    for name, hint in _typed_fields(kind):
        value = getattr(config, name)
        origin = type(value).__module__
        if not origin.startswith("tyro"):  # "not given yet"
            check_value(name, value, hint)
        if origin == "numpy" and isinstance(value, numbers.Real):  # which JSON does not take
            value = int(value) if isinstance(value, numbers.Integral) else float(value)
            object.__setattr__(config, name, value)
    for name, minimum in least.items():
        _check_least(name, getattr(config, name), minimum)


def check_value(name: str, value: Any, kind: Any, least: float | None = None) -> None:
    """Refuse, by its name, a value that is not of its type, a number that is not finite, and one below its least value."""
    if type(value) is not kind and not fits(value, kind):
        raise InputError(f"{name}={shown(value)} must be {words(kind)}")
    if isinstance(value, int) and abs(value) > LARGEST_INTEGER:
        raise InputError(f"{name}={shown(value)} must be at most 2**53")
    if isinstance(value, numbers.Real) and not math.isfinite(value):
        raise InputError(f"{name}={value} must be a finite number")
    if least is not None:
        _check_least(name, value, least)


def _check_least(name: str, value: Any, least: float) -> None:
    if value is not None and value < least:
        raise InputError(f"{name}={value} must be at least {least:g}")


def named_arguments(kind: type[T]) -> type[T]:
    """Of a config class: arguments that it does not take are refused in a sentence with those that it does take."""
    made: Callable[..., None] = kind.__init__
    takes = inspect.signature(kind)

    @functools.wraps(made)
    def begin(self: T, *args: Any, **named: Any) -> None:
        try:
            made(self, *args, **named)
        except TypeError:
            try:
                takes.bind(*args, **named)
            except TypeError as error:
                raise InputError(_not_taken(kind, error, named)) from None
            raise

    changed: Any = kind
    changed.__init__ = begin
    return kind


def _not_taken(kind: type, error: TypeError, named: Mapping[str, Any]) -> str:
    fields = [field.name for field in dataclasses.fields(kind)]
    unknown = next((name for name in named if name not in fields), None)
    if unknown is None:  # one that is missing, or given without its name
        said = (
            "every argument by its name"
            if "positional" in str(error)
            else f"its {str(error).partition('argument: ')[2]}"
        )
        return f"{kind.__name__} needs {said}: it takes {', '.join(fields)}"
    near = difflib.get_close_matches(unknown, fields, n=1)
    remedy = f": did you mean {near[0]}?" if near else f": it takes {', '.join(fields)}"
    if unknown in ("eps", "norm") and "within" in fields:
        remedy = ": the budget is part of the threat model, within=ap.Linf('8/255') or ap.L2(0.5)"
    return f"{kind.__name__} has no argument {unknown!r}{remedy}"


def checked_arguments(**least: float) -> Callable[[F], F]:
    """Of a function: `check_value` of every argument, by the types that the function declares and these least values."""

    def around(function: F) -> F:
        signature = inspect.signature(function)

        @functools.wraps(function)
        def entered(*args: Any, **named: Any) -> Any:
            kinds = _typed_arguments(function)
            for name, given in signature.bind(*args, **named).arguments.items():
                way = signature.parameters[name].kind
                if way is not inspect.Parameter.VAR_KEYWORD:
                    for value in given if way is inspect.Parameter.VAR_POSITIONAL else (given,):
                        check_value(name, value, kinds.get(name, Any), least.get(name))
            return function(*args, **named)

        return cast(F, entered)

    return around


@lru_cache(maxsize=1_000)
def _typed_arguments(function: Any) -> dict[str, Any]:
    """The types of its arguments, listed once; any type where it is known to a type checker alone."""
    arguments = {name: said for name, said in function.__annotations__.items() if name != "return"}
    known = inspect.unwrap(function).__globals__
    try:
        return typing.get_type_hints(types.SimpleNamespace(__annotations__=arguments), known)
    except NameError:
        return {}


def check_most(config: Any, /, **most: int) -> None:
    """No named number of a config is above its largest value: beyond it nothing could be built, or even listed."""
    for name, maximum in most.items():
        value = getattr(config, name)
        if value is not None and value > maximum:
            raise InputError(f"{name}={shown(value)} must be at most {maximum:,}")


@lru_cache(maxsize=1_000)
def _typed_fields(config: Any) -> tuple[tuple[str, Any], ...]:
    """The names and types of its fields, listed once; any type where it is known to a type checker alone."""
    try:
        hints = typing.get_type_hints(config)
    except NameError:
        hints = {}
    return tuple((field.name, hints.get(field.name, Any)) for field in dataclasses.fields(config))


@lru_cache(maxsize=1_000)
def _parts(kind: Any) -> tuple[Any, tuple[Any, ...]]:
    """What a type is made of, of every type once: configs are made by the thousand."""
    return typing.get_origin(kind), typing.get_args(kind)


def fits(value: Any, kind: Any, *, plain: bool = False) -> bool:
    """Whether a value has this type; a whole number serves for a fraction, a boolean for neither, a text for a path. `plain`: as
    JSON has it, where tuples are lists."""
    if isinstance(kind, TypeVar) or kind is Any:
        return True
    origin, args = _parts(kind)
    if origin in (types.UnionType, typing.Union):
        return (not plain and type(value) in args) or any(fits(value, one, plain=plain) for one in args)
    if origin is typing.Literal:
        return any(type(value) is type(one) and value == one for one in args)
    if origin is list:
        return isinstance(value, list) and all(fits(v, args[0], plain=plain) for v in value)
    if origin is tuple:
        kinds = [args[0]] * len(value) if args[1:] == (...,) and isinstance(value, list | tuple) else args
        of = isinstance(value, list if plain else tuple) and len(value) == len(kinds)
        return of and all(fits(v, one, plain=plain) for v, one in zip(value, kinds))
    if origin is dict:
        return isinstance(value, dict) and all(fits(v, args[1], plain=plain) for v in value.values())
    if kind is int:
        whole = isinstance(value, int) or (not plain and isinstance(value, numbers.Integral))
        return whole and not isinstance(value, bool) and (not plain or abs(value) <= LARGEST_INTEGER)
    if kind is float:
        real = isinstance(value, numbers.Real) and not isinstance(value, bool)
        return real and (not plain or isinstance(value, float) or abs(value) <= LARGEST_INTEGER)
    if kind is Path:
        return isinstance(value, Path | str)
    if kind is Budget:  # "4/255" is one
        return isinstance(value, str) or fits(value, float)
    if kind is Names:
        return isinstance(value, str) or fits(value, tuple[str, ...] | list[str])
    if isinstance(kind, type):
        return isinstance(value, kind)
    return value is None if kind is None else True


def words(kind: Any) -> str:
    """A type as a refusal names it."""
    names = {
        str: "a text",
        int: "a whole number",
        float: "a number",
        bool: "true or false",
        types.NoneType: "null",
        Path: "a path",
    }
    if kind in names:
        return names[kind]
    origin, args = typing.get_origin(kind), typing.get_args(kind)
    if origin in (types.UnionType, typing.Union):
        return " or ".join(map(words, args))
    if origin is typing.Literal:
        return "one of " + ", ".join(map(str, args))
    if origin is dict:
        return "a mapping" if args[1] is Any else f"a mapping to {words(args[1])} each"
    if origin is list or (origin is tuple and args[1:] == (...,)):
        return f"a {origin.__name__} with {words(args[0])} each"
    if origin is tuple:
        return f"{len(args)} values: {', '.join(map(words, args))}"
    return str(getattr(kind, "__name__", kind))


def stored_name(field: dataclasses.Field[Any]) -> str:
    """The name of a field in plain values, and so in files and keys: its own, or the one it had before it was renamed.

    A renamed field is declared with `field(default=..., metadata={"stored": "former_name"})`.
    """
    return str(field.metadata.get("stored", field.name))


def to_plain(value: Any) -> Any:
    """Dataclasses become mappings tagged with their class name under "kind", tuples lists, paths strings. A large one
    may stand there by its key (`Keyed.named_by_key`)."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        if getattr(value, "named_by_key", False):
            return {"kind": type(value).__name__, "key": getattr(value, "key")}  # noqa: B009 - of what store.py calls Keyed
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
            raise InputError(f"{where} is {shown(plain)}; it takes {', '.join(map(str, args))}")
        return plain
    if origin is tuple and isinstance(plain, str | int | float):
        plain = plain.split(",") if isinstance(plain, str) else [plain]
    if origin is tuple and isinstance(plain, list | tuple):
        each = args[:1] * len(plain) if args[-1] is Ellipsis else args
        if len(each) != len(plain):
            raise InputError(f"{where} has {len(plain)} values, not {len(each)}")
        return tuple(_read(hint, v, f"{where}[{i}]") for i, (hint, v) in enumerate(zip(each, plain)))
    if dataclasses.is_dataclass(hint) and isinstance(hint, type) and isinstance(plain, Mapping):
        return _read_dataclass(hint, plain, where)
    if hint is Budget and isinstance(plain, int | float | str):
        return Budget(plain)
    if hint is Names and (
        isinstance(plain, str) or (isinstance(plain, list | tuple) and all(isinstance(v, str) for v in plain))
    ):
        return Names(plain)
    if hint is Path and isinstance(plain, str):
        return Path(plain)
    if hint is float and isinstance(plain, int | float | str) and not isinstance(plain, bool):
        with contextlib.suppress(ValueError, OverflowError):  # YAML reads 5e-4 as a word
            return float(plain)
    if isinstance(plain, int) and abs(plain) > LARGEST_INTEGER:
        raise InputError(f"{where} is {shown(plain)}, which is beyond any size here")
    if isinstance(hint, type) and isinstance(plain, hint) and (hint is bool or not isinstance(plain, bool)):
        return plain
    raise InputError(f"{where} is {shown(plain)}, which is not a {getattr(hint, '__name__', hint)}")


def _read_union(members: tuple[Any, ...], plain: Any, where: str) -> Any:
    if plain is None and type(None) in members:
        return None
    if isinstance(plain, Mapping) and "kind" in plain:  # a tagged dataclass picks its own member
        named = [m for m in members if getattr(m, "__name__", None) == plain["kind"]]
        if not named:
            kinds = ", ".join(m.__name__ for m in members if dataclasses.is_dataclass(m) and isinstance(m, type))
            raise InputError(f"{where} has kind {shown(plain['kind'])}; it takes {kinds}")
        return _read(named[0], plain, where)
    if len(given := [member for member in members if member is not type(None)]) == 1:
        return _read(given[0], plain, where)
    for member in members:
        try:
            return _read(member, plain, where)
        except InputError:
            continue
    raise InputError(
        f"{where} is {shown(plain)}, which fits none of {', '.join(getattr(m, '__name__', str(m)) for m in members)}"
    )


def _read_dataclass(hint: type[Any], plain: Mapping[str, Any], where: str) -> Any:
    hints = typing.get_type_hints(hint, include_extras=True)
    fields = dataclasses.fields(hint)
    names = {f.name: f.name for f in fields} | {stored_name(f): f.name for f in fields}  # a renamed field has two
    unknown = [key for key in plain if key not in names and key != "kind"]
    if unknown:
        known = ", ".join(sorted(f.name for f in fields))
        raise InputError(f"{where} has no field {shown(min(unknown, key=str))}; it takes {known}")
    values = {names[k]: _read(hints[names[k]], v, f"{where}.{k}") for k, v in plain.items() if k != "kind"}
    without = (dataclasses.MISSING, dataclasses.MISSING)
    for field in fields:
        if field.name not in values and (field.default, field.default_factory) == without:
            raise InputError(f"{where} does not say {field.name}: it was altered or is something else")
    return hint(**values)


# ------------------------------------------------------------------------------------------------- files that others wrote


def read_text(path: Path, what: str = "") -> str:
    """The text of a file; a FIFO or a device, which might never end, bytes that are no text and no file at all are refused.

    `what` it is goes into the refusal.
    """
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            raise InputError(f"{what}{path} is not a regular file: it is a folder, a pipe or a device")
        return path.read_text(encoding="utf-8")
    except InputError:
        raise
    except UnicodeDecodeError:
        raise InputError(f"{what}{path} is not a text file in UTF-8") from None
    except OSError as error:
        raise InputError(f"{what}{path} cannot be read: {error.strerror}") from None
    except ValueError:  # a zero byte in the name
        raise InputError(f"{what}{shown(str(path))} is no name of a file") from None


def parse_json(text: str, where: object) -> Any:
    """The value of a JSON text, in which numbers are finite and strings are text; anything else is refused."""

    def refuse(constant: str) -> Any:
        raise InputError(f"{where} holds {constant}, which is no number of JSON")

    try:
        value = json.loads(text, parse_constant=refuse)
        half = ("\\ud" in text or "\\uD" in text) and has_surrogates(value)
    except RecursionError:
        raise InputError(f"{where} is nested too deeply to be read") from None
    except InputError:
        raise
    except ValueError as error:  # a JSONDecodeError, or a number of thousands of digits
        raise InputError(f"{where} is not valid JSON ({error}); restore it or delete it and run again") from None
    if half:
        raise InputError(f"{where} holds half a character (a lone surrogate), which no text may")
    return value


def has_surrogates(value: Any) -> bool:
    """Whether a string in here is no text: half a character, as in a file name that is not UTF-8."""
    if isinstance(value, str):
        return not value.isascii() and any("\ud800" <= c <= "\udfff" for c in value)
    if isinstance(value, dict):
        return any(has_surrogates(k) or has_surrogates(v) for k, v in value.items())
    return isinstance(value, list | tuple) and any(map(has_surrogates, value))


def read_yaml(path: Path) -> dict[str, Any]:
    """The sections of a YAML (or JSON) file."""
    text = read_text(path, "the config ")
    try:
        plain = yaml.safe_load(text)
    except RecursionError:
        raise InputError(f"{path} is nested too deeply to be read") from None
    except (yaml.YAMLError, ValueError, TypeError, OverflowError) as error:  # also numbers and dates that are none
        raise InputError(f"{path} is not YAML: {' '.join(str(error).split())[:300]}") from None
    if not isinstance(plain, dict) or not plain:
        raise InputError(f"{path} is not a config: it holds no sections such as 'model:'")
    _check_expanded(plain, path)
    return plain


LARGEST_CONFIG = 100_000  # values in a config file, where an alias counts as often as it is used


def _check_expanded(plain: Any, path: Path) -> None:
    """Refuse keys that are no words, values that contain themselves, and aliases that stand for more than anyone wrote."""
    sizes: dict[int, int] = {}
    within: set[int] = set()

    def size(value: Any) -> int:
        if not isinstance(value, dict | list | tuple | set):
            return 1
        if id(value) in within:
            raise InputError(f"{path} contains itself: an alias stands inside what it names")
        if id(value) not in sizes:
            within.add(id(value))
            if isinstance(value, dict):
                for key in value:
                    if not isinstance(key, str):
                        raise InputError(f"{path} has the key {shown(key)}: keys are words; put it in quotes")
            parts = value.values() if isinstance(value, dict) else value
            sizes[id(value)] = 1 + sum(map(size, parts))
            within.discard(id(value))
        return sizes[id(value)]

    if size(plain) > LARGEST_CONFIG:
        raise InputError(f"{path} stands for more than {LARGEST_CONFIG:,} values once its aliases are written out")
    if has_surrogates(plain):
        raise InputError(f"{path} holds half a character (a lone surrogate), which no text may")


def overlaid(config: T, plain: Any, where: str) -> T:
    """The config with the fields that `plain` names set anew."""
    if not isinstance(plain, dict):
        raise InputError(f"{where} is {shown(plain)}, not a list of fields")
    return from_plain(type(config), {**to_plain(config), **plain}, where)


def dump_yaml(value: Any) -> str:
    return yaml.safe_dump(to_plain(value), sort_keys=False)


def fingerprint(value: Any) -> str:
    """Twelve hex digits that change when any value in the config changes, and only then."""
    return fingerprint_of_plain(to_plain(value))


def fingerprint_of_plain(plain: Any) -> str:
    """The same of plain values."""
    canonical = json.dumps(plain, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()[:12]
