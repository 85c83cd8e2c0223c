"""A CLIP that cannot be built is refused by name."""

import math

import pytest

from antiphase.config import InputError
from antiphase.models import Differential, Softmax
from antiphase.models.clip_config import CLIPConfig, TextConfig, VisionConfig, preset


@pytest.mark.parametrize(
    ("make", "named"),
    [
        (lambda: VisionConfig(patch=15), "patch=15 does not tile"),
        (lambda: TextConfig(heads=7), "heads=7"),
        (lambda: CLIPConfig(std=(0.0, 1.0, 1.0)), "std="),
        (lambda: CLIPConfig(mean=(math.nan, 0.0, 0.0)), "mean="),
        (lambda: preset("B/32"), "'B/32' is not known"),
        (lambda: preset("B/16", "SLIP"), "'SLIP' is not known"),
        (lambda: CLIPConfig().with_attention(Differential(lambda_init=1.0), Softmax()), "exactly zero"),
    ],
)
def test_a_clip_that_cannot_be_built_is_refused_by_name(make, named):
    with pytest.raises(InputError, match=named):
        make()
