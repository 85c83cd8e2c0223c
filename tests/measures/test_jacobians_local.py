"""The closed form of a layer's own Jacobians against autograd."""

import pytest
import torch
from timm.layers import Attention

from antiphase.measures.jacobians_local import local_moments
from antiphase.models.adapters import read
from tests.models.attention_layers import DOUBLE, ours


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("layer", ["differential", "softmax"])
@pytest.mark.parametrize("coupling", ["branches", "shuffled", "pseudo"])
def test_the_closed_form_is_what_autograd_gives(layer, coupling, causal):
    """N = 13 tokens, D = 24, d = 6: the full Jacobian of every map with respect to the layer's input."""
    module = ours() if layer == "differential" else Attention(24, num_heads=4, qkv_bias=True).double()
    with torch.no_grad():
        module.qkv.weight.mul_(3)
    x = torch.randn(1, 13, 24, dtype=DOUBLE)

    def maps(t):
        found = read(module, t, is_causal=causal)
        if layer == "softmax":
            return found.signal[0, 0::2], found.signal[0, 1::2]
        return found.signal[0], found.noise[0].roll(1, dims=0) if coupling == "shuffled" else found.noise[0]

    moments = local_moments(read(module, x, is_causal=causal), coupling)
    if (layer == "softmax") is not (coupling == "pseudo"):
        assert moments is None
        return
    j1, j2 = (j.flatten(1) for j in torch.autograd.functional.jacobian(maps, x))
    exact = [(a * b).sum(1) for a, b in ((j1, j1), (j2, j2), (j1, j2))]
    for mine, theirs in zip((moments[..., 0, 0], moments[..., 1, 1], moments[..., 0, 1]), exact):
        assert torch.allclose(mine[0], theirs, rtol=1e-10)
