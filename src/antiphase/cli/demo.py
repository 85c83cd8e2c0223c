"""antiphase demo"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from antiphase.config import Budget, check_fields
from antiphase.files import require_folder
from antiphase.models.config import Differential, Softmax, ViTConfig
from antiphase.results.questions import CompareConfig
from antiphase.scales import ScaleName
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
    def defaults(cls, scale: ScaleName) -> Command:
        del scale  # the demo has one size: over 90 % test accuracy in well under three minutes
        return cls()

    def __post_init__(self) -> None:
        check_fields(self, seed=0)


def run(command: Command) -> dict[str, Any]:
    require_folder(command.out)
    training = TrainConfig(epochs=60, batch_size=64, seed=command.seed)
    from antiphase import console, files
    from antiphase.data import load
    from antiphase.report.page import write_page
    from antiphase.report.pages.comparison import comparison_page
    from antiphase.results.compare import compare
    from antiphase.runtime import use_threads_that_pay
    from antiphase.training.loop import train

    train_set, test_set = load("digits", "train"), load("digits", "test")
    use_threads_that_pay(test_set.shape)
    console.say(f"{len(train_set)} handwritten digits to learn from, {len(test_set)} to be judged by")
    runs = []
    for name, attention in (("ViT", Softmax()), ("DiffViT", Differential())):
        model = ViTConfig(patch=2, width=64, heads=4, depth=1, attention=(attention,), init="matched")
        run = train(model, training, train_set, test_set, command.out / name)
        console.say(f"{name}: {100 * run.log[-1]['test_accuracy']:.1f} % test accuracy after {training.epochs} epochs")
        runs.append(run)
    settings = CompareConfig(
        eps=GRID, draws=32, probes=64, max_probes=64, look_images=10, accuracy_floor=0.9, seed=command.seed
    )
    result = compare((runs[0], runs[1]), test_set, settings)
    files.write_json(command.out / "comparison.json", result)
    return result | {"page": str(write_page(comparison_page(result), command.out / "report"))}


def show(result: dict[str, Any]) -> None:
    from antiphase.report.terminal.compare import show_comparison

    show_comparison(result)
    print(f"\nThe whole story: {result['page']}")
