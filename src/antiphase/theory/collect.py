"""A run and its softmax baseline, measured for the audit: from two models and images to `Evidence`.

The baseline is compared layer by layer, on the same images, with the same probes, draws and random points. The audit is of
layers with one lambda: a layer whose lambda depends on head, token or image is refused.
B images of a batch, n of all, h heads (hr of the baseline), N tokens, K probes, M draws of noise.
"""

from __future__ import annotations

from collections.abc import Callable
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
from antiphase.measures.branch_pairs import Alignment, BranchPair, Coupling, couple, gram, jackknife, lambdas_of
from antiphase.measures.jacobians_forward import PAPER_EPS, gram_probes, map_norms
from antiphase.measures.lipschitz import SearchedLipschitz, change_ratio, draw, l_search
from antiphase.measures.perturbations import points
from antiphase.measures.power_iteration import sigma_max
from antiphase.measures.radius import radii
from antiphase.measures.residual_stream import block_sigma
from antiphase.measures.stats import Array
from antiphase.models.attention import Branches
from antiphase.models.taps import Record, attention_layers, blocks, check_finite, explicit, look, outputs
from antiphase.runtime import at_rest
from antiphase.theory.evidence import Evidence, LayerEvidence, ModelEvidence, NoiseEvidence, PointEvidence

POINTS = ("clean", "random", "pgd", "found")
NOISE_DRAWS = 4
ROUNDING = {torch.float32: 1e-4, torch.float64: 1e-10}  # relative, what an identity may miss by
BATCH = 64


