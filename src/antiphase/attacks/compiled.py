"""torch.compile for the steps of an attack, where an evaluation is long enough to repay it.

Only the full batch is compiled, for its one shape; the tail of an attack, where batches shrink, runs eagerly. Whether it pays
is decided by counting operations, never by a clock: the same question is answered the same way on every machine.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Literal

import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from antiphase import console
from antiphase.attacks.config import Attack
from antiphase.models.fast_path import fast_path
from antiphase.models.interventions import is_changed

Compile = Literal["auto", "never", "always"]
REPAID = 2e13  # operations of all forwards; docs/log.md, 2026-11-16, has the measurements behind it


def forwards_at_most(attack: Attack, n: int) -> int:
    """Images shown to the model if no example is fooled."""
    return n * attack.forwards


def should_compile(compile: Compile, classifier: nn.Module, image: Tensor, forwards: int) -> bool:
    """Whether to compile for so many forwards of images like this: (1, C, H, W); never in an intervention, which ends."""
    if is_changed(classifier):
        return False
    return compile == "always" or (compile == "auto" and compiling_pays(classifier, image, forwards))


def compiling_pays(classifier: nn.Module, image: Tensor, forwards: int) -> bool:
    """Compiling costs less than it saves, in an evaluation of so many forwards of images like this: (1, C, H, W).

    False on devices other than a CPU: it was not measured there.
    """
    weights = sum(parameter.numel() for parameter in classifier.parameters())
    pixels = image.shape[-2] * image.shape[-1]
    if image.device.type != "cpu" or 2.0 * weights * pixels * forwards < REPAID:
        return False  # even if every weight met every pixel: no need to count
    with torch.no_grad(), fast_path(classifier), FlopCounterMode(display=False) as counter:
        classifier(image)
    return bool(forwards * counter.get_total_flops() > REPAID)


def compiled(classifier: nn.Module, batch: Tensor, *, backward: bool = True) -> Callable[[Tensor], Tensor] | None:
    """The classifier compiled for batches of this shape, forward and, if need be, backward; None, with a warning, if that
    fails here.

    torch keeps what it compiled: asked again for the same model and shape it is there at once.
    """
    fast: Callable[[Tensor], Tensor] = torch.compile(classifier, dynamic=False)
    try:
        leaf = torch.zeros_like(batch).requires_grad_(backward)
        with torch.set_grad_enabled(backward):
            answer = fast(leaf).sum()
        if backward:
            torch.autograd.grad(answer, leaf)
    except RuntimeError as error:  # all of torch's own are: no C++ compiler, an operation it cannot trace
        _warn(type(error).__name__)
        return None
    return fast


@cache
def _warn(reason: str) -> None:
    """Once per process, however many evaluations it makes."""
    console.say(f"warning: torch.compile failed ({reason}: is there a C++ compiler?), the attack runs uncompiled")
