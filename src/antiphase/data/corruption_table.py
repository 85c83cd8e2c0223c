"""The standard corruptions by name, with the published numbers of their five severities. No torch.

Hendrycks and Dietterich (2019) define nineteen: fifteen of CIFAR-10-C and ImageNet-C, and four to tune on. Their numbers are for
images of 32, 64 and 224 pixels a side; an image of another side takes those of the nearest of the three. Two are left out:
`frost` needs photographs of frost, and `spatter` is defined by an edge detector of one library (OpenCV's Canny).
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Literal

from antiphase.config import InputError

Family = Literal["noise", "blur", "weather", "digital"]
SEVERITIES = (1, 2, 3, 4, 5)
SIDES = (32, 64, 224)  # for which the numbers were published
LEFT_OUT = {
    "frost": "it needs photographs of frost",
    "spatter": "it is defined by OpenCV's edge detector",
}
Numbers = tuple[tuple[Any, ...], ...]  # arguments for each severity


@dataclass(frozen=True)
class Corruption:
    """A family, and the arguments of its function at the five severities for each published side."""

    family: Family
    numbers: Mapping[int, Numbers]
    least_side: int = 8  # below, its lengths in pixels are longer than the image
    colour: bool = False  # of grey images it would change nothing

    def refuses(self, shape: tuple[int, int, int]) -> str | None:
        """Why it makes no sense for images of this shape (C, H, W), in a few words; None if it does."""
        if self.colour and shape[0] != 3:
            return "grey images have no saturation"
        if shape[-1] < self.least_side:
            return f"its streaks are longer than an image of {shape[-1]} pixels"
        return None

    def arguments(self, side: int, severity: int) -> tuple[Any, ...]:
        nearest = min(SIDES, key=lambda published: abs(math.log(published / side)))
        return self.numbers[nearest][severity - 1]


def _by_side(*tables: Sequence[Any]) -> Mapping[int, Numbers]:
    """One table for each of SIDES; a single number is a tuple of one."""
    whole = [tuple(n if isinstance(n, tuple) else (n,) for n in table) for table in tables]
    return MappingProxyType(dict(zip(SIDES, whole, strict=True)))


_ZOOM_SMALL = ((1.06, 0.01), (1.11, 0.01), (1.16, 0.01), (1.21, 0.01), (1.26, 0.01))
_BRIGHT = (0.1, 0.2, 0.3, 0.4, 0.5)
_PALE = (0.4, 0.3, 0.2, 0.1, 0.05)
_OFF = 244 / 224  # ImageNet-C's elastic lengths were made for a side of 244, by their authors' own remark
CORRUPTIONS: Mapping[str, Corruption] = MappingProxyType(
    {
        "gaussian_noise": Corruption(
            "noise",
            _by_side((0.04, 0.06, 0.08, 0.09, 0.10), (0.04, 0.08, 0.12, 0.15, 0.18), (0.08, 0.12, 0.18, 0.26, 0.38)),
        ),
        "shot_noise": Corruption(
            "noise", _by_side((500, 250, 100, 75, 50), (250, 100, 50, 30, 15), (60, 25, 12, 5, 3))
        ),
        "impulse_noise": Corruption(
            "noise",
            _by_side((0.01, 0.02, 0.03, 0.05, 0.07), (0.01, 0.02, 0.05, 0.08, 0.14), (0.03, 0.06, 0.09, 0.17, 0.27)),
        ),
        "speckle_noise": Corruption(
            "noise",
            _by_side((0.06, 0.1, 0.12, 0.16, 0.2), (0.15, 0.2, 0.25, 0.3, 0.35), (0.15, 0.2, 0.35, 0.45, 0.6)),
        ),
        "gaussian_blur": Corruption(
            "blur", _by_side((0.4, 0.6, 0.7, 0.8, 1), (0.5, 0.75, 1, 1.25, 1.5), (1, 2, 3, 4, 6))
        ),
        "defocus_blur": Corruption(
            "blur",
            _by_side(
                ((0.3, 0.4), (0.4, 0.5), (0.5, 0.6), (1, 0.2), (1.5, 0.1)),
                ((0.5, 0.6), (1, 0.1), (1.5, 0.1), (2.5, 0.01), (3, 0.1)),
                ((3, 0.1), (4, 0.5), (6, 0.5), (8, 0.5), (10, 0.5)),
            ),
        ),
        "glass_blur": Corruption(
            "blur",
            _by_side(
                ((0.05, 1, 1), (0.25, 1, 1), (0.4, 1, 1), (0.25, 1, 2), (0.4, 1, 2)),
                ((0.1, 1, 1), (0.5, 1, 1), (0.6, 1, 2), (0.7, 2, 1), (0.9, 2, 2)),
                ((0.7, 1, 2), (0.9, 2, 1), (1, 2, 3), (1.1, 3, 2), (1.5, 4, 2)),
            ),
        ),
        "motion_blur": Corruption(
            "blur",
            _by_side(
                ((6, 1), (6, 1.5), (6, 2), (8, 2), (9, 2.5)),
                ((10, 1), (10, 1.5), (10, 2), (10, 2.5), (12, 3)),
                ((10, 3), (15, 5), (15, 8), (15, 12), (20, 15)),
            ),
            least_side=16,
        ),
        "zoom_blur": Corruption(
            "blur",
            _by_side(_ZOOM_SMALL, _ZOOM_SMALL, ((1.11, 0.01), (1.16, 0.01), (1.21, 0.02), (1.26, 0.02), (1.31, 0.03))),
        ),
        "snow": Corruption(
            "weather",
            _by_side(
                (
                    (0.1, 0.2, 1, 0.6, 8, 3, 0.95),
                    (0.1, 0.2, 1, 0.5, 10, 4, 0.9),
                    (0.15, 0.3, 1.75, 0.55, 10, 4, 0.9),
                    (0.25, 0.3, 2.25, 0.6, 12, 6, 0.85),
                    (0.3, 0.3, 1.25, 0.65, 14, 12, 0.8),
                ),
                (
                    (0.1, 0.2, 1, 0.6, 8, 3, 0.8),
                    (0.1, 0.2, 1, 0.5, 10, 4, 0.8),
                    (0.15, 0.3, 1.75, 0.55, 10, 4, 0.7),
                    (0.25, 0.3, 2.25, 0.6, 12, 6, 0.65),
                    (0.3, 0.3, 1.25, 0.65, 14, 12, 0.6),
                ),
                (
                    (0.1, 0.3, 3, 0.5, 10, 4, 0.8),
                    (0.2, 0.3, 2, 0.5, 12, 4, 0.7),
                    (0.55, 0.3, 4, 0.9, 12, 8, 0.7),
                    (0.55, 0.3, 4.5, 0.85, 12, 8, 0.65),
                    (0.55, 0.3, 2.5, 0.85, 12, 12, 0.55),
                ),
            ),
            least_side=16,
        ),
        "fog": Corruption(
            "weather",
            _by_side(
                ((0.2, 3), (0.5, 3), (0.75, 2.5), (1, 2), (1.5, 1.75)),
                ((0.4, 3), (0.7, 3), (1, 2.5), (1.5, 2), (2, 1.75)),
                ((1.5, 2), (2, 2), (2.5, 1.7), (2.5, 1.5), (3, 1.4)),
            ),
        ),
        "brightness": Corruption("weather", _by_side((0.05, 0.1, 0.15, 0.2, 0.3), _BRIGHT, _BRIGHT)),
        "contrast": Corruption("digital", _by_side((0.75, 0.5, 0.4, 0.3, 0.15), _PALE, _PALE)),
        "elastic_transform": Corruption(
            "digital",
            _by_side(
                ((0, 0, 0.08), (0.05, 0.2, 0.07), (0.08, 0.06, 0.06), (0.1, 0.04, 0.05), (0.1, 0.03, 0.03)),
                ((0, 0, 0.08), (0.05, 0.3, 0.06), (0.1, 0.08, 0.06), (0.1, 0.03, 0.03), (0.16, 0.03, 0.02)),
                tuple(
                    tuple(_OFF * length for length in row)
                    for row in (
                        (2, 0.7, 0.1),
                        (2, 0.08, 0.2),
                        (0.05, 0.01, 0.02),
                        (0.07, 0.01, 0.02),
                        (0.12, 0.01, 0.02),
                    )
                ),
            ),
        ),
        "pixelate": Corruption(
            "digital",
            _by_side((0.95, 0.9, 0.85, 0.75, 0.65), (0.9, 0.8, 0.7, 0.6, 0.5), (0.6, 0.5, 0.4, 0.3, 0.25)),
        ),
        "jpeg_compression": Corruption(
            "digital", _by_side((80, 65, 58, 50, 40), (65, 58, 50, 40, 25), (25, 18, 15, 10, 7))
        ),
        "saturate": Corruption(
            "digital",
            _by_side(
                ((0.3, 0), (0.1, 0), (1.5, 0), (2, 0.1), (2.5, 0.2)),
                ((0.3, 0), (0.1, 0), (2, 0), (5, 0.1), (30, 0.2)),
                ((0.3, 0), (0.1, 0), (2, 0), (5, 0.1), (20, 0.2)),
            ),
            colour=True,
        ),
    }
)


def check_corruption(name: str) -> None:
    """Refuse a name that is not in the table; one that was left out is told why."""
    if name in CORRUPTIONS:
        return
    if name in LEFT_OUT:
        raise InputError(f"the corruption {name!r} is left out here: {LEFT_OUT[name]}")
    near = difflib.get_close_matches(name, [*CORRUPTIONS, *LEFT_OUT], n=1)
    hint = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(CORRUPTIONS)}"
    raise InputError(f"there is no corruption {name!r}: {hint}")


def check_severity(severity: int) -> None:
    if severity not in SEVERITIES:
        raise InputError(f"severity {severity} does not exist: corruptions have severities 1 to 5")


def applicable(names: Sequence[str], shape: tuple[int, int, int]) -> tuple[tuple[str, ...], dict[str, str]]:
    """Of these corruptions those that make sense for images of a shape (C, H, W), and why the others do not."""
    refused = {name: why for name in names if (why := CORRUPTIONS[name].refuses(shape)) is not None}
    return tuple(name for name in names if name not in refused), refused
