"""C1: do the two maps look alike, and do they move alike, on clean and on noisy images?"""

from __future__ import annotations

from antiphase.measures.bootstrap import difference
from antiphase.paper.contrasts import Side, contrast, line, mean_of
from antiphase.paper.grid import Setting
from antiphase.paper.questions import Cell, Correlated
from antiphase.paper.study import Found, Line, Prediction, Study

IMAGES = ("clean", "gaussian8", "gaussian16", "gaussian32", "blur", "jpeg50")
NOISY = ("gaussian8", "gaussian16", "gaussian32")
STATISTICS = {
    "pearson": "correlation of the rows of A1 and A2",
    "cosine": "cosine of the rows of A1 and A2",
    "divergence": "Jensen-Shannon divergence of the rows, bits",
    "overlap": "top-5 overlap of the rows",
    "change_cosine": "cosine of the changes of A1 and A2",
}


def _cells(setting: Setting, model: str = "DiffViT") -> tuple[Correlated, ...]:
    n = setting.s.measure_images
    if model == "DiffCLIP":
        data, clips = setting.clip_data["imagenet"], setting.clips("DiffCLIP")
        return tuple(Correlated(of=clip, images=setting.clip_images(clip, data, n)) for clip in clips)
    return tuple(Correlated(of=setting.diffvit(seed), images=setting.test(n)) for seed in setting.seeds())


def cells(setting: Setting) -> list[Cell]:
    return [*_cells(setting), *(setting.predicted(cell.of) for cell in _cells(setting))]


def _side(setting: Setting, statistic: str, images: str, model: str = "DiffViT") -> Side:
    return Side(_cells(setting, model), mean_of(statistic, perturbation=images))


def lines(setting: Setting, found: Found, model: str = "DiffViT") -> list[Line]:
    return [
        line(found, f"{model}, {images}", _side(setting, name, images, model), text, unit="")
        for name, text in STATISTICS.items()
        for images in IMAGES
        if not (images == "clean" and name == "change_cosine")
    ]


def contrasts(setting: Setting) -> list[Prediction]:
    """K24: the changes correlate under noise, and the maps correlate more under noise than on clean images."""
    found = []
    for name in NOISY:
        change = [_side(setting, "change_cosine", name)]
        found.append(contrast("K24", f"cosine of changes under {name}", "DiffViT", "changes and maps", change))
        maps = [_side(setting, "pearson", images) for images in (name, "clean")]
        what = f"correlation of the maps under {name} - on clean images"
        found.append(contrast("K24", what, "DiffViT", "changes and maps", maps, difference))
    return found


STUDIES = (
    Study(
        name="c1",
        title="C1: correlation of the two maps and of their changes",
        question="Are A1 and A2 alike on noisy images and not on clean ones, and do they move alike under noise?",
        minutes=1.1,
        priced=True,
        cells=cells,
        lines=lines,
        contrasts=contrasts,
    ),
    Study(
        name="c1-clip",
        title="C1 for DiffCLIP: correlation of the two maps and of their changes",
        question="The same of the vision tower of DiffCLIP: alike on noisy images, and moving alike under noise?",
        minutes=3.6,
        priced=True,
        cells=lambda setting: list(_cells(setting, "DiffCLIP")),
        lines=lambda setting, found: lines(setting, found, "DiffCLIP"),
        clip=True,
    ),
)
