"""A run and its softmax baseline, measured for the audit: from two models and images to `Evidence`.

The baseline is compared layer by layer, on the same images, with the same probes, draws and random points. Where lambda is not
one number it is multiplied into the second map and counts as 1; where it depends on the input, the gate's term is measured too.
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
from antiphase.measures.branch_pairs import (
    Alignment,
    BranchPair,
    Coupling,
    changes,
    couple,
    gram,
    jackknife,
    lambdas_of,
)
from antiphase.measures.jacobians_forward import PAPER_EPS, gram_probes, map_norms
from antiphase.measures.lipschitz import SearchedLipschitz, change_ratio, draw, l_search
from antiphase.measures.perturbations import points
from antiphase.measures.power_iteration import sigma_max
from antiphase.measures.radius import radii
from antiphase.measures.residual_stream import block_sigma
from antiphase.measures.stats import Array
from antiphase.models.attention import Branches
from antiphase.models.taps import (
    Record,
    attention_layers,
    blocks,
    check_finite,
    explicit,
    gated_layers,
    look,
    outputs,
)
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
    weights, twins = _layers(classifier, base, images, device)
    gated = frozenset(layer for layer, weight in weights.items() if weight["third"] == "gate")
    common: dict[str, Any] = {"seed": seed, "device": device}
    near = _points(classifier, base, images, eps, steps // 2, **common)
    jacobians = {p: _jacobians(classifier, base, near[p], twins, probes, gated, **common) for p in POINTS}
    searched = [
        dict(zip(attention_layers(m), l_search(m, images, draws=draws, eps=eps, steps=3 * steps // 2, **common)))
        for m in ((classifier,) if base is None else (classifier, base))
    ]
    noise, gain = _noise(classifier, images, eps, "branches", gated, **common)
    pseudo, base_gain = ({}, None) if base is None else _noise(base, images, eps, "pseudo", **common)
    facts: dict[str, dict[str, Any]] = {**layer_facts(classifier, images, gated=gated, **common)}
    layers = [
        LayerEvidence(
            name=name,
            **weights[name],
            points={p: jacobians[p][name] for p in POINTS},
            op=_operator_norms(classifier, images, name, gated, weights[name]["third"], searched, twin, **common),
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
) -> tuple[dict[str, dict[str, Any]], dict[str, str | None]]:
    """Layers with two branches: lambda of each, as fields of `LayerEvidence`, and the baseline's layer at the same depth."""
    names = list(attention_layers(classifier))
    twins: list[Any] = [None] * len(names) if base is None else list(attention_layers(base))
    if len(twins) != len(names):
        raise InputError(
            f"the baseline has {len(twins)} attention layers and the run {len(names)}: they are compared one by one"
        )
    weights = lambdas_of(classifier, images, "branches", device=device)  # refuses a model without two branches
    one = images.batch(np.arange(1)).pixels.to(device)
    with at_rest(classifier):
        pairs = couple(look(classifier, one), "branches", gated_layers(classifier, one))
    fields: dict[str, dict[str, Any]] = {}
    for layer, pair in pairs.items():
        fields[layer] = {"lam": _outside(pair), "third": _third(pair), "mean_lambda": None}
        if pair.with_lambda_inside is not pair:
            mean = weights[layer].mean
            fields[layer]["mean_lambda"] = float(np.mean(weights[layer].lam if mean is None else mean))
    return fields, {name: twin for name, twin in zip(names, twins) if name in fields}


def _outside(pair: BranchPair) -> float:
    """The lambda that is left outside of the second map: the layer's one number, or 1"""
    return float(pair.with_lambda_inside.weight)


def _third(pair: BranchPair) -> str | None:
    return "gate" if pair.gated else "integral" if pair.added is not None else None


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
    gated: frozenset[str] = frozenset(),
    **common: Any,
) -> dict[str, PointEvidence]:
    def two(record: Record) -> dict[str, tuple[Tensor, ...]]:
        pairs = couple(record, "branches", gated)
        return {n: (*p.with_lambda_inside.terms, record[n].combined) for n, p in pairs.items() if n in twins}

    own = gram_probes(classifier, images, two, probes=probes, label="Jacobians of the maps", **common)
    theirs = {} if base is None else map_norms(base, images, probes=probes, label="the baseline's", **common)
    return {name: _point(own[name], None if twin is None else theirs[twin]) for name, twin in twins.items()}


