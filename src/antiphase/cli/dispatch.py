"""Run a command: flags are read by tyro into a typed command, refusals become one sentence, the outcome an exit code.

A command module has `Command` (a dataclass with `defaults(scale)`), `run(command) -> result`, `show(result)` and EXAMPLES;
where it has positional arguments, TAKES (what they are, in words); where its help has more to say, NOTES below the examples;
where a result can be a failure, also `exit_code(result)`.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import sys
import warnings
from collections.abc import Iterable
from difflib import get_close_matches
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from types import ModuleType
from typing import Any

import tyro

from antiphase.cli import COMMANDS
from antiphase.cli.flags import fields_of, marked
from antiphase.cli.values import Unfit, registry
from antiphase.config import InputError
from antiphase.console import all_visible, visible
from antiphase.files import require_text
from antiphase.scales import SCALES

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
    defaults = _defaults(module, argv)
    flags = flags_of(defaults)
    _check_flags(name, argv, flags)
    output, errors = io.StringIO(), io.StringIO()
    try:
        with contextlib.redirect_stderr(errors), contextlib.redirect_stdout(output), registry():
            command, words = tyro.cli(
                module.Command,
                prog=f"antiphase {name}",
                description=f"{COMMANDS[name]}\n\nexamples:\n{module.EXAMPLES}{getattr(module, 'NOTES', '')}",
                default=defaults,
                args=argv,
                config=(tyro.conf.OmitArgPrefixes,),
                return_unknown_args=True,
            )
    except SystemExit as stop:
        if stop.code in (0, None):
            print(output.getvalue(), end="")
            raise
        printed = errors.getvalue() + output.getvalue()
        raise _refusal(stop, printed) or InputError(_sentence(name, module, printed)) from None
    if words:
        raise InputError(_one_more(name, module, words[0], argv, flags))
    return command


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


def flags_of(command: Any) -> dict[str, bool]:
    """The flags of a command with its defaults, and of each whether it takes a value."""
    flags, positional = {}, marked(type(command), tyro.conf.Positional)
    for name, value in fields_of(command):
        if name in positional:
            continue
        flag = f"--{name.replace('_', '-')}"
        flags[flag] = not isinstance(value, bool)
        if isinstance(value, bool) and not name.startswith("no_"):
            flags[f"--no-{flag[2:]}"] = False
    return flags


def _check_flags(name: str, argv: list[str], flags: Iterable[str]) -> None:
    """Refuse one that the command does not have, before anything is said of others that are missing."""
    if {"-h", "--help"} & {*argv}:
        return
    for word in argv:
        flag = word.partition("=")[0].replace("_", "-")
        if flag == "--" or flag.startswith("--tyro-"):
            return
        if flag.startswith("--") and flag not in flags:
            raise InputError(_no_flag(name, word.partition("=")[0], flags))


def _no_flag(name: str, word: str, flags: Iterable[str]) -> str:
    """The flag that was meant is one that begins the same or contains the word's beginning, else one that is spelt alike."""
    meant, known = word.lstrip("-").lower(), sorted(flag[2:] for flag in flags)
    alike = [flag for flag in known if len(flag) > 2 and meant.startswith(flag)]
    alike = alike[-1:] or get_close_matches(meant, known, n=1) or [f for f in known if meant and f.startswith(meant)]
    hint = f"did you mean --{alike[0]}?" if alike else f"see antiphase {name} --help"
    return f"there is no flag {word}: {hint}"


def _one_more(name: str, module: ModuleType, word: str, argv: list[str], flags: dict[str, bool]) -> str:
    """Of a word that nothing takes."""
    if word.startswith("-"):
        return _no_flag(name, word, flags)
    before = argv[argv.index(word) - 1] if word in argv[1:] else ""
    if flags.get(before) is False:
        return f"{before} takes no value, got {word!r}: write it alone"
    takes = getattr(module, "TAKES", None)
    return f"{name} takes {takes}, and {word!r} is one more" if takes else f"{name} takes flags alone, got {word!r}"


def _refusal(stop: BaseException, printed: str) -> InputError | None:
    """Our own refusal behind tyro's exit: of a whole config, or of a word (then what was printed names the flag)."""
    cause: BaseException | None = stop
    while cause is not None:
        if isinstance(cause, InputError):
            return cause
        if isinstance(cause, Unfit):
            flag = re.search(r"Error parsing (\S+):", printed)
            return InputError(f"{flag[1] if flag else 'a flag'} {cause}")
        cause = cause.__context__
    return None


def _sentence(name: str, module: ModuleType, printed: str) -> str:
    """tyro's error message on one line: what is missing, else its first paragraph."""
    lines = [line.strip(" │") for line in printed.splitlines()]
    rules = [i for i, line in enumerate(lines) if line and not line.strip("-─╭╮╰╯")] + [len(lines)]
    paragraphs = [" ".join(filter(None, lines[a + 1 : b])) for a, b in pairwise(rules)]
    message = paragraphs[0] if paragraphs else " ".join(lines)
    if message.startswith("Missing from"):
        return _missing(name, module, message.partition(":")[2])
    if short := re.match(r"Missing value for argument '(\S+)'", message):
        return f"{short[1]} needs a value, and none follows it" if short[1].startswith("-") else _takes(name, module)
    return message or "the flags could not be read; see --help"


def _missing(name: str, module: ModuleType, listed: str) -> str:
    """Of required arguments as tyro lists them, each with its metavar and its help."""
    entries = [entry.strip() for entry in listed.split("(required)") if entry.strip()]
    named = [entry.split(maxsplit=2) for entry in entries if entry.startswith("--")]
    flags = " and ".join(f"{flag}: {about}" for flag, _, about in named)
    return f"{name} needs {flags}" if len(named) == len(entries) else _takes(name, module)


def _takes(name: str, module: ModuleType) -> str:
    """What a command has to be given, by its first example."""
    return f"{name} takes {module.TAKES}, as in {module.EXAMPLES.splitlines()[0].strip()}"
