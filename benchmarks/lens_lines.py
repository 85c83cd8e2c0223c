"""What the lens costs: forward-mode probes against reverse-mode ones, the closed form against its layer, and a ViT-B/16."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from antiphase import runtime
from antiphase.data import load
from antiphase.data.imageset import ImageSet, Resized
from antiphase.measures.branch_pairs import Alignment
from antiphase.measures.jacobians_forward import branch_alignment, map_norms
from antiphase.measures.jacobians_local import local_alignment, local_moments
from antiphase.measures.jacobians_reverse import projected_alignment
from antiphase.measures.lipschitz import at_level, l_sample, l_search
from antiphase.measures.power_iteration import sigma_max
from antiphase.models import Differential, ViTConfig
from antiphase.models.adapters import read
from antiphase.models.attention import DifferentialAttention
from antiphase.models.taps import attention_layers
from antiphase.models.vit import build
from antiphase.training import TrainConfig
from antiphase.training.loop import train
from benchmarks.bench_models import bench_model
from benchmarks.timing import Line, Measured, interleaved, timed

ROOT = Path(__file__).parents[1]
Estimator = Callable[..., list[Alignment]]


def twelve_layers() -> torch.nn.Module:
    """Trained a little, since what is random about untrained maps is not what is random about trained ones (docs/log.md)."""
    config = ViTConfig(patch=4, width=96, heads=4, depth=12, attention=(Differential(),))
    images = load("cifar10", "train").subset(10_000), load("cifar10", "test")
    return train(config, TrainConfig(epochs=2), *images, ROOT / "runs" / "bench-depth12").classifier()


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


# ------------------------------------------------------------------------------------------------- a ViT-B/16


@cache
def base() -> tuple[torch.nn.Module, ImageSet]:
    """A DiffViT of the size of ViT-B/16, untrained: 12 layers, 197 tokens; and two photographs' worth of pixels."""
    config = ViTConfig(patch=16, width=768, heads=12, depth=12, attention=(Differential(),))
    with runtime.seeded(0, "bench", "base"):
        model = build(config, shape=(3, 224, 224), classes=1000)
    images = load("cifar10", "test").subset(2)
    return model.eval(), replace(images, source=Resized(images.source, 224))


def _of_base(measure: Callable[..., object], **settings: Any) -> Callable[[], object]:
    return partial(measure, *base(), **settings)


def _forward_of_base() -> object:
    model, images = base()
    with torch.no_grad():
        return model(images.all.pixels)


FORWARD = "one forward"
AT_DEPTH: dict[str, Callable[[], Callable[[], object]]] = {
    FORWARD: lambda: _forward_of_base,
    "one forward-mode probe": lambda: _of_base(map_norms, probes=1),
    "layer-local alignment": lambda: _of_base(local_alignment),
    "end-to-end alignment": lambda: _of_base(branch_alignment, probes=2),
    "L-sample": lambda: _of_base(l_sample, draws=3),
    "L-power and L-ascent": lambda: _of_base(l_search, draws=1, steps=1, iterations=1),
}
ALSO = {  # whose memory a line tells beside that of its own measure; more probes or steps take no more of it
    "one forward-mode probe": ("layer-local alignment", "end-to-end alignment"),
    "L-sample": ("L-power and L-ascent",),
}


def at_depth(what: str, forwards: int, exact: str, n: int) -> Measured:
    """(a measure of two images) / (so many forwards of them); beside it what an image costs, and the cheapest exact number."""
    measure, cheaper = (timed(AT_DEPTH[name]()) for name in (what, exact))
    pairs = list(interleaved(measure, timed(_forward_of_base), n, warm=1))
    images = len(base()[1])
    seconds = {what: float(np.median([a for a, _ in pairs])) / images, exact: cheaper() / images}
    notes = {f"seconds an image, {name}": f"{took:.2f}" for name, took in seconds.items()}
    of_forward = _megabytes(FORWARD)
    for name in (what, *ALSO[what]):
        notes[f"peak memory above a forward's, batch of {images}, {name}"] = f"{_megabytes(name) - of_forward:.0f} MB"
    return Measured([a / (forwards * b) for a, b in pairs], notes)


def _peak(what: str) -> str:
    return f"{_megabytes(what):.0f} MB"


