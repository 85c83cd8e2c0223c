"""Run a command: flags are read by tyro into a typed command, refusals become one sentence, the outcome an exit code.

A command module has `Command` (a dataclass with `defaults(scale)`), `run(command) -> result`, `show(result)` and EXAMPLES;
where a result can be a failure, also `exit_code(result)`.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import sys
import types
import typing
import warnings
from collections.abc import Callable
from difflib import get_close_matches
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import tyro
from tyro.constructors import ConstructorRegistry, PrimitiveConstructorSpec, PrimitiveTypeInfo

from antiphase.cli import COMMANDS
from antiphase.config import Budget, InputError, Names
from antiphase.console import all_visible, visible
from antiphase.files import require_text
from antiphase.models.attention_syntax import SYNTAX, attention_text, parse_attention
from antiphase.models.config import Attention
from antiphase.scales import SCALES
from antiphase.training import penalty_syntax
from antiphase.training.config import Penalty

NO_MEMORY = "this needs more memory than there is: choose a smaller model, smaller images or a smaller batch"
SHARED = ("attack", "measure", "eval", "audit")  # by the processes that torchrun started
RENAMED = {"--runs": "--restarts"}  # flags by their former names, which are still accepted


def run_command(name: str, argv: list[str]) -> int:
    """Run a command with these flags, print its result, and return the exit code."""
    warnings.filterwarnings("ignore", category=FutureWarning, module="torch.*")  # for the developers of torch
    module = import_module(f"antiphase.cli.{name.replace('-', '_')}")
    try:
        for word in (*argv, os.getcwd()):  # noqa: PTH109 - what is written and shown later must be text
            require_text(word)
        command = parse(name, module, argv)
        with _several(name):
            result = module.run(command)
        if os.environ.get("RANK", "0") == "0":  # under torchrun one process speaks for all
            _print_result(module, command, result)
    except InputError as refusal:
        return _fail(name, str(refusal), 2)
    except BrokenPipeError:  # the reader of a pipe has closed it
        sys.stdout = open(os.devnull, "w")  # noqa: PTH123, SIM115
        return 0
    except OSError as error:
        return _fail(name, f"{error.filename or 'a file'}: {error.strerror or error}", 2)
    except KeyboardInterrupt:
        return _fail(name, "interrupted; the same command goes on from what is already on disk", 130)
    except MemoryError:
        return _fail(name, NO_MEMORY, 2)
    except RuntimeError as error:  # compared by name: the modules that define them need torch
        if type(error).__name__ == "Interrupted":
            return _fail(name, str(error), 130)
        if type(error).__name__ == "Diverged":
            return _fail(name, str(error), 1)
        if "allocate memory" in str(error) or type(error).__name__ == "OutOfMemoryError":
            return _fail(name, NO_MEMORY, 2)
        raise
    return int(module.exit_code(result)) if hasattr(module, "exit_code") else 0


def _several(name: str) -> contextlib.AbstractContextManager[Any]:
    """The processes that torchrun started, where a command shares its work among them; a training joins them itself."""
    if os.environ.get("WORLD_SIZE", "1") == "1" or name in ("train", "train-clip"):
        return contextlib.nullcontext()
    if name not in SHARED:
        instead = "study run --workers 2, or --shard 1/2" if name == "study" else "start it without torchrun"
        raise InputError(f"{name} takes one process, and torchrun started several: {instead}")
    from antiphase.processes import join

    return join()


def _print_result(module: ModuleType, command: Any, result: Any) -> None:
    if command.json:
        print(json.dumps(result, allow_nan=False))
    else:
        module.show(all_visible(result))
    sys.stdout.flush()  # a closed pipe is noticed here and not at exit


def _fail(name: str, sentence: str, code: int) -> int:
    print(f"antiphase {name}: {visible(sentence)}", file=sys.stderr)
    return code


def parse(name: str, module: ModuleType, argv: list[str]) -> Any:
    """The command that argv names, defaults taken from its scale. --help exits here, as usual."""
    argv = [_present_name(word) for word in argv]
    output, errors = io.StringIO(), io.StringIO()
    refusals: list[InputError] = []
    try:
        with contextlib.redirect_stderr(errors), contextlib.redirect_stdout(output), _registry(refusals):
            return tyro.cli(
                module.Command,
                prog=f"antiphase {name}",
                description=f"{COMMANDS[name]}\n\nexamples:\n{module.EXAMPLES}",
                default=_defaults(module, argv),
                args=argv,
                config=(tyro.conf.OmitArgPrefixes,),
            )
    except SystemExit as stop:
        if stop.code in (0, None):
            print(output.getvalue(), end="")
            raise
        raise _refusal(stop, refusals) or InputError(_sentence(errors.getvalue() + output.getvalue())) from None


def _present_name(word: str) -> str:
    flag, equals, value = word.partition("=")
    return RENAMED.get(flag, flag) + equals + value


def _defaults(module: ModuleType, argv: list[str]) -> Any:
    """The command at the scale that argv asks for (without --scale, at smoke), with its config file laid over it."""
    scale = _value_of("--scale", argv)
    if scale is not None and scale not in SCALES:
        near = get_close_matches(scale, SCALES, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"it takes {', '.join(SCALES)}"
        raise InputError(f"scale {scale!r} is not known: {hint}")
    command, file, pairs = (
        module.Command.defaults(scale or "smoke"),
        _value_of("--config", argv),
        _value_of("--pairs", argv),
    )
    if "--quick" in argv and hasattr(command, "at_quick"):
        command = command.at_quick()
    if pairs and hasattr(command, "with_pairs"):
        command = command.with_pairs(pairs)
    return command.with_file(Path(file)) if file and hasattr(command, "with_file") else command


def _value_of(flag: str, argv: list[str]) -> str | None:
    """The last value of a flag, as the parser takes it too."""
    value = None
    for word, following in zip(argv, [*argv[1:], None]):
        if word == flag:
            value = following
        elif word.startswith(flag + "="):
            value = word.partition("=")[2]
    return value


def _refusal(stop: BaseException, refusals: list[InputError]) -> InputError | None:
    """Our own refusal behind tyro's exit: of a word, or of a whole config (then it hangs on the exit as its context)."""
    cause: BaseException | None = stop
    while cause is not None and not refusals:
        if isinstance(cause, InputError):
            return cause
        cause = cause.__context__
    return refusals[0] if refusals else None


