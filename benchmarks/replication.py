"""python -m benchmarks.replication: the paper, replicated block by block into results/replication; it goes on where it was.

Every block is a list of studies at a scale, narrowed where the machine is too small for all of it. Several processes may run it
at once (`make replication` starts two): each takes cells that no other is at. `--left` says what is left, `--verify 10` asks ten
random rows again with the code as it is now, `--stage` adds to the index of git what is finished and nothing else, large
answers compressed.
"""

from __future__ import annotations

import argparse
import random
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import torch

from antiphase import console, files
from antiphase.cli import keep_freed_memory
from antiphase.files import read_json, sha256, write_json
from antiphase.models.config import Differential
from antiphase.paper.catalog import to_run
from antiphase.paper.cost import Prices, fit
from antiphase.paper.execute import Workplace, run
from antiphase.paper.grid import Grid
from antiphase.paper.ledger import Ledger
from antiphase.paper.questions import Ask, Cell, Train, data_sets, ordered
from antiphase.scales import ScaleName
from antiphase.store import compress, lies_at

LEDGER = Path(__file__).parents[1] / "results" / "replication"
LARGE = 100_000  # bytes of an answer from which on it is committed compressed
TRAINED = "fig4 fig3a fig6 fig3c noise-vs-attack map-correlation corrupted training-length fig1 fig3d certificates"
DEPTH_1 = "fig2a table1 training-length lambda-dynamics fig5 fig2c fig4 noise-vs-attack"
LATER = (
    "remedies",
    "certified-remedies",
    "fragility-over-training",
)  # beyond the paper, hours by themselves: blocks of their own
DEPTHS = "fig3a fig3b fig3c fig3d fig4 fig5 table2 lambda-dynamics noise-vs-attack theory-audit fig6"


def everything(_: Cell) -> bool:
    return True


def as_printed(cell: Cell) -> bool:
    """CIFAR-10, no control, and attacks away from the true label: the experiments that the paper prints at depth 1."""
    if isinstance(cell, Ask) and getattr(getattr(cell.question, "attack", None), "label", "true") != "true":
        return False
    layers = [layer for model in models(cell) for layer in model.model.layers]
    printed = all(layer.out_scale == "official" for layer in layers if isinstance(layer, Differential))
    return printed and set(data_sets(ordered([cell]))) == {"cifar10"}


def models(cell: Cell) -> Iterator[Train]:
    yield from (need for need in ordered([cell]) if isinstance(need, Train))


@dataclass(frozen=True, kw_only=True)
class Block:
    name: str
    scale: ScaleName
    studies: str  # names, or all: those that need no outside weights and train no surrogate, less LATER
    depths: tuple[int, ...] | None = None
    passes: tuple[int | None, ...] = (None,)  # so many seeds first, then more: every pass is of use by itself
    wanted: Callable[[Cell], bool] = everything
    surrogates: bool = False

    def cells(self) -> list[Cell]:
        listed: list[Cell] = []
        for seeds in self.passes:
            grid = Grid.at(self.scale, depths=self.depths, seeds=seeds)
            chosen, _ = to_run(self.studies.split(), grid, surrogates=self.surrogates)
            studies = [study for study in chosen if self.studies != "all" or study.name not in LATER]
            listed += [cell for study in studies for cell in study.cells(grid) if self.wanted(cell)]
        return ordered(listed)


BLOCKS = (
    Block(name="cpu, the first five", scale="cpu", studies="table1 fig2a fig2c fig5 controls"),
    Block(name="cpu, no further training", scale="cpu", studies=TRAINED),
    Block(name="cpu, claims without a verdict", scale="cpu", studies="theory-audit"),
    Block(name="cpu, adversarial training from scratch", scale="cpu", studies="table3"),
    Block(name="cpu", scale="cpu", studies="all"),
    Block(
        name="paper, depth 1, first seed", scale="paper", studies=DEPTH_1, depths=(1,), passes=(1,), wanted=as_printed
    ),
    Block(name="cpu, fragility over training", scale="cpu", studies="fragility-over-training"),
    Block(name="cpu, remedies", scale="cpu", studies="remedies certified-remedies"),
    Block(name="paper, depth 1", scale="paper", studies=DEPTH_1, depths=(1,), passes=(1, 3, 5), wanted=as_printed),
    Block(name="paper, theory at depth 1", scale="paper", studies="theory-audit", depths=(1,), passes=(1, 3, 5)),
    Block(name="desk, depths 1 to 4", scale="desk", studies=DEPTHS, depths=(1, 2, 4), passes=(1, 3, None)),
    Block(name="desk", scale="desk", studies="all"),
    Block(name="tiles", scale="cpu", studies="clip-tiles focus", surrogates=True),
)


