"""Reading attention while a model runs: named, without changing it, nothing left behind."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from antiphase.config import InputError, checked_arguments
from antiphase.models.adapters import adapter_of, read
from antiphase.models.attention import Branches, branches
from antiphase.models.fast_path import announced, read_at_class_token
from antiphase.models.forwards import replaced
from antiphase.runtime import frozen

Record = dict[str, Branches]


def attention_layers(model: nn.Module) -> dict[str, nn.Module]:
    """The attention layers of a model by name, in the order in which they are defined."""
    layers = {name: module for name, module in model.named_modules() if adapter_of(module) is not None}
    if not layers:
        raise InputError(
            f"this {type(model).__name__} has no attention layer to look into (models/adapters.py says how to add a kind)"
        )
    return layers


@checked_arguments()
@contextmanager
def taps(model: nn.Module) -> Iterator[Record]:
    """Inside, every forward fills the mapping: layer name -> Branches of that call. The output of the model is untouched.

    Under forward-mode differentiation use `explicit`, and return what you need from the differentiated function: kept
    tensors stay wrapped.
    """
    record: Record = {}

    def tap(name: str) -> Any:
        def hook(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            record[name] = read(module, *args, **kwargs)

        return hook

    with modules_are_called():
        handles = [
            module.register_forward_pre_hook(tap(name), with_kwargs=True)
            for name, module in attention_layers(model).items()
        ]
        try:
            yield record
        finally:
            for handle in handles:
                handle.remove()


@contextmanager
def explicit(model: nn.Module) -> Iterator[Record]:
    """The same mapping, and the layers compute their output from the very maps that are recorded.

    So a map is computed once, and every derivative exists (a fused kernel has none in forward mode). The output is that
    of the model but for rounding. Hooks on attention layers themselves still see their calls.
    """
    record: Record = {}

    def forward(module: nn.Module, name: str, *args: Any, **kwargs: Any) -> Any:
        record[name] = read(module, *args, **kwargs)
        return record[name].output

    layers = attention_layers(model)
    with modules_are_called(), replaced({module: partial(forward, module, name) for name, module in layers.items()}):
        yield record


def look(model: nn.Module, x: Tensor, layers: Collection[str] | None = None) -> Record:
    """The maps of a model for x, by the explicit path; what comes after the last of `layers` is not computed.

    Every derivative of what is returned exists.
    """
    wanted = set(attention_layers(model) if layers is None else layers)
    with explicit(model) as record:
        for name in wanted:
            module = model.get_submodule(name)
            module.forward = partial(_then_stop, module.forward, record, wanted)
        with suppress(Enough):
            model(x)
    return record


def look_at_what_is_read(model: nn.Module, x: Tensor) -> Record:
    """`look` at every layer, and of a last layer whose other tokens nobody reads at the class token's row alone."""
    vits = read_at_class_token(model)
    last = [(name, module) for name, module in attention_layers(model).items() if module in vits]
    if len(last) != 1:
        return look(model, x)
    ((name, module),) = last
    forward, under_way = announced(vits[module])
    with explicit(model) as record, replaced({vits[module]: forward}):
        module.forward = partial(_first_token_then_stop, module, record, name, under_way)
        with suppress(Enough):
            model(x)
    return record


def _first_token_then_stop(
    module: nn.Module, record: Record, name: str, under_way: list[bool], *args: Any, **kwargs: Any
) -> Any:
    """All tokens where it is not the ViT itself that was called: whoever called may read them."""
    adapter = adapter_of(module)
    assert adapter is not None
    heads = adapter(module, *args, **kwargs)
    record[name] = branches(heads.at_first_token if under_way[0] else heads)
    raise Enough


def gated_layers(model: nn.Module, x: Tensor) -> frozenset[str]:
    """The layers whose lambda depends on the input, so that it moves with the pixels: those that have a gate."""
    with frozen(model), torch.enable_grad():
        record = look(model, x.detach().clone().requires_grad_())
        return frozenset(name for name, maps in record.items() if maps.noise is not None and maps.lam.requires_grad)


def _then_stop(forward: Callable[..., Any], record: Record, wanted: set[str], *args: Any, **kwargs: Any) -> Any:
    out = forward(*args, **kwargs)
    if wanted <= record.keys():  # so of a layer that is called twice before the last, it is the last call that counts
        raise Enough
    return out


class Enough(Exception):
    """Raised inside a forward when everything that is looked at is there: what follows need not be computed."""


@contextmanager
def modules_are_called() -> Iterator[None]:
    """nn.TransformerEncoderLayer has a fast path that computes attention without calling its attention module."""
    before = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        yield
    finally:
        torch.backends.mha.set_fastpath_enabled(before)


def blocks(model: nn.Module) -> dict[str, nn.Module]:
    """The module around each attention layer: a block of the residual stream, by the layer's name."""
    modules = dict(model.named_modules())
    return {name: modules[name.rpartition(".")[0]] for name in attention_layers(model)}


@contextmanager
def outputs(modules: dict[str, nn.Module]) -> Iterator[dict[str, Tensor]]:
    """Inside, every forward fills the mapping: name -> what that module returned (of a tuple, the first)."""
    record: dict[str, Tensor] = {}

    def tap(name: str) -> Callable[..., None]:
        def hook(_: nn.Module, __: Any, out: Any) -> None:
            record[name] = out[0] if isinstance(out, tuple) else out

        return hook

    handles = [module.register_forward_hook(tap(name)) for name, module in modules.items()]
    try:
        yield record
    finally:
        for handle in handles:
            handle.remove()


def check_finite(values: Tensor, layer: str) -> None:
    """Refuse, by the layer's name, maps (or what was computed from them) that are not finite."""
    if not values.isfinite().all():
        raise InputError(f"the attention maps of {layer} are not finite: the weights or the images are broken")