def _sentence(printed: str) -> str:
    """tyro's error message on one line: its first paragraph and, for a misspelt flag, the flag that was meant."""
    lines = [line.strip(" │") for line in printed.splitlines()]
    rules = [i for i, line in enumerate(lines) if line and not line.strip("-─╭╮╰╯")] + [len(lines)]
    paragraphs = [" ".join(filter(None, lines[a + 1 : b])) for a, b in pairwise(rules)]
    message = paragraphs[0] if paragraphs else " ".join(lines)
    meant = [p.split()[3] for p in paragraphs if p.startswith("Perhaps you meant: --")]
    return message + (f": did you mean {meant[0]}?" if meant else "") or "the flags could not be read; see --help"


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


class Word(NamedTuple):
    """A type that the command line takes as one word, so that a positional argument may follow it."""

    is_type: Callable[[Any], bool]
    metavar: str
    read: Callable[[str], Any]
    instance: type | types.UnionType
    write: Callable[[Any], str] = str
    several: bool = False  # or as several words, if no positional argument follows


WORDS = (
    Word(lambda kind: kind is Budget, "EPS", Budget, Budget),
    Word(
        lambda kind: kind == tuple[Budget, ...],
        "EPS[,EPS...]",
        lambda word: tuple(map(Budget, word.split(","))),
        tuple,
        lambda value: ",".join(map(str, value)),
    ),
    Word(
        lambda kind: kind == tuple[int, ...],
        "N[,N...]",
        _whole_numbers,
        tuple,
        lambda value: ",".join(map(str, value)),
    ),
    Word(
        lambda kind: kind == tuple[float, ...],
        "X[,X...]",
        _numbers,
        tuple,
        lambda value: ",".join(f"{number:g}" for number in value),
        several=True,
    ),
    Word(lambda kind: kind is Names, "NAME[,NAME...]", Names, Names),
    Word(
        lambda kind: set(typing.get_args(kind)) == set(typing.get_args(Attention)),
        SYNTAX,
        parse_attention,
        Attention,
        attention_text,
    ),
    Word(
        lambda kind: set(typing.get_args(kind)) == {Penalty, types.NoneType},
        penalty_syntax.SYNTAX,
        penalty_syntax.parse_penalty,
        Penalty | types.NoneType,
        penalty_syntax.penalty_text,
    ),
)


def _registry(refusals: list[InputError]) -> ConstructorRegistry:
    """How tyro reads such words. It tries alternatives and drops their messages, so refusals are kept here."""
    registry = ConstructorRegistry()

    def keeping_refusals(read: Callable[[str], Any]) -> Callable[[list[str]], Any]:
        def instance(words: list[str]) -> Any:
            try:
                return read(",".join(words))
            except InputError as refusal:
                refusals.append(refusal)
                raise

        return instance

    @registry.primitive_rule
    def one_word(info: PrimitiveTypeInfo) -> PrimitiveConstructorSpec[Any] | None:
        for word in WORDS:
            if word.is_type(info.type):
                return PrimitiveConstructorSpec(
                    nargs="*" if word.several else 1,
                    metavar=word.metavar,
                    instance_from_str=keeping_refusals(word.read),
                    is_instance=lambda value, word=word: isinstance(value, word.instance),  # type: ignore[misc]
                    str_from_instance=lambda value, word=word: [word.write(value)],  # type: ignore[misc]
                )
        return None

    return registry
