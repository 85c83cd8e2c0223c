"""python -m benchmarks [LINE ...]: measure, then write benchmarks/results.json and docs/benchmarks.md (--page: that alone)."""

from __future__ import annotations

import argparse
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import quantile_test

from antiphase import files
from antiphase.console import duration
from antiphase.runtime import environment
from benchmarks.lines import LINES
from benchmarks.timing import Line

ROOT = Path(__file__).parents[1]
RESULTS, PAGE = ROOT / "benchmarks" / "results.json", ROOT / "docs" / "benchmarks.md"
WHOLE = ROOT / "benchmarks" / "whole_runs.json"  # make bench, make bench-all -> what it took when it was last whole


def measure(name: str, line: Line, pairs: int) -> dict[str, Any]:
    """Median ratio over the pairs with its exact 95 % interval (order statistics: no distribution is assumed)."""
    began = time.perf_counter()
    measured = line.measure(pairs)
    ratios = np.array(measured.ratios)
    ci = quantile_test(ratios, p=0.5).confidence_interval(0.95)
    sign, goal = line.goal.split()
    met = ci.high <= float(goal) if sign == "<=" else ci.low >= float(goal)
    return {
        "name": name,
        "what": line.what,
        "ratio": round(float(np.median(ratios)), 4),
        "interval": [round(float(ci.low), 4), round(float(ci.high), 4)],
        "goal": line.goal,
        "met": bool(met),
        "pairs": len(ratios),
        "seconds": round(time.perf_counter() - began, 1),
        "notes": measured.notes,
        "environment": environment(),
    }


def whole_runs() -> dict[str, Any]:
    return dict(files.read_json(WHOLE)) if WHOLE.exists() else {}


def page(records: list[dict[str, Any]], whole: dict[str, Any]) -> str:
    """docs/benchmarks.md"""
    rows = [
        f"| `{r['name']}` | {r['what']} | {r['ratio']:.3f} | [{r['interval'][0]:.3f}, {r['interval'][1]:.3f}] "
        f"| {r['goal']} | {'yes' if r['met'] else '**no**'} | {r['pairs']} | {r['environment']['threads']} | {_seconds(r)} |"
        for r in records
    ]
    return "\n".join(
        [
            "# Benchmarks",
            "",
            "Written by `make bench` (the short lines) and `make bench-all` (hours) from `benchmarks/results.json`; one line",
            "alone: `make bench ONLY=train-step-vs-timm`.",
            "Every figure is a ratio of two things measured in turn in one run. The ratio is the median over the pairs, the",
            "interval its exact 95 % interval; a goal is met only if the whole interval clears it. Where `threads` is 1, both",
            "sides had one thread on one core: with more threads the ratio may be another. `seconds` is what the line took, its",
            "models and warm-up included.",
            "",
            *_took(whole),
            "",
            "| line | what | ratio | 95 % interval | goal | met | pairs | threads | seconds |",
            "|---|---|---|---|---|---|---|---|---|",
            *rows,
            "",
            *(
                f"- `{r['name']}`: " + "; ".join(f"{k} {v}" for k, v in r["notes"].items())
                for r in records
                if r.get("notes")
            ),
            "",
            *_not_measured({r["name"] for r in records}),
        ]
    )


def _seconds(record: dict[str, Any]) -> str:
    """Lines that were measured before this was kept have none."""
    return f"{record['seconds']:.0f}" if "seconds" in record else "-"


def _took(whole: dict[str, Any]) -> list[str]:
    """How long all lines take, as they did when they were last measured one after the other."""
    known = [
        f"`{name}` took {duration(run['seconds'])} when it was last whole ({run['ended']}, {run['lines']} lines)."
        for name, run in whole.items()
    ]
    return known or ["`make bench` has not been run as a whole since its seconds are kept."]


def _not_measured(measured: set[str]) -> list[str]:
    """What there is a line for and no figure yet."""
    missing = [f"- `{name}` (goal {line.goal}): {line.what}" for name, line in LINES.items() if name not in measured]
    why = "Lines on everybody's models take hours together."
    return ["## Not measured yet", "", why, "", *missing, ""] if missing else []


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("lines", nargs="*", metavar="LINE", help=f"which: {', '.join(LINES)} (default: the short ones)")
    parser.add_argument("--all", action="store_true", help="the long ones too")
    parser.add_argument("--pairs", type=int, default=41, help="interleaved pairs a line, at least 30")
    parser.add_argument(
        "--page", action="store_true", help="measure nothing, write the page anew from what was measured"
    )
    given = parser.parse_args()
    if unknown := set(given.lines) - set(LINES):
        parser.error(f"there is no line {sorted(unknown)[0]!r}: it takes {', '.join(LINES)}")
    if given.pairs < 30:
        parser.error(f"--pairs {given.pairs}: an interval needs at least 30")
    stored = {r["name"]: r for r in files.read_json(RESULTS)} if RESULTS.exists() else {}
    if given.page:
        write(stored)
        return
    names = given.lines or [name for name, line in LINES.items() if given.all or not line.long]
    seconds = 0.0
    for name in names:
        stored[name] = record = measure(name, LINES[name], given.pairs)
        seconds += record["seconds"]
        low, high = record["interval"]
        verdict = "met" if record["met"] else "NOT met"
        figure = f"{name}: {record['ratio']:.3f} [{low:.3f}, {high:.3f}], goal {record['goal']} {verdict}"
        print(f"{figure}, {record['seconds']:.0f} s", flush=True)
        write(stored)
    print(f"{len(names)} lines: {seconds:.0f} s ({duration(seconds)})")
    if not given.lines:
        run = {"seconds": round(seconds, 1), "lines": len(names), "ended": datetime.now(UTC).date().isoformat()}
        files.write_json(WHOLE, whole_runs() | {"make bench-all" if given.all else "make bench": run})
        write(stored)


def write(stored: dict[str, dict[str, Any]]) -> None:
    """Records in the order of the lines, and the page."""
    ordered = [stored[name] for name in LINES if name in stored]
    files.write_json(RESULTS, ordered)
    files.write_text(PAGE, page(ordered, whole_runs()))


if __name__ == "__main__":
    main()
