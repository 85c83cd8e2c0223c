"""The claims of both papers (docs/method.md 3.5), and the verdict on each from what a ledger holds. No torch."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import asdict, replace
from typing import Any

from antiphase.config import InputError
from antiphase.measures.stats import Contrast, Verdict
from antiphase.paper.grid import Grid
from antiphase.paper.questions import data_sets
from antiphase.paper.study import Answers, Missing, Planned, Prediction, Study
from antiphase.paper.verdict_rule import decide, place_of, why_uninformative

CLAIMS = {
    "K1": "a depth-1 DiffViT is easier to fool than its ViT at every budget and patch width",
    "K2": "attack success rises to lambda_init 0.8 and falls beyond",
    "K3": "at 1/255 attack success on the DiffViT falls with depth and crosses below the ViT's",
    "K4": "at 4/255 attack success saturates for both",
    "K5": "the L2 perturbation that Carlini-Wagner needs grows with depth for the DiffViT",
    "K6": "mean local Lipschitz rises with depth, and is larger for the DiffViT",
    "K7": "local Lipschitz is largest in layers with a larger lambda",
    "K8": "branch gradients oppose each other on most inputs (depth 1), most often in layer 1 of DiffCLIP",
    "K9": "DiffCLIP is at least as easy to fool as CLIP on COCO at every budget and patch width",
    "K10": "on ImageNet DiffCLIP is slightly easier to fool by pixels and equally by patches",
    "K11": "restarts keep the order of the models and what depth does",
    "K12": "adversarial training at small budgets lowers success without harming accuracy; beyond 0.5/255 it costs accuracy",
    "K13": "noise is common-mode in DiffCLIP: it moves both maps alike and is cancelled",
    "K14": "a schedule of lambda_init gains on ImageNet and loses out of distribution",
    "K15": "differential attention in the vision tower alone does as well as in both",
    "K16": "Lemma 2 bounds the ratio of local Lipschitz constants",
    "K17": "cancellation: alpha of the DiffViT is below that of the ViT",
    "K18": "Tiny ImageNet, depth 4: the DiffViT is easier to fool by patches and up to 2/255, most at 1/255, not at 4/255",
    "K19": "the gap between softmax and differential attention is smaller on ImageNet than on sets with few classes",
    "K20": "later layers of the DiffViT have lower local Lipschitz, and its values spread wider than the ViT's",
    "K21": "the DiffViT has larger margins and yet a smaller radius",
    "K22": "a larger lambda goes with a smaller alpha",
    "K23": "AutoAttack reproduces the depth trend of PGD",
    "K24": "changes of A1 and A2 of DiffCLIP correlate on noisy images, and the maps more so than on clean ones",
    "E1": "our question: the gap between ViT and DiffViT is smaller on CIFAR-100 than on CIFAR-10",
    "E2": "our question: noise is common-mode in DiffViTs as well (K13)",
    "E3": "our question: what K24 says of DiffCLIP is true of DiffViTs as well",
    "E4": "our question: when both are smoothed by noise, less is certified of the DiffViT than of the ViT",
    "E5": "our question: the DiffViT loses less accuracy under noise corruptions than the ViT",
    "E6": "our question: where a corruption moves the two maps more alike, the DiffViT gains more over the ViT",
    "E7": "our question: a change to differential attention or to its training removes the fragility without losing accuracy",
    "E8": "our question: from the first epoch of training on the DiffViT is easier to fool than its ViT",
    "E9": "our question: over training lambda leads the gap in attack success between DiffViT and ViT rather than follows it",
}  # K: what the papers say; E: an extension, never the verdict on a K


def plans(predictions: Iterable[Prediction]) -> list[dict[str, Any]]:
    """What each claim needs and what the scale gives it, before any run: of the reading that decides it."""
    by_claim: dict[str, list[Prediction]] = {}
    for prediction in predictions:
        by_claim.setdefault(prediction.claim, []).append(prediction)
    listed = {claim: [p for p in of if p.reading == of[0].reading] for claim, of in by_claim.items()}
    return [_plan(claim, [p.planned for p in of]) for claim, of in listed.items()]


def _plan(claim: str, planned: list[Planned]) -> dict[str, Any]:
    powers = [plan.power for plan in planned if plan.power is not None]
    at_margin = [(plan.margin, plan.power_at_margin) for plan in planned if plan.power_at_margin is not None]
    least = [plan.least_p for plan in planned if plan.least_p]
    needed = [plan.seeds_needed for plan in planned if not plan.of_pair]
    of_pair = [(plan.images_needed, plan) for plan in planned if plan.images_needed is not None]
    most = max(of_pair, key=lambda one: one[0], default=None)
    return {
        "claim": claim,
        "statement": CLAIMS[claim],
        "contrasts": len(planned),
        "informative": sum(plan.can_decide for plan in planned),
        "surrogates": sum(plan.surrogate for plan in planned),
        "least_p": max(least, default=None),
        "seeds": sorted({plan.seeds for plan in planned}),
        "images": min(plan.images for plan in planned),
        "of_pair": any(plan.of_pair for plan in planned),
        "seeds_needed": None if not needed or None in needed or not powers else max(n for n in needed if n is not None),
        "pair_needs": None if most is None else _needs(*most),
        "power": [min(powers), max(powers)] if powers else None,
        "at_margin": min(at_margin, key=lambda one: one[1], default=None),
    }


def _needs(images: int, plan: Planned) -> dict[str, Any]:
    """Of a given pair: the images that its most demanding contrast needs, for which margin, and what there is."""
    return {"images": images, "margin": plan.margin, "given": plan.images, "there": plan.images_there}


def verdicts(
    studies: Iterable[Study], grid: Grid, answers: Answers, claims: Collection[str] | None = None
) -> list[dict[str, Any]]:
    """One row per claim: the verdict under its first reading, those under the others, those of its parts, every contrast, and
    the studies that decide it. Of all claims, or of those that are named and have a prediction at this scale.

    A claim is always decided by everything that any study lists for it.
    """
    listed: dict[str, list[Prediction]] = {claim: [] for claim in CLAIMS if claims is None or claim in claims}
    deciding: dict[str, list[str]] = {claim: [] for claim in listed}
    for study in studies:
        if not listed.keys() & set(study.claims):
            continue
        predictions = study.predictions(grid)
        if unknown := {prediction.claim for prediction in predictions} - (set(study.claims) & set(CLAIMS)):
            raise InputError(f"{study.name} predicts {min(unknown)}, which its `claims` or CLAIMS does not name")
        own = [prediction for prediction in predictions if prediction.claim in listed]
        for prediction in own:
            listed[prediction.claim].append(prediction)
        for claim in dict.fromkeys(prediction.claim for prediction in own):
            deciding[claim].append(study.name)
    return [
        _judge(claim, of_claim, grid, answers) | {"studies": deciding[claim]}
        for claim, of_claim in listed.items()
        if of_claim or claims is None
    ]


def _judge(claim: str, listed: list[Prediction], grid: Grid, answers: Answers) -> dict[str, Any]:
    floor = grid.s.accuracy_floor
    contrasts = [(prediction, _contrast(prediction, grid, answers)) for prediction in listed]
    readings = list(dict.fromkeys(prediction.reading for prediction in listed))

    def of(reading: str, part: str | None = None) -> list[Contrast]:
        return [c for p, c in contrasts if p.reading == reading and part in (None, p.part)]

    def judged(contrasts: list[Contrast]) -> dict[str, str]:
        verdict = decide(contrasts, floor)
        return _plain(_of_other_data(grid, verdict) if elsewhere else verdict)

    elsewhere = (
        claim.startswith("K")
        and grid.data != grid.s.data
        and any(grid.data in data_sets(prediction.cells) for prediction in listed)
    )
    first = readings[0] if readings else ""
    parts = list(dict.fromkeys(prediction.part for prediction in listed if prediction.reading == first))
    return {
        "claim": claim,
        "statement": CLAIMS[claim],
        "scale": grid.scale,
        "reading": first,
        **judged(of(first)),
        "extension": claim.startswith("E"),
        "readings": {reading: judged(of(reading)) for reading in readings},
        "parts": {part: judged(of(first, part)) for part in parts},
        "contrasts": [
            {"part": p.part, "reading": p.reading, **_flat(c), "place": place_of(c), "shown_only": why_uninformative(c)}
            for p, c in contrasts
        ],
    }


def _of_other_data(grid: Grid, verdict: Verdict) -> Verdict:
    """A claim of the papers is not decided by data that they do not speak of; what the rule says of these is told."""
    if verdict.outcome in ("not tested here", "no verdict"):
        return verdict
    why = f"the claim is about {grid.s.data}; on {grid.data} it would be {verdict.outcome} ({verdict.why})"
    return replace(verdict, outcome="not tested here", why=why)


def _contrast(prediction: Prediction, grid: Grid, answers: Answers) -> Contrast:
    """With the lowest test accuracy of its witnesses, each after its best epoch: long recipes overfit."""
    contrast = prediction.contrast(lambda series: series.arm(answers))
    try:
        reached = [
            max(float(epoch["test_accuracy"]) for epoch in answers(witness)["log"])
            for witness in prediction.witnesses(grid)
        ]
    except Missing as gap:
        return replace(contrast, missing=contrast.missing or f"no row of {gap}")
    return replace(contrast, accuracy=min(reached, default=None))


def _flat(contrast: Contrast) -> dict[str, Any]:
    """As JSON has it, where the number of correct images is called `right`."""
    return {"right" if name == "correct" else name: value for name, value in asdict(contrast).items()}


def _plain(verdict: Verdict) -> dict[str, str]:
    return {"verdict": verdict.outcome, "why": verdict.why, "power": verdict.power}
