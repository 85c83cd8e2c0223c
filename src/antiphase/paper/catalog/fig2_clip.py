"""Figure 2b and d, and figure 6 for CLIP: pixels, patches and restarts on CLIP and DiffCLIP."""

from __future__ import annotations

from collections.abc import Callable

from antiphase.attacks.config import Attack
from antiphase.measures.seed_intervals import difference, difference_of_gaps
from antiphase.paper.contrasts import about_equal, at_least, predict
from antiphase.paper.grid import Grid, clip_lines, clip_series, clips_under
from antiphase.paper.series import ALIKE, ASR, Series, Success
from antiphase.paper.study import FIGURE_ONLY, Line, Prediction, Study, Tick
from antiphase.paper.titles import any_restart, budgets, data_names, listed, restarts

UNION = ("union_change", "union_correct")
Make = Callable[[Grid], dict[Tick, Attack]]


def pixels(grid: Grid) -> dict[Tick, Attack]:
    """The paper drives the image away from the text of its class: the cosine is the loss."""
    return {Tick.eps(eps): grid.pgd(eps, loss="cosine") for eps in grid.eps}


def patches(grid: Grid) -> dict[Tick, Attack]:
    return {Tick.patch(width): grid.patch(width, loss="cosine") for width in grid.clip_widths()}


def _lines(attacks: Make, readings: tuple[str, ...]) -> Callable[[Grid], list[Line]]:
    return lambda grid: clip_lines(grid, attacks(grid), readings, FIGURE_ONLY)


def _predictions(attacks: Make, *, equally: bool) -> Callable[[Grid], list[Prediction]]:
    """K9: on COCO nowhere below CLIP by two points. K10: above it on ImageNet by pixels, within two points by patches. K19: the
    gap is larger on COCO, with 80 classes, than on ImageNet, with 1,000."""

    def predictions(grid: Grid) -> list[Prediction]:
        listed: list[Prediction] = []
        for reading in ASR:
            for tick, attack in attacks(grid).items():
                coco, imagenet = (_gap(grid, data, attack, reading) for data in ("coco", "imagenet"))
                what = f"ASR of DiffCLIP - CLIP, imagenet, {tick.text}"
                name = f"ASR of DiffCLIP - CLIP + {100 * ALIKE:.0f} points, coco, {tick.text}"
                if grid.decides_on("coco"):
                    listed.append(predict("K9", name, "coco", reading, coco, at_least, threshold=True, margin=ALIKE))
                if not grid.decides_on("imagenet"):
                    continue
                if equally:
                    listed += about_equal("K10", what, "imagenet", reading, imagenet, says="patches")
                else:
                    listed.append(predict("K10", what, "imagenet", reading, imagenet, difference, says="pixels"))
                if grid.decides_on("coco"):
                    name = f"gap of ASR on coco - gap on imagenet, {tick.text}"
                    listed.append(
                        predict("K19", name, "coco and imagenet", reading, [*coco, *imagenet], difference_of_gaps)
                    )
        return listed

    return predictions


def _gap(grid: Grid, named: str, attack: Attack, reading: str) -> list[Series]:
    both = clip_series(grid, grid.clip_data[named], clips_under(attack), Success(reading))
    return [both["DiffCLIP"], both["CLIP"]]


STUDIES = (
    Study(
        name="fig2b",
        claims=("K9", "K10", "K19"),
        title=lambda grid: (
            f"Figure 2b: PGD at {budgets(grid.eps)} ({restarts(grid.s.pgd_restarts)}) on CLIP and DiffCLIP, "
            f"{data_names(grid.clip_data.values())}"
        ),
        question="Is DiffCLIP easier to fool than CLIP by perturbed pixels?",
        minutes=50.7,
        lines=_lines(pixels, ASR),
        predictions=_predictions(pixels, equally=False),
        clip=True,
    ),
    Study(
        name="fig2d",
        claims=("K9", "K10", "K19"),
        title=lambda grid: (
            f"Figure 2d: patches {listed(grid.clip_widths())} pixels wide on CLIP and DiffCLIP, "
            f"{data_names(grid.clip_data.values())}"
        ),
        question="Is DiffCLIP easier to fool than CLIP by a patch?",
        minutes=38.8,
        lines=_lines(patches, ASR),
        predictions=_predictions(patches, equally=True),
        clip=True,
    ),
    Study(
        name="fig6-clip",
        title=lambda grid: (
            f"Figure 6 for CLIP: fooled by {any_restart(grid.s.pgd_restarts)} of PGD, "
            f"{data_names(grid.clip_data.values())}"
        ),
        question="Do restarts raise attack success on CLIP and DiffCLIP, and does their order stay?",
        minutes=50.7,
        lines=_lines(pixels, UNION),
        clip=True,
    ),
)
