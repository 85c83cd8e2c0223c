"""Figure 2b and d, and figure 6 for CLIP: pixels, patches and restarts on CLIP and DiffCLIP."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from antiphase.measures.bootstrap import Array, difference
from antiphase.studies.clips import asked, sides, success_lines, under
from antiphase.studies.plan import Cell
from antiphase.studies.questions import Attack
from antiphase.studies.setting import Setting
from antiphase.studies.sides import ASR, contrast, success
from antiphase.studies.study import FIGURE_ONLY, Contrast, Found, Line, Study

ALIKE = 0.02  # what `about equal` is taken to mean: within two points
UNION = ("union_change", "union_correct")
Attacks = Callable[[Setting], dict[str, Attack]]


def pixels(setting: Setting) -> dict[str, Attack]:
    """The paper drives the image away from the text of its class: the cosine is the loss."""
    return {f"eps {eps}": setting.pgd(eps, loss="cosine") for eps in setting.eps}


def patches(setting: Setting) -> dict[str, Attack]:
    return {f"patch {w} x {w}": setting.patch(w, loss="cosine") for w in setting.clip_widths()}


def every(setting: Setting, attacks: dict[str, Attack]) -> list[Cell]:
    return [
        cell
        for data in dict.fromkeys(setting.clip_data.values())
        for attack in attacks.values()
        for cells in asked(setting, data, under(attack)).values()
        for cell in cells
    ]


def _lines(attacks: Attacks, readings: tuple[str, ...]) -> Callable[[Setting, Found], list[Line]]:
    return lambda setting, found: success_lines(setting, found, attacks(setting), readings, FIGURE_ONLY)


def _alike(a: Array, b: Array) -> Array:
    return ALIKE - np.abs(a - b)


def _contrasts(attacks: Attacks, *, alike: bool) -> Callable[[Setting], list[Contrast]]:
    """K9: DiffCLIP above CLIP on COCO, everywhere. K10: above it on ImageNet by pixels, within two points by patches."""

    def contrasts(setting: Setting) -> list[Contrast]:
        found: list[Contrast] = []
        for reading in ASR:
            for label, attack in attacks(setting).items():
                for claim, named in (("K9", "coco"), ("K10", "imagenet")):
                    both = sides(setting, setting.clip_data[named], under(attack), success(reading))
                    pair = [both["DiffCLIP"], both["CLIP"]]
                    equal = alike and claim == "K10"
                    what = f"ASR of DiffCLIP - CLIP, {named}, {label}"
                    name = f"{100 * ALIKE:.0f} points - |{what}|" if equal else what
                    found.append(contrast(claim, name, named, reading, pair, _alike if equal else difference))
        return found

    return contrasts


STUDIES = (
    Study(
        name="fig2b",
        title="Figure 2b: PGD on CLIP and DiffCLIP",
        question="Is DiffCLIP easier to fool than CLIP by perturbed pixels?",
        cells=lambda setting: every(setting, pixels(setting)),
        lines=_lines(pixels, ASR),
        contrasts=_contrasts(pixels, alike=False),
        clip=True,
    ),
    Study(
        name="fig2d",
        title="Figure 2d: patch attacks on CLIP and DiffCLIP",
        question="Is DiffCLIP easier to fool than CLIP by a patch?",
        cells=lambda setting: every(setting, patches(setting)),
        lines=_lines(patches, ASR),
        contrasts=_contrasts(patches, alike=True),
        clip=True,
    ),
    Study(
        name="fig6-clip",
        title="Figure 6 for CLIP: the union of three restarts",
        question="Do restarts raise attack success on CLIP and DiffCLIP, and does their order stay?",
        cells=lambda setting: every(setting, pixels(setting)),
        lines=_lines(pixels, UNION),
        clip=True,
    ),
)
