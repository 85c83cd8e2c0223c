"""Words for the titles of studies: what a scale really has of data, depths, budgets and restarts. No torch."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from antiphase.config import Budget

DATA_NAMES = {
    "digits": "digits",
    "cifar10": "CIFAR-10",
    "cifar100": "CIFAR-100",
    "tiny-imagenet": "Tiny ImageNet",
    "imagenet": "ImageNet",
    "coco": "COCO",
    "shapes": "shapes",
}


def data_name(data: str) -> str:
    """As it is printed; a folder of the user's own keeps its name."""
    return DATA_NAMES.get(data, data)


def data_names(names: Iterable[str]) -> str:
    return listed(dict.fromkeys(map(data_name, names)))


def listed(items: Iterable[object]) -> str:
    """1, 2 and 4"""
    *most, last = map(str, items)
    return f"{', '.join(most)} and {last}" if most else last


def budgets(eps: Sequence[Budget]) -> str:
    """0.5, 1 and 4/255: the unit once."""
    texts = list(map(str, eps))
    if all(text.endswith("/255") for text in texts):
        texts[:-1] = [text.removesuffix("/255") for text in texts[:-1]]
    return listed(texts)


def depths(numbers: Sequence[int]) -> str:
    return f"depth{'s' * (len(numbers) > 1)} {listed(numbers)}"


def restarts(number: int) -> str:
    """How often an attack starts anew."""
    return "one restart" if number == 1 else f"{number} restarts"


def any_restart(number: int) -> str:
    """Whose success a union counts."""
    return "the one restart" if number == 1 else f"any of {number} restarts"
