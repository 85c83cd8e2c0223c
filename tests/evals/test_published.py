"""The paper's numbers stand beside those of its models only."""

import numpy as np
import pytest

from antiphase.config import InputError
from antiphase.evals.config import GROUPS
from antiphase.evals.published import VALUES, check_published, published
from antiphase.models import Differential
from antiphase.models.clip_config import preset
from tests.evals.small_models import SMALL


def test_the_published_means_are_those_of_the_published_numbers():
    for (row, data, pretraining, title), value in VALUES.items():
        if data in GROUPS:
            parts = [VALUES[row, name, pretraining, title] for name in GROUPS[data]]
            assert value == pytest.approx(np.mean(parts), abs=0.071), (row, pretraining, title)  # one is off by 0.067
    assert published("linear probe", "pets", "CC12M", "DiffCLIP") == {"value": 83.0}
    assert published("image retrieval R@5", "flickr30k", "CC3M", "CLIP") == {"value": 31.8}
    assert published("zero-shot", "imagenet-r", "CC12M", "DiffCLIP") == {"gain": 3.3}
    assert published("zero-shot", "ood", "CC12M", "CLIP") is None
    assert published("image retrieval R@1", "coco", "CC12M", "CLIP") is None


def test_only_a_published_model_gets_published_numbers():
    for title in ("CLIP", "DiffCLIP", "DiffCLIP-dagger", "DiffCLIP-star"):
        check_published(preset("B/16", title), "x")
    for other in (
        SMALL,
        preset("L/14", "DiffCLIP"),
        preset("B/16").with_attention(preset("B/16").vision.attention[0], Differential()),
    ):
        with pytest.raises(InputError, match="x is no published model: --published is for a converted B/16 checkpoint"):
            check_published(other, "x")
