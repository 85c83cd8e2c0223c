"""C1: do the two maps look alike, and do they move alike, on clean and on noisy images?"""

from __future__ import annotations

from antiphase.measures.questions import CorrelationQuestion
from antiphase.measures.seed_intervals import difference
from antiphase.paper.contrasts import predict
from antiphase.paper.grid import Grid
from antiphase.paper.questions import Ask
from antiphase.paper.series import Series, line, mean_of
from antiphase.paper.study import Label, Line, Prediction, Study

IMAGES = ("clean", "gaussian8", "gaussian16", "gaussian32", "blur", "jpeg50")
NOISY = ("gaussian8", "gaussian16", "gaussian32")
STATISTICS = {
    "pearson": "correlation of the rows of A1 and A2",
    "cosine": "cosine of the rows of A1 and A2",
    "divergence": "Jensen-Shannon divergence of the rows, bits",
    "overlap": "top-5 overlap of the rows",
    "change_cosine": "cosine of the changes of A1 and A2",
}


def _cells(grid: Grid, model: str = "DiffViT") -> tuple[Ask, ...]:
    n, question = grid.s.measure_images, CorrelationQuestion()
    if model == "DiffCLIP":
        data, models = grid.clip_data["imagenet"], grid.clips("DiffCLIP")
        enough = grid.enough_for_pair(n)
        return tuple(Ask(of=clip, images=grid.clip_images(clip, data, enough), question=question) for clip in models)
    return tuple(Ask(of=grid.diffvit(seed), images=grid.test(n), question=question) for seed in grid.seeds())


def _series(grid: Grid, statistic: str, images: str, model: str = "DiffViT") -> Series:
    return Series(_cells(grid, model), mean_of(statistic, perturbation=images))


def lines(grid: Grid, model: str = "DiffViT") -> list[Line]:
    return [
        line(Label(model, images), _series(grid, name, images, model), text, unit="")
        for name, text in STATISTICS.items()
        for images in IMAGES
        if not (images == "clean" and name == "change_cosine")
    ]


def predictions(grid: Grid, model: str = "DiffViT") -> list[Prediction]:
    """K13 and K24 are about DiffCLIP: noise moves both maps alike; and the maps themselves are more alike under noise than on
    clean images. E3 asks the second of DiffViTs."""
    listed, reading = [], "changes and maps"
    claim = "K24" if model == "DiffCLIP" else "E3"
    for name in NOISY:
        change, what = [_series(grid, "change_cosine", name, model)], f"cosine of changes under {name}"
        if model == "DiffCLIP":
            listed.append(predict("K13", what, model, "maps", change, unit=""))
        listed.append(predict(claim, what, model, reading, change, unit="", says="changes of the maps"))
        maps = [_series(grid, "pearson", images, model) for images in (name, "clean")]
        what = f"correlation of the maps under {name} - on clean images"
        listed.append(predict(claim, what, model, reading, maps, difference, unit="", says="the maps"))
    return listed


STUDIES = (
    Study(
        name="map-correlation",
        claims=("E3",),
        aliases=("c1",),
        title="C1: correlation of the two maps and of their changes",
        question="Are A1 and A2 alike on noisy images and not on clean ones, and do they move alike under noise?",
        minutes=4.5,
        lines=lines,
        predictions=predictions,
    ),
    Study(
        name="map-correlation-clip",
        claims=("K13", "K24"),
        aliases=("c1-clip",),
        title="C1 for DiffCLIP: correlation of the two maps and of their changes",
        question="The same of the vision tower of DiffCLIP: alike on noisy images, and moving alike under noise?",
        minutes=17.5,
        lines=lambda grid: lines(grid, "DiffCLIP"),
        predictions=lambda grid: predictions(grid, "DiffCLIP"),
        clip=True,
    ),
)
