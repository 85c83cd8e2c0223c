"""Other people's attacks, each brought to the shape (model, x, y) -> x_adv and to the same steps as ours."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from antiphase.attacks import PGD

Peer = Callable[[nn.Module, Tensor, Tensor], Tensor]


def torchattacks_pgd(attack: PGD) -> Peer:
    import torchattacks

    def call(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        torch.manual_seed(0)
        theirs = torchattacks.PGD(model, eps=float(attack.within.eps), alpha=attack.step, steps=attack.steps)
        adversarial: Tensor = theirs(x, y)
        return adversarial

    return call


def foolbox_pgd(attack: PGD) -> Peer:
    import foolbox

    def call(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        torch.manual_seed(0)
        theirs = foolbox.attacks.LinfPGD(abs_stepsize=attack.step, steps=attack.steps, random_start=True)
        wrapped = foolbox.PyTorchModel(model, bounds=(0, 1))
        adversarial: Tensor = theirs(wrapped, x, y, epsilons=float(attack.within.eps))[1]
        return adversarial

    return call


PEERS: dict[str, Callable[[PGD], Peer]] = {"torchattacks": torchattacks_pgd, "foolbox": foolbox_pgd}