def _point(g: Array, ref: Array | None) -> PointEvidence:
    """g: (n, h, K, T, T) inner products of J1 v, J2 v, J3 v where there is one, J_DA v; ref: (n, hr, K)"""
    n1, n2, ip, da = g[..., 0, 0], g[..., 1, 1], g[..., 0, 1], g[..., -1, -1]
    ref = n1 if ref is None else ref
    whole = [a.sum(axis=1) for a in (da, ref, n1)]  # heads stacked: (n, K)
    means = {"n1": n1, "n2": n2, "ip": ip, "da": da, "ref": ref}
    if g.shape[-1] == 4:
        means |= {"n3": g[..., 2, 2], "ip13": g[..., 0, 2], "ip23": g[..., 1, 2]}
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
    gated: frozenset[str],
    third: str | None,
    searched: list[dict[str, SearchedLipschitz]],
    twin: str | None,
    **common: Any,
) -> dict[str, Array]:
    """sigma_max of J1, J2 and J3; of J_DA and J_base it is known from the search."""
    norms = _of_both("power", name, twin, searched)
    for term, label in enumerate(("first", "second") if third is None else ("first", "second", "third")):
        norms[label] = _sigma(partial(_term, classifier, name, gated, term), images, label, classifier, **common)
    return norms


def _term(classifier: nn.Module, name: str, gated: frozenset[str], term: int, x: Tensor) -> Tensor:
    return couple(look(classifier, x, [name]), "branches", gated)[name].with_lambda_inside.terms[term]


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
    model: nn.Module,
    images: ImageSet,
    eps: float,
    coupling: Coupling,
    gated: frozenset[str] = frozenset(),
    *,
    seed: int,
    device: torch.device | str,
) -> tuple[dict[str, NoiseEvidence], dict[str, Array]]:
    """Changes of the coupled maps and of the last block under uniform noise, the same xi for every model."""
    products: dict[str, list[Tensor]] = {}
    lam: dict[str, float] = {}
    gains: list[tuple[Tensor, Tensor]] = []
    with at_rest(model), console.progress("uniform noise", total=len(images)) as advance:
        for batch in images.batches(BATCH):
            of_batch, lambdas, gain = _batch_noise(model, batch, eps, coupling, gated, seed, device)
            for layer, changes in of_batch.items():
                products.setdefault(layer, []).append(changes)
            lam |= lambdas
            gains.append(gain)
            advance(len(batch.ids), "")
    joined = {layer: _numpy(torch.cat(parts)) for layer, parts in products.items()}  # (n, M, h, T, T)
    noise = {}
    for layer, p in joined.items():
        n3 = p[..., 2, 2] if p.shape[-1] == 4 else None
        noise[layer] = NoiseEvidence(lam[layer], p[..., 0, 0], p[..., 1, 1], p[..., 0, 1], p[..., -1, -1], n3)
    absolute, relative = (_numpy(torch.cat(column)) for column in zip(*gains))
    return noise, {"gain": absolute, "relative_gain": relative}


def _batch_noise(
    model: nn.Module,
    batch: Batch,
    eps: float,
    coupling: Coupling,
    gated: frozenset[str],
    seed: int,
    device: torch.device | str,
) -> tuple[dict[str, Tensor], dict[str, float], tuple[Tensor, Tensor]]:
    """Inner products of the changes of A1, A2, of a third term and of A_DA, (B, M, h, T, T) by layer; lambda; gains absolute
    and relative, (B,)"""
    x = batch.pixels.to(device)
    clean, h = _pairs_and_stream(model, x, coupling, gated)
    products: dict[str, list[Tensor]] = {layer: [] for layer in clean}
    squares: list[tuple[Tensor, Tensor]] = []
    for k in range(NOISE_DRAWS):
        xi = draw(batch.ids, tuple(x.shape[1:]), k, eps, seed).to(x)
        moved, h_moved = _pairs_and_stream(model, x + xi, coupling, gated)
        for layer, pair in moved.items():
            moves = (*changes(clean[layer], pair), pair.combined - clean[layer].combined)
            check_finite(torch.stack(moves), layer)
            products[layer].append(gram(moves))
        ratio = change_ratio(h_moved, h, xi)
        squares.append((ratio**2, (ratio * x.flatten(1).norm(dim=1) / h.flatten(1).norm(dim=1)) ** 2))
    gain, relative = (torch.stack(column).mean(dim=0).sqrt() for column in zip(*squares))
    lam = {layer: _outside(pair) for layer, pair in clean.items()}
    return {layer: torch.stack(g, dim=1) for layer, g in products.items()}, lam, (gain, relative)


