"""Table 3: adversarial training of the DiffViT."""

from __future__ import annotations

from antiphase.config import Budget
from antiphase.measures.bootstrap import difference
from antiphase.paper.contrasts import ASR, Side, contrast, line, success, trained_lines
from antiphase.paper.grid import Setting
from antiphase.paper.questions import Attacked, Cell, Train
from antiphase.paper.study import Found, Line, Prediction, Study

PRINTED = {  # accuracy, then attack success at 0.25, 0.5 and 1 (/255), by the place of the training budget; None: vanilla
    None: (0.8700, 0.3310, 0.6367, 0.8498),
    0: (0.9518, 0.2537, 0.6434, 0.8824),
    1: (0.8931, 0.1787, 0.4440, 0.7676),
    2: (0.7384, 0.0982, 0.2089, 0.4302),
}


def _budgets(setting: Setting) -> tuple[Budget, ...]:
    """0.25, 0.5 and 1 (/255), or what the smoke scale has in their place: to train with and to attack with."""
    return setting.eps[:3]


def _ways(setting: Setting) -> list[str]:
    return ["fine-tuned", *(["from scratch"] if setting.s.adv_from_scratch else [])]


def _models(setting: Setting, place: int | None, way: str) -> list[Train]:
    vanilla = [setting.diffvit(seed) for seed in setting.seeds()]
    if place is None:
        return vanilla
    eps = _budgets(setting)[place]
    if way == "from scratch":
        return [setting.diffvit(seed, adv_eps=eps) for seed in setting.seeds()]
    epochs = setting.s.adv_epochs
    return [setting.diffvit(m.training.seed, adv_eps=eps, epochs=epochs, start=m) for m in vanilla]


def _grid(setting: Setting) -> list[tuple[int | None, str]]:
    return [(None, "vanilla"), *((place, way) for way in _ways(setting) for place in range(3))]


def _cells(setting: Setting, place: int | None, way: str, eps: Budget) -> tuple[Attacked, ...]:
    return tuple(setting.attacked(model, setting.pgd(eps)) for model in _models(setting, place, way))


def cells(setting: Setting) -> list[Cell]:
    return [
        cell for place, way in _grid(setting) for eps in _budgets(setting) for cell in _cells(setting, place, way, eps)
    ]


def lines(setting: Setting, found: Found) -> list[Line]:
    table: list[Line] = []
    for place, way in _grid(setting):
        label = "vanilla" if place is None else f"trained at {_budgets(setting)[place]}, {way}"
        printed = [setting.printed(p) if way != "from scratch" else None for p in PRINTED[place]]
        table += trained_lines(found, label, _models(setting, place, way), printed[0])
        for reading in ASR:
            for k, eps in enumerate(_budgets(setting)):
                side = Side(_cells(setting, place, way, eps), success(reading))
                told = printed[k + 1] if reading == "asr_change" else None
                table.append(line(found, f"{label}, attacked at {eps}", side, reading, reference=told))
    return table


def contrasts(setting: Setting) -> list[Prediction]:
    """K12: at its own budget each fine-tuned model falls less often than the vanilla one; the last loses accuracy."""
    found: list[Prediction] = []
    budgets = _budgets(setting)
    for reading in ASR:
        for place, eps in enumerate(budgets):
            pair = [Side(_cells(setting, p, "fine-tuned", eps), success(reading)) for p in (None, place)]
            name = f"ASR vanilla - trained at {eps}, attacked at {eps}"
            found.append(contrast("K12", name, setting.data, reading, pair, difference))
        clean = [Side(_cells(setting, p, "fine-tuned", budgets[2]), success("accuracy")) for p in (None, 2)]
        name = f"accuracy vanilla - trained at {budgets[2]}"
        found.append(contrast("K12", name, setting.data, reading, clean, difference))
    return found


STUDIES = (
    Study(
        name="table3",
        title="Table 3: adversarial training of a depth-1 DiffViT",
        question="What does adversarial training at 0.25, 0.5 and 1/255 buy at each budget, and what does it cost in accuracy?",
        minutes=16.2,
        priced=True,
        cells=cells,
        lines=lines,
        contrasts=contrasts,
    ),
)
