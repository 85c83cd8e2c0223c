"""The fast path gives the logits and gradients of the full computation."""

from __future__ import annotations

import pytest
import torch
from timm.models.deit import VisionTransformerDistilled
from timm.models.vision_transformer import VisionTransformer
from torch import Tensor, nn

from antiphase.models import Differential, Softmax, ViTConfig
from antiphase.models.fast_path import fast_path
from antiphase.models.taps import look_at_what_is_read
from antiphase.models.vit import build

KINDS = {
    "softmax": (Softmax(),),
    "differential": (Differential(),),
    "no norm, lambda fixed": (Differential(learned=False, head_norm="none", out_scale="fixed"),),
    "mixed": (Differential(), Softmax()),
}


def answer(model: nn.Module, x: Tensor) -> tuple[Tensor, Tensor]:
    """Logits, and the gradient of something that all of them enter."""
    leaf = x.clone().requires_grad_()
    logits = model(leaf)
    (grad,) = torch.autograd.grad((logits * torch.linspace(-1, 1, logits.shape[1])).sum(), leaf)
    return logits.detach(), grad


def assert_the_same(model: nn.Module, x: Tensor) -> None:
    """Logits and gradients by the fast path and by the model in full."""
    plain = answer(model, x)
    with fast_path(model):
        fast = answer(model, x)
    for a, b in zip(plain, fast):
        assert (a - b).abs().max() < 1e-12 * a.abs().max()


def a_model(attention: tuple[Softmax | Differential, ...]) -> nn.Module:
    """Random biases too: a fresh model's are zero, and nobody would see them forgotten."""
    config = ViTConfig(patch=4, width=32, heads=4, depth=2, attention=attention)
    model = build(config, shape=(3, 16, 16), classes=7).double().eval()
    generator = torch.Generator().manual_seed(0)
    for p in model.parameters():
        if p.dim() == 1:
            p.data += 0.3 * torch.randn(p.shape, generator=generator, dtype=p.dtype)
    return model


@pytest.mark.parametrize("kind", KINDS)
def test_logits_and_gradients_are_those_of_the_full_computation(kind):
    model = a_model(KINDS[kind])
    x = torch.rand(5, 3, 16, 16, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    assert_the_same(model, x)


def test_the_fast_path_saves_most_of_the_products_and_leaves_no_trace():
    from torch.utils.flop_counter import FlopCounterMode

    model, x = a_model((Differential(),)), torch.rand(2, 3, 16, 16, dtype=torch.float64)

    def operations() -> int:
        with FlopCounterMode(display=False) as counter:
            model(x)
        return counter.get_total_flops()

    before = operations()
    with fast_path(model):
        assert operations() < 0.6 * before  # one of two blocks costs next to nothing
    assert operations() == before
    assert not any("forward" in vars(m) for m in model.modules())


class MeanOfTokens(nn.Module):
    """A head of one's own over all tokens of somebody's ViT, as wrappers for fine-tuning have it."""

    def __init__(self, vit: VisionTransformer, first: int) -> None:
        super().__init__()
        self.vit, self.first = vit, first

    def forward(self, x: Tensor) -> Tensor:
        features: Tensor = self.vit.forward_features(x)[:, self.first :].mean(dim=1)
        return self.vit.head(features)


class MeanHead(VisionTransformer):
    def forward_head(self, x: Tensor, pre_logits: bool = False) -> Tensor:
        del pre_logits
        logits: Tensor = self.head(x.mean(dim=1))
        return logits


def mean_by_hook(vit: VisionTransformer) -> nn.Module:
    """Tokens caught by a hook at the last norm."""
    caught: list[Tensor] = []
    vit.norm.register_forward_hook(lambda *given: caught.append(given[-1]))

    class Caught(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.vit = vit

        def forward(self, x: Tensor) -> Tensor:
            self.vit(x)
            logits: Tensor = vit.head(caught.pop().mean(dim=1))
            return logits

    return Caught()


SMALL = {"img_size": 16, "patch_size": 4, "embed_dim": 32, "depth": 2, "num_heads": 2, "num_classes": 5}
READERS = {
    "the mean of all tokens": lambda: MeanOfTokens(VisionTransformer(**SMALL), 0),
    "the mean of the patches": lambda: MeanOfTokens(VisionTransformer(**SMALL), 1),
    "a head of a subclass": lambda: MeanHead(**SMALL),
    "a hook at the last norm": lambda: mean_by_hook(VisionTransformer(**SMALL)),
    "a distillation token": lambda: VisionTransformerDistilled(**SMALL),
}


@pytest.mark.parametrize("reader", READERS)
def test_whoever_reads_other_tokens_gets_them(reader):
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = READERS[reader]().double().eval()
        for p in model.parameters():
            p.data += 0.1 * torch.randn_like(p)
    x = torch.rand(3, 3, 16, 16, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    assert_the_same(model, x)


def test_the_lens_looks_at_all_rows_of_a_layer_whose_other_tokens_are_read():
    vit = VisionTransformer(**SMALL).eval()
    x = torch.rand(2, 3, 16, 16, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        (_, own), (_, others) = (look_at_what_is_read(model, x).values() for model in (vit, MeanOfTokens(vit, 0)))
    assert own.signal.shape == (2, 2, 1, 17)
    assert others.signal.shape == (2, 2, 17, 17)
    assert torch.allclose(own.signal, others.signal[:, :, :1], atol=1e-6)


@pytest.mark.parametrize("watched", ["model.blocks.1.attn", "model.patch_embed.proj"])
def test_a_module_with_hooks_runs_in_full(watched):
    model, x, seen = a_model((Softmax(),)), torch.rand(2, 3, 16, 16, dtype=torch.float64), []
    model.get_submodule(watched).register_forward_hook(lambda *given: seen.append(given[-1].shape))
    with fast_path(model):
        model(x)
    assert seen == [(2, 17, 32)] if "attn" in watched else seen == [(2, 32, 4, 4)]


def test_other_image_sizes_get_the_models_own_refusal():
    vit = VisionTransformer(img_size=16, patch_size=4, embed_dim=32, depth=1, num_heads=2, num_classes=3).eval()
    with fast_path(vit), pytest.raises(AssertionError, match="height"):
        vit(torch.rand(1, 3, 20, 20))


def test_weight_gradients_are_those_of_the_full_computation():
    model, x = a_model((Differential(),)), torch.rand(4, 3, 16, 16, dtype=torch.float64)

    def gradients() -> dict[str, Tensor]:
        model.zero_grad()
        model(x).logsumexp(dim=1).sum().backward()
        return {name: p.grad.clone() for name, p in model.train().named_parameters()}

    plain = gradients()
    with fast_path(model):
        fast = gradients()
    for name, grad in plain.items():
        assert (grad - fast[name]).abs().max() < 1e-12 * max(1, grad.abs().max()), name