def _megabytes(what: str) -> float:
    """Of a process of its own, so that nothing else counts."""
    out = subprocess.run(
        [sys.executable, "-m", "benchmarks.lens_lines", what], capture_output=True, text=True, check=True
    )
    return float(json.loads(out.stdout.splitlines()[-1]))


def _print_peak(what: str) -> None:
    if what == "forward":
        model, images = twelve_layers(), load("cifar10", "test").subset(4)
        print(json.dumps(_grown(partial(branch_alignment, model, images, probes=8))))
    elif (
        what in AT_DEPTH
    ):  # all that the process ever held: of so large a model what a second run adds to the first is no measure
        AT_DEPTH[what]()()
        print(json.dumps(_of_this_process("VmHWM")))
    else:
        layer, x = base_layer()
        with torch.no_grad():
            print(json.dumps(_grown(lambda: local_moments(read(layer, x)))))


def _grown(action: Callable[[], object]) -> float:
    """Peak resident memory while it runs, over what was there before; in MB, by Linux's own high-water mark."""
    action()  # once, so that libraries have what they keep
    Path("/proc/self/clear_refs").write_text("5")  # the mark starts anew
    before = _of_this_process("VmRSS")
    action()
    return _of_this_process("VmHWM") - before


def _of_this_process(entry: str) -> float:
    """In MB. (The mark that getrusage has begins with what the parent held.)"""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith(entry))


def power_iteration_of_all(n: int) -> Measured:
    """(power iteration that looks at every image until the last one stands still) / (one that leaves out those that do)."""
    model, batch = bench_model("diffvit"), load("cifar10", "test").subset(64).all
    layer = next(iter(attention_layers(model)))

    def f(x: torch.Tensor) -> torch.Tensor:
        return at_level(model, x, "maps", layer)[layer]

    with runtime.at_rest(model):
        ways = [partial(sigma_max, f, batch.pixels, ids=batch.ids, whole=whole) for whole in (True, False)]
        whole, left_out = (way() for way in ways)
        apart = float((left_out.value / whole.value - 1).abs().max())
        ratios = [a / b for a, b in interleaved(*map(timed, ways), n, warm=1)]
    steps = whole.iterations.double()
    notes = {"iterations an image, mean and largest": f"{float(steps.mean()):.1f} and {int(steps.max())}"}
    return Measured(ratios, notes | {"largest relative difference of the values": f"{apart:.0e}"})


LENS_LINES = {
    "power-iteration-of-all": Line(
        "time of power iteration (largest singular value of the Jacobian of A1 - lambda A2, depth-1 DiffViT, 64 images) on all "
        "images until the last stands still / where those that stand still are left out",
        ">= 1.00",
        power_iteration_of_all,
    ),
    "alignment-vs-reverse": Line(
        "time of reverse-mode probes / forward-mode ones at equal standard error: end-to-end alignment of all 12 layers and "
        "24 heads of a DiffViT (width 96, two epochs on 10,000 CIFAR-10 images)",
        ">= 10.00",
        forward_vs_reverse,
    ),
    "closed-form-vs-layer": Line(
        "time of the exact layer-local alignment of a ViT-B/16-sized layer / one forward of that layer",
        "<= 3.00",
        closed_form_vs_layer,
    ),
    "probe-vs-forward-vit-b16": Line(
        "time of one forward-mode probe of all 12 layers / one forward: the norms of all maps of a ViT-B/16-sized DiffViT (197 "
        "tokens), end to end; alignment takes 32 such probes, and the closed form, which is exact, each layer by itself",
        "<= 4.00",
        partial(at_depth, "one forward-mode probe", 1, "layer-local alignment"),
        long=True,
    ),
    "l-sample-vs-forwards-vit-b16": Line(
        "time of L-sample, 3 draws, all 12 layers / the 4 forwards that it takes, of the same model; no exact local Lipschitz "
        "constant is to be had, and a forward-mode probe is the cheapest unbiased number of the Jacobian itself",
        "<= 1.50",
        partial(at_depth, "L-sample", 4, "one forward-mode probe"),
        long=True,
    ),
}

if __name__ == "__main__":
    _print_peak(sys.argv[1])
