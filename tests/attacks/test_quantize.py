"""Adversarial images on the grid of 255ths survive being saved."""

import torch
from hypothesis import given
from hypothesis import strategies as st

from antiphase.attacks import L2, PGD, Linf
from antiphase.attacks.quantize import to_eight_bits
from antiphase.models import ViTConfig
from tests.attacks.harness import run


def test_eight_bit_images_are_adversarial_as_bytes(data_root, tmp_path):
    """Real CIFAR-10 pixels lie on the grid; so do the returned ones, inside the ball in whole 255ths."""
    from antiphase.data import load
    from antiphase.training import TrainConfig
    from antiphase.training.loop import train

    sets = (load("cifar10", "train", root=data_root).subset(1000), load("cifar10", "test", root=data_root).subset(100))
    model = train(ViTConfig(width=32, heads=2), TrainConfig(epochs=2), *sets, tmp_path / "run").classifier()
    few = sets[1].all
    plain, result = (run(model, few, PGD(within=Linf("8/255")), eight_bit=bits) for bits in (False, True))
    assert result.success.sum() >= 0.9 * plain.success.sum() > 10
    steps = (result.adversarial.double() - few.pixels.double()) * 255
    assert (steps - steps.round()).abs().max() < 1e-4
    assert steps.round().abs().max() <= 8
    with torch.no_grad():
        reread = model((result.adversarial * 255).round().byte().float() / 255).argmax(dim=1)
    assert torch.equal(reread, result.adversarial_prediction)


@given(st.integers(0, 255), st.floats(-1, 1), st.integers(0, 16))
def test_eight_bit_pixels_are_on_the_grid_and_inside_the_set(original, move, budget):
    x = torch.tensor([[[[original / 255]]]])
    adv = Linf(f"{budget}/255").project(x + move, x).clamp(0, 1)
    for within in (Linf(f"{budget}/255"), L2(f"{budget}/255")):
        rounded = to_eight_bits(adv, x, within)
        assert within.size(rounded.double() - x.double()) <= budget / 255 + 1e-7
        assert abs(float(rounded * 255) - round(float(rounded * 255))) < 1e-3
