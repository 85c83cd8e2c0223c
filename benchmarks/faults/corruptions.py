"""One byte of a stored file is changed: the next command names it, or computes it again, or it made no difference. Never another
number."""

from __future__ import annotations

import random
import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from benchmarks.faults import child
from benchmarks.faults.scene import COMMANDS, Scene, result_of
from benchmarks.faults.trial import Outcome, Trial, crashed

EACH = 12  # changed bytes per kind of file


@dataclass(frozen=True)
class Kind:
    """Files of one kind, and the commands that make and read them."""

    name: str
    files: str  # a glob below the folder
    makes: tuple[str, ...]  # commands of the scene, by name
    reads: str | None = None  # None: the last of those again
    torn: int | None = (
        None  # the last command is killed at this event of the file system, so that parts of its work are left
    )


KINDS = (
    Kind("run.json", "DiffViT/run.json", ("train",)),
    Kind("checkpoint.json", "DiffViT/checkpoint.json", ("train",)),
    Kind("log.jsonl", "DiffViT/log.jsonl", ("train",)),
    Kind("weights", "DiffViT/*.safetensors", ("train",)),
    Kind("checkpoint of an unfinished run", "DiffViT/checkpoint.json", ("train",), torn=45),
    Kind("optimizer of an unfinished run", "DiffViT/optimizer*.safetensors", ("train",), torn=45),
    Kind("weights of a kept epoch", "ViT/epoch-1/*.safetensors", ("train-kept",), "attack-kept"),
    Kind("answer of an attack", "ViT/attacks/*.json", ("attack",)),
    Kind("part of an attack", "ViT/attacks/*/*.json", ("attack",), torn=16),
    Kind("journal of an attack", "ViT/attacks/*/*.journal*", ("attack",), torn=16),
    Kind("saved adversarial images", "ViT/attacks/*/*.safetensors", ("attack-saved",)),
    Kind("answer of a minimum-norm attack", "ViT/attacks/*.json", ("minimum-norm",)),
    Kind("answer of a measure", "DiffViT/measures/*.json", ("measure",)),
    Kind("certificate", "*ViT/certificates/*.json", ("certify",)),
    Kind("check of a theorem", "DiffViT/measures/*.json", ("theory",)),
    Kind("look", "*ViT/looks/*.json", ("look",)),
    Kind("comparison.json", "comparison/comparison.json", ("compare",), "report-of-comparison"),
    Kind("audit.json", "audit/audit.json", ("audit",)),
    Kind("text embeddings", "clip/texts/*.safetensors", ("zero-shot-attack",), "other-zero-shot-attack"),
    Kind("evaluation", "clip/evals/*.json", ("eval",)),
    Kind("kept features", "cache/features/*/*.safetensors", ("eval",), "eval-again"),
    Kind("decoded images", "cache/*.npy", ("decode",), "decode-again"),
    Kind("note of decoded images", "cache/*.json", ("decode",), "decode-again"),
    Kind("row of a ledger", "ledger/rows/*.json", ("study",)),
    Kind("answer of a ledger", "ledger/runs/*/measures/*.json", ("study",)),
    Kind("run of a ledger", "ledger/runs/*/log.jsonl", ("study",)),
    Kind("data.json of a ledger", "ledger/data.json", ("study",)),
    Kind("index of a ledger", "cache/*.sqlite", ("study", "status"), "status"),
    Kind("converted weights", "converted/*.safetensors", ("decode", "convert"), "converted-lambda"),
)
MORE = {
    "status": "study status fig5 --ledger ledger --json",
    "attack-kept": "attack ViT/epoch-1 --eps 8/255 --steps 2 --restarts 1 --images 32 --json",
    "report-of-comparison": "report comparison --out page --json",
    "other-zero-shot-attack": "attack clip --eps 16/255 --steps 3 --restarts 1 --images 32 --json",
    "eval-again": "eval clip --on digits --images 64 --seed 1 --json",
    "decode-again": " ".join(COMMANDS["decode"].argv).replace("--out own", "--out again"),
    "converted-lambda": "measure converted --measures lambda --data images --json",
}


