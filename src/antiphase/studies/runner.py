"""Cells that are missing from a ledger are computed, what they need first. One that fails does not stop the others."""

from __future__ import annotations

import os
import platform
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from antiphase import console, runtime
from antiphase.config import to_plain
from antiphase.studies import work
from antiphase.studies.cost import Prices, duration, group, operations
from antiphase.studies.ledger import DiskFull
from antiphase.studies.plan import Cell, ordered
from antiphase.studies.questions import data_of
from antiphase.studies.work import Bench
from antiphase.training.loop import Interrupted

POLL = 0.5  # seconds between looks at cells that another process works on


@dataclass
class Outcome:
    """What became of each cell, by its key."""

    computed: list[str] = field(default_factory=list)
    found: list[str] = field(default_factory=list)  # there already, or finished by another process meanwhile
    failed: dict[str, str] = field(default_factory=dict)  # key -> error
    waiting: list[str] = field(default_factory=list)  # needs one that failed, or data that are not here

    @property
    def settled(self) -> set[str]:
        return {*self.computed, *self.found, *self.failed, *self.waiting}


def run(
    cells: Sequence[Cell],
    bench: Bench,
    absent: dict[str, str] | None = None,
    *,
    answer: Callable[..., Any] | None = None,
) -> Outcome:
    """Do what is missing. `absent` says of data sets that are not here where they were looked for: what needs them waits.

    Of two processes on one ledger each takes cells that the other is not at; every cell is completed once.
    """
    ledger, plan, outcome = bench.ledger, ordered(cells), Outcome()
    compute = answer or work.answer
    rows = [row for row in map(ledger.row, plan) if row is not None]  # a damaged one is named before anything is done
    prices = Prices.learned(rows)
    todo = [cell for cell in plan if not ledger.has(cell)]
    outcome.found = [cell.key for cell in plan if ledger.has(cell)]
    with console.progress("cells", len(plan), len(plan) - len(todo)) as advance:
        while todo:
            before = len(todo)
            for cell in list(todo):
                state = _state(cell, outcome, absent or {})
                if state == "not yet":
                    continue
                if state == "waiting":
                    outcome.waiting.append(cell.key)
                    todo.remove(cell)
                    advance(1, "")
                    continue
                with ledger.held(cell) as mine:
                    if mine:
                        _settle(cell, bench, outcome, compute, prices)
                        todo.remove(cell)
                        _tell(cell, outcome, plan, todo, prices, advance)
            if todo and len(todo) == before:
                time.sleep(POLL)  # another process has what is left
    return outcome


def _state(cell: Cell, outcome: Outcome, absent: dict[str, str]) -> str:
    settled = outcome.settled
    if any(need.key in outcome.failed or need.key in outcome.waiting for need in cell.needs):
        return "waiting"
    if any(data in absent for data in data_of(cell)):
        return "waiting"
    return "ready" if all(need.key in settled for need in cell.needs) else "not yet"


def _settle(cell: Cell, bench: Bench, outcome: Outcome, compute: Callable[..., Any], prices: Prices) -> None:
    """The cell is ours: look again, else compute and file it, else file why not."""
    ledger = bench.ledger
    if ledger.has(cell):
        outcome.found.append(cell.key)
        return
    began, processor = time.perf_counter(), time.process_time()
    wall = datetime.now(UTC).isoformat(timespec="seconds")
    try:
        with ledger.room():
            found = compute(cell, bench)
        seconds = time.perf_counter() - began
        ledger.keep(cell, row_of(cell, bench, found, (seconds, time.process_time() - processor), wall))
    except (DiskFull, Interrupted):
        raise
    except Exception as error:
        told = " ".join(str(error).split()) or type(error).__name__
        ledger.fail(cell, _failure(cell, error, told, wall))
        outcome.failed[cell.key] = told
        return
    prices.see(group(cell), operations(cell), seconds)
    outcome.computed.append(cell.key)


def row_of(cell: Cell, bench: Bench, found: Any, took: tuple[float, float], began: str) -> dict[str, Any]:
    """`took`: seconds by the clock, and of the processors, which a busy machine does not lengthen."""
    return {
        "key": cell.key,
        "kind": cell.kind,
        "title": cell.title,
        "scale": bench.scale,
        "config": to_plain(cell),
        "needs": [need.key for need in cell.needs],
        "answer": found,
        "provenance": {
            "environment": runtime.environment(),
            "machine": {"platform": platform.platform(), "processors": os.cpu_count(), "device": str(bench.device)},
            "seeds": _seeds(cell),
            "data": work.data_fingerprints(cell, bench),
            "began": began,
            "seconds": round(took[0], 3),
            "processor_seconds": round(took[1], 3),
            "operations": operations(cell),
            "group": group(cell),
        },
    }


def _seeds(cell: Cell) -> dict[str, int]:
    training = getattr(getattr(cell, "of", cell), "training", None)  # a published model has none
    seeds = {} if training is None else {"training": training.seed}
    return seeds | ({"draws": cell.seed} if hasattr(cell, "seed") else {})


def _failure(cell: Cell, error: Exception, told: str, began: str) -> dict[str, Any]:
    return {
        "key": cell.key,
        "title": cell.title,
        "config": to_plain(cell),
        "error": told,
        "type": type(error).__name__,
        "traceback": traceback.format_exc(),
        "began": began,
    }


def _tell(
    cell: Cell,
    outcome: Outcome,
    plan: list[Cell],
    todo: list[Cell],
    prices: Prices,
    advance: Callable[[int, str], None],
) -> None:
    left = duration(sum(map(prices.seconds, todo)))
    learned = "" if prices.cells else " (no cell is finished yet)"
    done = len(plan) - len(todo)
    if cell.key in outcome.failed:
        console.say(f"[{done}/{len(plan)}] failed: {cell.title}: {outcome.failed[cell.key]}")
    else:
        elsewhere = " (by another process)" if cell.key in outcome.found else ""
        console.say(f"[{done}/{len(plan)}] {cell.title}{elsewhere}; about {left} left{learned}")
    advance(1, f"about {left} left")
