"""Local Lipschitz estimates against singular values, linear maps and each other."""

import numpy as np
import pytest
import torch
from torch import nn

from antiphase.config import InputError
from antiphase.measures.lipschitz import l_sample, l_search
from tests.measures.doubled import doubled


def test_sampled_lipschitz_is_below_the_operator_norm_and_near_the_frobenius_average(pair, three, jacobians):
    """For tiny random steps the root mean square ratio is ||J||_F / sqrt(pixels); no ratio exceeds sigma_max."""
    (layer,) = l_sample(pair[1].classifier().double(), doubled(three), draws=400, eps=1e-6)
    stacked = jacobians[2].flatten(1, 2)  # all heads of the layer: (n, h*N*N, pixels)
    top = torch.linalg.matrix_norm(stacked, ord=2).numpy()
    assert (layer.ratios.max(axis=1) <= top * (1 + 1e-4)).all()
    average = (stacked**2).sum((-1, -2)).sqrt().numpy() / stacked.shape[-1] ** 0.5
    assert (layer.ratios**2).mean(axis=1) ** 0.5 == pytest.approx(average, rel=0.05)


@pytest.mark.parametrize("level", ["maps", "branch", "block"])
def test_the_search_never_falls_below_the_samples_it_starts_from(pair, digits, level):
    few = digits[1].subset(6)
    for run in pair:
        (sharp,) = l_search(run.classifier(), few, draws=4, level=level, steps=8, iterations=10, batch_size=4)
        (sampled,) = l_sample(run.classifier(), few, draws=4, level=level)
        assert sharp.sample == pytest.approx(sampled.ratios.max(axis=1), rel=1e-4)
        assert (sharp.ascent >= sharp.sample * (1 - 1e-5)).all()
        assert (sharp.ascent > sharp.sample * 1.1).all()  # random directions miss the worst one by far
        (still,) = l_search(run.classifier(), few, draws=4, level=level, steps=0, iterations=10, batch_size=4)
        assert (sharp.ascent >= still.ascent * (1 - 1e-5)).all()
        assert (sharp.ascent > still.ascent * 1.0001).any()  # climbing finds more than its starts
        assert sharp.summary()["sample_at_most_ascent"]["value"] == 1


def test_a_linear_map_has_the_lipschitz_constant_of_its_matrix(digits):
    """Uniform attention over one token and a linear output: every ratio is known, and no search exceeds it."""

    class Linear(nn.Module):
        def __init__(self):
            super().__init__()
            torch.manual_seed(0)
            self.attn = nn.MultiheadAttention(64, 1, batch_first=True)

        def forward(self, x):
            x = x.reshape(len(x), 1, 64)
            return self.attn(x, x, x, need_weights=False)[0][:, 0, :10]

    model = Linear().eval()
    weight = model.attn.out_proj.weight @ model.attn.in_proj_weight[128:]
    (sharp,) = l_search(model, digits[1].subset(2), draws=4, level="branch", iterations=200)
    top = float(torch.linalg.svdvals(weight)[0].detach())
    assert sharp.power == pytest.approx(top, rel=1e-2)
    assert (sharp.ascent <= top * (1 + 1e-5)).all()
    assert (sharp.sample < top).all()


def test_spectral_and_linf_readings_are_what_they_say(pair, digits):
    few = digits[1].subset(3)
    (layer,) = l_sample(pair[1].classifier(), few, draws=4, spectral=True)
    per_head_frobenius = layer.ratios / layer.heads**0.5
    assert (layer.spectral <= layer.ratios).all()
    assert (layer.spectral > 0.2 * per_head_frobenius).all()
    pixels = np.prod(digits[1].shape)
    assert layer.linf / layer.ratios == pytest.approx((pixels / 3) ** 0.5, rel=0.25)
    curve = layer.summary()["max_by_draws"]
    assert list(curve) == ["1", "2", "4"]
    assert curve["1"] < curve["2"] < curve["4"] == layer.summary()["max"]
    with pytest.raises(InputError, match="spectral"):
        l_sample(pair[1].classifier(), few, draws=1, spectral=True, level="block")
    with pytest.raises(InputError, match="level 'nose'"):
        l_sample(pair[1].classifier(), few, draws=1, level="nose")
