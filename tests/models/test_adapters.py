"""Adapters and taps: what is read of a layer is what the layer computes, and nothing is left behind."""

import pytest
import torch
from torch import nn

from antiphase.config import InputError
from antiphase.models.adapters import ADAPTERS, adapter, check, read
from antiphase.models.attention import Heads
from antiphase.models.taps import attention_layers, explicit, taps
from tests.models.attention_layers import DOUBLE, layers


@pytest.mark.parametrize("name", layers())
@pytest.mark.parametrize("mask", ["none", "causal", "added", "added per image"])
def test_the_explicit_path_gives_the_layers_own_output(name, mask):
    x, layer = torch.randn(2, 7, 24, dtype=DOUBLE), layers()[name]
    added = torch.randn(2, 1, 7, 7, dtype=DOUBLE)
    kwargs = {"none": {}, "causal": {"is_causal": True}, "added": {"attn_mask": added[0, 0]}}.get(
        mask, {"attn_mask": added}
    )
    check(layer, x, tolerance=1e-12, **kwargs)


@pytest.mark.parametrize("batch_first", [True, False])
@pytest.mark.parametrize("masks", [{}, {"padding"}, {"causal"}, {"padding", "causal"}, {"per head"}])
def test_multihead_attention_is_read_with_its_masks(batch_first, masks):
    torch.manual_seed(0)
    layer = nn.MultiheadAttention(24, 4, batch_first=batch_first).double().eval()
    query, key = torch.randn(2, 5, 24, dtype=DOUBLE), torch.randn(2, 7, 24, dtype=DOUBLE)
    kwargs = {}
    if "padding" in masks:
        kwargs["key_padding_mask"] = torch.arange(7).expand(2, 7) >= torch.tensor([[7], [4]])
    if "causal" in masks:
        kwargs["attn_mask"] = torch.ones(5, 7, dtype=torch.bool).triu(1)
    if "per head" in masks:
        kwargs["attn_mask"] = torch.randn(8, 5, 7, dtype=DOUBLE)
    given = (query, key, key) if batch_first else tuple(t.transpose(0, 1) for t in (query, key, key))
    check(layer, *given, tolerance=1e-12, **kwargs)
    theirs = layer(*given, average_attn_weights=False, **kwargs)[1]
    assert torch.allclose(read(layer, *given, **kwargs).signal, theirs, atol=1e-12)


@pytest.mark.parametrize("context", [taps, explicit])
def test_taps_leave_nothing_behind(context, pair):
    model = pair[1].classifier()
    before = {name: (dict(vars(m)), list(m._forward_pre_hooks)) for name, m in model.named_modules()}
    fast = torch.backends.mha.get_fastpath_enabled()
    with pytest.raises(RuntimeError), context(model):
        model(torch.zeros(1, 3, 8, 8))  # a digit has one channel
    after = {name: (dict(vars(m)), list(m._forward_pre_hooks)) for name, m in model.named_modules()}
    assert {n: set(v[0]) for n, v in after.items()} == {n: set(v[0]) for n, v in before.items()}
    assert all(after[n][1] == before[n][1] for n in before)
    assert torch.backends.mha.get_fastpath_enabled() is fast


def test_maps_mixed_values_and_output_of_a_layer_are_consistent(pair, digits):
    """Rows of A1 and A2 sum to one, those of A1 - lambda A2 to 1 - lambda; mixed, normed and output follow from them."""
    model, x = pair[1].classifier().double(), digits[1].subset(3).all.pixels.double()
    with taps(model) as record, torch.no_grad():
        model(x)
    (maps,) = record.values()
    assert torch.allclose(maps.signal.sum(-1), torch.ones(()).double(), atol=1e-12)
    assert torch.allclose(maps.combined.sum(-1), 1 - maps.lam, atol=1e-6)  # lambda itself is a float32
    assert torch.equal(maps.mixed, maps.combined @ maps.values)
    layer = model.model.blocks[0].attn
    unweighted = maps.normed / (layer.sub_norm.weight.double() * layer.gain)
    assert torch.allclose(
        unweighted.pow(2).mean(-1).sqrt(), torch.ones(()).double(), atol=1e-2
    )  # but for the norm's eps
    assert maps.output.shape == (3, 17, 64)


def test_a_new_kind_of_attention_needs_an_adapter_of_a_few_lines():
    class Mine(nn.Module):
        def __init__(self):
            super().__init__()
            self.to_qkv = nn.Linear(8, 24)

        def forward(self, x):
            q, k, v = self.to_qkv(x).chunk(3, dim=-1)
            return (q @ k.mT / 8**0.5).softmax(-1) @ v

    with pytest.raises(InputError, match="no attention layer"):
        attention_layers(nn.Sequential(Mine()))
    with pytest.raises(InputError, match="no adapter reads"):
        read(Mine(), torch.zeros(1, 2, 8))
    try:

        @adapter(Mine)
        def _mine(module, x):
            q, k, v = (t[:, None] for t in module.to_qkv(x).chunk(3, dim=-1))
            return Heads(q, k, v, norm=nn.Identity(), project=lambda mixed: mixed[:, 0])

        x = torch.randn(2, 5, 8)
        check(Mine(), x)
        assert list(attention_layers(nn.Sequential(Mine()))) == ["0"]

        @adapter(Mine)
        def _wrong(module, x):
            q, k, v = (t[:, None] for t in module.to_qkv(x).chunk(3, dim=-1))
            return Heads(k, q, v, norm=nn.Identity(), project=lambda mixed: mixed[:, 0])

        with pytest.raises(InputError, match="adapter of Mine is wrong"):
            check(Mine(), x)
    finally:
        ADAPTERS.pop(Mine)
