"""Figure 2b and d, and figure 6 for CLIP: pixels, patches and restarts on CLIP and DiffCLIP."""

from __future__ import annotations

from collections.abc import Callable

from antiphase.measures.bootstrap import difference
from antiphase.measures.stats import Array
from antiphase.paper.contrasts import ALIKE, ASR, Side, alike, contrast, success
from antiphase.paper.grid import Setting, asked_of_clips, clip_lines, clip_series, clips_under
from antiphase.paper.questions import Attack, Cell
from antiphase.paper.study import FIGURE_ONLY, Found, Line, Prediction, Study

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
        for cells in asked_of_clips(setting, data, clips_under(attack)).values()
        for cell in cells
    ]


def _lines(attacks: Attacks, readings: tuple[str, ...]) -> Callable[[Setting, Found], list[Line]]:
    return lambda setting, found: clip_lines(setting, found, attacks(setting), readings, FIGURE_ONLY)


def _contrasts(attacks: Attacks, *, equally: bool) -> Callable[[Setting], list[Prediction]]:
    """K9: on COCO nowhere below CLIP by two points. K10: above it on ImageNet by pixels, within two points by patches."""

    def contrasts(setting: Setting) -> list[Prediction]:
        found: list[Prediction] = []
        for reading in ASR:
            for label, attack in attacks(setting).items():
                coco, imagenet = (_ends(setting, data, attack, reading) for data in ("coco", "imagenet"))
                what = f"ASR of DiffCLIP - CLIP, imagenet, {label}"
                name = f"ASR of DiffCLIP - CLIP + {100 * ALIKE:.0f} points, coco, {label}"
                found.append(contrast("K9", name, "coco", reading, coco, _at_least, threshold=True))
                if equally:
                    found += alike("K10", what, "imagenet", reading, imagenet)
                else:
                    found.append(contrast("K10", what, "imagenet", reading, imagenet, difference))
        return found

    return contrasts


def _ends(setting: Setting, named: str, attack: Attack, reading: str) -> list[Side]:
    both = clip_series(setting, setting.clip_data[named], clips_under(attack), success(reading))
    return [both["DiffCLIP"], both["CLIP"]]


def _at_least(a: Array, b: Array) -> Array:
    return difference(a, b) + ALIKE


STUDIES = (
    Study(
        name="fig2b",
        title="Figure 2b: PGD on CLIP and DiffCLIP",
        question="Is DiffCLIP easier to fool than CLIP by perturbed pixels?",
        minutes=9.3,
        priced=True,
        cells=lambda setting: every(setting, pixels(setting)),
        lines=_lines(pixels, ASR),
        contrasts=_contrasts(pixels, equally=False),
        clip=True,
    ),
    Study(
        name="fig2d",
        title="Figure 2d: patch attacks on CLIP and DiffCLIP",
        question="Is DiffCLIP easier to fool than CLIP by a patch?",
        minutes=7.7,
        priced=True,
        cells=lambda setting: every(setting, patches(setting)),
        lines=_lines(patches, ASR),
        contrasts=_contrasts(patches, equally=True),
        clip=True,
    ),
    Study(
        name="fig6-clip",
        title="Figure 6 for CLIP: the union of three restarts",
        question="Do restarts raise attack success on CLIP and DiffCLIP, and does their order stay?",
        minutes=9.3,
        priced=True,
        cells=lambda setting: every(setting, pixels(setting)),
        lines=_lines(pixels, UNION),
        clip=True,
    ),
)
