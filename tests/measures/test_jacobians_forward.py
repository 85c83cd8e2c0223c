"""Forward-mode probes against exact Jacobians."""

import numpy as np
import pytest
import torch
from torch import nn

from antiphase.config import InputError
from antiphase.measures.jacobians_forward import branch_alignment, exact_alignment
from antiphase.measures.jacobians_local import local_alignment
from antiphase.measures.lipschitz import l_sample
from antiphase.models import Differential, Softmax, ViTConfig
from antiphase.models.taps import taps
from antiphase.models.vit import build
from tests.models.encoder import Encoder


def test_probed_branch_gradients_agree_with_the_exact_ones(pair, three, jacobians):
    """E1 within three standard errors of the full Jacobian, for every image and head."""
    (layer,) = branch_alignment(pair[1].classifier(), three, probes=256)
    j1, j2, _ = jacobians
    exact_ip, exact_n1 = (j1 * j2).sum((-1, -2)).numpy(), (j1**2).sum((-1, -2)).numpy()
    exact_cos = exact_ip / np.sqrt(exact_n1 * (j2**2).sum((-1, -2)).numpy())
    assert (np.abs(layer.cos - exact_cos) < 3 * layer.cos_se).all()
    se = layer.n1.std(axis=-1, ddof=1) / 256**0.5
    assert (np.abs(layer.n1.mean(-1) - exact_n1) < 4 * se).all()


def test_the_encoder_of_torch_is_read_and_measured(digits):
    model, few = Encoder().eval(), digits[1].subset(3)
    x = few.all.pixels
    with torch.no_grad():
        plain = model(x)
        with taps(model) as record:
            assert torch.allclose(model(x), plain, atol=1e-5)
    assert list(record) == ["encoder.layers.0.self_attn", "encoder.layers.1.self_attn"]
    assert record["encoder.layers.0.self_attn"].signal.shape == (3, 4, 4, 4)
    exact, probed = (
        exact_alignment(model, few, coupling="pseudo"),
        branch_alignment(model, few, probes=64, coupling="pseudo"),
    )
    for a, b in zip(exact, probed):
        assert (np.abs(a.cos - b.cos) < 4 * b.cos_se).all()


def test_probes_agree_with_the_exact_numbers_within_three_standard_errors(pair, digits):
    few, model = digits[1].subset(4), pair[1].classifier()
    for around in (0.0, 8 / 255):
        ((exact,), (probed,)) = (
            exact_alignment(model, few, around=around),
            branch_alignment(model, few, probes=256, around=around),
        )
        assert (np.abs(probed.cos - exact.cos) < 3 * probed.cos_se).all()
        assert (exact.cos_se == 0).all()
        assert exact.stacked.means[0] == pytest.approx(exact.means[0].sum(1, keepdims=True))


def test_more_probes_are_drawn_only_for_images_whose_sign_is_undecided(pair, digits):
    few, model = digits[1].subset(24), pair[1].classifier()
    (fixed,) = branch_alignment(model, few, probes=4)
    (adaptive,) = branch_alignment(model, few, probes=4, max_probes=64)
    wanted = (fixed.alive & ~fixed.decided).any(axis=1)
    assert wanted.any()
    assert not wanted.all()
    assert (adaptive.probes[~wanted] == 4).all()
    assert (adaptive.probes[wanted] > 4).all()
    assert adaptive.probes.max() <= 64
    assert adaptive.summary()["undecided"]["hits"] <= fixed.summary()["undecided"]["hits"]
    assert np.array_equal(adaptive.n1[:, :, :4], fixed.n1)  # the first probes are the same
    (eight,) = branch_alignment(
        model, few, probes=8
    )  # and those that follow are the next of the stream, not the first again
    assert adaptive.n1[wanted, :, 4:8] == pytest.approx(eight.n1[wanted, :, 4:8], rel=1e-4)
    assert not np.allclose(eight.n1[:, :, 4:], eight.n1[:, :, :4])


def test_an_image_gives_the_same_numbers_whichever_images_it_is_measured_with(pair, digits):
    """What an image gives does not depend on which images it was measured with."""
    few, model = digits[1].subset(8), pair[1].classifier().double()
    whole = branch_alignment(model, few, probes=4, device="cpu")[0]
    halves = [branch_alignment(model, few.take(np.arange(a, a + 4)), probes=4)[0] for a in (0, 4)]
    assert np.concatenate([h.ip for h in halves]) == pytest.approx(whole.ip, rel=1e-4)


def mixed_model():
    config = ViTConfig(patch=2, width=32, heads=4, depth=3, attention=(Softmax(), Differential(), Differential()))
    return build(config, shape=(1, 8, 8), classes=10, seed=1).eval()


def test_layers_of_both_kinds_in_one_model(digits):
    few = digits[1].subset(3)
    for measure in (exact_alignment, local_alignment):
        assert [layer.layer for layer in measure(mixed_model(), few)] == ["model.blocks.1.attn", "model.blocks.2.attn"]
        assert [layer.layer for layer in measure(mixed_model(), few, coupling="pseudo")] == ["model.blocks.0.attn"]


@pytest.mark.parametrize("measure", [branch_alignment, exact_alignment, local_alignment])
def test_what_cannot_be_measured_is_refused_in_a_sentence(measure, pair, digits):
    few = digits[1].subset(2)
    with pytest.raises(InputError, match="two branches"):
        measure(pair[0].classifier(), few)
    with pytest.raises(InputError, match="no attention layer"):
        measure(nn.Flatten(), few)
    broken = pair[1].classifier()
    with torch.no_grad():
        broken.model.blocks[0].attn.qkv.weight[0, 0] = torch.nan
    with pytest.raises(InputError, match="not finite"):
        measure(broken, few)


def test_measures_do_not_depend_on_the_batch(pair, digits):
    few, model = digits[1].subset(10), pair[1].classifier()
    (a,), (b,) = (l_sample(model, few, draws=3, batch_size=size) for size in (10, 3))
    assert np.allclose(a.ratios, b.ratios, rtol=1e-4)
    (c,), (d,) = (branch_alignment(model, few, probes=3, batch_size=size) for size in (10, 4))
    assert np.allclose(c.ip, d.ip, rtol=1e-3, atol=1e-6)


def test_a_model_with_one_branch_has_no_alignment(pair, digits):
    with pytest.raises(InputError, match="two branches"):
        branch_alignment(pair[0].classifier(), digits[1].subset(4), probes=4)


@pytest.mark.parametrize("call", [lambda m, x: l_sample(m, x, draws=0), lambda m, x: branch_alignment(m, x, probes=1)])
def test_too_few_draws_are_refused(call, pair, three):
    with pytest.raises(InputError, match=r"draws=0|probes=1"):
        call(pair[1].classifier(), three)
