"""Batch norms in eval mode, computed with the convolutions that they follow: the same logits, in 5 to 8 % less
time of a ResNet's step (docs/log.md, 2026-11-19).

Which convolution a norm follows is written nowhere in a model. It is seen in the graph of one forward, so nothing is traced
and whatever else the model does is left to it. Every later forward is checked, since a model may take another way on other
images: each norm must be given what its convolution returned. Not seen is a second reader that is there on other images only.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from antiphase.models.forwards import replaced, untouched

DRIFT = 1e-4  # of the largest logit: rounding by folding stays below this


def folded_norms(model: nn.Module, image: Tensor) -> dict[nn.Module, Callable[..., Any]]:
    """Other forwards for a while (models/forwards.py): a convolution returns what its norm would have returned, and the norm
    returns its input.

    The model is in eval mode and gives gradients; the image is (1, C, H, W). Only norms that alone read the result of a
    convolution are folded, none of a model that torch.compile has compiled, and none at all if the logits of the image change.
    The global random state is left as it was, whatever the model draws.
    """
    modules = list(model.modules())
    if not any(map(_is_plain_norm, modules)) or any(hasattr(module, "_orig_mod") for module in modules):
        return {}
    with torch.random.fork_rng(devices=[image.device] if image.device.type == "cuda" else []):
        logits, pairs = _observed(model, image)
        forwards = Pairs(model, pairs).forwards if pairs else {}
        with replaced(forwards), torch.no_grad():
            apart = (model(image.clone()) - logits).abs().max()
    return forwards if apart <= DRIFT * logits.abs().max() else {}


class Pairs:
    """Convolutions and their norms, folded as long as each norm is given its convolution's own result.

    A forward in which one is not is computed again by the model as it is, and so is every later one.
    """

    def __init__(self, model: nn.Module, pairs: list[tuple[nn.Conv2d, nn.BatchNorm2d]]) -> None:
        self.own = model.forward
        self.forwards: dict[nn.Module, Callable[..., Any]] = {model: self._forward}
        for conv, norm in pairs:
            self.forwards[conv] = partial(self._convolve, conv, *_both(conv, norm))
            self.forwards[norm] = partial(self._normalise, conv, norm)
        self.given: dict[nn.Module, Tensor] = {}  # what convolutions have returned and their norms not read yet
        self.broken = False

    def _forward(self, *args: Any, **kwargs: Any) -> Any:
        if not self.broken:
            self.given.clear()
            answer = self.own(*args, **kwargs)
            self.broken |= bool(self.given)
            if not self.broken:
                return answer
        return self.own(*args, **kwargs)

    def _convolve(self, conv: nn.Conv2d, weight: Tensor, bias: Tensor, input: Tensor) -> Tensor:
        if self.broken:
            return nn.Conv2d.forward(conv, input)
        self.broken = conv in self.given  # called again before its norm has read the last result
        self.given[conv] = conv._conv_forward(input, weight, bias)
        return self.given[conv]

    def _normalise(self, conv: nn.Conv2d, norm: nn.BatchNorm2d, input: Tensor) -> Tensor:
        if not self.broken and self.given.pop(conv, None) is input:
            return input
        self.broken = True
        whole: Tensor = nn.BatchNorm2d.forward(norm, input)
        return whole


def _observed(model: nn.Module, image: Tensor) -> tuple[Tensor, list[tuple[nn.Conv2d, nn.BatchNorm2d]]]:
    """The logits of the image, and every convolution with the norm that alone reads what it returns, both called once."""
    made: list[tuple[nn.Conv2d, Any]] = []  # and the node of the graph that its result belongs to
    read: list[tuple[nn.BatchNorm2d, Any]] = []
    with ExitStack() as hooks:
        for module in model.modules():
            if _is_plain_convolution(module):
                hook = module.register_forward_hook(lambda conv, _, out: made.append((conv, out.grad_fn)))
            elif _is_plain_norm(module):
                hook = module.register_forward_pre_hook(
                    lambda norm, args, named: read.append((norm, next(iter((*args, *named.values()))).grad_fn)),
                    with_kwargs=True,
                )
            else:
                continue
            hooks.callback(hook.remove)
        with torch.enable_grad():
            logits = model(image.clone().requires_grad_())
    calls = Counter(module for module, _ in (*made, *read))
    maker = {node: conv for conv, node in made if node is not None and calls[conv] == 1}
    readers = _readers(logits.grad_fn)
    pairs = [(maker[node], norm) for norm, node in read if node in maker and readers[node] == 1 and calls[norm] == 1]
    return logits.detach(), pairs


def _readers(end: Any) -> Counter[Any]:
    """How many times what a node of the graph returns is read by others."""
    readers: Counter[Any] = Counter()
    seen, waiting = {end}, [end]
    while waiting:
        for node, _ in getattr(waiting.pop(), "next_functions", ()):
            readers[node] += 1
            if node not in seen:
                seen.add(node)
                waiting.append(node)
    return readers


def _is_plain_convolution(module: nn.Module) -> bool:
    return type(module) is nn.Conv2d and untouched(module)


def _is_plain_norm(module: nn.Module) -> bool:
    plain = type(module) is nn.BatchNorm2d and untouched(module)
    return plain and not module.training and module.running_mean is not None


def _both(conv: nn.Conv2d, norm: nn.BatchNorm2d) -> tuple[Tensor, Tensor]:
    """Weights and bias of a convolution that does what both do."""
    gain, variance = _wide(norm.weight, 1.0), _wide(norm.running_var, 1.0)
    scale = gain * (variance + norm.eps).rsqrt()
    shift = (_wide(conv.bias, 0.0) - _wide(norm.running_mean, 0.0)) * scale + _wide(norm.bias, 0.0)
    both = _wide(conv.weight, 1.0) * scale[:, None, None, None]
    return both.to(conv.weight), shift.to(conv.weight)


def _wide(value: Tensor | None, otherwise: float) -> Tensor:
    return torch.tensor(otherwise, dtype=torch.float64) if value is None else value.detach().cpu().double()
