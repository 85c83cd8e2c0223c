"""python -m benchmarks.calibrate: are intervals as wide as they say, and how often is a verdict wrong? Writes docs/statistics.md.

Two parts, each kept cell by cell in benchmarks/calibration.json, so that a run that was stopped goes on:
- coverage: the 95 % interval of a paired difference that is truly 0, over a grid of seeds, images, rates and spreads;
- verdicts: each claim in simulated worlds (benchmarks/worlds.py) without an effect and with one of five points, and some claims
  in worlds that have something in them which the claim does not say (HARDER).

--claims and --worlds: more worlds for some claims, on top of those that were simulated before. After a change of one rule,
`--part verdicts --claims E6 --afresh` forgets those of that claim alone.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Iterable
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import torch

from antiphase import files
from antiphase.clip_scales import CLIP_SCALES
from antiphase.measures.seed_intervals import PerSeed, combined
from antiphase.models.clip_config import VARIANTS, clip_of_sizes
from antiphase.paper.catalog import studies
from antiphase.paper.claims import CLAIMS
from antiphase.paper.grid import Grid
from antiphase.paper.questions import UserClip
from antiphase.paper.series import PLAN
from antiphase.paper.study import Prediction
from antiphase.paper.verdict_rule import GAP, POWER
from antiphase.rates import wilson
from antiphase.scales import ScaleName
from benchmarks.worlds import (
    HARDER,
    IMAGE_SD,
    OWN_SD,
    Truth,
    World,
    deciding,
    everywhere,
    logit_of,
    logit_sd,
    verdict_in,
)

ROOT = Path(__file__).parents[1]
RESULTS, PAGE = ROOT / "benchmarks" / "calibration.json", ROOT / "docs" / "statistics.md"
SEED_SDS, IMAGES, SEEDS, RATES = (0.0, 0.01, 0.03, 0.05), (200, 512, 1_000, 10_000), (3, 5, 10), (0.1, 0.5, 0.95)
SIMULATIONS, WORLDS = 10_000, 300
COVERED = (0.935, 0.985)  # what a nominal 95 % should give
MOST_WRONG = 0.05  # of verdicts in worlds of a kind
AT_ONCE = 4_000_000  # numbers in memory
HARD = "harder"
SCALES: tuple[ScaleName, ...] = ("cpu", "desk")


# ------------------------------------------------------------------------------------------------- coverage


def coverage(seed_sd: float, images: int, seeds: int, rate: float, simulations: int) -> float:
    """How often the interval of a difference that is 0 contains 0: two models, each with trainings that differ by `seed_sd`."""
    draw = torch.Generator().manual_seed(hash((seed_sd, images, seeds, rate)) % 2**31)
    at, spread = logit_of(rate), logit_sd(rate, seed_sd) if seed_sd else 0.0
    step, covered, done = max(1, AT_ONCE // (images * seeds)), 0, 0

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=draw)

    while done < simulations:
        worlds = min(step, simulations - done)
        hard = at + IMAGE_SD * normal(worlds, 1, images)
        flags = []
        for _ in range(2):
            logit = hard + OWN_SD * normal(worlds, 1, images) + spread * normal(worlds, seeds, 1)
            flags.append(torch.rand(worlds, seeds, images, generator=draw) < torch.sigmoid(logit))
        gaps = (flags[0].float() - flags[1].float()).numpy()
        means = gaps.mean(axis=-1, dtype=np.float64)
        measured = combined([(1.0, PerSeed(means, {"images": gaps}, images, shares=True))])
        assert measured is not None
        covered += int((np.abs(measured.value) <= measured.half_width()).sum())
        done += worlds
    return covered / simulations


def coverage_cells() -> list[tuple[float, int, int, float]]:
    return list(product(SEED_SDS, IMAGES, SEEDS, RATES))


# ------------------------------------------------------------------------------------------------- verdicts


@cache
def predictions_at(scale: ScaleName) -> dict[str, list[Prediction]]:
    """With a pair of published size for the claims about CLIP: a pair is judged over images alone."""
    sizes = CLIP_SCALES["paper"]
    clip, diffclip = (
        UserClip(model=clip_of_sizes(sizes, (vision,), (text,)), weights=name * 64)
        for name, (vision, text) in zip("01", (VARIANTS["CLIP"], VARIANTS["DiffCLIP"]))
    )
    return deciding(studies().values(), Grid.at(scale, pair=(clip, diffclip)))


def verdicts_of(scale: ScaleName, claim: str, truth: Truth, worlds: Iterable[int]) -> dict[str, int]:
    return dict(Counter(verdict_in(World(seed), predictions_at(scale)[claim], truth) for seed in worlds))


def verdict_cells(scale: ScaleName) -> dict[str, tuple[str, Truth]]:
    """By name, as results are kept: a claim, and what is true in its worlds."""
    claims = decidable(scale)
    cells = {f"{claim} {effect}": (claim, everywhere(effect)) for effect in (0.0, GAP) for claim in claims}
    return cells | {f"{claim} {HARD}": (claim, HARDER[claim][1]) for claim in claims if claim in HARDER}


def decidable(scale: ScaleName) -> list[str]:
    """Claims about models that are trained here or given: a surrogate decides nothing."""
    series = {
        claim: [one for p in of for g in p.groups for one in g.series] for claim, of in predictions_at(scale).items()
    }
    return [claim for claim, of in series.items() if not any(one.surrogate for one in of)]


# ------------------------------------------------------------------------------------------------- the page


def page(results: dict[str, Any]) -> str:
    parts = [HEAD, _coverage_section(results["coverage"]), _plan_section()]
    parts += [_verdict_section(scale, results["verdicts"].get(scale, {})) for scale in SCALES]
    return "\n\n".join(parts) + "\n"


HEAD = """# Statistics: how intervals are made, and how often verdicts are wrong

