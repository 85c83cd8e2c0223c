"""What a person sees while something runs. Progress goes to stderr, so stdout stays clean for results."""

from __future__ import annotations

import os
import time
import unicodedata
from collections.abc import Callable, Iterator, Sized
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    Task,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.text import Text

stderr = Console(stderr=True, highlight=False)
stdout = Console(highlight=False)
_speaks = os.environ.get("RANK", "0") == "0"  # under torchrun one process speaks for all
_shown: list[Progress] = []  # the bar on the screen, if there is one
EVERY = 30.0  # seconds between lines about progress where there is no terminal to draw a bar on
_said = [0.0]  # when the last such line was


# ------------------------------------------------------------------------------------------------- names of others


def visible(text: str, keep: str = "") -> str:
    r"""The text on one line, with what would move, colour, hide or reorder it written as an escape: \n, \x1b, \u202e.

    Names of files, classes and models come from anybody. Letters of every script stay as they are, and what `keep` lists.
    """
    if text.isprintable():  # almost always; a space is, no other separator and no mark of direction
        return text
    return "".join(c if c in keep or _is_harmless(c) else c.encode("unicode_escape").decode() for c in text)


def _is_harmless(character: str) -> bool:
    """Printable, or a joiner without which words of some languages are misspelt, or a wide space."""
    return character.isprintable() or character in "\u200c\u200d" or unicodedata.category(character) == "Zs"


def all_visible(value: Any, keep: str = "") -> Any:
    """The same of every string in a result, its keys too."""
    if isinstance(value, str):
        return visible(value, keep)
    if isinstance(value, dict):
        return {all_visible(key, keep): all_visible(part, keep) for key, part in value.items()}
    return type(value)([all_visible(part, keep) for part in value]) if type(value) in (list, tuple) else value


# ------------------------------------------------------------------------------------------------- progress


@contextmanager
def progress(
    label: str, total: int, done: int = 0, *, show: bool = True, paced: bool = True
) -> Iterator[Callable[[int, str], None]]:
    """A bar with the time left; yields `advance(steps, note)`. Inside another one it is a second line below it. `paced`: the
    time left follows from the pace so far; otherwise steps are too unequal for that, and the note says it.

    Where stderr is no terminal (a pipe, a notebook), a plain line every half minute instead.
    """
    if _shown:
        yield from _line(_shown[-1], label, total, done, show, paced)
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        _Left(),
        TextColumn("{task.fields[note]}"),
    )
    with Progress(
        *columns, console=stderr, transient=True, disable=not (show and _speaks and stderr.is_terminal)
    ) as bar:
        _shown.append(bar)
        try:
            yield from _line(bar, label, total, done, show, paced)
        finally:
            _shown.remove(bar)


class _Left(TimeRemainingColumn):
    """The time left by the pace so far, of tasks that have one."""

    def render(self, task: Task) -> Text:
        return Text("left ").append_text(super().render(task)) if task.fields["paced"] else Text()


def _line(
    bar: Progress, label: str, total: int, done: int, show: bool, paced: bool
) -> Iterator[Callable[[int, str], None]]:
    task = bar.add_task(escape(visible(label)), total=total, completed=done, note="", paced=paced)
    began, finished = time.monotonic(), done

    def advance(steps: int = 1, note: str = "") -> None:
        nonlocal finished
        finished += steps
        bar.update(task, advance=steps, note=escape(visible(note)))
        now = time.monotonic()
        if bar.disable and show and now - max(began, _said[0]) > EVERY:
            _said[0] = now
            new = finished - done if paced else 0
            pace = f", about {duration((now - began) / new * (total - finished))} left" if new else ""
            say(f"{label}: {finished} of {total}{pace}" + (f"{'; ' if paced else ', '}{note}" if note else ""))

    try:
        yield advance
    finally:
        bar.remove_task(task)


def say(text: str) -> None:
    """One plain line for the person at the terminal."""
    if _speaks:
        stderr.print(visible(text), markup=False, soft_wrap=True)


@cache
def say_once(text: str) -> None:
    """The same, but no sentence twice in a process."""
    say(text)


# ------------------------------------------------------------------------------------------------- measures.probes


LONG = 60.0  # seconds of work before which its length is announced


@dataclass
class Clock:
    """Says early in a long measurement how long the whole will take and what would be cheaper.

    The first part does not count: libraries load what they need during it. The second does, so parts should be small.
    """

    label: str
    images: Sized
    cheaper: str
    at_most: float = 1.0  # times what is planned, where images that need it take more
    parts: int = 0

    @contextmanager
    def part(self, images: float) -> Iterator[None]:
        """Around the work on so many of the images, all of which take as long."""
        began = time.perf_counter()
        yield
        self.parts += 1
        seconds = (time.perf_counter() - began) * len(self.images) / images * _passes[-1]
        if self.parts == 2 and seconds > LONG:  # never, if it was announced already with an earlier one
            more = f", at most {duration(seconds * self.at_most)}" if self.at_most > 1 else ""
            controls = " with its controls" if _passes[-1] > 1 else ""
            about = f"about {duration(seconds)}{more} for {len(self.images)} images{controls}"
            say(f"{self.label}: {about}; cheaper: fewer images, or {self.cheaper}")
            _passes[-1] = 0 if controls else 1


_passes = [1]  # how many measurements the next one is announced for; 0: they were announced with an earlier one


@contextmanager
def passes(count: int) -> Iterator[None]:
    """Inside, a measurement and its controls, so many in all, which take equally long: the first announces all."""
    _passes.append(count)
    try:
        yield
    finally:
        _passes.pop()


def duration(seconds: float) -> str:
    """As people say it: 40 s, 12 min, 3.4 h, 26 days, 3.0 years."""
    for size, unit in ((31_557_600.0, "years"), (86_400.0, "days"), (3_600.0, "h"), (60.0, "min")):
        if seconds >= 1.5 * size:
            return (
                f"{seconds / size:.0f} {unit}"
                if seconds >= 10 * size or unit == "min"
                else f"{seconds / size:.1f} {unit}"
            )
    return f"{seconds:.0f} s"
