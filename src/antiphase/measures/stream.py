"""The residual stream of a running model, block by block, and one block by itself with or without its subtraction. B images."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from itertools import pairwise
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from antiphase.config import InputError
from antiphase.models.adapters import adapter_of
from antiphase.models.attention import branches
from antiphase.models.taps import Record, attention_layers, blocks, explicit


class Step(NamedTuple):
    """One block of the residual stream as it was called."""

    layer: str
    attention: nn.Module
    subtracts: bool  # it has two branches
    before: Tensor  # (B, ...)
    after: Tensor  # (B, ...)
    block: Callable[[Tensor], Tensor]  # the block itself, with whatever else it was called with


def follow(classifier: nn.Module, pixels: Tensor) -> list[Step]:
    """The residual stream through every block, in the order of the calls. Blocks must follow one another."""
    steps: list[Step] = []
    attentions = attention_layers(classifier)
    handles = []
    with explicit(classifier) as record:
        for layer, block in blocks(classifier).items():
            tap = partial(_kept, steps, record, layer, attentions[layer])
            handles.append(block.register_forward_hook(tap, with_kwargs=True))
        try:
            classifier(pixels)
        finally:
            for handle in handles:
                handle.remove()
    if not steps:
        raise InputError(f"this {type(classifier).__name__} never calls the blocks around its attention layers")
    for one, two in pairwise(steps):
        if not torch.equal(one.after, two.before):
            raise InputError(
                f"what leaves the block of {one.layer} is not what enters that of {two.layer}: no single stream"
            )
    for step in steps:
        if not step.after.isfinite().all():
            raise InputError(
                f"the output of the block of {step.layer} is not finite: the weights or the images are broken"
            )
    return steps


def _kept(
    steps: list[Step],
    record: Record,
    layer: str,
    attention: nn.Module,
    block: nn.Module,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    out: Any,
) -> None:
    again = partial(_called, block, args[1:], kwargs)
    steps.append(Step(layer, attention, record[layer].noise is not None, args[0], _first(out), again))


def _called(block: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], h: Tensor) -> Tensor:
    return _first(block(h, *args, **kwargs))


def _first(out: Any) -> Tensor:
    first: Tensor = out[0] if isinstance(out, tuple) else out
    return first


@contextmanager
def without_subtraction(attention: nn.Module) -> Iterator[None]:
    """Inside, lambda of this layer is 0; norm, gain and projection are as they were."""
    adapter = adapter_of(attention)
    assert adapter is not None
    own = vars(attention).get("forward")

    def forward(*args: Any, **kwargs: Any) -> Any:
        heads = adapter(attention, *args, **kwargs)
        assert heads.lam is not None
        return branches(replace(heads, lam=torch.zeros_like(heads.lam))).output

    attention.forward = forward
    try:
        yield
    finally:
        if own is None:
            del attention.forward  # the class's own shows again
        else:
            attention.forward = own