Written by `make calibrate` (benchmarks/calibrate.py). The numbers are simulated; the formulas are those of
`measures/seed_intervals.py` and `paper/verdict_rule.py`.

**The interval.** A study compares two models on the same n images, with S trainings (seeds) of each. Let d_s be the difference
between the two models of seed s. The spread of the d_s shows what differs between seeds: the randomness of training, and
image noise that is independent between seeds. It does not show what all seeds share, the choice of the images; that part is
the covariance over images of two different seeds. So

    variance = var(d_s) / S + mean covariance over images of two different seeds

with Satterthwaite's degrees of freedom (S - 1 for the first term; the second is treated as known) and Student's t. The
interval is never narrower than the normal interval over images alone. Ratios (success among correct images) and other
statistics enter through their influence functions; sums over depths are weighted, and each depth has the spread of its own
seeds. Rates have Wilson's form, so no interval is degenerate at 0 or 100 %; where a difference was 0 on all of n images, the
interval still reaches 3.7 / n. Where there is only one trained pair of models, the interval is over images, and the result
is called "of this pair".

**The rule** by which claims are decided is in [studies.md](studies.md#numbers-and-verdicts). A claim about a depth trend is
decided by a least-squares line in log depth through all trained models. A rank correlation over layers is tested by
permuting them, in the same way for all seeds of a depth; that of E9 over seeds, by permuting seeds in the same way for all
epochs. What is alike is not exchangeable: the corruptions of E6 are
permuted within their families only, and Student's t of the seeds' own rank correlations must decide as well. Its worlds
have families that share an effect, and trainings that each have a relation of their own. If an attack did not fool an image
at any distance, the distance is censored: the image counts as not fooled within any radius. A quantile of distances has an
interval only if at least ten images lie on either side of it: with fewer the interval was too narrow in simulations (three or
more seeds, 28 to 2,000 images: it covered 90 to 100 % with ten or more, 44 to 95 % with less), and the largest never has one."""


def _coverage_section(cells: dict[str, float]) -> str:
    lines = ["## Coverage of the 95 % interval", ""]
    inside = [COVERED[0] <= value <= COVERED[1] for value in cells.values()]
    low, high = min(cells.values()), max(cells.values())
    lines += [
        f"There is no true difference; {SIMULATIONS:,} simulations per cell. Trainings of each model differ by the spread in",
        "the first column (standard deviation on the logit scale, in points of the rate). On the logit scale, images differ with",
        f"standard deviation {IMAGE_SD} in a way that both models share, and {OWN_SD} in each model's own way.",
        f"{sum(inside)} of {len(cells)} cells lie within",
        f"{100 * COVERED[0]:.1f} to {100 * COVERED[1]:.1f} %; the lowest is {100 * low:.1f} %, the highest "
        f"{100 * high:.1f} %. **Bold**: outside this range.",
        "",
        "| spread of seeds | images | " + " | ".join(f"{s} seeds, rate {r:g}" for s in SEEDS for r in RATES) + " |",
        "|" + "---|" * (2 + len(SEEDS) * len(RATES)),
    ]
    for seed_sd, images in product(SEED_SDS, IMAGES):
        row = [_percent(cells.get(_name(seed_sd, images, s, r))) for s in SEEDS for r in RATES]
        lines.append(f"| {100 * seed_sd:g} points | {images:,} | {' | '.join(row)} |")
    return "\n".join(lines)


def _percent(value: float | None) -> str:
    if value is None:
        return "-"
    text = f"{100 * value:.1f}"
    return text if COVERED[0] <= value <= COVERED[1] else f"**{text}**"


def _plan_section() -> str:
    lines = ["## Seeds and images that a contrast needs", ""]
    lines += [
        f"A contrast is informative if the plan gives it power {POWER:g} for a gap of {100 * GAP:.0f} points. The plan assumes",
        f"that paired differences of two trainings spread by {100 * PLAN.seed_sd:.0f} points, that two models differ on",
        f"{100 * PLAN.disagreement:.0f} % of the images, and that {100 * PLAN.accuracy:.0f} % are classified correctly.",
        "One rate that is held against a threshold (K4: 95 %) varies over images as a rate at that threshold does, so that it",
        f"needs {PLAN.against(0.95).seeds_needed(230, GAP)} seeds with 230 images.",
        "The plan only determines which contrasts may decide a claim: intervals use the spread that was measured, and every",
        "verdict prints the power that follows from that spread.",
        "",
        "| images that count | 2 seeds | 3 | 5 | 10 | seeds needed | one given pair |",
        "|---|---|---|---|---|---|---|",
    ]
    for images in (128, 230, 500, 1_000, 10_000):
        powers = [f"{PLAN.power([1.0], [s], images, GAP):.2f}" for s in (2, 3, 5, 10)]
        needed = PLAN.seeds_needed(images, GAP)
        lines.append(f"| {images:,} | {' | '.join(powers)} | {needed} | {PLAN.power_of_pair(images, GAP):.2f} |")
    return "\n".join(lines)


def _verdict_section(scale: str, cells: dict[str, dict[str, int]]) -> str:
    lines = [f"## Verdicts in simulated worlds, scale `{scale}`", ""]
    lines += [
        f"Each claim was decided in {WORLDS} simulated worlds or more without the effect and with it. Without it the true value",
        "of every contrast is 0 (or exactly the threshold, if the claim is about one). The verdicts supported, partly",
        "supported, and not supported because the opposite holds are then wrong; not supported because there is no effect is",
        "right. With the effect every contrast is truly five points (or two points beyond the threshold), and not supported is",
        "wrong. Power is how often the claim is then supported; it is 0 for a claim whose contrasts cannot decide by the plan",
        "above. Numbers that are read from the same answers (the layers of a model, the union of restarts and their mean)",
        "share half of the variance of their noise. 95 % intervals of the rates (Wilson).",
        f"**Bold**: above {100 * MOST_WRONG:.0f} %, which is what tests at 2.5 % on either side allow.",
        "",
        "| claim | worlds | wrong without the effect | wrong with it | power | partly supported with it |",
        "|---|---|---|---|---|---|",
    ]
    for claim in CLAIMS:
        if f"{claim} {GAP}" not in cells:
            continue
        without, within = cells[f"{claim} 0.0"], cells[f"{claim} {GAP}"]
        columns = [
            (_wrong(without), without, MOST_WRONG),
            (within.get("not supported", 0), within, MOST_WRONG),
            *((within.get(o, 0), within, 1.0) for o in ("supported", "partly supported")),
        ]
        rates = " | ".join(_rate(hits, sum(of.values()), most) for hits, of, most in columns)
        lines.append(f"| {claim} | {sum(without.values()):,} | {rates} |")
    if hard := [claim for claim in HARDER if f"{claim} {HARD}" in cells]:
        lines += ["", "Worlds without the effect that have something else in them:", ""]
        lines += ["| claim | what is true in them | worlds | wrong |", "|---|---|---|---|"]
    for claim in hard:
        of = cells[f"{claim} {HARD}"]
        n = sum(of.values())
        lines.append(f"| {claim} | {HARDER[claim][0]} | {n:,} | {_rate(_wrong(of), n, MOST_WRONG)} |")
    if unseen := sorted(set(CLAIMS) - {name.split()[0] for name in cells}):
        lines += ["", f"Not simulated: {', '.join(unseen)}, which no model decides that is trained or given here."]
    return "\n".join(lines)


def _wrong(without: dict[str, int]) -> int:
    """Verdicts that say something of worlds in which nothing is to be said."""
    return sum(without.get(o, 0) for o in ("supported", "partly supported", "not supported"))


def _rate(hits: int, n: int, most: float) -> str:
    low, high = wilson(hits / n, n)
    text = f"{100 * hits / n:.1f} % [{100 * low:.1f}, {100 * high:.1f}]"
    return f"**{text}**" if hits > most * n else text


# ------------------------------------------------------------------------------------------------- the command


def _name(*cell: float) -> str:
    return " ".join(f"{value:g}" for value in cell)


def main(words: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--part", choices=("coverage", "verdicts", "page"), help="one part only")
    parser.add_argument("--afresh", action="store_true", help="forget what was simulated before")
    parser.add_argument("--claims", help="verdicts of these claims only: K16,K8")
    parser.add_argument("--scales", default=",".join(SCALES), help="verdicts at these scales only")
    parser.add_argument("--worlds", type=int, default=WORLDS, help=f"so many per claim and effect ({WORLDS})")
    asked = parser.parse_args(words)
    claims = list(CLAIMS) if asked.claims is None else asked.claims.split(",")
    torch.set_num_threads(1)
    kept: dict[str, Any] = {"coverage": {}, "verdicts": {}}
    if RESULTS.exists() and not (asked.afresh and asked.claims is None):
        kept = files.read_json(RESULTS)
    if asked.part in (None, "coverage"):
        for cell in coverage_cells():
            if _name(*cell) not in kept["coverage"]:
                kept["coverage"][_name(*cell)] = coverage(*cell, SIMULATIONS)
                files.write_json(RESULTS, kept)
                print("coverage", _name(*cell), kept["coverage"][_name(*cell)], flush=True)
    if asked.part in (None, "verdicts"):
        for scale in (scale for scale in SCALES if scale in asked.scales.split(",")):
            of_scale = kept["verdicts"].setdefault(scale, {})
            for name, (claim, truth) in verdict_cells(scale).items():
                if claim not in claims:
                    continue
                known = Counter({} if asked.afresh else of_scale.get(name, {}))
                if known.total() < asked.worlds:
                    more = verdicts_of(scale, claim, truth, range(known.total(), asked.worlds))
                    of_scale[name] = dict(known + Counter(more))
                    files.write_json(RESULTS, kept)
                    print("verdicts", scale, name, of_scale[name], flush=True)
    PAGE.write_text(page(kept))


if __name__ == "__main__":
    main()