def trials() -> Iterator[Trial]:
    for number in range(EACH):
        for kind in KINDS:
            yield Trial("corruptions", f"{kind.name} {number}", _player(kind, number))


def _argv(name: str) -> list[str]:
    return [*COMMANDS[name].argv] if name in COMMANDS else MORE[name].split()


def _needs(kind: Kind) -> set[str]:
    return {need for name in kind.makes if name in COMMANDS for need in COMMANDS[name].needs}


def _made(kind: Kind, scene: Scene) -> Path:
    """A folder in which the file is there and whole; made once for each kind."""
    folder = scene.folder / "made" / re.sub(r"\W+", "-", kind.name)
    if not (folder / ".seconds").exists():
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        for name in _needs(kind):
            shutil.copytree(scene.runs / name, folder / name)
        seconds = 0.0
        for name in kind.makes:
            last = name == kind.makes[-1]
            ended = child.run(_argv(name), folder, kill_at=kind.torn if last else None, takes=scene.patience)
            seconds += ended.seconds
            assert ended.code == (-9 if last and kind.torn else 0), f"{kind.name}: {ended.err[-500:]}"
        assert list(folder.glob(kind.files)), f"{kind.name}: no file {kind.files}"
        (folder / ".seconds").write_text(str(seconds))
    return folder


def _player(kind: Kind, number: int):
    def play(scene: Scene, folder: Path) -> Outcome:
        draw, made = random.Random(f"{kind.name} {number}"), _made(kind, scene)
        reads = kind.reads or kind.makes[-1]
        expected, takes = _expected(kind, reads, scene, made, folder)
        takes += float((made / ".seconds").read_text())  # what was made may have to be made again
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(made, folder)
        path = draw.choice(sorted(folder.glob(kind.files)))
        content = bytearray(path.read_bytes())
        place = draw.randrange(len(content))
        content[place] = draw.choice((ord("0") + draw.randrange(10), content[place] ^ 1 << draw.randrange(8)))
        path.write_bytes(content)
        ended = child.run(_argv(reads), folder, takes=takes)
        where = f"byte {place} of {path.relative_to(folder)}"
        if ended.crash is not None:
            return crashed(f"{where}: {ended.crash}")
        if ended.code == 2:
            named = ended.refusal is not None and (path.name in ended.refusal or path.parent.name in ended.refusal)
            return Outcome("fine", "named") if named else Outcome("traceback", f"{where}: {ended.err.strip()[-300:]}")
        if ended.code != 0 or _result(ended, folder) != expected:
            return Outcome("silent", f"{where}: exit code {ended.code} with another result")
        return Outcome("fine", "computed again" if ended.err.strip() else "the same result")

    return play


def _expected(kind: Kind, reads: str, scene: Scene, made: Path, folder: Path):
    """What the reading command says where nothing was changed, and how long it takes."""
    path = scene.folder / "made" / f"{re.sub(r'[^a-z]+', '-', kind.name.lower())}.undisturbed.json"
    import json

    if not path.exists():
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(made, folder)
        ended = child.run(_argv(reads), folder, takes=scene.patience)
        assert ended.code == 0, f"{kind.name}: {ended.err[-500:]}"
        path.write_text(json.dumps([_result(ended, folder), ended.seconds]))
    return json.loads(path.read_text())


def _result(ended: child.Ended, folder: Path):
    """What was printed, and the text of the page that was written."""
    page = folder / "page" / "index.html"
    shown = re.sub(r"<svg.*?</svg>", "", page.read_text(), flags=re.DOTALL) if page.exists() else ""
    return [result_of(ended), re.findall(r"\d+\.\d+ %", shown)]
