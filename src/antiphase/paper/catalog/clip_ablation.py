"""CLIP ablation: differential attention in the vision tower only, a schedule of lambda_init, other values of it."""

from __future__ import annotations

from dataclasses import replace

from antiphase.measures.questions import PredictionQuestion
from antiphase.measures.seed_intervals import difference
from antiphase.models.config import Differential
from antiphase.paper.contrasts import about_equal, predict
from antiphase.paper.grid import Grid
from antiphase.paper.questions import Ask, Model
from antiphase.paper.series import Series, Success, difference_line, line
from antiphase.paper.study import Label, Line, Prediction, Study

OOD = ("imagenet-v2", "imagenet-a", "imagenet-r", "imagenet-sketch")
GAINS = {"DiffCLIP": 0.020, "DiffCLIP-star": 0.028, "DiffCLIP-dagger": 0.019}  # over CLIP, ImageNet, CC12M
VISION = {  # of a vision-only DiffCLIP; at lambda_init 1 the official gain would be 0
    "lambda_init 0.5": Differential(lambda_init=0.5),
    "lambda_init 0.8": Differential(),
    "lambda_init 1, gain fixed at 0.2": Differential(lambda_init=1.0, out_scale="fixed"),
}


def _models(grid: Grid, variant: str) -> list[Model]:
    """All trained here: a given pair has no variants to compare it with."""
    own = replace(grid, pair=None, pair_data=None)
    return own.clips("DiffCLIP-dagger", VISION[variant]) if variant in VISION else own.clips(variant)


def _accuracy(grid: Grid, variant: str, data: str) -> Series:
    prompts = "imagenet80" if grid.scale == "paper" else None
    cells = tuple(
        Ask(of=model, images=grid.clip_images(model, data), question=PredictionQuestion(), prompts=prompts)
        for model in _models(grid, variant)
    )
    return Series(cells, Success("accuracy"))


def _imagenet(grid: Grid) -> str:
    return replace(grid, pair=None, pair_data=None).clip_data["imagenet"]


def _sets(grid: Grid) -> list[str]:
    return [_imagenet(grid), *(OOD if grid.scale == "paper" else ())]


def lines(grid: Grid) -> list[Line]:
    table: list[Line] = []
    reading = "zero-shot accuracy"
    for data in _sets(grid):
        plain = _accuracy(grid, "CLIP", data)
        table.append(line(Label("CLIP", data), plain, reading))
        for variant in (*GAINS, *VISION):
            series = _accuracy(grid, variant, data)
            name = variant if variant in GAINS else f"DiffCLIP-dagger, {variant}"
            table.append(line(Label(name, data), series, reading))
            printed = GAINS.get(variant) if grid.scale == "paper" and data == _imagenet(grid) else None
            table.append(difference_line(Label(f"{name} - CLIP", data), series, plain, reading, reference=printed))
    return table


def predictions(grid: Grid) -> list[Prediction]:
    """K14: the schedule gains on ImageNet and loses out of distribution. K15: vision-only within two points of both towers."""
    home, reading = _imagenet(grid), "zero-shot"
    pair = [_accuracy(grid, variant, home) for variant in ("DiffCLIP-star", "DiffCLIP")]
    name = "accuracy of DiffCLIP-star - DiffCLIP, imagenet"
    listed = [predict("K14", name, "imagenet", reading, pair, difference, says="ImageNet")]
    if grid.scale == "paper":
        for data in OOD:
            pair = [_accuracy(grid, variant, data) for variant in ("DiffCLIP", "DiffCLIP-star")]
            name = f"accuracy of DiffCLIP - DiffCLIP-star, {data}"
            part = "out of distribution"
            listed.append(predict("K14", name, part, reading, pair, difference, says=part))
    near = [_accuracy(grid, variant, home) for variant in ("DiffCLIP-dagger", "DiffCLIP")]
    what = "accuracy of DiffCLIP-dagger - DiffCLIP, imagenet"
    return [*listed, *about_equal("K15", what, "imagenet", reading, near)]


STUDIES = (
    Study(
        name="clip-ablation",
        claims=("K14", "K15"),
        title="CLIP ablation: vision tower only, schedule, lambda_init",
        question="What do a schedule, another lambda_init and differential attention in one tower do to zero-shot accuracy?",
        minutes=100.5,
        lines=lines,
        predictions=predictions,
    ),
)
