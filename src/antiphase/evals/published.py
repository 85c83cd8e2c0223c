"""The numbers of DiffCLIP's paper for its B/16 models, in percent, shown beside ours where the model is one of them. No torch."""

from __future__ import annotations

from typing import Literal

from antiphase.config import InputError
from antiphase.evals.config import GROUPS
from antiphase.models.clip_config import PRESETS, VARIANTS, CLIPConfig

Pretraining = Literal["CC3M", "CC12M"]


# Table 1: the nine sets in the order of GROUPS["downstream"], and their mean.
_TABLE_1 = {
    ("linear probe", "CC3M", "CLIP"): "72.5 58.7 61.0 85.8 54.1 35.7 83.5 63.4 59.1 63.8",
    ("linear probe", "CC3M", "DiffCLIP"): "76.2 60.2 62.2 86.6 56.2 34.6 83.9 63.7 59.4 64.8",
    ("linear probe", "CC12M", "CLIP"): "88.3 71.2 79.5 92.6 68.3 48.8 92.0 74.7 77.5 77.0",
    ("linear probe", "CC12M", "DiffCLIP"): "89.5 71.8 83.0 93.5 69.4 46.4 90.7 73.3 77.7 77.3",
    ("few-shot", "CC3M", "CLIP"): "90.4 72.9 69.6 92.5 91.8 44.6 63.4 72.8 67.0 73.9",
    ("few-shot", "CC3M", "DiffCLIP"): "91.6 73.2 71.6 92.9 92.8 45.4 62.4 73.5 68.3 74.6",
    ("few-shot", "CC12M", "CLIP"): "97.4 81.9 86.3 96.9 96.5 56.1 81.3 85.1 86.0 85.3",
    ("few-shot", "CC12M", "DiffCLIP"): "97.6 82.2 88.2 97.3 96.8 55.2 80.3 83.3 87.5 85.4",
}


# Table 2: Flickr30k, Flickr8k, COCO, and their mean.
_TABLE_2 = {
    ("image retrieval R@5", "CC3M", "CLIP"): "31.8 35.4 19.4 28.9",
    ("image retrieval R@5", "CC3M", "DiffCLIP"): "32.9 36.5 20.9 30.1",
    ("image retrieval R@5", "CC12M", "CLIP"): "62.5 62.1 41.3 55.3",
    ("image retrieval R@5", "CC12M", "DiffCLIP"): "62.2 61.5 42.3 55.3",
    ("text retrieval R@5", "CC3M", "CLIP"): "43.4 46.2 25.4 38.3",
    ("text retrieval R@5", "CC3M", "DiffCLIP"): "44.7 47.8 27.6 40.1",
    ("text retrieval R@5", "CC12M", "CLIP"): "76.8 77.7 53.8 69.4",
    ("text retrieval R@5", "CC12M", "DiffCLIP"): "77.4 77.4 55.5 70.1",
}
_SINGLE = {
    ("zero-shot", "imagenet", "CC3M", "CLIP"): 13.6,
    ("zero-shot", "imagenet", "CC3M", "DiffCLIP"): 14.4,
    ("zero-shot", "imagenet", "CC12M", "CLIP"): 31.8,
    ("zero-shot", "imagenet", "CC12M", "DiffCLIP"): 33.8,
    ("mmvp, by statement", "mmvp", "CC12M", "CLIP"): 21.9,  # a mean over categories; which ones is not said
    ("mmvp, by statement", "mmvp", "CC12M", "DiffCLIP"): 27.6,
}


# Figures 3 and 5 show only what is gained over CLIP, in points.
_GAINS = {
    ("zero-shot", "imagenet-v2", "CC3M", "DiffCLIP"): 0.2,
    ("zero-shot", "imagenet-a", "CC3M", "DiffCLIP"): 0.4,
    ("zero-shot", "imagenet-r", "CC3M", "DiffCLIP"): 0.6,
    ("zero-shot", "imagenet-sketch", "CC3M", "DiffCLIP"): 0.1,
    ("zero-shot", "ood", "CC3M", "DiffCLIP"): 0.3,
    ("zero-shot", "imagenet-v2", "CC12M", "DiffCLIP"): 1.0,
    ("zero-shot", "imagenet-a", "CC12M", "DiffCLIP"): 1.1,
    ("zero-shot", "imagenet-r", "CC12M", "DiffCLIP"): 3.3,
    ("zero-shot", "imagenet-sketch", "CC12M", "DiffCLIP"): 2.8,
    ("zero-shot", "ood", "CC12M", "DiffCLIP"): 2.1,
    ("linear probe", "downstream", "CC12M", "DiffCLIP-star"): 0.0,
    ("linear probe", "downstream", "CC12M", "DiffCLIP-dagger"): 0.1,
    ("few-shot", "downstream", "CC12M", "DiffCLIP-star"): 0.2,
    ("few-shot", "downstream", "CC12M", "DiffCLIP-dagger"): 0.3,
    ("image retrieval R@5", "captions", "CC12M", "DiffCLIP-star"): 0.1,
    ("image retrieval R@5", "captions", "CC12M", "DiffCLIP-dagger"): 0.4,
    ("text retrieval R@5", "captions", "CC12M", "DiffCLIP-star"): 1.5,
    ("text retrieval R@5", "captions", "CC12M", "DiffCLIP-dagger"): 1.2,
    ("zero-shot", "imagenet", "CC12M", "DiffCLIP-star"): 2.8,
    ("zero-shot", "imagenet", "CC12M", "DiffCLIP-dagger"): 1.9,
    ("zero-shot", "ood", "CC12M", "DiffCLIP-star"): 1.3,
    ("zero-shot", "ood", "CC12M", "DiffCLIP-dagger"): 2.3,
}
Key = tuple[str, str, str, str]  # row, data set or group, pretraining, model


def _by_key() -> dict[Key, float]:
    values: dict[Key, float] = dict(_SINGLE)
    for table, group in ((_TABLE_1, "downstream"), (_TABLE_2, "captions")):
        for (row, data, model), numbers in table.items():
            values |= {(row, name, data, model): float(v) for name, v in zip((*GROUPS[group], group), numbers.split())}
    return values


VALUES = _by_key()


def check_published(config: object, where: str) -> None:
    """Refuse a model that is not of the published shape: B/16, in one of the four variants."""
    is_published = (
        isinstance(config, CLIPConfig) and config.title in VARIANTS and _shape(config) == _shape(PRESETS["B/16"])
    )
    if not is_published:
        names = ", ".join(VARIANTS)
        raise InputError(f"{where} is no published model: --published is for a converted B/16 checkpoint ({names})")


def _shape(config: CLIPConfig) -> tuple[int, ...]:
    vision, text = config.vision, config.text
    return vision.width, vision.depth, vision.patch, vision.image, text.width, text.depth, config.joint


def published(row: str, data: str, pretraining: Pretraining | None, title: str) -> dict[str, float] | None:
    """{"value": percent} or {"gain": points over CLIP}; None where nothing is printed."""
    key = (row, data, str(pretraining), title)
    if key in VALUES:
        return {"value": VALUES[key]}
    return {"gain": _GAINS[key]} if key in _GAINS else None
