"""A few images as a run sees them, clean and under PGD of each budget: every map, and what the two branches do to each other.

Maps and pixels go to a page in few bytes: eight bits per value, so that a map is off by at most 1/510 of the largest entry of
its row, over the states that share a scale. The bytes are laid end to end in the order in which they are added, deflated and
written as base64; a reader finds them again by shapes alone. n images; states are the clean images and one for each budget;
h heads; N tokens: class token first, if there is one, then the patches row by row.
"""

from __future__ import annotations

import base64
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from antiphase import console
from antiphase.config import Budget, InputError
from antiphase.data.imageset import ImageSet
from antiphase.measures.branch_pairs import Alignment, alignment_of, changes, couple, gram, weight_of
from antiphase.measures.jacobians_forward import branch_alignment
from antiphase.measures.perturbations import PGD_STEPS, perturbed
from antiphase.measures.questions import columns
from antiphase.models.attention import Branches
from antiphase.models.run import Run
from antiphase.models.taps import Record, check_finite, gated_layers, taps
from antiphase.results.questions import LookQuestion
from antiphase.runtime import at_rest
from antiphase.store import Content, Entry

Array = NDArray[np.float64]
LEVELS = 255
ROOM = 12_000_000  # bytes of maps that one model may bring to a page, before they are deflated to about half
WIDEST = 112  # pixels across which an image is shown; larger ones are shrunk


@dataclass
class Packed:
    """Bytes end to end."""

    parts: list[bytes] = field(default_factory=list)

    def add(self, array: NDArray[Any]) -> None:
        self.parts.append(np.ascontiguousarray(array).astype(array.dtype.newbyteorder("<")).tobytes())

    def text(self) -> str:
        return base64.b64encode(zlib.compress(b"".join(self.parts), 9)).decode("ascii")


def unpacked(text: str) -> bytes:
    return zlib.decompress(base64.b64decode(text))


def quantised(maps: Array) -> tuple[NDArray[np.uint8], NDArray[np.float32]]:
    """Entries >= 0 as whole numbers 0..255 of the largest of their row in any state, and those: (states, ..., N, M) -> the
    same and (..., N). Each state but the first is written as its difference from the one before, modulo 256: deflates to half.
    """
    top = maps.max(axis=(0, -1))
    share = np.divide(maps, top[..., None], out=np.zeros_like(maps), where=top[..., None] > 0)
    levels = np.rint(LEVELS * share).astype(np.uint8)
    return np.concatenate([levels[:1], levels[1:] - levels[:-1]]), top.astype(np.float32)


def restored(steps: NDArray[np.uint8], top: NDArray[np.float32]) -> Array:
    """The inverse of `quantised`, but for rounding."""
    levels = np.cumsum(steps, axis=0, dtype=np.uint8).astype(np.float64)
    return levels / LEVELS * top[..., None]


def signed_bytes(delta: Array, eps: float) -> NDArray[np.int8]:
    """Changes within +-eps as whole numbers -127..127 of it"""
    return np.rint(127 * np.clip(delta / eps, -1, 1)).astype(np.int8)


def grid_of(tokens: int) -> tuple[int, int]:
    """Patches along a side, and how many tokens (a class token) come before them"""
    side = int(tokens**0.5)
    return side, tokens - side * side


