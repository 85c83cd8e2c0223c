"""Structural facts of a differential layer that the paper leaves out (M1.3), measured on a running model.

B images, h heads, N tokens.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from antiphase import console, runtime
from antiphase.attacks.losses import cross_entropy
from antiphase.config import InputError
from antiphase.data.imageset import Batch, ImageSet
from antiphase.measures.ascent import amplified, attacked
from antiphase.measures.branch_pairs import Alignment, couple, jackknife, lambdas_of
from antiphase.measures.jacobians_forward import PAPER_EPS, gram, gram_probes, map_norms
from antiphase.measures.lipschitz import Sharp, draw, l_sharp
from antiphase.measures.perturbations import points
from antiphase.measures.power_iteration import sigma_max
from antiphase.measures.radius import radii
from antiphase.measures.residual_stream import block_sigma
from antiphase.models.attention import Branches
from antiphase.models.taps import Record, attention_layers, blocks, check_finite, explicit, outputs
from antiphase.runtime import at_rest
from antiphase.theory.evidence import Evidence, Layer, Noise, Point, Side

Array = np.ndarray[Any, np.dtype[np.float64]]


def facts(
    classifier: nn.Module, images: ImageSet, *, seed: int = 0, batch_size: int = 64, device: torch.device | str = "cpu"
) -> dict[str, dict[str, Array]]:
    """loss_cos, row_sum, row_sum_moves, rescaled and projected of every layer with two branches, as `evidence.Layer` has them."""
    parts: dict[str, list[dict[str, Tensor]]] = {}
    with runtime.frozen(classifier):
        for batch in images.batches(batch_size):
            moves = _row_sum_moves(classifier, batch, seed, device)
            for name, (maps, cosine) in _loss_gradients(classifier, batch, device).items():
                measured = {"loss_cos": cosine, "row_sum_moves": moves[name], **_static(maps)}
                parts.setdefault(name, []).append(measured)
    return {
        name: {k: torch.cat([p[k] for p in found]).detach().double().cpu().numpy() for k in found[0]}
        for name, found in parts.items()
    }


def _loss_gradients(
    classifier: nn.Module, batch: Batch, device: torch.device | str
) -> dict[str, tuple[Branches, Tensor]]:
    """cos of dl/dA1 and dl/dA2, (B, h): dl/dA2 = -lambda dl/dA1, whatever the weights. NaN where there is no gradient."""
    with torch.enable_grad(), explicit(classifier) as record:
        x = batch.pixels.to(device).requires_grad_()
        loss = cross_entropy(classifier(x), batch.labels.to(device)).sum()
        two = {name: maps for name, maps in record.items() if maps.noise is not None}
        wanted = [m for maps in two.values() for m in (maps.signal, maps.noise)]
        grads = [g.flatten(2).double() for g in torch.autograd.grad(loss, wanted)]  # type: ignore[arg-type]
    found = {}
    for (name, maps), first, second in zip(two.items(), grads[0::2], grads[1::2]):
        found[name] = maps, (first * second).sum(-1) / (first.norm(dim=-1) * second.norm(dim=-1))
    return found


def _static(maps: Branches) -> dict[str, Tensor]:
    """What the maps of one call say by themselves, (B,) each."""
    assert maps.noise is not None
    with torch.no_grad():
        off = [maps.signal.sum(-1) - 1, maps.noise.sum(-1) - 1, maps.combined.sum(-1) - (1 - maps.lam)]
        normed = maps.normed
        doubled = maps.heads.norm(2 * maps.mixed)
        size = normed.flatten(1).norm(dim=1)
        return {
            "row_sum": torch.stack([o.flatten(1).abs().amax(dim=1) for o in off]).amax(dim=0),
            "rescaled": (doubled - normed).flatten(1).norm(dim=1) / size.clamp_min(1e-30),
            "projected": size,
        }


def _row_sum_moves(classifier: nn.Module, batch: Batch, seed: int, device: torch.device | str) -> dict[str, Tensor]:
    """||J v|| of the row sums of A_DA over ||J v|| of A_DA itself, for one random v: (B,)"""
    x = batch.pixels.to(device)
    v = torch.from_numpy(runtime.normal((seed, "rows"), batch.ids, tuple(x.shape[1:]))).to(x)

    def maps(pixels: Tensor) -> dict[str, Tensor]:
        with explicit(classifier) as record:
            classifier(pixels)
            return _combined_maps(record)

    with torch.no_grad():
        pushed = torch.func.jvp(maps, (x,), (v,))[1]
    return {
        name: p.sum(-1).flatten(1).norm(dim=1) / p.flatten(1).norm(dim=1).clamp_min(1e-30) for name, p in pushed.items()
    }


def _combined_maps(record: Record) -> dict[str, Tensor]:
    return {name: maps.combined for name, maps in record.items() if maps.noise is not None}


# ------------------------------------------------------------------------------------------------- measures.gather
# A run and its softmax baseline, measured for the audit: from two models and images to `Evidence`.
#
# The baseline is compared layer by layer, on the same images, with the same probes, draws and random points.


POINTS = ("clean", "random", "pgd", "found")
NOISE_DRAWS = 4
ROUNDING = {torch.float32: 1e-4, torch.float64: 1e-10}  # relative, what an identity may miss by
BATCH = 64


def gather(
    classifier: nn.Module,
    base: nn.Module | None,
    images: ImageSet,
    *,
    probes: int,
    draws: int,
    eps: float = PAPER_EPS,
    steps: int = 20,
    seed: int = 0,
    device: torch.device | str = "cpu",
) -> Evidence:
    """Everything that `theory.audit` judges. `probes` directions per Jacobian norm, `draws` random xi per sampled constant,
    `steps` of the attacks on the radii; L-ascent takes half as many again, a climb inside the ball half as many."""
    at = _places(classifier, base, images, device)
    common: dict[str, Any] = {"seed": seed, "device": device}
    elsewhere = _points(classifier, base, images, eps, steps // 2, **common)
    grams = {p: _grams(classifier, base, elsewhere[p], at, probes, **common) for p in POINTS}
    sharp = [
        dict(zip(attention_layers(m), l_sharp(m, images, draws=draws, eps=eps, steps=3 * steps // 2, **common)))
        for m in ((classifier,) if base is None else (classifier, base))
    ]
    noise, gain = _noise(classifier, images, eps, "branches", **common)
    pseudo, base_gain = ({}, None) if base is None else _noise(base, images, eps, "pseudo", **common)
    told = facts(classifier, images, **common)
    layers = [
        Layer(
            name=name,
            lam=noise[name].lam,
            points={p: grams[p][name] for p in POINTS},
            op=_op(classifier, images, name, sharp, twin, **common),
            sample=_both("sample", name, twin, sharp),
            ascent=_both("ascent", name, twin, sharp),
            noise=noise[name],
            pseudo=pseudo.get(twin or ""),
            **told[name],
        )
        for name, twin in at.items()
    ]
    sizes = {"draws": draws, "eps": eps, "steps": steps}
    da = _side(classifier, images, gain, sizes, **common)
    other = None if base is None or base_gain is None else _side(base, images, base_gain, sizes, **common)
    dtype = next(classifier.parameters()).dtype
    return Evidence(len(attention_layers(classifier)), eps, ROUNDING[dtype], layers, da, other)


def _places(
    classifier: nn.Module, base: nn.Module | None, images: ImageSet, device: torch.device | str
) -> dict[str, str | None]:
    """Layers with two branches, each with the baseline's layer at the same depth."""
    names = list(attention_layers(classifier))
    twins: list[Any] = [None] * len(names) if base is None else list(attention_layers(base))
    if len(twins) != len(names):
        raise InputError(
            f"the baseline has {len(twins)} attention layers and the run {len(names)}: they are compared one by one"
        )
    two = lambdas_of(classifier, images, "branches", device)
    return {name: twin for name, twin in zip(names, twins) if name in two}