def _pairs_and_stream(
    model: nn.Module, x: Tensor, coupling: Coupling, gated: frozenset[str]
) -> tuple[dict[str, BranchPair], Tensor]:
    """The coupled maps of every layer, and what the last block returns."""
    with explicit(model) as record, outputs(blocks(model)) as out:
        model(x)
    pairs = {name: pair.with_lambda_inside for name, pair in couple(record, coupling, gated).items()}
    return pairs, list(out.values())[-1]


def _numpy(t: Tensor) -> Array:
    array: Array = t.double().cpu().numpy()
    return array


# ------------------------------------------------------------------------------------------------- facts of a layer
# What the paper leaves out (docs/method.md 1.3), measured on the running model.


def layer_facts(
    classifier: nn.Module,
    images: ImageSet,
    *,
    gated: frozenset[str] = frozenset(),
    seed: int = 0,
    batch_size: int = 64,
    device: torch.device | str = "cpu",
) -> dict[str, dict[str, Array]]:
    """loss_cos, row_sum, row_sum_moves, rescaled and projected of every layer with two branches: fields of `LayerEvidence`."""
    parts: dict[str, list[dict[str, Tensor]]] = {}
    with runtime.frozen(classifier):
        for batch in images.batches(batch_size):
            moves = _row_sum_moves(classifier, batch, gated, seed, device)
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
    """cos of dl/dA1 and dl/dA2, (B, h): dl/dA2 = -lambda dl/dA1, whatever the weights. NaN where there is no gradient. Where
    lambda is not one number, the second is dl/d(lambda A2)."""
    with torch.enable_grad(), explicit(classifier) as record:
        x = batch.pixels.to(device).requires_grad_()
        loss = cross_entropy(classifier(x), batch.labels.to(device)).sum()
        two = {name: maps for name, maps in record.items() if maps.noise is not None}
        wanted = [m for maps in two.values() for m in (maps.signal, maps.noise)]
        grads = list(torch.autograd.grad(loss, wanted))  # type: ignore[arg-type]
    cosines = {}
    for i, (name, maps) in enumerate(two.items()):
        whole, second = grads[2 * i], grads[2 * i + 1]
        second = second if maps.lam.numel() == 1 else second / maps.lam
        first, second = (g.flatten(2).double() for g in (whole, second))
        cosines[name] = maps, (first * second).sum(-1) / (first.norm(dim=-1) * second.norm(dim=-1))
    return cosines


def _static(maps: Branches) -> dict[str, Tensor]:
    """What the maps of one call say by themselves, (B,) each."""
    assert maps.noise is not None
    with torch.no_grad():
        rows = 1 - maps.lam[..., 0] if maps.added is None else torch.ones_like(maps.lam[..., 0])  # DINT's sum to 1
        off = [maps.signal.sum(-1) - 1, maps.noise.sum(-1) - 1, maps.combined.sum(-1) - rows]
        normed = maps.normed
        doubled = maps.heads.norm(2 * maps.mixed)
        size = normed.flatten(1).norm(dim=1)
        return {
            "row_sum": torch.stack([o.flatten(1).abs().amax(dim=1) for o in off]).amax(dim=0),
            "rescaled": (doubled - normed).flatten(1).norm(dim=1) / size.clamp_min(1e-30),
            "projected": size,
        }


def _row_sum_moves(
    classifier: nn.Module, batch: Batch, gated: frozenset[str], seed: int, device: torch.device | str
) -> dict[str, Tensor]:
    """||J v|| of the row sums of A_DA over ||J v|| of A_DA itself, for one random v: (B,). With a gate, of the row sums plus
    lambda, which must stay 1."""
    x = batch.pixels.to(device)
    v = torch.from_numpy(runtime.normal((seed, "rows"), batch.ids, tuple(x.shape[1:]))).to(x)

    def maps(pixels: Tensor) -> dict[str, tuple[Tensor, ...]]:
        two = {name: maps for name, maps in look(classifier, pixels).items() if maps.noise is not None}
        return {n: (m.combined, m.lam) if n in gated else (m.combined,) for n, m in two.items()}

    with torch.no_grad():
        pushed = runtime.jvp(maps, x, v)
    moves = {}
    for name, (p, *lam) in pushed.items():
        rows = p.sum(-1) + lam[0][..., 0] if lam else p.sum(-1)
        moves[name] = rows.flatten(1).norm(dim=1) / p.flatten(1).norm(dim=1).clamp_min(1e-30)
    return moves