def compute(block: Block, place: Workplace) -> None:
    console.say(f"block: {block.name}")
    cells = block.cells()
    for model in without_weights(cells, place.ledger):
        regain(model, place)
    outcome = run(cells, place)
    for key, error in outcome.failed.items():
        console.say(f"failed: {key}: {error}")


def without_weights(cells: list[Cell], ledger: Ledger) -> list[Train]:
    """Trained models that cells to come need, and whose weights are not in git: not all of them fit."""
    to_come = [cell for cell in cells if not ledger.has(cell)]
    needed = [model for cell in to_come for model in models(cell) if model.after is None and ledger.has(model)]
    return [model for model in dict.fromkeys(needed) if not _weights(ledger, model)]


def regain(model: Train, place: Workplace) -> None:
    """Train a model again, to the bits of its checkpoint; of others, on another processor say, the weights are not taken."""
    ledger, folder = place.ledger, place.ledger.run_folder(model.key)
    with files.held(folder), tempfile.TemporaryDirectory() as elsewhere:
        if _weights(ledger, model):
            return  # another process has done it
        again = Ledger(elsewhere)
        for need in model.needs:
            _lend(ledger, again, need)
        failed = run([model], Workplace(again, scale=place.scale)).failed
        before, now = (of.run_folder(model.key) / "checkpoint.json" for of in (ledger, again))
        if failed or read_json(before)["tensors"] != read_json(now)["tensors"]:
            console.say(f"the weights of {model.title} are not in git and came out otherwise here: left alone")
            return
        for path in _weights(again, model):
            files.write_bytes(folder / path.name, path.read_bytes())


def left(ledger: Ledger) -> Iterator[str]:
    """One line per block: cells, and what is left at the price of finished cells, in hours of one processor."""
    prices = Prices()
    for group, price in fit(ledger.provenances()).items():
        prices.learn(group, 1.0, price["per_operation"])
    for block in BLOCKS:
        cells = block.cells()
        todo = [cell for cell in cells if not ledger.has(cell)]
        hours = console.duration(sum(map(prices.seconds, todo)))
        yield f"{block.name}: {len(cells) - len(todo)} of {len(cells)} cells, about {hours} of one processor left"


def stage(ledger: Ledger) -> int:
    """Rows, the runs they are about and the answers they refer to: what is under way stays out of the index, and so do weights
    that no cell to come needs (a training repeats to the bit). Large answers that git does not know yet are compressed."""
    known = set(_git(ledger, "ls-files").splitlines())
    to_come = [cell for block in BLOCKS for cell in block.cells() if not ledger.has(cell)]
    wanted = {need.key for cell in to_come for need in ordered([cell])}
    paths = [ledger.folder / "data.json", *sorted(ledger.rows.folder.glob("*.json"))]
    for row in ledger.readable():
        folder = ledger.run_folder(row["key"])
        if "kept" in row:
            answer = lies_at(ledger.folder / row["kept"]["path"])
            fresh = str(answer.relative_to(ledger.folder)) not in known
            large = answer.suffix == ".json" and answer.stat().st_size > LARGE
            paths.append(compress(answer) if fresh and large else answer)
        elif folder.is_dir():
            without_path_of_machine(folder)
            files = [path for place in (folder, *folder.glob("epoch-*")) for path in place.iterdir() if path.is_file()]
            shown = [path for path in files if not path.name.startswith(".")]
            paths += [path for path in shown if path.suffix != ".safetensors" or row["key"] in wanted]
    for start in range(0, len(paths), 500):
        names = [str(path) for path in paths[start : start + 500]]
        _git(ledger, "add", "--force", "--", *names)
    return len(paths)


def without_path_of_machine(folder: Path) -> None:
    """A finished run that began with another one's weights names it as it lies beside it, on whatever machine."""
    about = read_json(folder / "run.json")
    start = about.get("training", {}).get("start_from")
    if start is not None and Path(start).is_absolute():
        about["training"]["start_from"] = f"../{Path(start).name}"
        write_json(folder / "run.json", about)
        checkpoint = read_json(folder / "checkpoint.json")
        write_json(folder / "checkpoint.json", checkpoint | {"run": sha256(folder / "run.json")})


