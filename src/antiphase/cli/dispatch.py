"""From words to a typed command and from its outcome to an exit code. tyro reads the flags; refusals become one sentence.

A command module has `Command` (a dataclass with `defaults(scale)`), `run(command) -> result`, `show(result)` and EXAMPLES.
"""

from __future__ import annotations

import contextlib
import io
import json
import sys
import typing
import warnings
from importlib import import_module
from types import ModuleType
from typing import Any

import tyro
from tyro.constructors import ConstructorRegistry, PrimitiveConstructorSpec, PrimitiveTypeInfo

from antiphase.cli import COMMANDS
from antiphase.config import Budget, InputError
from antiphase.models.config import Attention, Differential, Softmax
from antiphase.models.notation import SYNTAX, attention_text, parse_attention
from antiphase.scales import SCALES


def run_command(name: str, argv: list[str]) -> int:
    warnings.filterwarnings("ignore", category=FutureWarning, module="torch.*")  # torch's notes to itself
    module = import_module(f"antiphase.cli.{name}")
    try:
        command = parse(name, module, argv)
        result = module.run(command)
    except InputError as refusal:
        return _fail(name, str(refusal), 2)
    except KeyboardInterrupt:
        return _fail(name, "interrupted; the same command goes on from what is already on disk", 130)
    except RuntimeError as error:  # named by the modules that raise them, which are not imported for a refusal
        if type(error).__name__ == "Interrupted":
            return _fail(name, str(error), 130)
        if type(error).__name__ == "Diverged":
            return _fail(name, str(error), 1)
        raise
    if command.json:
        print(json.dumps(result, allow_nan=False))
    else:
        module.show(result)
    return 0


def _fail(name: str, sentence: str, code: int) -> int:
    print(f"antiphase {name}: {sentence}", file=sys.stderr)
    return code


def parse(name: str, module: ModuleType, argv: list[str]) -> Any:
    """The command that argv names, defaults taken from its scale. --help exits here, as usual."""
    output, errors = io.StringIO(), io.StringIO()
    try:
        with contextlib.redirect_stderr(errors), contextlib.redirect_stdout(output), _registry():
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
        raise InputError(_sentence(stop, errors.getvalue() + output.getvalue())) from None


def _defaults(module: ModuleType, argv: list[str]) -> Any:
    """The command at the scale that argv asks for; without --scale, at smoke."""
    given = _value_of("--scale", argv)
    if given is not None and given not in SCALES:
        raise InputError(f"scale {given!r} is not known: it takes {', '.join(SCALES)}")
    return module.Command.defaults(given or "smoke")


def _value_of(flag: str, argv: list[str]) -> str | None:
    for i, word in enumerate(argv):
        if word == flag and i + 1 < len(argv):
            return argv[i + 1]
        if word.startswith(flag + "="):
            return word.partition("=")[2]
    return None


def _sentence(stop: BaseException, printed: str) -> str:
    """Our own refusal if there is one behind tyro's exit, else the text of its box on one line."""
    cause = stop.__context__
    while cause is not None:
        if isinstance(cause, InputError):
            return str(cause)
        cause = cause.__context__
    lines = [line.strip(" │╭╮╰╯─┃\n") for line in printed.splitlines()]
    words = [line for line in lines if line and line.lower() not in ("parsing error", "value error")]
    return " ".join(words).strip() or "the flags could not be read; see --help"


def _registry() -> ConstructorRegistry:
    """How words become budgets and attentions."""
    registry = ConstructorRegistry()

    @registry.primitive_rule
    def budget(info: PrimitiveTypeInfo) -> PrimitiveConstructorSpec[Budget] | None:
        if info.type is not Budget:
            return None
        return PrimitiveConstructorSpec(
            nargs=1,
            metavar="EPS",
            instance_from_str=lambda words: Budget(words[0]),
            is_instance=lambda value: isinstance(value, Budget),
            str_from_instance=lambda value: [str(value)],
        )

    @registry.primitive_rule
    def attention(info: PrimitiveTypeInfo) -> PrimitiveConstructorSpec[Attention] | None:
        if set(typing.get_args(info.type)) != {Softmax, Differential}:
            return None
        return PrimitiveConstructorSpec(
            nargs=1,
            metavar=SYNTAX,
            instance_from_str=lambda words: parse_attention(words[0]),
            is_instance=lambda value: isinstance(value, Softmax | Differential),
            str_from_instance=lambda value: [attention_text(value)],
        )

    return registry
