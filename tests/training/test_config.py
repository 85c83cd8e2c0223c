"""A recipe that makes no sense is refused, and the learning rate follows its schedule."""

import pytest

from antiphase.config import InputError
from antiphase.training import ContrastiveConfig, TrainConfig


def test_the_learning_rate_rises_linearly_and_falls_by_a_cosine():
    config = ContrastiveConfig(epochs=11, warmup_epochs=1)
    assert config.lr_at(0) == pytest.approx(1e-5)
    assert config.lr_at(0.5 / 11) == pytest.approx((1e-5 + 5e-4) / 2)
    assert config.lr_at(1 / 11) == pytest.approx(5e-4)
    assert config.lr_at(6 / 11) == pytest.approx((1e-5 + 5e-4) / 2)
    assert config.lr_at(1) == pytest.approx(1e-5)


@pytest.mark.parametrize(
    "bad", [{"batch_size": 1}, {"micro_batch": 0}, {"lr": 0.0}, {"beta2": 1.0}, {"max_scale": 0.5}, {"end_lr": -1.0}]
)
def test_an_impossible_contrastive_config_is_refused_by_name(bad):
    with pytest.raises(InputError, match=next(iter(bad))):
        ContrastiveConfig(**bad)


@pytest.mark.parametrize(
    "bad", [{"epochs": 0}, {"batch_size": 0}, {"lr": 0.0}, {"lr": float("nan")}, {"label_smoothing": 1.0}, {"seed": -1}]
)
def test_an_impossible_training_config_is_refused_by_name(bad):
    with pytest.raises(InputError, match=next(iter(bad))):
        TrainConfig(**bad)
