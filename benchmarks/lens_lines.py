"""What the lens costs: forward-mode probes against reverse-mode ones, and the closed form against its layer."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial

import numpy as np
import torch

from antiphase.data import load
from antiphase.data.imageset import ImageSet
from antiphase.measures.alignment import Alignment
from antiphase.measures.closed_form import local_moments
from antiphase.measures.probes import branch_alignment
from antiphase.measures.reverse import projected_alignment
from antiphase.models import Differential, ViTConfig
from antiphase.models.adapters import read
from antiphase.models.attention import DifferentialAttention
from antiphase.models.vit import build
from benchmarks.timing import Line, Measured, interleaved, timed

Estimator = Callable[..., list[Alignment]]


def twelve_layers() -> torch.nn.Module:
    config = ViTConfig(patch=4, width=96, heads=4, depth=12, attention=(Differential(),))
    return build(config, shape=(3, 32, 32), classes=10).eval()


def forward_vs_reverse(n: int) -> Measured:
    """Seconds to the same standard error of cos: time of a probe times its variance, reverse over forward."""
    model, images = twelve_layers(), load("cifar10", "test").subset(4)
    variances = {name: _variance(f, model, images) for name, f in _ways().items()}

    def seconds(name: str, probes: int) -> float:
        began = time.perf_counter()
        _ways()[name](model, images, probes=probes)
        return (time.perf_counter() - began) / probes * variances[name]

    pairs = interleaved(partial(seconds, "forward", 8), partial(seconds, "reverse", 2), n, warm=1)
    notes = {f"standard error of cos at 32 probes, {name}": f"{(v / 32) ** 0.5:.4f}" for name, v in variances.items()}
    notes["peak memory above the model's, forward, batch of 4"] = _peak("forward")
    return Measured([b / a for a, b in pairs], notes)


def _ways() -> dict[str, Estimator]:
    return {"forward": branch_alignment, "reverse": projected_alignment}


def _variance(estimator: Estimator, model: torch.nn.Module, images: ImageSet) -> float:
    """Of one probe's cosine: the median over layers, images and heads, from 16 probes."""
    layers = estimator(model, images, probes=16)
    return float(np.median(np.concatenate([layer.cos_se.ravel() for layer in layers]))) ** 2 * 16


def base_layer() -> tuple[DifferentialAttention, torch.Tensor]:
    """A layer of the size of ViT-B/16: 197 tokens, width 768, 6 differential heads of 64."""
    torch.manual_seed(0)
    settings = {"lambda_init": 0.8, "learned": True, "head_norm": True, "gain": 0.2}
    return DifferentialAttention(768, 6, **settings).eval(), torch.randn(4, 197, 768)  # type: ignore[arg-type]


def closed_form_vs_layer(n: int) -> Measured:
    layer, x = base_layer()
    with torch.no_grad():
        pairs = interleaved(timed(lambda: layer(x)), timed(lambda: local_moments(read(layer, x))), n)
        ratios = [b / a for a, b in pairs]
    return Measured(ratios, {"peak memory above the layer's, batch of 4": _peak("closed form")})


def _peak(what: str) -> str:
    """Of a process of its own, so that nothing else counts."""
    out = subprocess.run(
        [sys.executable, "-m", "benchmarks.lens_lines", what], capture_output=True, text=True, check=True
    )
    return f"{json.loads(out.stdout.splitlines()[-1]):.0f} MB"


def _print_peak(what: str) -> None:
    import resource

    def kilobytes() -> int:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

    if what == "forward":
        model, images = twelve_layers(), load("cifar10", "test").subset(4)
        with torch.no_grad():
            model(images.all.pixels)
        before = kilobytes()
        branch_alignment(model, images, probes=2)
    else:
        layer, x = base_layer()
        with torch.no_grad():
            layer(x)
            before = kilobytes()
            local_moments(read(layer, x))
    print(json.dumps((kilobytes() - before) / 1024))


LENS_LINES = {
    "alignment-vs-reverse": Line(
        "time of reverse-mode probes / forward-mode ones at equal standard error: end-to-end alignment of all 12 layers and "
        "24 heads of a DiffViT (width 96, CIFAR-10)",
        ">= 10.00",
        forward_vs_reverse,
    ),
    "closed-form-vs-layer": Line(
        "time of the exact layer-local alignment of a ViT-B/16-sized layer / one forward of that layer",
        "<= 3.00",
        closed_form_vs_layer,
    ),
}

if __name__ == "__main__":
    _print_peak(sys.argv[1])
