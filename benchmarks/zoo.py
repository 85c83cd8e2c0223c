"""python -m benchmarks.zoo: names for trained models that are committed, each with its accuracy, clean and under AutoAttack.

Writes results/zoo.json, which `ap.zoo` reads, and the table of results/README.md. A model whose weights have not changed is
not measured again. The first depth-1 pair of the paper's own setting is copied from the replication to results/paper-pair once
it is trained: without its answers and the weights on the way, so that it is small.
"""

from __future__ import annotations

import argparse
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from antiphase import console, files
from antiphase.attacks import AutoAttack, Linf
from antiphase.attacks.question import AttackQuestion
from antiphase.data import load
from antiphase.measures.success import predictions
from antiphase.models.config import Differential, ViTConfig
from antiphase.models.run import Run
from antiphase.models.zoo import INDEX, Zoo
from antiphase.paper.grid import Grid
from antiphase.paper.ledger import Ledger
from antiphase.paper.questions import Train
from antiphase.rates import rate
from antiphase.results.ask import ask
from antiphase.scales import ScaleName
from antiphase.tables import with_interval
from benchmarks.replication import BLOCKS, LEDGER

RESULTS = Path(__file__).parents[1] / "results"
ATTACK = AutoAttack(within=Linf("1/255"))
UNDER = "AutoAttack standard at 1/255"
COMMITTED = {
    "desk-vit-d1-s0": "pair/ViT",
    "desk-diffvit-d1-s0-matched": "pair/DiffViT",
    "cpu-diffvit-d4-s0-matched": "pair/DiffViT-depth4",
    "cpu-clip-cifar10": "clip-pair/CLIP",
    "cpu-diffclip-cifar10": "clip-pair/DiffCLIP",
}
PAPER_PAIR = {"paper-vit-d1-s0": "paper-pair/ViT", "paper-diffvit-d1-s0": "paper-pair/DiffViT"}


def named() -> Iterator[tuple[str, str]]:
    """Names and folders below results/: every model of the replication whose weights are there, and the committed pairs."""
    ledger, found = Ledger(LEDGER), dict[str, str]()
    for block in BLOCKS:
        for cell in block.cells():
            name = name_of(cell, block.scale) if isinstance(cell, Train) else None
            if name and isinstance(cell, Train) and _has_weights(ledger, cell):
                found[name] = str(ledger.run_folder(cell.key).relative_to(RESULTS))
    found |= {name: folder for name, folder in PAPER_PAIR.items() if (RESULTS / folder).is_dir()}
    yield from sorted(
        found.items(), key=lambda entry: [int(w) if w.isdigit() else w for w in re.split(r"(\d+)", entry[0])]
    )
    yield from COMMITTED.items()


def name_of(cell: Train, scale: ScaleName) -> str | None:
    """Such as cpu-diffvit-d1-s3-cifar100; None of a training of another kind than the plain one of its scale."""
    model, seed, grid = cell.model, cell.training.seed, Grid.at(scale)
    name, layer = f"d{model.depth}-s{seed}" + (f"-{cell.data}" if cell.data != grid.data else ""), model.attention[0]
    if cell == grid.vit(seed, model.depth, data=cell.data):
        return f"{scale}-vit-{name}"
    if not isinstance(layer, Differential) or not isinstance(layer.lambda_init, float):
        return None
    begins = {"lambda_init": layer.lambda_init, "init": model.init}
    if cell != grid.diffvit(seed, model.depth, data=cell.data, **begins):
        return None
    name += f"-lambda{layer.lambda_init:g}" if layer.lambda_init != Differential().lambda_init else ""
    return f"{scale}-diffvit-{name}" + ("-matched" if model.init == "matched" else "")


def copy_paper_pair() -> None:
    """The run folders of the paper's depth-1 pair, if they are trained and not there yet: config, log and last weights."""
    ledger, grid = Ledger(LEDGER), Grid.at("paper")
    for model, folder in zip((grid.vit(0), grid.diffvit(0)), PAPER_PAIR.values()):
        if ledger.has(model) and _has_weights(ledger, model) and not (RESULTS / folder).exists():
            shutil.copytree(
                ledger.run_folder(model.key),
                RESULTS / folder,
                ignore=lambda _, names: [name for name in names if not _of_the_run_itself(name)],
            )


