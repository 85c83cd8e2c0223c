"""python -m benchmarks.cost_model: how well the cost of a cell is foretold, and what the paper scale takes; into docs/scale.md.

Half of the replication's cells (by their keys) fit the model, the other half judge it. Seconds are processor seconds of cells
that ran on one thread. What stands between the marks of docs/scale.md is written here and nowhere else.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import nnls

from antiphase.console import duration
from antiphase.paper.catalog import to_run
from antiphase.paper.cost import GPU_OPERATIONS_PER_SECOND, fit, operations, price_group, traffic
from antiphase.paper.grid import Grid
from antiphase.paper.ledger import Ledger
from antiphase.paper.questions import Cell, OtherEncoder, TrainClip, ordered
from benchmarks.replication import BLOCKS, LEDGER

PAGE = Path(__file__).parents[1] / "docs" / "scale.md"
BEGIN, END = "<!-- written by python -m benchmarks.cost_model -->", "<!-- end -->"
FEWEST = 4  # cells of a group in either half, or it is not judged
GPUS = (1, 8, 64)


class Measured(NamedTuple):
    """A finished cell: what was counted of it, and what it took."""

    group: str
    operations: float
    bytes: float
    seconds: float


def measured(ledger: Ledger) -> tuple[list[Measured], list[Measured]]:
    """The cells that ran on one thread, in two halves."""
    halves: tuple[list[Measured], list[Measured]] = ([], [])
    cells = {cell.key: cell for block in BLOCKS for cell in block.cells()}
    for key, cell in sorted(cells.items()):
        row = ledger.row(cell)
        if row is None or not fit([row["provenance"]]):
            continue
        cost = row["provenance"]
        told = Measured(cost["group"], cost["operations"], traffic(cell), cost["processor_seconds"])
        halves[int(key, 16) % 2].append(told)
    return halves


def by_group(cells: Iterable[Measured]) -> dict[str, list[Measured]]:
    groups: dict[str, list[Measured]] = {}
    for cell in cells:
        groups.setdefault(cell.group, []).append(cell)
    return groups


def price_per_operation(cells: Sequence[Measured]) -> tuple[float, float]:
    """As `study prices` fits it: all seconds of the group over all its operations."""
    return sum(c.seconds for c in cells) / sum(c.operations for c in cells), 0.0


def price_with_bytes(cells: Sequence[Measured]) -> tuple[float, float]:
    """Seconds per operation and per byte, both at least 0, by least squares of the relative error."""
    table = np.array([[c.operations, c.bytes] for c in cells]) / np.array([c.seconds for c in cells])[:, None]
    scale = table.max(axis=0)
    prices, _ = nnls(table / scale, np.ones(len(cells)))
    return float(prices[0] / scale[0]), float(prices[1] / scale[1])


def errors(cells: Sequence[Measured], price: tuple[float, float]) -> np.ndarray[Any, np.dtype[np.float64]]:
    """|foretold - measured| / measured"""
    foretold = np.array([price[0] * c.operations + price[1] * c.bytes for c in cells])
    seconds = np.array([c.seconds for c in cells])
    return np.abs(foretold - seconds) / seconds


def error_lines(fitted: list[Measured], held_out: list[Measured]) -> Iterator[str]:
    yield "| group | cells: fitted, judged | operations: median, 90 % | operations and bytes: median, 90 % |"
    yield "|---|---|---|---|"
    learned, judged = by_group(fitted), by_group(held_out)
    pooled: dict[str, list[Any]] = {"operations": [], "bytes": []}
    for group in sorted(judged):
        if min(len(learned.get(group, ())), len(judged[group])) < FEWEST:
            continue
        words = []
        for name, price in (("operations", price_per_operation), ("bytes", price_with_bytes)):
            off = errors(judged[group], price(learned[group]))
            pooled[name].extend(off)
            words.append(_two(off))
        yield f"| {group} | {len(learned[group])}, {len(judged[group])} | {words[0]} | {words[1]} |"
    n = len(pooled["operations"])
    yield f"| **all of these** | {n} judged | {_two(pooled['operations'])} | {_two(pooled['bytes'])} |"


def _two(off: Any) -> str:
    return ", ".join(f"{100 * np.quantile(off, q):.0f} %" for q in (0.5, 0.9))


def makespan(cells: Sequence[Cell], workers: int, rate: float) -> float:
    """Seconds until the last of so many workers is done, a cell on one of them, what is needed first, the dearest model first."""
    free, done = [0.0] * workers, dict[str, float]()
    waiting = sorted(cells, key=lambda cell: (len(ordered([cell])), -operations(cell)))
    for cell in waiting:
        begin = max([heapq.heappop(free), *(done[need.key] for need in cell.needs)])
        done[cell.key] = begin + operations(cell) / rate
        heapq.heappush(free, done[cell.key])
    return max(done.values())


def projection_lines() -> Iterator[str]:
    studies, _ = to_run(["all"], Grid.at("paper"), surrogates=False)
    every = ordered(cell for study in studies for cell in study.cells(Grid.at("paper")))
    of_clip = (TrainClip, OtherEncoder)
    without = [cell for cell in every if not any(isinstance(need, of_clip) for need in ordered([cell]))]
    sets = {"studies of ViTs": without, "and of CLIPs, which are trained too": every}
    for name, cells in sets.items():
        total = sum(map(operations, cells))
        by_group: dict[str, float] = {}
        for cell in cells:
            by_group[price_group(cell)] = by_group.get(price_group(cell), 0.0) + operations(cell)
        dear = sorted(by_group, key=lambda group: -by_group[group])[:3]
        shares = ", ".join(f"{group} {100 * by_group[group] / total:.0f} %" for group in dear)
        yield f"- {name}: {len(cells):,} cells, {total:.2g} operations ({shares})"
    yield ""
    yield f"| GPUs of {GPU_OPERATIONS_PER_SECOND / 1e12:g} TFLOP/s (assumed) | {' | '.join(sets)} |"
    yield "|---|---|---|"
    for n in GPUS:
        times = [makespan(cells, n, GPU_OPERATIONS_PER_SECOND) for cells in sets.values()]
        yield f"| {n} | {' | '.join(map(duration, times))} |"


def main() -> None:
    fitted, held_out = measured(Ledger(LEDGER))
    lines = [*error_lines(fitted, held_out), "", *projection_lines()]
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    _, _, after = rest.partition(END)
    PAGE.write_text(f"{before}{BEGIN}\n" + "\n".join(lines) + f"\n{END}{after}", encoding="utf-8")
    print("\n".join(lines))


if __name__ == "__main__":
    main()