def _points(
    classifier: nn.Module,
    base: nn.Module | None,
    images: ImageSet,
    eps: float,
    steps: int,
    *,
    seed: int,
    device: torch.device | str,
) -> dict[str, ImageSet]:
    """The images, and one point near each: at random, where PGD ends, and where the sensitivity ratio was driven up."""
    found: dict[str, list[Tensor]] = {name: [] for name in POINTS[1:]}
    both = [classifier] if base is None else [classifier, base]
    with console.progress("points inside the ball", total=len(images)) as advance:
        for batch in images.batches(BATCH):
            found["random"].append(points(batch, eps, seed))
            with at_rest(both[0]), at_rest(both[-1]):
                inside: dict[str, Any] = {"eps": eps, "steps": steps, "device": device}
                found["pgd"].append(attacked(classifier, batch, **inside).cpu())
                found["found"].append(amplified(classifier, base, batch, **inside, seed=seed).cpu())
            advance(len(batch.ids), "")
    return {"clean": images, **{name: images.with_pixels(torch.cat(pixels)) for name, pixels in found.items()}}


# ------------------------------------------------------------------------------------------------- Jacobians
def _grams(
    classifier: nn.Module,
    base: nn.Module | None,
    images: ImageSet,
    at: dict[str, str | None],
    probes: int,
    **common: Any,
) -> dict[str, Point]:
    def two(record: Record) -> dict[str, tuple[Tensor, ...]]:
        return {n: (b.signal, b.noise, b.combined) for n, b in record.items() if n in at and b.noise is not None}

    own = gram_probes(classifier, images, two, probes=probes, label="Jacobians of the maps", **common)
    theirs = {} if base is None else map_norms(base, images, probes=probes, label="the baseline's", **common)
    return {name: _point(own[name], None if twin is None else theirs[twin]) for name, twin in at.items()}


