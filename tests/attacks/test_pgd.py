"""Projected gradient ascent."""

import torch

from antiphase.attacks import Linf, fgsm
from tests.attacks.harness import run


def test_fgsm_is_one_step_of_pgd_from_the_image_itself(victim, few):
    x, y = few.pixels, few.labels
    leaf = x.clone().requires_grad_()
    (grad,) = torch.autograd.grad(torch.nn.functional.cross_entropy(victim(leaf), y, reduction="sum"), leaf)
    by_hand = (x + 8 / 255 * grad.sign()).clamp(0, 1)
    result = run(victim, few, fgsm(Linf("8/255")))
    assert result.success.any()
    assert torch.allclose(result.adversarial[result.success], by_hand[result.success], atol=1e-6)
