"""Other people's attacks, each brought to the shape (model, x, y) -> x_adv and to the same steps as ours."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from antiphase.attacks import CW, DDN, PGD

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


def foolbox_cw(attack: CW) -> Peer:
    import foolbox

    theirs = foolbox.attacks.L2CarliniWagnerAttack(
        binary_search_steps=attack.searches,
        steps=attack.steps,
        stepsize=attack.lr,
        confidence=attack.confidence,
        initial_const=attack.initial_c,
    )
    return _smallest_of(theirs)


def foolbox_ddn(attack: DDN) -> Peer:
    import foolbox

    return _smallest_of(
        foolbox.attacks.DDNAttack(init_epsilon=attack.initial_eps, steps=attack.steps, gamma=attack.gamma)
    )


def _smallest_of(theirs: Any) -> Peer:
    """A minimum-norm attack of foolbox."""
    import foolbox

    def call(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        adversarial: Tensor = theirs(foolbox.PyTorchModel(model, bounds=(0, 1)), x, y, epsilons=None)[1]
        return adversarial

    return call


def torchattacks_cw(attack: CW) -> Peer:
    """At one c, its default: it has no search."""
    import torchattacks

    def call(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        adversarial: Tensor = torchattacks.CW(model, c=1, steps=attack.steps, lr=attack.lr)(x, y)
        return adversarial

    return call
