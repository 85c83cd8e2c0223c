"""What the trials are played on: a few small trained runs, and the commands that are put to them, with their results."""

from __future__ import annotations

import json
import math
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.faults import child

SMALL = ["--width", "32", "--depth", "1", "--heads", "2", "--patch", "4", "--batch-size", "128"]
ROUNDED = 1e-4  # of a number
FIXTURES = Path(__file__).parents[2] / "tests" / "fixtures"


@dataclass(frozen=True)
class Command:
    """A command line whose result can be compared; it writes below the folder that it is run in."""

    name: str
    argv: tuple[str, ...]
    needs: tuple[str, ...] = ()  # what is copied into the folder first
    rounds: bool = False  # its numbers depend on what else is in a batch, in their last digits


def _command(name: str, line: str, needs: str = "", *, rounds: bool = False) -> Command:
    return Command(name, (*line.split(), "--json"), tuple(needs.split()), rounds)


TRAIN = f"train --out ViT --epochs 3 --train-images 600 --checkpoint-seconds 0.02 {' '.join(SMALL)}"
COMMANDS = {
    c.name: c
    for c in (
        _command("train", f"{TRAIN.replace('ViT', 'DiffViT')} --attention differential"),
        _command("train-kept", f"{TRAIN} --keep-epochs 1,2"),
        _command("train-clip", "train-clip --variant DiffCLIP --epochs 1 --train-images 256 --out clip"),
        _command("attack", "attack ViT --eps 8/255,16/255 --steps 10 --restarts 2 --images 300", "ViT"),
        _command("attack-saved", "attack ViT --eps 16/255 --steps 5 --restarts 1 --images 64 --save", "ViT"),
        _command("minimum-norm", "attack ViT --attack fmn --images 48", "ViT", rounds=True),
        _command("measure", "measure DiffViT --images 16", "DiffViT"),
        _command(
            "certify", "certify DiffViT ViT --sigma 0.25 --images 40 --samples 200 --attack-images 3", "DiffViT ViT"
        ),
        _command("theory", "theory DiffViT --base ViT --images 8 --probes 4", "DiffViT ViT"),
        _command("audit", "audit DiffViT ViT --quick --images 16 --out audit", "DiffViT ViT"),
        _command(
            "compare",
            "compare ViT DiffViT --out comparison --eps 16/255 --steps 5 --restarts 1 --images 64",
            "ViT DiffViT",
        ),
        _command("eval", "eval clip --on digits --images 64", "clip"),
        _command("zero-shot-attack", "attack clip --eps 8/255 --steps 3 --restarts 1 --images 32", "clip"),
        _command("look", "look ViT DiffViT --images 2", "ViT DiffViT"),
        _command(
            "decode",
            "train --data images --image-size 64 --out own --epochs 1 --width 32 --heads 2 --patch 16 --batch-size 32",
            "images",
        ),
        _command("convert", f"convert {FIXTURES}/diffclip.pt converted"),
        _command("study", "study run fig5 --ledger ledger --seeds 1"),
        _command("export", "study export fig5 --ledger ledger --out export", "ledger"),
        _command("report", "report ViT DiffViT --out page", "ViT DiffViT"),
    )
}


class Scene:
    """The runs, made once per commit, and the result of every command when nothing goes wrong."""

    def __init__(self, folder: Path, patience: float = 600.0) -> None:
        """`patience`: seconds that an undisturbed command may take here."""
        self.folder, self.runs, self.patience = folder, folder / "runs", patience

    def prepare(self) -> None:
        self.runs.mkdir(parents=True, exist_ok=True)
        made = {
            "ViT": f"{TRAIN}",
            "DiffViT": f"{TRAIN.replace('ViT', 'DiffViT')} --attention differential",
            "clip": "train-clip --variant DiffCLIP --epochs 1 --train-images 256 --out clip",
            "ledger": "study run fig5 --ledger ledger --seeds 1",
        }
        if not (self.runs / "images").exists():
            child.call(lambda: draw_images(self.runs / "images"), self.runs)
        for name, line in made.items():
            if not (self.runs / f".{name}-is-made").exists():
                ended = child.run(line.split(), self.runs, takes=self.patience)
                assert ended.code == 0, f"{name} could not be made: {ended.err}"
                (self.runs / f".{name}-is-made").touch()
        shutil.rmtree(self.runs / "cache", ignore_errors=True)

    def lay(self, command: Command, folder: Path) -> Path:
        """A fresh folder with what the command needs."""
        return self.lay_runs(command.needs, folder)

    def lay_runs(self, names: tuple[str, ...], folder: Path) -> Path:
        """A fresh folder with these runs."""
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        for name in names:
            shutil.copytree(self.runs / name, folder / name)
        return folder

    def reference(self, command: Command) -> dict[str, Any]:
        """Its result, how long it took, how many file-system events and bytes; computed once."""
        path = self.folder / "references" / f"{command.name}.json"
        if not path.exists():
            folder = self.lay(command, self.folder / "reference")
            before = size_of(folder)
            ended = child.run([*command.argv], folder, takes=self.patience)
            assert ended.code == 0, f"{command.name}: {ended.err}"
            kept = {"result": result_of(ended), "seconds": ended.seconds, "bytes": size_of(folder) - before}
            path.parent.mkdir(exist_ok=True)
            path.write_text(json.dumps(kept))
        reference: dict[str, Any] = json.loads(path.read_text())
        return reference


def draw_images(folder: Path) -> int:
    """A folder of the digits as PNG files, as a user would have them."""
    from PIL import Image
    from sklearn.datasets import load_digits

    digits = load_digits()
    for i in range(80):
        path = folder / f"{digits.target[i]}" / f"{i}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray((digits.images[i] * 15.9).astype("uint8")).save(path)
    return 0


def result_of(ended: child.Ended) -> Any:
    return child.without_times(json.loads(ended.out))


def same(command: Command, result: Any, other: Any) -> bool:
    return nearly(result, other) if command.rounds else bool(result == other)


def nearly(result: Any, other: Any) -> bool:
    """The same but for rounding: a minimum-norm attack that goes on from its journal has other images in a batch."""
    if isinstance(result, dict) and isinstance(other, dict):
        return result.keys() == other.keys() and all(nearly(result[key], other[key]) for key in result)
    if isinstance(result, list) and isinstance(other, list):
        return len(result) == len(other) and all(map(nearly, result, other))
    if isinstance(result, float) and isinstance(other, float):
        return math.isclose(result, other, rel_tol=ROUNDED, abs_tol=1e-12)
    return bool(result == other)


def size_of(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def debris(folder: Path) -> list[str]:
    return [str(path.relative_to(folder)) for path in folder.rglob("*") if path.name.endswith(".partial")]
