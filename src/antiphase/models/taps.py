"""Reading attention while a model runs: named, without changing it, nothing left behind."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch import Tensor, nn

from antiphase.config import InputError
from antiphase.models.attention import Branches, branches, is_attention


def attention_layers(model: nn.Module) -> dict[str, nn.Module]:
    """The attention layers of a model by name, in the order in which they are defined."""
    layers = {name: module for name, module in model.named_modules() if is_attention(module)}
    if not layers:
        raise InputError(f"this {type(model).__name__} has no attention layer to look into")
    return layers


@contextmanager
def taps(model: nn.Module) -> Iterator[dict[str, Branches]]:
    """Inside, every forward fills the mapping: layer name -> Branches of that call. The output of the model is untouched.

    Under forward-mode differentiation return what you need from the differentiated function; kept tensors stay wrapped.
    """
    record: dict[str, Branches] = {}

    def tap(name: str) -> Any:
        def hook(module: nn.Module, inputs: tuple[Tensor, ...]) -> None:
            record[name] = branches(module, inputs[0])

        return hook

    handles = [module.register_forward_pre_hook(tap(name)) for name, module in attention_layers(model).items()]
    try:
        yield record
    finally:
        for handle in handles:
            handle.remove()


@contextmanager
def explicit(model: nn.Module) -> Iterator[None]:
    """Softmax layers compute their maps instead of a fused kernel, which has no forward-mode derivative."""
    before: dict[Any, bool] = {module: bool(module.fused_attn) for module in attention_layers(model).values()}
    for module in before:
        module.fused_attn = False
    try:
        yield
    finally:
        for module, fused in before.items():
            module.fused_attn = fused
