"""Other people's attacks, each brought to the shape (model, x, y) -> x_adv and to the same steps as ours."""

from __future__ import annotations

import sys
import types
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from antiphase.attacks import CW, DDN, FMN, L2, PGD, Linf

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


def _adv_lib() -> Any:
    """Its attacks. It imports a client for plots, which is not installed here and which nothing here uses."""
    sys.modules.setdefault("visdom", types.ModuleType("visdom"))
    from adv_lib import attacks

    return attacks


def adv_lib_pgd(attack: PGD) -> Peer:
    pgd_linf = _adv_lib().pgd_linf

    def call(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        torch.manual_seed(0)
        steps = {"steps": attack.steps, "absolute_step_size": attack.step}
        adversarial: Tensor = pgd_linf(model, x, y, float(attack.within.eps), **steps)
        return adversarial

    return call


PGD_PEERS: dict[str, Callable[[PGD], Peer]] = {
    "torchattacks": torchattacks_pgd,
    "foolbox": foolbox_pgd,
    "adv-lib": adv_lib_pgd,
}


def pyautoattack(
    within: Linf | L2, attacks: list[str] | None = None, *, runs: int = 1, queries: int = 5000, batch_size: int = 250
) -> Peer:
    """The authors' AutoAttack: its standard list, or these of its attacks one after the other."""
    from pyautoattack import AutoAttack

    def call(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        options = {"version": "custom", "attacks": attacks} if attacks else {"version": "standard"}
        theirs = AutoAttack(model, norm=type(within).__name__, eps=float(within.eps), seed=0, device="cpu", **options)
        theirs.apgd.n_restarts = theirs.fab.n_restarts = runs
        theirs.square.n_queries = queries
        adversarial: Tensor = theirs.run_standard_evaluation(x, y, batch_size=batch_size)[0]
        return adversarial.detach()

    return call


def torchattacks_named(name: str, within: Linf, **options: Any) -> Peer:
    def call(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        import torchattacks

        adversarial: Tensor = getattr(torchattacks, name)(model, eps=float(within.eps), seed=0, **options)(x, y)
        return adversarial

    return call


def foolbox_named(name: str, within: Linf, **options: Any) -> Peer:
    def call(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        import foolbox

        torch.manual_seed(0)
        wrapped = foolbox.PyTorchModel(model, bounds=(0, 1))
        theirs = getattr(foolbox.attacks, name)(**options)
        adversarial: Tensor = theirs(wrapped, x, y, epsilons=float(within.eps))[1]
        return adversarial

    return call


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


def adv_lib_cw(attack: CW) -> Peer:
    carlini_wagner_l2 = _adv_lib().carlini_wagner_l2

    def call(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        adversarial: Tensor = carlini_wagner_l2(
            model,
            x,
            y,
            confidence=attack.confidence,
            learning_rate=attack.lr,
            initial_const=attack.initial_c,
            binary_search_steps=attack.searches,
            max_iterations=attack.steps,
        )
        return adversarial

    return call


CW_PEERS: dict[str, Callable[[CW], Peer]] = {"foolbox": foolbox_cw, "adv-lib": adv_lib_cw}


def foolbox_fmn(attack: FMN) -> Peer:
    import foolbox

    return _smallest_of(foolbox.attacks.L2FMNAttack(steps=attack.steps, gamma=attack.gamma))


def adv_lib_fmn(attack: FMN) -> Peer:
    fmn = _adv_lib().fmn

    def call(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        adversarial: Tensor = fmn(model, x, y, norm=2, steps=attack.steps, **{"γ_init": attack.gamma})
        return adversarial

    return call


FMN_PEERS: dict[str, Callable[[FMN], Peer]] = {"foolbox": foolbox_fmn, "adv-lib": adv_lib_fmn}
