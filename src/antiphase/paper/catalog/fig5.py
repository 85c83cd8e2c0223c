"""Figure 5: how often do the gradients of the two branches oppose each other?"""

from __future__ import annotations

from antiphase.measures.stats import Array
from antiphase.paper.contrasts import PAIRS, Side, contrast, line, mean_of, negative, stacked, undecided
from antiphase.paper.grid import Setting
from antiphase.paper.questions import Aligned, Cell, Train
from antiphase.paper.study import FIGURE_ONLY, Found, Line, Prediction, Study

READINGS = ("R1", "R3", "R8")  # Jacobians per head, finite changes, the layer isolated
DECIDING = ("R1", "R3")  # primary and co-primary


def aligned_of(setting: Setting, models: list[Train], reading: str) -> tuple[Aligned, ...]:
    """Depth-1 DiffViTs, each beside the ViT of its seed."""
    return tuple(
        Aligned(
            of=model,
            base=setting.vit(model.training.seed),
            images=setting.test(setting.s.measure_images),
            reading=reading,
            probes=setting.s.probes,
            max_probes=setting.s.max_probes,
        )
        for model in models
    )


def aligned(setting: Setting, reading: str) -> tuple[Aligned, ...]:
    return aligned_of(setting, [setting.diffvit(seed) for seed in setting.seeds()], reading)


def cells(setting: Setting) -> list[Cell]:
    asked: list[Cell] = [cell for reading in READINGS for cell in aligned(setting, reading)]
    return asked + [setting.predicted(cell.of) for cell in aligned(setting, "R1")]


def lines(setting: Setting, found: Found) -> list[Line]:
    asked = [(f"{reading}: share of cos < 0", reading, negative) for reading in READINGS]
    asked += [("R2: share of cos < 0, heads together", "R1", stacked)]
    asked += [("R1: share of undecided signs, left out", "R1", undecided)]
    shares = [
        line(
            found,
            _named(pairs),
            Side(aligned(setting, measured), values(pairs)),
            reading,
            reference=FIGURE_ONLY if pairs == "own" and values is not undecided else None,
        )
        for reading, measured, values in asked
        for pairs in PAIRS
    ]
    sizes = [
        line(
            found, _named(pairs), Side(aligned(setting, "R1"), mean_of("cos", 0, pairs=pairs)), "R1: mean cos", unit=""
        )
        for pairs in PAIRS
    ]
    return [*shares, *sizes]


def _named(pairs: str) -> str:
    return "DiffViT, layer 1" if pairs == "own" else f"control: {pairs}"


def _over_half(share: Array) -> Array:
    return share - 0.5


def contrasts(setting: Setting) -> list[Prediction]:
    """K8: more than half of the (image, head) pairs of a depth-1 DiffViT are opposed."""
    return [
        contrast(
            "K8",
            f"share of cos < 0 ({reading}) - 50 %, depth 1",
            "DiffViT",
            reading,
            [Side(aligned(setting, reading), negative("own"))],
            _over_half,
        )
        for reading in DECIDING
    ]


STUDIES = (
    Study(
        name="fig5",
        title="Figure 5: frequency of negative gradient alignment",
        question="Do the input gradients of A1 and A2 oppose each other on more than half of the images, beyond the controls?",
        minutes=3.0,
        cells=cells,
        lines=lines,
        contrasts=contrasts,
    ),
)
