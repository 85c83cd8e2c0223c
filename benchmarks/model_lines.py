"""The same attacks on everybody's models, each against the peer that is fastest there. They take hours: `make bench-all`."""

from __future__ import annotations

from functools import partial

from antiphase.attacks import CW, FMN, PGD, Linf
from benchmarks.attack_lines import pgd_vs_peer
from benchmarks.autoattack_lines import standard_vs_pyautoattack
from benchmarks.bench_models import WORDS
from benchmarks.minimal_lines import time_vs_peer
from benchmarks.timing import Line

AT_LEAST = ">= 1.00"
SWEEP_GOALS = {"vit-tiny": ">= 1.50", "vit-tiny-mean": ">= 1.30", "diffvit-depth-4": ">= 2.50", "resnet": ">= 1.20"}
AUTOATTACK_GOALS = SWEEP_GOALS | {"diffvit-depth-4": AT_LEAST}  # at 1/255
SINGLE = (PGD(within=Linf("1/255"), steps=20),)


def _sweeps(model: str, goal: str) -> dict[str, Line]:
    what = f"time of the fastest peer / ours: PGD-20 at five budgets from 0.25/255 to 4/255 on {WORDS[model]}, parts of 8 images"
    bisecting = partial(pgd_vs_peer, "best", model, 256, 8, protocol="bisect")
    return {
        f"sweep-{model}": Line(what, goal, partial(pgd_vs_peer, "best", model, 256, 8), long=True),
        f"sweep-bisecting-{model}": Line(f"{what}, ours with --protocol bisect", goal, bisecting, long=True),
    }


def _others(model: str) -> dict[str, Line]:
    on = f"on {WORDS[model]}"
    minimal = {"cw": CW(searches=5, steps=100), "fmn": FMN()}
    names = {"cw": "Carlini-Wagner (5 searches x 100 steps)", "fmn": "fast minimum norm (100 steps)"}
    return {
        f"autoattack-at-8-{model}": Line(
            f"time of pyautoattack / ours: AutoAttack standard at 8/255 {on}, 16 images",
            AT_LEAST,
            partial(standard_vs_pyautoattack, model, "8/255", 16, 1),
            long=True,
        ),
        f"autoattack-at-1-{model}": Line(
            f"time of pyautoattack / ours: AutoAttack standard at 1/255 {on}, 24 images in six parts that are alike",
            AUTOATTACK_GOALS[model],
            partial(standard_vs_pyautoattack, model, "1/255", 24, 6),
            long=True,
        ),
    } | {
        f"{name}-{model}": Line(
            f"time of the fastest peer / ours: {names[name]} {on}, parts of 4 images",
            AT_LEAST,
            partial(time_vs_peer, attack, "best", model, 128, 4),
            long=True,
        )
        for name, attack in minimal.items()
    }


def _single(model: str, part: int) -> dict[str, Line]:
    what = f"time of the fastest peer / ours: PGD-20 at 1/255 on {WORDS[model]}, parts of {part} images"
    return {
        f"pgd-{model}": Line(what, AT_LEAST, partial(pgd_vs_peer, "best", model, 256, part, grid=SINGLE), long=True)
    }


MODEL_LINES: dict[str, Line] = {}
for _model, _goal in SWEEP_GOALS.items():
    MODEL_LINES |= _sweeps(_model, _goal) | _single(_model, 16) | _others(_model)
MODEL_LINES |= _single("vit-small-224", 4)
