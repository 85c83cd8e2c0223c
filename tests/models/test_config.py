"""A config that cannot be built is refused by name."""

import pytest

from antiphase.config import InputError, fingerprint, from_plain, to_plain
from antiphase.models import Differential, Softmax, ViTConfig
from antiphase.models.clip_config import TextConfig
from antiphase.models.config import BoundedDifferential, DifferentialV2, Dint, GroupedDifferential, LowRankDifferential
from antiphase.models.vit import build
from tests.models.small_models import CIFAR


@pytest.mark.parametrize(
    ("make", "named"),
    [
        (lambda: ViTConfig(heads=7), "heads=7 does not divide width=192"),
        (lambda: ViTConfig(heads=3, attention=(Differential(),)), "heads=3 is odd"),
        (lambda: ViTConfig(diff_heads=5, attention=(Differential(),)), "diff_heads=5 does not fit width=192"),
        (lambda: ViTConfig(diff_heads=0, attention=(Differential(),)), "diff_heads=0"),
        (lambda: Differential(lambda_init=1.0), "exactly zero"),
        (lambda: ViTConfig(depth=2, attention=(Differential(lambda_init=(0.5, 1.0)),)), "layer 1"),
        (
            lambda: ViTConfig(depth=3, attention=(Differential(lambda_init=(0.5, 0.6)),)),
            "2 values for a model of depth 3",
        ),
        (lambda: ViTConfig(depth=3, attention=(Softmax(), Differential())), "2 layers for a model of depth 3"),
        (lambda: ViTConfig(depth=0), "depth=0"),
        (
            lambda: ViTConfig(heads=7, attention=(DifferentialV2(),)),
            "heads=7 of differential-v2 does not divide width=192",
        ),
        (lambda: ViTConfig(attention=(GroupedDifferential(ratio=2),)), "ratio=2 does not divide diff_heads=3"),
        (lambda: ViTConfig(attention=(BoundedDifferential(lambda_init=0.5),)), "between 0 and bound=0.5"),
        (lambda: BoundedDifferential(bound=0.0), "bound=0.0 must be greater than 0"),
        (lambda: BoundedDifferential(learned=False), "a fixed lambda needs none"),
        (
            lambda: ViTConfig(width=16, heads=4, attention=(LowRankDifferential(rank=5),)),
            "rank=5 is above the width of a map, 4",
        ),
        (lambda: TextConfig(attention=(Dint(),)), "a text tower must not see the words that follow"),
        (lambda: Differential(lambda_init=float("nan")), "nan"),
        (lambda: build(ViTConfig(patch=5), **CIFAR), "patch=5"),
        (lambda: ViTConfig(std=0.0), "std=0.0 must be greater than 0"),
        (lambda: ViTConfig(std=(0.5, 0.5, -1.0)), "must be greater than 0"),
        (lambda: ViTConfig(mean=(0.5, float("inf"), 0.5)), "must be finite numbers"),
        (lambda: ViTConfig(mean=()), "must be finite numbers"),
        (lambda: build(ViTConfig(mean=(0.5, 0.5)), **CIFAR), "2 values for images of 3 channels"),
    ],
)
def test_a_config_that_cannot_be_built_is_refused_by_name(make, named):
    with pytest.raises(InputError, match=named):
        make()


def test_a_default_config_is_written_and_keyed_as_before_there_were_values_per_channel():
    """Results that are stored on disk are found by this fingerprint."""
    assert (to_plain(ViTConfig())["mean"], to_plain(ViTConfig())["std"]) == (0.5, 0.5)
    assert fingerprint(ViTConfig()) == "10a7325e8860"
    assert ViTConfig(mean=(0.4,)) == ViTConfig(mean=0.4)


def test_values_per_channel_survive_a_file():
    config = ViTConfig(mean=(0.1, 0.2, 0.3), std=(0.5, 0.4, 0.25))
    assert from_plain(ViTConfig, to_plain(config)) == config