def _point(g: Array, ref: Array | None) -> Point:
    """g: (n, h, K, 3, 3) inner products of J1 v, J2 v, J_DA v; ref: (n, hr, K)"""
    n1, n2, ip, da = g[..., 0, 0], g[..., 1, 1], g[..., 0, 1], g[..., 2, 2]
    ref = n1 if ref is None else ref
    whole = [a.sum(axis=1) for a in (da, ref, n1)]  # heads stacked: (n, K)
    means = {"n1": n1, "n2": n2, "ip": ip, "da": da, "ref": ref}
    with np.errstate(all="ignore"):  # a map that does not react has no standard error: NaN
        return Point(
            **{name: a.mean(axis=-1) for name, a in means.items()},
            cos_se=Alignment("", 0.0, n1, n2, ip).cos_se,
            da_se=jackknife(lambda a: 0.5 * np.log(a), whole[0]),
            ratio_se=jackknife(lambda a, b: 0.5 * np.log(a / b), whole[0], whole[1]),
            gamma_se=jackknife(lambda a, b: 0.5 * np.log(a / b), whole[2], whole[1]),
        )


def _op(
    classifier: nn.Module, images: ImageSet, name: str, sharp: list[dict[str, Sharp]], twin: str | None, **common: Any
) -> dict[str, Array]:
    """sigma_max of J1 and J2; of J_DA and J_base it is known from the search."""
    found = {"da": sharp[0][name].power} | ({} if twin is None else {"base": sharp[1][twin].power})
    for label, part in (("first", "signal"), ("second", "noise")):
        found[label] = _sigma(partial(_map, classifier, name, part), images, label, classifier, **common)
    return found


def _map(classifier: nn.Module, name: str, part: str, x: Tensor) -> Tensor:
    with explicit(classifier) as record:
        classifier(x)
        found: Tensor = getattr(record[name], part)
        return found


def _sigma(f: Any, images: ImageSet, label: str, model: nn.Module, *, seed: int, device: torch.device | str) -> Array:
    parts = []
    with at_rest(model), console.progress(f"largest singular values: {label}", total=len(images)) as advance:
        for batch in images.batches(BATCH):
            parts.append(sigma_max(f, batch.pixels.to(device), ids=batch.ids, seed=seed)[0])
            advance(len(batch.ids), "")
    return _numpy(torch.cat(parts))