def factor_for(tokens: int, maps: int) -> int:
    """By how much patches are pooled along each side so that so many maps fit the room: 1, or a divisor of the side"""
    side, before = grid_of(tokens)
    for factor in (f for f in range(1, side + 1) if side % f == 0):
        if maps * ((side // factor) ** 2 + before) ** 2 <= ROOM:
            return factor
    return side


def pooled(maps: Array, factor: int) -> Array:
    """Neighbouring patches as one: the mean over those that look, the sum over those looked at. Rows sum to what they did."""
    side, before = grid_of(maps.shape[-1])
    if factor == 1:
        return maps
    row, column = np.divmod(np.arange(side * side), side)
    cell = (row // factor) * (side // factor) + column // factor
    of = np.concatenate([np.arange(before), before + cell])  # token -> where it goes
    member = (of == np.arange(of.max() + 1)[:, None]).astype(np.float64)  # (cells, N)
    joined: Array = (member / member.sum(axis=1, keepdims=True)) @ maps @ member.T
    return joined


def shrunk(pixels: Array, side: int) -> Array:
    """Means over squares of pixels, so that no side is above the widest: (..., H, W) with H = W = side"""
    factor = next(f for f in range(1, side + 1) if side % f == 0 and side // f <= WIDEST)
    small = side // factor
    means: Array = pixels.reshape(*pixels.shape[:-2], small, factor, small, factor).mean(axis=(-3, -1))
    return means


# ------------------------------------------------------------------------------------------------- what a run sees


COARSE = 6  # patches a side below which a lens is no lens: then it takes fewer budgets
TOP = 3  # classes named for each prediction
STATISTICS = ("lambda", "cos", "cos_se", "rho", "amplification", "energy", "angle")


def look(run: Run, images: ImageSet, question: LookQuestion, *, device: torch.device | str = "cpu") -> Entry:
    """Everything that the lens of a report shows of one run; maps and pixels in `packed`, in the order of `_packed`."""
    eps, probes, seed = question.eps, question.probes, question.seed
    if not eps:
        raise InputError("the lens needs budgets above 0: give --eps, as in --eps 4/255,8/255")

    def compute(_: Path) -> Content:
        model, batch = run.classifier_for(images, device), images.all.to(device)
        with at_rest(model), console.progress(f"{run.name} looks", total=len(eps) + 1) as advance:
            states, views = [batch.pixels], [_view(model, batch.pixels)]
            advance(1, "clean")
            budgets = _fitting(sorted(set(eps)), views[0][1], len(images))
            for budget in budgets:
                states.append(perturbed(model, batch, "pgd", float(budget), seed).pixels)
                views.append(_view(model, states[-1]))
                advance(1, str(budget))
        records = [record for _, record in views]
        return {
            "eps": [float(budget) for budget in budgets],
            "left_out": [float(budget) for budget in sorted(set(eps) - set(budgets))],
            "attack": f"PGD, {PGD_STEPS} steps, Linf, away from the true label, one random start",
            "probes": probes,
            "class_names": list(images.class_names),
            "ids": images.ids.tolist(),
            "labels": images.labels.tolist(),
            "predictions": [_predictions(logits) for logits, _ in views],
            **_packed(images, states, records, budgets),
            "rows": columns(_branches(model, images, states, records, probes, seed, device)),
        }

    return run.answer_on(question, images, compute)


def _fitting(eps: list[Budget], clean: Record, images: int) -> list[Budget]:
    """All budgets; of a model so large that its maps would be too coarse, the smallest, the middle and the largest."""
    tokens, maps = _tokens(clean), images * sum(len(_packed_maps(m)) * m.signal.shape[1] for m in clean.values())
    side = grid_of(tokens)[0]
    coarse = side // factor_for(tokens, maps * (len(eps) + 1)) < min(COARSE, side)
    return [eps[0], eps[len(eps) // 2], eps[-1]] if coarse and len(eps) > 3 else eps


def _tokens(record: Record) -> int:
    counts = {maps.signal.shape[-1] for maps in record.values()}
    if len(counts) != 1:
        raise InputError(f"the lens shows models whose layers all look at the same patches, and these look at {counts}")
    return counts.pop()


def _branches_of(maps: Branches) -> list[Tensor]:
    return [maps.signal] if maps.noise is None else [maps.signal, maps.noise]


def _packed_maps(maps: Branches) -> list[Tensor]:
    """The branches; and where A1 - A_DA is not one number times A2, that too, what is above zero and what is below apart."""
    if maps.noise is None or (maps.lam.numel() == 1 and maps.added is None):
        return _branches_of(maps)
    taken = maps.signal - maps.combined
    return [*_branches_of(maps), taken.clamp_min(0), (-taken).clamp_min(0)]


def _view(model: nn.Module, pixels: Tensor) -> tuple[Tensor, Record]:
    with taps(model) as record:
        logits = model(pixels)
    for layer, maps in record.items():
        check_finite(maps.combined, layer)
    return logits, record


def _predictions(logits: Tensor) -> list[list[list[float]]]:
    """For each image its most likely classes, each with its probability."""
    best = logits.double().softmax(dim=1).topk(min(TOP, logits.shape[1]), dim=1)
    return [
        [[int(c), round(float(p), 6)] for p, c in zip(*pair)] for pair in zip(best.values.cpu(), best.indices.cpu())
    ]


# ------------------------------------------------------------------------------------------------- the two branches
def _branches(
    model: nn.Module,
    images: ImageSet,
    states: list[Tensor],
    records: list[Record],
    probes: int,
    seed: int,
    device: torch.device | str,
) -> Iterator[dict[str, Any]]:
    """Of every state the Jacobians there, and of an attacked one the changes from the clean maps too; heads and all stacked."""
    if all(maps.noise is None for maps in records[0].values()):
        return
    gated = gated_layers(model, states[0][:1])
    third = bool(gated) or any(maps.added is not None for maps in records[0].values())
    for number, (pixels, record) in enumerate(zip(states, records)):
        there = images.with_pixels(pixels.cpu())
        aligned = {"jacobians": branch_alignment(model, there, probes=probes, seed=seed, device=device)}
        if number:
            aligned["changes"] = _changes(records[0], record, gated)
        for of, layers in aligned.items():
            for layer in layers:
                for head, view in (("each", layer), ("all", layer.stacked)):
                    for row in view.rows(images.ids):
                        kept = {name: row[name] for name in ("layer", "image", *STATISTICS)}
                        name = None if layer.third is None else layer.third.name
                        more = {"third": row.get(name or ""), "third_share": row.get(f"{name}_share")} if third else {}
                        yield {
                            "state": number,
                            "of": of,
                            "head": row["head"] if head == "each" else None,
                            **kept,
                            **more,
                        }


def _changes(clean: Record, attacked: Record, gated: frozenset[str]) -> list[Alignment]:
    layers = []
    after = couple(attacked, "branches", gated)
    for layer, before in couple(clean, "branches", gated).items():
        moved = gram(changes(before, after[layer]))[:, :, None].cpu().numpy()
        layers.append(alignment_of(layer, weight_of([(before, len(before.first))], before.gated), moved))
    return layers


# ------------------------------------------------------------------------------------------------- maps and pixels
def _packed(images: ImageSet, states: list[Tensor], records: list[Record], eps: Sequence[Budget]) -> Content:
    """In this order: clean pixels (n, H, W, C) as bytes; for each budget the change (n, H, W, C) in 127ths of it; then for each
    layer its maps (states, n, branches, h, N, N) as `quantised` writes them and the scales of their rows (n, branches, h, N). A
    layer that has no one lambda has four in place of its two branches (`_packed_maps`), says so under `maps`, and its lambda is
    the mean."""
    side = images.shape[-1]
    layers: list[dict[str, Any]] = [
        {
            "layer": name,
            "lambda": maps.scalar_lambda if maps.noise is not None else None,
            "branches": len(_branches_of(maps)),
            "heads": maps.signal.shape[1],
            **({"maps": 4} if len(_packed_maps(maps)) == 4 else {}),
        }
        for name, maps in records[0].items()
    ]
    tokens = _tokens(records[0])
    each = sum(la.get("maps", la["branches"]) * la["heads"] for la in layers)
    packed, whole = Packed(), len(images) * len(states) * each
    factor = factor_for(tokens, whole)
    clean, *moved = (shrunk(pixels.double().cpu().numpy(), side).transpose(0, 2, 3, 1) for pixels in states)
    packed.add(np.rint(255 * clean).astype(np.uint8))
    for pixels, budget in zip(moved, eps):
        packed.add(signed_bytes(pixels - clean, float(budget)))
    for layer in layers:
        maps = np.stack([_maps(record, layer["layer"], factor) for record in records])
        for part in quantised(maps):
            packed.add(part)
    patches, before = grid_of(tokens)
    return {
        "layers": layers,
        "patches": patches // factor,
        "class_tokens": before,
        "pooled": factor,
        "pixels": list(clean.shape[1:]),
        "shrunk": side // clean.shape[1],
        "packed": packed.text(),
    }


def _maps(record: Record, layer: str, factor: int) -> np.ndarray[Any, np.dtype[np.float64]]:
    """(n, branches, h, N, N)"""
    return pooled(torch.stack(_packed_maps(record[layer]), dim=1).double().cpu().numpy(), factor)
