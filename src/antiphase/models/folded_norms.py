"""Batch norms in eval mode, computed with the convolutions that they follow: the same logits in a tenth less time.

Which convolution a norm follows is written nowhere in a model. It is seen in the graph of one forward, so nothing is traced
and whatever else the model does is left to it.
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

DRIFT = 1e-4  # of the largest logit: more than folding rounds otherwise


def folded_norms(model: nn.Module, image: Tensor) -> dict[nn.Module, Callable[..., Any]]:
    """Forwards (models/forwards.py) by which every convolution that only a batch norm reads gives that norm's result, and the
    norm passes it on.

    The model is in eval mode; the image is (1, C, H, W). Modules with hooks or with a forward of their own stay as they are,
    and all of them do if the logits of the image change, as those of a randomised model would. The global random state is left
    as it was, whatever the model draws.
    """
    if not any(_is_plain_norm(module) for module in model.modules()):
        return {}
    forwards: dict[nn.Module, Callable[..., Any]] = {}
    with torch.random.fork_rng(devices=[image.device] if image.device.type == "cuda" else []):
        logits, pairs = _observed(model, image)
        for conv, norm in pairs:
            forwards |= {conv: _both(conv, norm), norm: _identity}
        with replaced(forwards), torch.no_grad():
            apart = (model(image.clone()) - logits).abs().max()
    return forwards if apart <= DRIFT * logits.abs().max() else {}


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


def _both(conv: nn.Conv2d, norm: nn.BatchNorm2d) -> Callable[[Tensor], Tensor]:
    """The forward of a convolution whose weights are those of both."""
    gain, variance = _wide(norm.weight, 1.0), _wide(norm.running_var, 1.0)
    scale = gain * (variance + norm.eps).rsqrt()
    shift = (_wide(conv.bias, 0.0) - _wide(norm.running_mean, 0.0)) * scale + _wide(norm.bias, 0.0)
    both = _wide(conv.weight, 1.0) * scale[:, None, None, None]
    return partial(conv._conv_forward, weight=both.to(conv.weight), bias=shift.to(conv.weight))


def _wide(value: Tensor | None, otherwise: float) -> Tensor:
    return torch.tensor(otherwise, dtype=torch.float64) if value is None else value.detach().cpu().double()


def _identity(input: Tensor) -> Tensor:
    return input
