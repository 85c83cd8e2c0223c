"""CLIP ablation: differential attention in the vision tower only, a schedule of lambda_init, other values of it."""

from __future__ import annotations

from dataclasses import replace

from antiphase.measures.bootstrap import difference
from antiphase.models.config import Differential
from antiphase.paper.contrasts import Side, alike, contrast, difference_line, line, success
from antiphase.paper.grid import Setting
from antiphase.paper.questions import Cell, Model, Predicted
from antiphase.paper.study import Found, Line, Prediction, Study

OOD = ("imagenet-v2", "imagenet-a", "imagenet-r", "imagenet-sketch")
GAINS = {"DiffCLIP": 0.020, "DiffCLIP-star": 0.028, "DiffCLIP-dagger": 0.019}  # over CLIP, ImageNet, CC12M
VISION = {  # of a vision-only DiffCLIP; at lambda_init 1 the official gain would be 0
    "lambda_init 0.5": Differential(lambda_init=0.5),
    "lambda_init 0.8": Differential(),
    "lambda_init 1, gain fixed at 0.2": Differential(lambda_init=1.0, out_scale="fixed"),
}


def _models(setting: Setting, variant: str) -> list[Model]:
    """All trained here: a given pair has no variants to compare it with."""
    own = Setting.at(setting.scale, setting.data)
    return own.clips("DiffCLIP-dagger", VISION[variant]) if variant in VISION else own.clips(variant)


def _cells(setting: Setting, variant: str, data: str) -> tuple[Predicted, ...]:
    models = _models(setting, variant)
    prompts = "imagenet80" if setting.scale == "paper" else None
    return tuple(Predicted(of=model, images=setting.clip_images(model, data), prompts=prompts) for model in models)


def _imagenet(setting: Setting) -> str:
    return Setting.at(setting.scale, setting.data).clip_data["imagenet"]


def _sets(setting: Setting) -> list[str]:
    return [_imagenet(setting), *(OOD if setting.scale == "paper" else ())]


def cells(setting: Setting) -> list[Cell]:
    variants = ["CLIP", *GAINS, *VISION]
    return [cell for data in _sets(setting) for v in variants for cell in _cells(setting, v, data)]


def _side(setting: Setting, variant: str, data: str) -> Side:
    return Side(_cells(setting, variant, data), success("accuracy"))


def lines(setting: Setting, found: Found) -> list[Line]:
    table: list[Line] = []
    for data in _sets(setting):
        plain = _side(setting, "CLIP", data)
        table.append(line(found, f"CLIP, {data}", plain, "zero-shot accuracy"))
        for variant in (*GAINS, *VISION):
            side = _side(setting, variant, data)
            label = variant if variant in GAINS else f"DiffCLIP-dagger, {variant}"
            table.append(line(found, f"{label}, {data}", side, "zero-shot accuracy"))
            row = difference_line(found, f"{label} - CLIP, {data}", side, plain, "zero-shot accuracy")
            printed = GAINS.get(variant) if setting.scale == "paper" and data == _imagenet(setting) else None
            table.append(replace(row, reference=printed))
    return table


def contrasts(setting: Setting) -> list[Prediction]:
    """K14: the schedule gains on ImageNet and loses out of distribution. K15: vision-only within two points of both towers."""
    home = _imagenet(setting)
    star, both = (_side(setting, variant, home) for variant in ("DiffCLIP-star", "DiffCLIP"))
    found = [
        contrast(
            "K14", "accuracy of DiffCLIP-star - DiffCLIP, imagenet", "imagenet", "zero-shot", [star, both], difference
        )
    ]
    if setting.scale == "paper":
        for data in OOD:
            pair = [_side(setting, variant, data) for variant in ("DiffCLIP", "DiffCLIP-star")]
            name = f"accuracy of DiffCLIP - DiffCLIP-star, {data}"
            found.append(contrast("K14", name, "out of distribution", "zero-shot", pair, difference))
    near = [_side(setting, variant, home) for variant in ("DiffCLIP-dagger", "DiffCLIP")]
    what = "accuracy of DiffCLIP-dagger - DiffCLIP, imagenet"
    return [*found, *alike("K15", what, "imagenet", "zero-shot", near)]


STUDIES = (
    Study(
        name="clip-ablation",
        title="CLIP ablation: vision tower only, schedule, lambda_init",
        question="What do a schedule, another lambda_init and differential attention in one tower do to zero-shot accuracy?",
        minutes=21.7,
        priced=True,
        cells=cells,
        lines=lines,
        contrasts=contrasts,
    ),
)
