"""antiphase demo"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from antiphase.config import Budget
from antiphase.models.config import Differential, Softmax, ViTConfig
from antiphase.studies.config import CompareConfig
from antiphase.training.config import TrainConfig

EXAMPLES = """\
  antiphase demo
  antiphase demo --out runs/again --seed 1"""

GRID = tuple(Budget(f"{e}/255") for e in (2, 4, 8, 12, 16, 24, 32, 48))


@dataclass(frozen=True, kw_only=True)
class Command:
    out: Path = Path("runs/demo")  # folder for both runs, the comparison and the page
    seed: int = 0  # of weights, data order and attacks
    json: bool = False  # print the result as JSON on stdout

    @classmethod
    def defaults(cls, scale: str) -> Command:
        del scale  # the demo has one size: over 90 % test accuracy in well under three minutes
        return cls()


def run(command: Command) -> dict[str, Any]:
    training = TrainConfig(epochs=60, batch_size=64, seed=command.seed)
    from antiphase import console, files
    from antiphase.data import load
    from antiphase.report.page import write_report
    from antiphase.studies.compare import compare
    from antiphase.training.loop import train

    train_set, test_set = load("digits", "train"), load("digits", "test")
    console.say(f"{len(train_set)} handwritten digits to learn from, {len(test_set)} to be judged by")
    runs = []
    for name, attention in (("ViT", Softmax()), ("DiffViT", Differential())):
        model = ViTConfig(patch=2, width=64, heads=4, depth=1, attention=(attention,), init="matched")
        run = train(model, training, train_set, test_set, command.out / name)
        console.say(f"{name}: {100 * run.log[-1]['test_accuracy']:.1f} % test accuracy after {training.epochs} epochs")
        runs.append(run)
    settings = CompareConfig(eps=GRID, steps=20, runs=3, draws=32, probes=64, measure_images=128, seed=command.seed)
    result = compare(*runs, test_set, settings)
    files.write_json(command.out / "comparison.json", result)
    return result | {"page": str(write_report(result, command.out / "report"))}


def show(result: dict[str, Any]) -> None:
    from rich.table import Table

    from antiphase.console import stdout
    from antiphase.report.findings import findings, with_interval

    table = Table(title=f"predictions changed by PGD (asr_change), n = {result['data']['n']}, 95 % intervals", title_justify="left")
    for column in ("eps", *(side["name"] for side in result["models"])):
        table.add_column(column, justify="right")
    for cells in zip(*(side["attacks"] for side in result["models"])):
        table.add_row(str(Budget(cells[0]["eps"])), *(with_interval(cell["rates"]["asr_change"]) for cell in cells))
    stdout.print(table)
    for sentence in findings(result):
        stdout.print(f"- {sentence}", markup=False)
    print(f"\nThe whole story: {result['page']}")
