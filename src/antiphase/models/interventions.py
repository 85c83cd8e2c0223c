"""Changing what differential layers compute, to see what of it matters: lambda replaced, branches swapped, one map held.

A measure says what goes together with the subtraction; an intervention says what depends on it (docs/method.md 2.8).
B batch, n clean images, h heads, N tokens.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal, get_args

import torch
from timm.layers import Attention as TimmAttention
from torch import Tensor, nn

from antiphase.config import InputError, fits, shown
from antiphase.data.imageset import ImageSet
from antiphase.models.adapters import INTERVENTIONS, read
from antiphase.models.attention import Branches, Heads
from antiphase.models.foreign_layers import layout_of
from antiphase.models.forwards import replaced
from antiphase.models.taps import attention_layers, look, modules_are_called
from antiphase.runtime import at_rest

Held = Literal["A1", "A2"]
Rows = Literal["nearest", "position"]
Change = Callable[[Branches], Branches]
NORMS = (torch.inf, 2.0, 1.0)  # an attack stays near its image in the first or the second; a patch in the last
CLEAN_BATCH = 64  # clean images whose maps are recorded at a time


@contextmanager
def intervene(
    model: nn.Module,
    *,
    lam: float | None = None,
    swap: bool = False,
    hold: Held | None = None,
    clean: Tensor | ImageSet | None = None,
    rows: Rows = "nearest",
    layers: int | str | Sequence[int | str] | None = None,
    heads: int | Sequence[int] | None = None,
) -> Iterator[tuple[str, ...]]:
    """Inside, the model's differential layers compute with one thing changed; afterwards the model is as it was.

    One of three changes: `lam=0.4` puts a number in the place of lambda (0: the map is A1 alone); `swap=True` computes
    A2 - lambda A1; `hold="A2"` (or "A1") keeps that map as it is for the `clean` images, whatever the pixels do. Norm, gain and
    values stay as they are. `layers` names some of the attention layers, or numbers them from 0 in the order of the model;
    `heads` numbers heads of each; by default all. Yields the names of the layers. Blocks may be nested: an inner one changes
    what the outer one left, so swapping twice is no change.

    The explicit path computes what is changed, so every derivative exists, attacks work inside, and taps and measures of
    maps see the changed maps. Exact: outside the block every bit is as before; a held map has no derivative by the pixels.
    But for rounding: a held map at its own clean image, since batches of another size round otherwise. Closed forms from
    queries and keys are refused where a map is held. A map that a layer returns beside its output is not changed.

    Each row of a batch takes the map of the clean image that its pixels are nearest to, so batches may be in any order, as in
    attacks. The row must be less than half as far from it as the next clean image is, in the largest, the squared or the
    absolute differences, which leaves no other choice; a row that is not is refused. With `rows="position"`, row i
    belongs to clean image i, and every batch must have them all. The maps of all clean images are held in memory: n h N^2
    numbers per layer.
    """
    if not fits(lam, float | None):
        raise InputError(f"lam={shown(lam)} must be a number")
    kind = _one_of(lam=lam is not None, swap=swap, hold=hold is not None)
    chosen = _chosen(model, layers)
    only = None if heads is None else (heads,) if isinstance(heads, int) else tuple(heads)
    if lam is not None and not math.isfinite(lam):
        raise InputError(f"lam={lam} must be a finite number")
    if kind != "hold" and clean is not None:
        raise InputError(f"clean images are for hold: leave them out with {kind}")
    changes: dict[str, Change]
    clean_maps: CleanMaps | None = None
    if hold is not None:
        clean_maps = _record(model, chosen, hold, clean, rows)
        changes = {name: partial(_held, name, only, hold, clean_maps) for name in chosen}
    elif swap:
        changes = {name: partial(_swapped, name, only) for name in chosen}
    else:
        assert lam is not None
        changes = {name: partial(_with_lambda, name, only, float(lam)) for name in chosen}
    with _applied(model, {model.get_submodule(name): change for name, change in changes.items()}, clean_maps):
        yield chosen


def is_changed(model: nn.Module) -> bool:
    """Whether an intervention is at work in this model."""
    return any(module in INTERVENTIONS for module in model.modules())


# ------------------------------------------------------------------------------------------------- what is asked for


def _one_of(**given: bool) -> str:
    named = [name for name, is_given in given.items() if is_given]
    if len(named) != 1:
        which = f"{' and '.join(named)} were given" if named else "none was given"
        raise InputError(f"one intervention at a time, of lam, swap and hold, and {which}: nest blocks for several")
    return named[0]


def _chosen(model: nn.Module, layers: int | str | Sequence[int | str] | None) -> tuple[str, ...]:
    """Names of the layers to change; a layer that is not there or has one map only is refused."""
    known = attention_layers(model)
    names = list(known)
    two = [name for name in names if not _has_one_map(known[name])]
    if not two:
        raise InputError(f"this {type(model).__name__} has no differential layer: there is no subtraction to change")
    if layers is None:
        return tuple(two)
    wanted: list[str] = []
    for layer in [layers] if isinstance(layers, int | str) else layers:
        if isinstance(layer, int) and not 0 <= layer < len(names):
            raise InputError(
                f"there is no layer {layer}: this model has {len(names)} attention layers, numbered from 0"
            )
        name = names[layer] if isinstance(layer, int) else layer
        if name not in known:
            raise InputError(f"there is no attention layer {name!r}: there are {', '.join(names)}")
        if name not in two:
            raise _one_map_only(name)
        wanted.append(name)
    if not wanted:
        raise InputError("layers is empty: name a layer, or leave it out for all")
    return tuple(dict.fromkeys(wanted))


def _has_one_map(module: nn.Module) -> bool:
    """A softmax layer by its kind; of a kind that only its adapter knows, it is seen when the layer is called."""
    return isinstance(module, TimmAttention | nn.MultiheadAttention) or layout_of(module) is not None


def _one_map_only(layer: str) -> InputError:
    return InputError(f"{layer} is a softmax layer with one map: name differential layers by layers=")


# ------------------------------------------------------------------------------------------------- the three changes


def _where(layer: str, only: tuple[int, ...] | None, maps: Branches) -> Tensor:
    """(h,) bool: the heads that are changed"""
    if maps.noise is None:
        raise _one_map_only(layer)
    count = maps.signal.shape[1]
    if only is None:
        return torch.ones(count, dtype=torch.bool, device=maps.signal.device)
    for head in only:
        if not 0 <= head < count:
            raise InputError(f"{layer} has {count} differential heads, numbered from 0: there is no head {head}")
    chosen = torch.zeros(count, dtype=torch.bool)
    chosen[list(only)] = True
    return chosen.to(maps.signal.device)


def _with_lambda(layer: str, only: tuple[int, ...] | None, lam: float, maps: Branches) -> Branches:
    """A1 - lam A2"""
    chosen = _where(layer, only, maps)
    value = maps.lam.new_full((1, 1, 1, 1), lam)
    new = value if only is None else torch.where(chosen[:, None, None], value, maps.lam)
    gate = maps.heads.gate
    if gate is not None:  # a number does not depend on the input
        slope, direction = gate
        gate = None if only is None else (slope.masked_fill(chosen[:, None], 0.0), direction)
    return replace(maps, lam=new, heads=replace(maps.heads, lam=new, gate=gate))


def _swapped(layer: str, only: tuple[int, ...] | None, maps: Branches) -> Branches:
    """A2 - lambda A1: the maps change places, and with them the queries and keys that they are made of."""
    chosen, heads = _where(layer, only, maps), maps.heads
    assert maps.noise is not None
    first = torch.where(chosen[:, None, None], maps.noise, maps.signal)
    second = torch.where(chosen[:, None, None], maps.signal, maps.noise)
    return replace(maps, signal=first, noise=second, heads=_with_pairs_swapped(heads, chosen))


def _with_pairs_swapped(heads: Heads, chosen: Tensor) -> Heads:
    def both(t: Tensor) -> Tensor:  # (B, h, 2, N, d)
        return torch.where(chosen[:, None, None, None], t.flip(2), t)

    weights = heads.weights
    if weights is not None:  # (h, 2, d, D)
        wq, wk = (torch.where(chosen[:, None, None, None], w.flip(1), w) for w in weights)
        weights = wq, wk
    mask = heads.mask
    if mask is not None and mask.dim() == 5 and mask.shape[2] == 2:
        mask = both(mask)
    return replace(heads, q=both(heads.q), k=both(heads.k), weights=weights, mask=mask)


def _held(layer: str, only: tuple[int, ...] | None, hold: Held, clean: CleanMaps, maps: Branches) -> Branches:
    """One of the maps as it is for the clean images of these rows; its queries and keys say nothing about it any more."""
    chosen = _where(layer, only, maps)
    now = maps.signal if hold == "A1" else maps.noise
    assert now is not None
    kept = torch.where(chosen[:, None, None], clean.of(layer, now), now)
    heads = replace(maps.heads, weights=None)
    return replace(maps, signal=kept, heads=heads) if hold == "A1" else replace(maps, noise=kept, heads=heads)


# ------------------------------------------------------------------------------------------------- maps of clean images


@dataclass
class CleanMaps:
    """One map of every layer for every clean image, and which of these images the rows of the present batch belong to."""

    pixels: Tensor  # (n, C, H, W)
    maps: dict[str, Tensor]  # layer -> (n, h, N, N)
    reach: Tensor  # (3, n) half the way to the nearest clean image that differs, in each of NORMS
    rows: Rows
    present: Tensor | None = None  # (B,) of the batch that the model is called with; None outside a call

    def recognise(self, x: Tensor) -> None:
        """Find the clean image of each row of a batch: (B, C, H, W)"""
        if self.rows == "position":
            if len(x) != len(self.pixels):
                raise InputError(
                    f'with rows="position" every batch must have the {len(self.pixels)} clean images, and this one has '
                    f'{len(x)} rows: leave rows at "nearest"'
                )
            self.present = torch.arange(len(x), device=x.device)
            return
        shares = _apart(x.detach().to(self.pixels), self.pixels) / self.reach[:, None]  # (3, B, n)
        share, self.present = shares.amin(dim=0).min(dim=1)
        if bool((share >= 1).any()):
            raise InputError(
                "an image of the batch is as near to another clean image as to its own, or belongs to none: give the clean "
                'images of what is attacked by clean=, or rows="position"'
            )

    def forget(self) -> None:
        self.present = None

    def of(self, layer: str, like: Tensor) -> Tensor:
        """(B, h, N, N)"""
        if self.present is None:
            raise InputError(
                "a map is held by the images that the model itself is called with: call it, not a part of it"
            )
        kept = self.maps[layer][self.present]
        if kept.shape != like.shape:
            raise InputError(
                f"{layer} has maps of {tuple(like.shape[1:])} now and of {tuple(kept.shape[1:])} for the clean images: they "
                "must have the same size"
            )
        return kept.to(like.dtype)


def _apart(a: Tensor, b: Tensor) -> Tensor:
    """Distances in each of NORMS: (3, B, n)"""
    return torch.stack([torch.cdist(a.flatten(1), b.flatten(1), p=p) for p in NORMS])


def _record(
    model: nn.Module, layers: tuple[str, ...], hold: str, clean: Tensor | ImageSet | None, rows: str
) -> CleanMaps:
    if hold not in get_args(Held):
        raise InputError(f"hold={hold!r} is not known: it takes A1 or A2")
    if rows not in get_args(Rows):
        raise InputError(f"rows={rows!r} is not known: it takes nearest or position")
    if clean is None:
        raise InputError("hold keeps a map as it is for clean images: give them by clean=, as in hold='A2', clean=x")
    pixels = clean.all.pixels if isinstance(clean, ImageSet) else clean
    if not isinstance(pixels, Tensor) or not len(pixels):
        raise InputError("clean is a tensor of images, (n, C, H, W) with n >= 1, or an ImageSet")
    device = next((p.device for p in model.parameters()), pixels.device)
    pixels = pixels.detach().to(device)
    parts: dict[str, list[Tensor]] = {name: [] for name in layers}
    with at_rest(model):
        for batch in torch.split(pixels, CLEAN_BATCH):
            record = look(model, batch, layers)
            for name in layers:
                maps = record[name].signal if hold == "A1" else record[name].noise
                if maps is None:
                    raise _one_map_only(name)
                parts[name].append(maps)
    apart = _apart(pixels, pixels)
    reach = apart.masked_fill(apart == 0, torch.inf).amin(dim=2) / 2
    return CleanMaps(pixels, {name: torch.cat(maps) for name, maps in parts.items()}, reach, rows)  # type: ignore[arg-type]


# ------------------------------------------------------------------------------------------------- at work, and undone


@contextmanager
def _applied(model: nn.Module, changes: dict[nn.Module, Change], clean: CleanMaps | None) -> Iterator[None]:
    before = {module: INTERVENTIONS.get(module) for module in changes}
    handles = []
    try:
        for module, change in changes.items():
            INTERVENTIONS[module] = partial(_one_after_the_other, before[module], change)
        if clean is not None:
            handles = [
                model.register_forward_pre_hook(partial(_recognise, clean), with_kwargs=True),
                model.register_forward_hook(partial(_forget, clean), always_call=True),
            ]
        with modules_are_called(), replaced({module: partial(_explicit, module) for module in changes}):
            yield
    finally:
        for handle in handles:
            handle.remove()
        for module, outer in before.items():
            if outer is None:
                INTERVENTIONS.pop(module, None)
            else:
                INTERVENTIONS[module] = outer


def _one_after_the_other(first: Change | None, then: Change, maps: Branches) -> Branches:
    return then(maps if first is None else first(maps))


def _explicit(module: nn.Module, *args: Any, **kwargs: Any) -> Any:
    return read(module, *args, **kwargs).output


def _recognise(clean: CleanMaps, _: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    clean.recognise(next(value for value in (*args, *kwargs.values()) if isinstance(value, Tensor)))


def _forget(clean: CleanMaps, *_: object) -> None:
    clean.forget()
