"""Batch norms in convolutions: the same logits and gradients, and only where a norm alone reads what a convolution gives."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torchvision.models import densenet121, mobilenet_v3_small, resnet18

from antiphase.attacks import PGD, Linf, Square, engine
from antiphase.models.fast_path import fast_path
from antiphase.models.folded_norms import folded_norms


class Norms(TorchDispatchMode):
    """Counts the batch norms that are computed."""

    def __init__(self) -> None:
        super().__init__()
        self.computed = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.computed += "batch_norm" in str(func)
        return func(*args, **(kwargs or {}))


def stirred(model: nn.Module) -> nn.Module:
    """With statistics and gains as training would leave them: a fresh norm changes nothing, and nobody would see it forgotten."""
    generator = torch.Generator().manual_seed(0)
    for parameter in model.parameters():
        if parameter.dim() > 1:
            nn.init.kaiming_normal_(parameter, generator=generator)
        else:
            nn.init.normal_(parameter, std=0.1, generator=generator)
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            for value in (module.running_mean, module.bias):
                value.data = 0.1 * torch.randn(value.shape, generator=generator)
            for value in (module.running_var, module.weight):
                value.data = 0.5 + torch.rand(value.shape, generator=generator)
    return model.double().eval()


def images(n: int, side: int = 8) -> Tensor:
    return torch.rand(n, 3, side, side, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


def answer(model: nn.Module, x: Tensor) -> tuple[Tensor, Tensor, int]:
    leaf = x.clone().requires_grad_()
    with Norms() as norms:
        logits = model(leaf)
    (grad,) = torch.autograd.grad(logits.square().sum(), leaf)
    return logits.detach(), grad, norms.computed


@pytest.mark.parametrize(
    ("make", "norms", "left"), [(resnet18, 20, 0), (mobilenet_v3_small, 34, 0), (densenet121, 121, 62)]
)
def test_logits_and_gradients_are_those_of_the_whole_model(make, norms, left):
    """A DenseNet's first norm of each layer reads what others read too, so those stay."""
    model, x = stirred(make(num_classes=5)), images(3, 64)
    *plain, computed = answer(model, x)
    assert computed == norms
    with fast_path(model, x[:1]):
        *fast, computed = answer(model, x)
    assert computed == left
    for a, b in zip(plain, fast):
        assert (a - b).abs().max() < 1e-10 * a.abs().max()
    *again, computed = answer(model, x)
    assert computed == norms
    assert all(map(torch.equal, plain, again))
    assert not any("forward" in vars(m) or m._forward_hooks or m._forward_pre_hooks for m in model.modules())


class Small(nn.Module):
    """A convolution and a norm, and a way in which something else depends on the convolution."""

    def __init__(self, way: str) -> None:
        super().__init__()
        self.way = way
        self.conv, self.norm, self.other, self.head = (
            nn.Conv2d(3, 4, 3),
            nn.BatchNorm2d(4),
            nn.BatchNorm2d(4),
            nn.Linear(4, 5),
        )

    def forward(self, x: Tensor) -> Tensor:
        seen = self.conv(x)
        out = self.norm(input=seen) if self.way != "by brightness" or x.mean() < 0.5 else self.other(seen)
        if self.way == "read twice":
            out = out + seen
        if self.way == "read without a gradient":
            out = out + seen.detach()
        if self.way == "two norms":
            out = out + self.other(seen)
        if self.way == "called twice":
            out = out + self.norm(self.conv(1 - x))
        if self.way == "in between":
            out = self.norm(seen.relu_())
        if self.way == "norm by brightness" and x.mean() > 0.5:
            out = self.norm(seen * 2)
        if self.way == "random":
            out = out + 0.1 * torch.rand(())
        return self.head(out.relu().mean(dim=(2, 3)))


@pytest.mark.parametrize(
    "way",
    ["read twice", "read without a gradient", "two norms", "called twice", "in between", "random", "hook", "no graph"],
)
def test_a_convolution_that_something_else_reads_stays_as_it_is(way):
    model, x = stirred(Small(way)), images(1)
    if way == "hook":
        model.norm.register_forward_hook(lambda *_: None)
    if way == "no graph":
        model.forward = torch.no_grad()(model.forward)
    before = torch.get_rng_state()
    assert folded_norms(model, x) == {}
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("way", ["by brightness", "norm by brightness"])
def test_a_model_that_takes_another_way_on_other_images_is_computed_as_it_is_from_then_on(way):
    model, dark = stirred(Small(way)), 0.4 * images(2)
    bright, plain = 1 - dark, model(1 - dark).detach()
    with fast_path(model, dark[:1]):
        with Norms() as norms:
            assert torch.allclose(model(dark), model.eval()(dark))
        assert norms.computed == 0
        assert torch.equal(model(bright), plain)
        with Norms() as norms:
            model(dark)
        assert norms.computed == 1  # it is not trusted again
    assert torch.equal(model(bright), plain)


class ByNumPy(Small):
    """As a defence that encodes its images: no gradient, and none may be asked for."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(torch.from_numpy(x.numpy().round(1)))


def test_square_needs_no_gradient_of_a_model_with_norms():
    model = stirred(ByNumPy("plain")).float()
    result = engine.run(
        model, images(4).float(), torch.zeros(4, dtype=torch.int64), Square(within=Linf("8/255"), queries=10)
    )
    assert len(result.success) == 4


def test_the_plain_one_is_folded_and_one_in_train_mode_is_not():
    model, x = stirred(Small("plain")), images(1)
    assert set(folded_norms(model, x)) == {model, model.conv, model.norm}
    model.norm.train()
    assert folded_norms(model, x) == {}


def test_an_attack_computes_no_norm_in_its_steps_and_comes_to_the_same(monkeypatch):
    model, x = stirred(Small("plain")), images(6)
    attack, y = PGD(within=Linf("8/255"), steps=20), torch.zeros(6, dtype=torch.int64)
    with Norms() as folded:
        fast = engine.run(model, x, y, attack, protocol="paper")
    monkeypatch.setattr("antiphase.models.fast_path.folded_norms", lambda *_: {})
    with Norms() as whole:
        plain = engine.run(model, x, y, attack, protocol="paper")
    assert folded.computed < 10 < 20 < whole.computed
    assert torch.equal(fast.success, plain.success)
    assert torch.allclose(fast.adversarial, plain.adversarial, atol=1e-9)


def test_success_in_steps_that_computed_another_model_is_a_red_flag(monkeypatch):
    model, x = stirred(Small("plain")), images(6)
    wrong = {model.head: lambda seen: nn.Linear.forward(model.head, seen).roll(1, dims=1)}
    monkeypatch.setattr("antiphase.models.fast_path.folded_norms", lambda *_: wrong)
    result = engine.run(model, x, torch.zeros(6, dtype=torch.int64), PGD(within=Linf("2/255"), steps=5))
    assert any("did not when they were judged" in flag for flag in result.flags)
    monkeypatch.undo()
    result = engine.run(model, x, torch.zeros(6, dtype=torch.int64), PGD(within=Linf("2/255"), steps=5))
    assert not any("did not when they were judged" in flag for flag in result.flags)