def _both(what: str, name: str, twin: str | None, sharp: list[dict[str, Sharp]]) -> dict[str, Array]:
    return {"da": getattr(sharp[0][name], what)} | ({} if twin is None else {"base": getattr(sharp[1][twin], what)})


def _side(model: nn.Module, images: ImageSet, gain: dict[str, Array], sizes: dict[str, Any], **common: Any) -> Side:
    block = np.exp(np.log(np.maximum(block_sigma(model, images, **common), 1e-30)).mean(axis=1))
    return Side(**radii(model, images, **sizes, **common), block=block, **gain)


# ------------------------------------------------------------------------------------------------- noise
def _noise(
    model: nn.Module, images: ImageSet, eps: float, coupling: Any, *, seed: int, device: torch.device | str
) -> tuple[dict[str, Noise], dict[str, Array]]:
    """Changes of the coupled maps and of the last block under uniform noise, the same xi for every model."""
    found: dict[str, list[Tensor]] = {}
    lam: dict[str, float] = {}
    gains: list[tuple[Tensor, Tensor]] = []
    with at_rest(model), console.progress("uniform noise", total=len(images)) as advance:
        for batch in images.batches(BATCH):
            parts, gain = _noisy(model, batch, eps, coupling, seed, device)
            for layer, (pushed, value) in parts.items():
                found.setdefault(layer, []).append(pushed)
                lam[layer] = value
            gains.append(gain)
            advance(len(batch.ids), "")
    products = {layer: _numpy(torch.cat(parts)) for layer, parts in found.items()}  # (n, M, h, 3, 3)
    noise = {
        layer: Noise(lam[layer], p[..., 0, 0], p[..., 1, 1], p[..., 0, 1], p[..., 2, 2])
        for layer, p in products.items()
    }
    absolute, relative = (_numpy(torch.cat(column)) for column in zip(*gains))
    return noise, {"gain": absolute, "relative_gain": relative}


def _noisy(
    model: nn.Module, batch: Batch, eps: float, coupling: Any, seed: int, device: torch.device | str
) -> tuple[dict[str, tuple[Tensor, float]], tuple[Tensor, Tensor]]:
    x = batch.pixels.to(device)
    clean, h = _looked(model, x, coupling)
    found: dict[str, list[Tensor]] = {layer: [] for layer in clean}
    squares: list[tuple[Tensor, Tensor]] = []
    for k in range(NOISE_DRAWS):
        xi = draw(batch.ids, tuple(x.shape[1:]), k, eps, seed).to(x)
        moved, h_moved = _looked(model, x + xi, coupling)
        for layer, (a, b, lam) in moved.items():
            changes = a - clean[layer][0], b - clean[layer][1], (a - lam * b) - _combined(clean[layer])
            check_finite(torch.stack(changes), layer)
            found[layer].append(gram(changes))
        ratio = (h_moved - h).flatten(1).norm(dim=1) / xi.flatten(1).norm(dim=1)
        squares.append((ratio**2, (ratio * x.flatten(1).norm(dim=1) / h.flatten(1).norm(dim=1)) ** 2))
    gain, relative = (torch.stack(column).mean(dim=0).sqrt() for column in zip(*squares))
    return {layer: (torch.stack(g, dim=1), clean[layer][2]) for layer, g in found.items()}, (gain, relative)


def _combined(coupled: tuple[Tensor, Tensor, float]) -> Tensor:
    first, second, lam = coupled
    return first - lam * second


def _looked(model: nn.Module, x: Tensor, coupling: Any) -> tuple[dict[str, tuple[Tensor, Tensor, float]], Tensor]:
    """The coupled maps of every layer, and what the last block returns."""
    with explicit(model) as record, outputs(blocks(model)) as out:
        model(x)
    return couple(record, coupling), list(out.values())[-1]


def _numpy(t: Tensor) -> Array:
    found: Array = t.double().cpu().numpy()
    return found