def collect(
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
    """Everything that `table.audit` judges. `probes` directions per Jacobian norm, `draws` random xi per sampled constant,
    `steps` of the attacks on the radii; L-ascent takes half as many again, a climb inside the ball half as many."""
    lam, twins = _layers(classifier, base, images, device)
    common: dict[str, Any] = {"seed": seed, "device": device}
    near = _points(classifier, base, images, eps, steps // 2, **common)
    jacobians = {p: _jacobians(classifier, base, near[p], twins, probes, **common) for p in POINTS}
    searched = [
        dict(zip(attention_layers(m), l_search(m, images, draws=draws, eps=eps, steps=3 * steps // 2, **common)))
        for m in ((classifier,) if base is None else (classifier, base))
    ]
    noise, gain = _noise(classifier, images, eps, "branches", **common)
    pseudo, base_gain = ({}, None) if base is None else _noise(base, images, eps, "pseudo", **common)
    facts = layer_facts(classifier, images, **common)
    layers = [
        LayerEvidence(
            name=name,
            lam=lam[name],
            points={p: jacobians[p][name] for p in POINTS},
            op=_operator_norms(classifier, images, name, searched, twin, **common),
            sample=_of_both("sample", name, twin, searched),
            ascent=_of_both("ascent", name, twin, searched),
            noise=noise[name],
            pseudo=pseudo.get(twin or ""),
            **facts[name],
        )
        for name, twin in twins.items()
    ]
    sizes = {"draws": draws, "eps": eps, "steps": steps}
    da = _whole_model(classifier, images, gain, sizes, **common)
    other = None if base is None or base_gain is None else _whole_model(base, images, base_gain, sizes, **common)
    dtype = next(classifier.parameters()).dtype
    return Evidence(len(attention_layers(classifier)), eps, ROUNDING[dtype], layers, da, other)


def _layers(
    classifier: nn.Module, base: nn.Module | None, images: ImageSet, device: torch.device | str
) -> tuple[dict[str, float], dict[str, str | None]]:
    """Layers with two branches: lambda of each, and the baseline's layer at the same depth."""
    names = list(attention_layers(classifier))
    twins: list[Any] = [None] * len(names) if base is None else list(attention_layers(base))
    if len(twins) != len(names):
        raise InputError(
            f"the baseline has {len(twins)} attention layers and the run {len(names)}: they are compared one by one"
        )
    lambdas_of(classifier, images, "branches", device=device)  # refuses a model without two branches
    two = images.batch(np.arange(min(2, len(images)))).pixels.to(device)  # enough to tell a lambda of each image
    with at_rest(classifier):
        lam = {layer: _one_lambda(pair.lam, layer) for layer, pair in couple(look(classifier, two), "branches").items()}
    return lam, {name: twin for name, twin in zip(names, twins) if name in lam}


def _one_lambda(lam: Tensor, layer: str) -> float:
    """Lambda of the layer, where there is only one."""
    if lam.numel() != 1:
        raise InputError(f"the audit needs one lambda per layer, and that of {layer} depends on head, token or image")
    return float(lam)


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
    pixels: dict[str, list[Tensor]] = {name: [] for name in POINTS[1:]}
    both = [classifier] if base is None else [classifier, base]
    with console.progress("points inside the ball", total=len(images)) as advance:
        for batch in images.batches(BATCH):
            pixels["random"].append(points(batch, eps, seed))
            with at_rest(both[0]), at_rest(both[-1]):
                inside: dict[str, Any] = {"eps": eps, "steps": steps, "device": device}
                pixels["pgd"].append(attacked(classifier, batch, **inside).cpu())
                pixels["found"].append(amplified(classifier, base, batch, **inside, seed=seed).cpu())
            advance(len(batch.ids), "")
    return {"clean": images, **{name: images.with_pixels(torch.cat(parts)) for name, parts in pixels.items()}}


# ------------------------------------------------------------------------------------------------- Jacobians
def _jacobians(
    classifier: nn.Module,
    base: nn.Module | None,
    images: ImageSet,
    twins: dict[str, str | None],
    probes: int,
    **common: Any,
) -> dict[str, PointEvidence]:
    def two(record: Record) -> dict[str, tuple[Tensor, ...]]:
        return {n: (b.signal, b.noise, b.combined) for n, b in record.items() if n in twins and b.noise is not None}

    own = gram_probes(classifier, images, two, probes=probes, label="Jacobians of the maps", **common)
    theirs = {} if base is None else map_norms(base, images, probes=probes, label="the baseline's", **common)
    return {name: _point(own[name], None if twin is None else theirs[twin]) for name, twin in twins.items()}


def _point(g: Array, ref: Array | None) -> PointEvidence:
    """g: (n, h, K, 3, 3) inner products of J1 v, J2 v, J_DA v; ref: (n, hr, K)"""
    n1, n2, ip, da = g[..., 0, 0], g[..., 1, 1], g[..., 0, 1], g[..., 2, 2]
    ref = n1 if ref is None else ref
    whole = [a.sum(axis=1) for a in (da, ref, n1)]  # heads stacked: (n, K)
    means = {"n1": n1, "n2": n2, "ip": ip, "da": da, "ref": ref}
    with np.errstate(all="ignore"):  # a map that does not react has no standard error: NaN
        return PointEvidence(
            **{name: a.mean(axis=-1) for name, a in means.items()},
            cos_se=Alignment("", 0.0, n1, n2, ip).cos_se,
            da_se=jackknife(lambda a: 0.5 * np.log(a), whole[0]),
            ratio_se=jackknife(lambda a, b: 0.5 * np.log(a / b), whole[0], whole[1]),
            gamma_se=jackknife(lambda a, b: 0.5 * np.log(a / b), whole[2], whole[1]),
        )


def _operator_norms(
    classifier: nn.Module,
    images: ImageSet,
    name: str,
    searched: list[dict[str, SearchedLipschitz]],
    twin: str | None,
    **common: Any,
) -> dict[str, Array]:
    """sigma_max of J1 and J2; of J_DA and J_base it is known from the search."""
    norms = _of_both("power", name, twin, searched)
    for label, part in (("first", "signal"), ("second", "noise")):
        norms[label] = _sigma(partial(_map, classifier, name, part), images, label, classifier, **common)
    return norms


def _map(classifier: nn.Module, name: str, part: str, x: Tensor) -> Tensor:
    with explicit(classifier) as record:
        classifier(x)
        values: Tensor = getattr(record[name], part)
        return values


def _sigma(
    f: Callable[[Tensor], Tensor],
    images: ImageSet,
    label: str,
    model: nn.Module,
    *,
    seed: int,
    device: torch.device | str,
) -> Array:
    parts = []
    with at_rest(model), console.progress(f"largest singular values: {label}", total=len(images)) as advance:
        for batch in images.batches(BATCH):
            parts.append(sigma_max(f, batch.pixels.to(device), ids=batch.ids, seed=seed)[0])
            advance(len(batch.ids), "")
    return _numpy(torch.cat(parts))


def _of_both(what: str, name: str, twin: str | None, searched: list[dict[str, SearchedLipschitz]]) -> dict[str, Array]:
    """An estimate of the run's layer, and of the baseline's where there is one."""
    own = {"da": getattr(searched[0][name], what)}
    return own if twin is None else own | {"base": getattr(searched[1][twin], what)}


def _whole_model(
    model: nn.Module, images: ImageSet, gain: dict[str, Array], sizes: dict[str, Any], **common: Any
) -> ModelEvidence:
    block = np.exp(np.log(np.maximum(block_sigma(model, images, **common), 1e-30)).mean(axis=1))
    return ModelEvidence(**radii(model, images, **sizes, **common), block=block, **gain)


# ------------------------------------------------------------------------------------------------- noise
def _noise(
    model: nn.Module, images: ImageSet, eps: float, coupling: Coupling, *, seed: int, device: torch.device | str
) -> tuple[dict[str, NoiseEvidence], dict[str, Array]]:
    """Changes of the coupled maps and of the last block under uniform noise, the same xi for every model."""
    products: dict[str, list[Tensor]] = {}
    lam: dict[str, float] = {}
    gains: list[tuple[Tensor, Tensor]] = []
    with at_rest(model), console.progress("uniform noise", total=len(images)) as advance:
        for batch in images.batches(BATCH):
            of_batch, lambdas, gain = _batch_noise(model, batch, eps, coupling, seed, device)
            for layer, changes in of_batch.items():
                products.setdefault(layer, []).append(changes)
            lam |= lambdas
            gains.append(gain)
            advance(len(batch.ids), "")
    joined = {layer: _numpy(torch.cat(parts)) for layer, parts in products.items()}  # (n, M, h, 3, 3)
    noise = {
        layer: NoiseEvidence(lam[layer], p[..., 0, 0], p[..., 1, 1], p[..., 0, 1], p[..., 2, 2])
        for layer, p in joined.items()
    }
    absolute, relative = (_numpy(torch.cat(column)) for column in zip(*gains))
    return noise, {"gain": absolute, "relative_gain": relative}


def _batch_noise(
    model: nn.Module, batch: Batch, eps: float, coupling: Coupling, seed: int, device: torch.device | str
) -> tuple[dict[str, Tensor], dict[str, float], tuple[Tensor, Tensor]]:
    """Inner products of the changes of A1, A2 and A_DA, (B, M, h, 3, 3) by layer; lambda; gains absolute and relative, (B,)"""
    x = batch.pixels.to(device)
    clean, h = _pairs_and_stream(model, x, coupling)
    products: dict[str, list[Tensor]] = {layer: [] for layer in clean}
    squares: list[tuple[Tensor, Tensor]] = []
    for k in range(NOISE_DRAWS):
        xi = draw(batch.ids, tuple(x.shape[1:]), k, eps, seed).to(x)
        moved, h_moved = _pairs_and_stream(model, x + xi, coupling)
        for layer, pair in moved.items():
            before = clean[layer]
            changes = pair.first - before.first, pair.second - before.second, pair.combined - before.combined
            check_finite(torch.stack(changes), layer)
            products[layer].append(gram(changes))
        ratio = change_ratio(h_moved, h, xi)
        squares.append((ratio**2, (ratio * x.flatten(1).norm(dim=1) / h.flatten(1).norm(dim=1)) ** 2))
    gain, relative = (torch.stack(column).mean(dim=0).sqrt() for column in zip(*squares))
    lam = {layer: _one_lambda(pair.lam, layer) for layer, pair in clean.items()}
    return {layer: torch.stack(g, dim=1) for layer, g in products.items()}, lam, (gain, relative)


def _pairs_and_stream(model: nn.Module, x: Tensor, coupling: Coupling) -> tuple[dict[str, BranchPair], Tensor]:
    """The coupled maps of every layer, and what the last block returns."""
    with explicit(model) as record, outputs(blocks(model)) as out:
        model(x)
    return couple(record, coupling), list(out.values())[-1]


def _numpy(t: Tensor) -> Array:
    array: Array = t.double().cpu().numpy()
    return array


# ------------------------------------------------------------------------------------------------- facts of a layer
# What the paper leaves out (docs/method.md 1.3), measured on the running model.


def layer_facts(
    classifier: nn.Module, images: ImageSet, *, seed: int = 0, batch_size: int = 64, device: torch.device | str = "cpu"
) -> dict[str, dict[str, Array]]:
    """loss_cos, row_sum, row_sum_moves, rescaled and projected of every layer with two branches: fields of `LayerEvidence`."""
    parts: dict[str, list[dict[str, Tensor]]] = {}
    with runtime.frozen(classifier):
        for batch in images.batches(batch_size):
            moves = _row_sum_moves(classifier, batch, seed, device)
            for name, (maps, cosine) in _loss_gradients(classifier, batch, device).items():
                measured = {"loss_cos": cosine, "row_sum_moves": moves[name], **_static(maps)}
                parts.setdefault(name, []).append(measured)
    return {
        name: {k: torch.cat([p[k] for p in each]).detach().double().cpu().numpy() for k in each[0]}
        for name, each in parts.items()
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
    cosines = {}
    for (name, maps), first, second in zip(two.items(), grads[0::2], grads[1::2]):
        cosines[name] = maps, (first * second).sum(-1) / (first.norm(dim=-1) * second.norm(dim=-1))
    return cosines


def _static(maps: Branches) -> dict[str, Tensor]:
    """What the maps of one call say by themselves, (B,) each."""
    assert maps.noise is not None
    with torch.no_grad():
        off = [maps.signal.sum(-1) - 1, maps.noise.sum(-1) - 1, maps.combined.sum(-1) - (1 - maps.lam[..., 0])]
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
