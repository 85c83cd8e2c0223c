"""antiphase study"""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Literal

import tyro

from antiphase.config import InputError, Names, check_fields
from antiphase.data.catalog import CATALOG, check_name
from antiphase.data.pair_catalog import PAIR_CATALOG
from antiphase.evals.config import PAIRS, check_data_exists
from antiphase.files import of_another_shape, require_folder
from antiphase.locks import KIND
from antiphase.paper.catalog import chosen, studies, to_run
from antiphase.paper.claims import plans, verdicts
from antiphase.paper.cost import UNIT, Prices, fit
from antiphase.paper.grid import Grid
from antiphase.paper.ledger import Ledger, require_ledger
from antiphase.paper.ledger_index import Summary
from antiphase.paper.questions import Cell, data_sets, ordered
from antiphase.paper.shard import Shard
from antiphase.paper.study import SURROGATE, Answers, Study
from antiphase.paper.user_clip import UserPair, check_images, data_of, pair_of
from antiphase.scales import ScaleName

ACTIONS = {
    "list": "every study with its question",
    "show": "the question, grid and claims of a study, and its table as far as the ledger has it",
    "run": "do what the ledger lacks",
    "status": "what the ledger has of each study",
    "verdicts": "every claim, decided by the ledger",
    "export": "all rows and tables into --out",
    "upgrade": "convert a ledger that an earlier version wrote",
    "prices": "what an operation took in the ledger's cells, as the list in paper/cost.py has it",
}
READING = ("status", "verdicts", "export", "upgrade", "prices")  # actions about a ledger that is there
EXAMPLES = """\
  antiphase study list
  antiphase study show table1 --scale cpu
  antiphase study run fig2a --ledger runs/studies
  antiphase study run table1 fig2a fig2c fig5 --scale cpu --ledger runs/cpu
  antiphase study run all --scale cpu --workers 2 --ledger runs/cpu
  antiphase study run all --scale paper --shard 1/8 --dry-run
  antiphase study run all --scale paper --executor submitit --workers 16 --resources slurm_partition=gpu,gpus_per_node=1
  antiphase study status --ledger runs/studies
  antiphase study verdicts --scale cpu --ledger runs/cpu
  antiphase study export --scale cpu --ledger runs/cpu --out runs/cpu/export
  antiphase study upgrade --ledger runs/cpu
  antiphase study prices --ledger runs/cpu"""
TAKES = f"one of {', '.join(ACTIONS)}, and names of studies"


