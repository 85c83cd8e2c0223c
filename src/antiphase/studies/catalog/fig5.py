"""Figure 5: how often do the gradients of the two branches oppose each other?"""

from __future__ import annotations

import numpy as np

from antiphase.measures.bootstrap import Array
from antiphase.studies.plan import Aligned, Cell
from antiphase.studies.setting import Setting
from antiphase.studies.sides import Side, Values, contrast, line
from antiphase.studies.study import FIGURE_ONLY, Answer, Contrast, Found, Line, Study

READINGS = ("R1", "R3", "R8")  # Jacobians per head, finite changes, the layer isolated
DECIDING = ("R1", "R3")  # primary and co-primary
PAIRS = ("own", "untrained", "shuffled", "pseudo")


def aligned(setting: Setting, reading: str) -> tuple[Aligned, ...]:
    images = setting.test(setting.s.measure_images)
    return tuple(
        Aligned(
            of=setting.diffvit(seed),
            base=setting.vit(seed),
            images=images,
            reading=reading,
            probes=setting.s.probes,
            max_probes=setting.s.max_probes,
        )
        for seed in setting.seeds()
    )


def negative(pairs: str, layer: int = 0) -> Values:
    """Of an image's heads whose sign is decided (more than two standard errors from 0), those with cos < 0."""

    def values(answer: Answer) -> tuple[Array, Array]:
        rows = answer["rows"]
        names = list(dict.fromkeys(name for name, p in zip(rows["layer"], rows["pairs"]) if p == pairs))
        tops: dict[int, float] = {}
        bottoms: dict[int, float] = {}
        for p, name, image, cos, se in zip(*(rows[k] for k in ("pairs", "layer", "image", "cos", "cos_se"))):
            if p == pairs and name == names[layer]:
                decided = cos is not None and abs(cos) > 2 * (se or 0.0)
                tops[image] = tops.get(image, 0.0) + float(decided and cos < 0)
                bottoms[image] = bottoms.get(image, 0.0) + float(decided)
        return np.array(list(tops.values())), np.array(list(bottoms.values()))

    return values


def stacked(pairs: str, layer: int = 0) -> Values:
    """R2, from the rows of R1: all heads of a layer together have cos < 0 where the sum of their <J1, J2> is below 0."""

    def values(answer: Answer) -> tuple[Array, Array]:
        rows = answer["rows"]
        names = list(dict.fromkeys(name for name, p in zip(rows["layer"], rows["pairs"]) if p == pairs))
        sums: dict[int, float] = {}
        for p, name, image, ip in zip(*(rows[k] for k in ("pairs", "layer", "image", "ip"))):
            if p == pairs and name == names[layer]:
                sums[image] = sums.get(image, 0.0) + ip
        below = np.array([float(ip < 0) for ip in sums.values()])
        return below, np.ones_like(below)

    return values


def cells(setting: Setting) -> list[Cell]:
    asked: list[Cell] = [cell for reading in READINGS for cell in aligned(setting, reading)]
    return asked + [setting.predicted(cell.of) for cell in aligned(setting, "R1")]


def lines(setting: Setting, found: Found) -> list[Line]:
    asked = [(reading, reading, negative) for reading in READINGS] + [("R2", "R1", stacked)]
    return [
        line(
            found,
            "DiffViT, layer 1" if pairs == "own" else f"control: {pairs}",
            Side(aligned(setting, measured), values(pairs)),
            f"{reading}: share of cos < 0",
            reference=FIGURE_ONLY if pairs == "own" else None,
        )
        for reading, measured, values in asked
        for pairs in PAIRS
    ]


def _over_half(share: Array) -> Array:
    return share - 0.5


def contrasts(setting: Setting) -> list[Contrast]:
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
        cells=cells,
        lines=lines,
        contrasts=contrasts,
    ),
)