def _git(ledger: Ledger, *words: str) -> str:
    """What git says in the folder of the ledger."""
    return subprocess.run(["git", *words], check=True, cwd=ledger.folder, stdout=subprocess.PIPE, text=True).stdout


def verify(ledger: Ledger, rows: int, seed: int) -> Iterator[str]:
    """Some rows, drawn at random, asked again with the code as it is now, on the same weights: one line for each."""
    cells = {cell.key: cell for block in BLOCKS for cell in block.cells()}
    asked = [c for key, c in sorted(cells.items()) if isinstance(c, Ask) and ledger.has(c) and _has_weights(ledger, c)]
    for cell in random.Random(seed).sample(asked, min(rows, len(asked))):
        with tempfile.TemporaryDirectory() as folder:
            again = Ledger(folder)
            for model in cell.needs:
                _lend(ledger, again, model)
            failed = run([cell], Workplace(again)).failed
            before, now = (_answer(of, cell) for of in (ledger, again))
        if failed:
            yield f"{cell.title}: not compared, since it failed: {failed[cell.key]}"
            continue
        apart = {k: _difference(before[k], now.get(k)) for k in before if before[k] != now.get(k)}
        differs = ", ".join(f"{key} (by {size:.1e} of its size)" for key, size in apart.items())
        yield f"{cell.title}: {'differs in ' + differs if apart else 'the same'}"


def _difference(before: object, now: object) -> float:
    """The largest difference of numbers over the largest number; infinite where something else differs."""
    old, new = list(_leaves(before)), list(_leaves(now))
    numbers = [
        (a, b) for a, b in zip(old, new, strict=False) if isinstance(a, int | float) and isinstance(b, int | float)
    ]
    others = len(old) != len(new) or any(
        a != b for a, b in zip(old, new, strict=True) if isinstance(a, str) or a is None
    )
    if others or not numbers:
        return float("inf")
    return max(abs(a - b) for a, b in numbers) / max(max(abs(a) for a, _ in numbers), 1e-30)


def _leaves(value: object) -> Iterator[object]:
    if isinstance(value, dict):
        for key in sorted(value):
            yield from _leaves(value[key])
    elif isinstance(value, list):
        for part in value:
            yield from _leaves(part)
    else:
        yield value


def _lend(ledger: Ledger, again: Ledger, model: Cell) -> None:
    """A model of one ledger is in another too."""
    shutil.copy(ledger.rows.path(model.key), _made(again.rows.path(model.key)))
    for path in ledger.run_folder(model.key).iterdir():
        if path.is_file():
            shutil.copy(path, _made(again.run_folder(model.key) / path.name))


def _has_weights(ledger: Ledger, cell: Cell) -> bool:
    return all(_weights(ledger, model) for model in cell.needs)


def _weights(ledger: Ledger, model: Cell) -> list[Path]:
    return list(ledger.run_folder(model.key).glob("weights-*.safetensors"))


def _made(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    return path


def _answer(ledger: Ledger, cell: Cell) -> dict[str, object]:
    row = ledger.row(cell)
    return {} if row is None else ledger.answer(row)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--ledger", type=Path, default=LEDGER)
    parser.add_argument("--blocks", type=int, nargs="*", help="only these, counted from 1")
    parser.add_argument("--left", action="store_true", help="say what is left, and do nothing")
    parser.add_argument(
        "--verify", type=int, metavar="N", help="ask N random rows again and compare, and do nothing else"
    )
    parser.add_argument("--seed", type=int, default=0, help="of that choice")
    parser.add_argument("--stage", action="store_true", help="git add what is finished, and do nothing else")
    asked = parser.parse_args()
    ledger = Ledger(asked.ledger.resolve())
    if asked.left:
        print("\n".join(left(ledger)))
    elif asked.verify:
        torch.set_num_threads(1)
        for line in verify(ledger, asked.verify, asked.seed):
            print(line, flush=True)
    elif asked.stage:
        print(f"{stage(ledger)} files are in the index")
    else:
        torch.set_num_threads(1)
        keep_freed_memory()
        for number, block in enumerate(BLOCKS, 1):
            if not asked.blocks or number in asked.blocks:
                compute(block, Workplace(ledger, scale=block.scale))


if __name__ == "__main__":
    main()