@dataclass(frozen=True, kw_only=True)
class Command:
    action: tyro.conf.Positional[str]  # list, show, run, status, verdicts, export, upgrade, prices
    names: tyro.conf.Positional[
        tuple[str, ...]
    ] = ()  # studies: fig2a, fig2 for all of its parts, or all; none: all, but for run
    ledger: Path = Path("runs/studies")  # folder of finished cells; several scales and processes may share it
    scale: ScaleName = "smoke"  # sizes of everything; smoke is for tests and gives no verdict
    data: str | None = None  # in place of the scale's main data set, and of the data for a CLIP pair of your own
    depths: tuple[int, ...] | None = None  # only these of the scale's depths, such as 1,2; claims need all of them
    seeds: int | None = None  # only so many of the scale's seeds
    clip: Path | None = None  # a CLIP of your own, run or checkpoint, for studies of CLIP; None: a surrogate is trained
    diffclip: Path | None = None  # and its DiffCLIP
    surrogates: bool = False  # with run: `all` includes studies that train small CLIPs, at cpu and desk too
    data_root: Path | None = None  # where data sets lie; $ANTIPHASE_DATA when not given
    workers: int = 1  # with run: number of processes that share the cells and this machine's cores
    shard: str | None = None  # with run: 2/8 is part 2 of 8 of the cells; slurm: the part of this array task
    executor: Literal["local", "ray", "submitit"] = "local"  # with run: who starts the workers; extras of these names
    address: str | None = None  # of a Ray cluster: auto, or HOST:PORT; None: $RAY_ADDRESS, or one is started here
    resources: Names = Names()  # of a worker, as ray and submitit call them: num_gpus=1, or slurm_partition=gpu,...
    locks: Literal["flock", "lease"] | None = None  # lease: where file systems have no locks; None: $ANTIPHASE_LOCKS
    dry_run: bool = False  # with run: print every cell that is missing with its cost, and do nothing
    out: Path | None = None  # with export: folder for rows, tables and a leaderboard entry
    device: str = "auto"  # auto, cpu, cuda, cuda:1, mps
    json: bool = False  # print the result as JSON on stdout

    @classmethod
    def defaults(cls, scale: ScaleName) -> Command:
        return cls(action=tyro.MISSING, scale=scale)

    def __post_init__(self) -> None:
        if self.action is not tyro.MISSING and self.action not in ACTIONS:
            near = get_close_matches(str(self.action), ACTIONS, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"it takes {', '.join(ACTIONS)}"
            raise InputError(f"study cannot {self.action!r}: {hint}")
        if self.action == "export" and self.out is None:
            raise InputError("export needs a folder to write to: give --out")
        if self.action == "run" and not self.names:
            raise InputError("study run does not start everything unasked: name studies (antiphase study list) or all")
        if self.data is not None:
            check_name(self.data)
        chosen(self.names)  # refuses an unknown one
        check_fields(self, workers=1)
        if self.shard is not None:
            Shard.read(self.shard)


def run(command: Command) -> dict[str, Any]:
    named, ledger = chosen(command.names), Ledger(command.ledger)
    if command.ledger.exists() and not command.ledger.is_dir():
        raise InputError(f"--ledger {command.ledger} is a file: name a folder")
    if command.data_root is not None and not command.data_root.is_dir():
        raise InputError(f"--data-root {command.data_root} is no folder: name the one where data sets lie")
    user_clips = None if command.action == "list" else pair_of(command.clip, command.diffclip, ledger)
    grid = _grid(command, named, user_clips)
    if command.action in READING:
        require_ledger(command.ledger)
    about: dict[str, Any] = {"action": command.action, "scale": command.scale, "ledger": str(command.ledger)}
    if command.action == "list":
        return about | {"studies": [_described(study, grid) for study in named]}
    if command.action == "run":
        named, left_out = to_run(command.names, grid, surrogates=command.surrogates)
        about["left_out"] = [study.name for study in left_out]
        if command.dry_run:
            return about | _planned(command, named, grid, ledger)
        return about | _run(command, named, grid, ledger, user_clips[1] if user_clips else {})
    if command.action == "upgrade":
        from antiphase.paper.upgrade import upgrade

        return about | upgrade(ledger)
    if command.action == "prices":
        return about | {"prices": fit(ledger.provenances()), "unit": UNIT}
    with of_another_shape(command.ledger):
        return about | _read(command, named, grid, Answers(ledger))


def _read(command: Command, named: list[Study], grid: Grid, answers: Answers) -> dict[str, Any]:
    """What a command says that only reads the ledger."""
    if command.action == "show":
        return {"studies": [_shown(command, study, grid, answers) for study in named]}
    if command.action == "status":
        return _status(named, grid, answers.ledger)
    if command.action == "verdicts":
        return {"verdicts": _verdicts(command, grid, answers)}
    return _exported(command, named, grid, answers)


def _grid(command: Command, named: list[Study], pair: UserPair | None) -> Grid:
    """With a pair of the user's own, refused where a study would show it images that it cannot take."""
    narrowed: dict[str, Any] = {"depths": command.depths, "seeds": command.seeds}
    if pair is None:
        return Grid.at(command.scale, command.data, **narrowed)
    grid = Grid.at(command.scale, command.data, pair[0], data_of(pair, command.data), **narrowed)
    if any(study.clip for study in named):
        check_images(pair, grid.clip_data.values())
    return grid


def _described(study: Study, grid: Grid) -> dict[str, Any]:
    return {
        "name": study.name,
        "title": study.titled(grid),
        "question": study.question,
        "claims": list(study.claims),
        "minutes": study.minutes,
        "clip": study.clip,
    }


def _table(study: Study, grid: Grid, answers: Answers) -> dict[str, Any]:
    lines = [asdict(row) for row in study.table(grid, answers)]
    stands_in = any(line["note"] == SURROGATE for line in lines)
    title = study.titled(grid) + "; SURROGATES: small models that stand in for the published ones" * stands_in
    return {"name": study.name, "title": title, "surrogate": stands_in, "scale": grid.scale, "lines": lines}


def _shown(command: Command, study: Study, grid: Grid, answers: Answers) -> dict[str, Any]:
    cells, predictions = study.cells(grid), study.predictions(grid)
    prices = Prices.learned(answers.ledger.provenances(), gpu=_on_gpu(command))
    return {
        **_described(study, grid),
        "cells": [{"kind": cell.kind, "title": cell.title, "key": cell.key} for cell in cells],
        "contrasts": [{"claim": p.claim, "part": p.part, "reading": p.reading, "name": p.name} for p in predictions],
        "plans": plans(predictions),
        "seconds": round(sum(map(prices.seconds, cells)), 1),
        **_table(study, grid, answers),
    }


def _cells(command: Command, named: list[Study], grid: Grid) -> list[Cell]:
    """All of them and what they need; of a shard, its part of them and what that needs."""
    cells = ordered(cell for study in named for cell in study.cells(grid))
    return cells if command.shard is None else ordered(Shard.read(command.shard).cells(cells))


def _absent(cells: list[Cell], command: Command) -> dict[str, str]:
    """Data sets that are not here, with why."""
    return {name: why for name in data_sets(cells) if (why := _why_not(name, command.data_root)) is not None}


def _why_not(name: str, root: Path | None) -> str | None:
    known = name in CATALOG or name in PAIR_CATALOG or name == PAIRS
    if not known and not Path(name).exists():
        return f"there is no folder {name} of shards to train on: give --clip and --diffclip"
    try:
        check_data_exists((name,), root)
    except InputError as error:
        return str(error)
    return None


def _planned(command: Command, named: list[Study], grid: Grid, ledger: Ledger) -> dict[str, Any]:
    cells = _cells(command, named, grid)
    prices = Prices.learned(ledger.provenances(), gpu=_on_gpu(command))
    todo = [cell for cell in cells if not ledger.has(cell)]
    costs = [prices.seconds(cell) for cell in todo]
    listed = [
        {"kind": c.kind, "title": c.title, "key": c.key, "seconds": float(f"{cost:.3g}")}
        for c, cost in zip(todo, costs)
    ]
    return {
        "planned": listed,
        "there": len(cells) - len(todo),
        "seconds": round(sum(costs), 1),
        "learned_from": prices.cells,
        "basis": prices.basis,
        "absent": _absent(cells, command),
    }


def _on_gpu(command: Command) -> bool:
    """The paper scale is for a GPU machine, wherever its price is asked for."""
    return command.device not in ("auto", "cpu") or (command.device == "auto" and command.scale == "paper")


def _run(
    command: Command, named: list[Study], grid: Grid, ledger: Ledger, user_clips: dict[str, Path]
) -> dict[str, Any]:
    require_folder(command.ledger)
    if command.locks is not None:
        os.environ[KIND] = command.locks  # the workers inherit it
    cells = _cells(command, named, grid)
    absent = _absent(cells, command)
    from antiphase import console
    from antiphase.paper.execute import Workplace
    from antiphase.paper.executors import check_installed, resources_of, run_cells
    from antiphase.runtime import pick_device

    check_installed(command.executor)
    resources = resources_of(command.resources)

    for why in absent.values():
        console.say(f"what needs it is left out: {why}")
    device = pick_device(command.device) if command.executor == "local" else command.device  # that of the workers
    place = Workplace(ledger, command.data_root, device, command.scale, user_clips)
    crew: dict[str, Any] = {"executor": command.executor, "workers": command.workers, "address": command.address}
    outcome = run_cells(cells, place, absent, resources=resources, **crew)
    titles = {cell.key: cell.title for cell in cells}
    answers = Answers(ledger)
    return {
        "studies": [_table(study, grid, answers) for study in named],
        "verdicts": verdicts(studies().values(), grid.all_depths, answers, _claims(named)),
        "failed": [{"title": titles[key], "key": key, "error": error} for key, error in outcome.failed.items()],
        "waiting": [titles[key] for key in outcome.waiting],
        "absent": absent,
    }


def _claims(named: list[Study]) -> set[str]:
    return {claim for study in named for claim in study.claims}


def _status(named: list[Study], grid: Grid, ledger: Ledger) -> dict[str, Any]:
    """What is there of each study, and what it took; a cell that studies share counts once in the total."""
    summaries = ledger.summaries()
    spent = {summary.key: _spent(summary) for summary in summaries}
    rows, everything = [], set()
    for study in named:
        cells = study.cells(grid)
        failed = {cell.title: told["error"] for cell in cells if (told := ledger.failure(cell)) is not None}
        mine = [cell.key for cell in cells if cell.key in spent]
        everything |= set(mine)
        total = _total([spent[key] for key in mine])
        rows.append({"name": study.name, "cells": len(cells), "done": len(mine), **total, "failed": failed})
    damaged = [summary.damage for summary in summaries if summary.damage is not None]
    return {"studies": rows, **_total([spent[key] for key in sorted(everything)]), "damaged": damaged}


def _spent(summary: Summary) -> tuple[float, float]:
    """Seconds on the clock and of processors; of a damaged row, which is named apart, none."""
    cost = summary.provenance
    return (cost["seconds"], cost["processor_seconds"]) if cost else (0.0, 0.0)


def _total(spent: list[tuple[float, float]]) -> dict[str, float]:
    return {name: round(sum(of[i] for of in spent), 1) for i, name in enumerate(("seconds", "processor_seconds"))}


def _verdicts(command: Command, grid: Grid, answers: Answers) -> list[dict[str, Any]]:
    """Of all claims, or of those that the named studies decide."""
    claims = _claims(chosen(command.names)) if command.names else None
    return verdicts(studies().values(), grid.all_depths, answers, claims)


def _exported(command: Command, named: list[Study], grid: Grid, answers: Answers) -> dict[str, Any]:
    assert command.out is not None
    require_folder(command.out)
    from antiphase.report.export import write_export

    tables = [_table(study, grid, answers) for study in named]
    rows = list(answers.ledger.readable())
    written = write_export(command.out, rows, tables, _verdicts(command, grid, answers))
    return {"files": written, "damaged": answers.ledger.damaged()}


def exit_code(result: dict[str, Any]) -> int:
    """1 where cells failed."""
    return int(result["action"] == "run" and bool(result.get("failed")))


def show(result: dict[str, Any]) -> None:
    from antiphase.report.terminal.study import SHOWN

    SHOWN[result["action"]](result)