def _of_the_run_itself(name: str) -> bool:
    return name in ("run.json", "checkpoint.json", "log.jsonl") or name.startswith("weights-")


def _has_weights(ledger: Ledger, model: Train) -> bool:
    return bool(list(ledger.run_folder(model.key).glob("weights-*.safetensors")))


def measured(folder: str, images: int) -> dict[str, Any]:
    """What the index says of one model. The answer about the attack is kept in the folder of the run."""
    run = Run(RESULTS / folder)
    test = load(run.about["data"]["origin"], "test")
    correct = predictions(run.classifier_for(test), test) == test.labels
    attacked = ask(run, test.subset(images), AttackQuestion(attack=ATTACK))
    flags = attacked.content.get("flags", [])
    return {
        "folder": folder,
        "weights": run.weights_digest,
        **described(run),
        "accuracy": rate(correct).plain(),
        "robust_accuracy": attacked.content["rates"]["robust_accuracy"],
        **({"flags": flags} if flags else {}),
    }


def described(run: Run) -> dict[str, str]:
    data, epochs = run.about["data"], run.log[-1]["epoch"]
    matched = isinstance(run.config, ViTConfig) and run.config.is_differential and run.config.init == "matched"
    trained_on = f"{data['train']['images']:,} images of {data['origin']}, {epochs} epochs"
    return {
        "model": f"{run.config.title}, depth {run.config.depth}",
        "trained_on": trained_on + (", matched initialisation" if matched else ""),
    }


def page(zoo: Zoo) -> str:
    """results/README.md"""
    head = ("name", "model", "trained on", "accuracy", "n", "under attack", "n", "folder")
    rows = []
    for name, model in zoo.models.items():
        clean, robust = model["accuracy"], model["robust_accuracy"]
        pair = (with_interval(clean), f"{clean['n']:,}", with_interval(robust), f"{robust['n']:,}")
        where = f"[{model['folder']}]({model['folder']})"
        rows.append((f"`{name}`", model["model"], model["trained_on"], *pair, where))
    lines = ["| " + " | ".join(row) + " |" for row in (head, ("---",) * len(head), *rows)]
    return "\n".join(
        [
            "# Results, and trained models by name",
            "",
            "Written by `make zoo`. [replication](replication/README.md) is the replication of the paper, with its rows,",
            "answers per image and [findings](replication/FINDINGS.md); [paper-pair](paper-pair/README.md) is its first pair at",
            "the paper's own size; [pair](pair/README.md) and [clip-pair](clip-pair/README.md) are pairs to test the tool on.",
            "",
            "Every model below is loaded by its name: scale, kind, depth (d), seed (s), and what sets it apart; its data set is",
            f"CIFAR-10 where the name says no other. *Under attack* is accuracy under {UNDER}",
            "(Linf) on a class-balanced subset of the test images; intervals are Wilson's, 95 %, over the images of one model.",
            "",
            "```python",
            "import antiphase as ap",
            "",
            "print(ap.zoo())  # their names and numbers",
            'run = ap.zoo("desk-diffvit-d1-s0-matched")  # a Run: every function takes it, and commands take run.folder',
            "```",
            "",
            *lines,
            "",
        ]
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--images", type=int, default=128, help="that AutoAttack is run on")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    copy_paper_pair()
    index = RESULTS / INDEX
    models: dict[str, Any] = files.read_json(index)["models"] if index.exists() else {}
    wanted = dict(named())
    for name, folder in wanted.items():
        known, run = models.get(name, {}), Run(RESULTS / folder)
        same = known.get("weights") == run.weights_digest and known["robust_accuracy"]["n"] == asked.images
        models[name] = {**known, **described(run)} if same else measured(folder, asked.images)
        console.say(f"{name}: {'as before' if same else 'measured'}")
        models = {each: models[each] for each in wanted if each in models}
        files.write_json(index, {"under": UNDER, "models": models})
        files.write_text(RESULTS / "README.md", page(Zoo(RESULTS, UNDER, models)))


if __name__ == "__main__":
    main()
