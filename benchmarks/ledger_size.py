"""python -m benchmarks.ledger_size [ROWS] [LEDGER]: what a ledger of many rows takes to list and to draw.

Rows of a real ledger (by default the replication's) are repeated under other seeds, answers and digests included, in a
temporary folder. Then `study status`, for the first time and again, and `report` read it, each in a process of its own.
20,000 rows take some 2 GB of disk while it runs.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import fields, is_dataclass, replace
from itertools import count, islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from antiphase.config import to_plain
from antiphase.paper.catalog import studies
from antiphase.paper.grid import Grid
from antiphase.paper.ledger import Ledger
from antiphase.paper.questions import Cell
from antiphase.scales import SCALES
from antiphase.store import lies_at
from antiphase.training.config import ContrastiveConfig, TrainConfig

LEDGER = Path(__file__).parents[1] / "results" / "replication"
APART = 1_000  # between the seeds of one copy and the next
# the command line, and then the kB that it held at most: what the kernel says of a child begins with what its parent held
COMMAND = """import sys; from antiphase.cli import main; code = main(sys.argv[1:])
print(next(line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM")), file=sys.stderr)
sys.exit(code)"""


def reseeded(value: Any, by: int) -> Any:
    """A config with every training seed in it moved."""
    if isinstance(value, tuple):
        return tuple(reseeded(part, by) for part in value)
    if not is_dataclass(value) or isinstance(value, type):
        return value
    parts = {field.name: reseeded(getattr(value, field.name), by) for field in fields(value)}
    if isinstance(value, TrainConfig | ContrastiveConfig):
        parts["seed"] += by
    return replace(value, **parts)


def finished(ledger: Ledger) -> list[Cell]:
    """The cells of all studies that the ledger has a row of."""
    scales = [scale for scale in SCALES if any(summary.scale == scale for summary in ledger.summaries())]
    every = (cell for scale in scales for study in studies().values() for cell in study.cells(Grid.at(scale)))
    return list({cell.key: cell for cell in every if ledger.has(cell)}.values())


def copies(source: Ledger, target: Ledger) -> Iterator[Cell]:
    """Writes row after row for as long as it is asked for more: first the real ones, then the same under other seeds."""
    cells = finished(source)
    for by in count(step=APART):
        for cell in cells:
            row, copy = source.row(cell), reseeded(cell, by)
            assert row is not None
            row |= {"key": copy.key, "title": copy.title, "config": to_plain(copy)}
            if "kept" in row:
                path = Path("runs") / copy.key / Path(row["kept"]["path"]).name
                answer = lies_at(source.folder / row["kept"]["path"])
                (target.folder / path).parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(answer, target.folder / path.with_name(answer.name))
                row["kept"] = row["kept"] | {"path": str(path)}
            target.keep(copy, row)
            yield copy


def measured(words: list[str], cache: Path) -> tuple[float, float, float]:
    """Seconds on the clock, of processors, and the most memory that it held, in MB."""
    began, before = time.perf_counter(), os.times()
    argv, env = [sys.executable, "-c", COMMAND, *words], os.environ | {"ANTIPHASE_CACHE": str(cache)}
    done = subprocess.run(argv, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env=env, check=True)
    clock, after = time.perf_counter() - began, os.times()
    processors = after.children_user + after.children_system - before.children_user - before.children_system
    return clock, processors, int(done.stderr.split()[-1]) / 1000


def main(rows: str = "20000", ledger: str = str(LEDGER)) -> None:
    with TemporaryDirectory() as folder:
        target = Ledger(Path(folder) / "ledger")
        written = sum(1 for _ in islice(copies(Ledger(ledger), target), int(rows)))
        size = sum(path.stat().st_size for path in target.folder.rglob("*.json*")) / 1e9
        (scale,) = {summary.scale for summary in islice(Ledger(ledger).summaries(), 1)}
        of = ["--scale", str(scale)]
        commands = {
            "study status, first": ["study", "status", "--ledger", str(target.folder), *of],
            "study status, again": ["study", "status", "--ledger", str(target.folder), *of],
            "report": ["report", str(target.folder), "--out", f"{folder}/page", *of],
        }
        print(f"{written:,} rows, {size:.1f} GB\n\n| command | seconds | of processors | peak MB |\n|---|---|---|---|")
        for name, words in commands.items():
            clock, processors, memory = measured(words, Path(folder) / "cache")
            print(f"| {name} | {clock:.1f} | {processors:.1f} | {memory:.0f} |", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
