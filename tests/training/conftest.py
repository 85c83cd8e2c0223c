"""Digits with captions, and a small DiffCLIP trained on them."""

import pytest

from antiphase.data.pairs import of_classes
from antiphase.models.prompts import fill_templates
from antiphase.training import ContrastiveConfig
from antiphase.training.clip_task import train_clip
from tests.training.small_clip import SMALL_CLIP, TEMPLATES


@pytest.fixture(scope="module")
def pairs(digits):
    return of_classes(digits[0], [fill_templates(name, TEMPLATES) for name in digits[0].class_names])


@pytest.fixture(scope="module")
def trained(pairs, digits, tmp_path_factory):
    folder = tmp_path_factory.mktemp("clip")
    config = ContrastiveConfig(epochs=12, batch_size=64, augment="none", lr=3e-3, weight_decay=0.1)
    return train_clip(SMALL_CLIP, config, pairs, digits[1], folder / "run", templates=TEMPLATES)
