"""python -m benchmarks.zoo: names for trained models that are committed, each with its accuracy, clean and under AutoAttack.

Writes results/zoo.json, which `ap.zoo` reads, and the table of results/README.md. A model whose weights have not changed is
not measured again. The first depth-1 pair of the paper's own setting is copied from the replication to results/paper-pair once
it is trained: without its answers and the weights on the way, so that it is small.
"""

from __future__ import annotations

import argparse
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
from antiphase.models.config import ViTConfig
from antiphase.models.run import Run
from antiphase.models.zoo import INDEX, Zoo
from antiphase.paper.grid import Grid
from antiphase.paper.ledger import Ledger
from antiphase.paper.questions import Train
from antiphase.rates import rate
from antiphase.results.ask import ask
from antiphase.scales import ScaleName
from antiphase.tables import with_interval
from benchmarks.replication import LEDGER

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
REPLICATED: ScaleName = "cpu"


def named() -> Iterator[tuple[str, str]]:
    """Names and folders below results/: the replication's first seeds at every depth, and the committed pairs."""
    ledger, grid = Ledger(LEDGER), Grid.at(REPLICATED)
    for depth in grid.depths:
        for name, model in (("vit", grid.vit(0, depth)), ("diffvit", grid.diffvit(0, depth))):
            if ledger.has(model) and _has_weights(ledger, model):
                yield f"{REPLICATED}-{name}-d{depth}-s0", str(ledger.run_folder(model.key).relative_to(RESULTS))
    yield from ((name, folder) for name, folder in PAPER_PAIR.items() if (RESULTS / folder).is_dir())
    yield from COMMITTED.items()


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
    run, test = Run(RESULTS / folder), load("cifar10", "test")
    correct = predictions(run.classifier_for(test), test) == test.labels
    attacked = ask(run, test.subset(images), AttackQuestion(attack=ATTACK))
    flags = attacked.content.get("flags", [])
    return {
        "folder": folder,
        "weights": run.weights_digest,
        "model": f"{run.config.title}, depth {run.config.depth}",
        "trained_on": _trained_on(run),
        "accuracy": rate(correct).plain(),
        "robust_accuracy": attacked.content["rates"]["robust_accuracy"],
        **({"flags": flags} if flags else {}),
    }


def _trained_on(run: Run) -> str:
    images, epochs = run.about["data"]["train"]["images"], run.log[-1]["epoch"]
    matched = isinstance(run.config, ViTConfig) and run.config.is_differential and run.config.init == "matched"
    return f"{images:,} images, {epochs} epochs" + (", matched initialisation" if matched else "")


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
            f"Every model below was trained on CIFAR-10 and is loaded by its name. *Under attack* is accuracy under {UNDER}",
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
        known, weights = models.get(name, {}), Run(RESULTS / folder).weights_digest
        same = known.get("weights") == weights and known["robust_accuracy"]["n"] == asked.images
        models[name] = known if same else measured(folder, asked.images)
        console.say(f"{name}: {'as before' if same else 'measured'}")
        models = {each: models[each] for each in wanted if each in models}
        files.write_json(index, {"under": UNDER, "models": models})
        files.write_text(RESULTS / "README.md", page(Zoo(RESULTS, UNDER, models)))


if __name__ == "__main__":
    main()
