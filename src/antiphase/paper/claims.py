"""The claims of both papers (docs/method.md 3.5), and the verdict on each from what a ledger holds. No torch."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, replace
from typing import Any

from antiphase.measures.stats import Contrast, Verdict
from antiphase.paper.grid import Setting
from antiphase.paper.study import Found, Missing, Prediction, Study
from antiphase.paper.verdict_rule import decide, place_of

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
    "K11": "restarts raise attack success and keep the order of the models",
    "K12": "adversarial training lowers attack success at its own budget and costs accuracy",
    "K13": "noise is common-mode: it moves both maps alike and is cancelled",
    "K14": "a schedule of lambda_init gains on ImageNet and loses out of distribution",
    "K15": "differential attention in the vision tower alone does as well as in both",
    "K16": "Lemma 2 bounds the ratio of local Lipschitz constants",
    "K17": "cancellation: alpha of the DiffViT is below that of the ViT",
    "K18": "Tiny ImageNet, depth 4: the DiffViT is easier to fool by patches and up to 2/255, most at 1/255, not at 4/255",
    "K19": "the gap between ViT and DiffViT narrows with more classes",
    "K20": "later layers have lower local Lipschitz, with a wider spread in the DiffViT",
    "K21": "the DiffViT has larger margins and yet a smaller radius",
    "K22": "a larger lambda goes with a smaller alpha",
    "K23": "AutoAttack reproduces the depth trend of PGD",
    "K24": "changes of A1 and A2 correlate on noisy images, and the maps more so than on clean ones",
}


def contrasts_of(studies: Iterable[Study], setting: Setting) -> dict[str, list[Prediction]]:
    """Every claim with the contrasts that all studies list for it."""
    found: dict[str, list[Prediction]] = {claim: [] for claim in CLAIMS}
    for study in studies:
        for contrast in study.contrasts(setting):
            found[contrast.claim].append(contrast)
    return found


def verdicts(studies: Iterable[Study], setting: Setting, found: Found) -> list[dict[str, Any]]:
    """One row a claim: the verdict under its first reading, those under the others, those of its parts, and every contrast."""
    return [_judged(claim, listed, setting, found) for claim, listed in contrasts_of(studies, setting).items()]


def _judged(claim: str, listed: list[Prediction], setting: Setting, found: Found) -> dict[str, Any]:
    floor = setting.s.accuracy_floor
    measured = [(contrast, _found(contrast, setting, found)) for contrast in listed]
    readings = list(dict.fromkeys(contrast.reading for contrast in listed))

    def of(reading: str, part: str | None = None) -> list[Contrast]:
        return [f for c, f in measured if c.reading == reading and part in (None, c.part)]

    first = readings[0] if readings else ""
    parts = list(dict.fromkeys(contrast.part for contrast in listed if contrast.reading == first))
    return {
        "claim": claim,
        "statement": CLAIMS[claim],
        "scale": setting.scale,
        "reading": first,
        **_plain(decide(of(first), floor)),
        "readings": {reading: _plain(decide(of(reading), floor)) for reading in readings},
        "parts": {part: _plain(decide(of(first, part), floor)) for part in parts},
        "contrasts": [
            {
                "part": contrast.part,
                "reading": contrast.reading,
                **_flat(finding),
                "place": place_of(finding),
            }
            for contrast, finding in measured
        ],
    }


def _found(contrast: Prediction, setting: Setting, found: Found) -> Contrast:
    """With the lowest test accuracy of its witnesses."""
    finding = contrast.finding(found)
    try:
        reached = [float(found(witness)["test_accuracy"]) for witness in contrast.witnesses(setting)]
    except Missing as gap:
        return replace(finding, missing=finding.missing or f"no row of {gap}")
    return replace(finding, accuracy=min(reached, default=None))


def _flat(contrast: Contrast) -> dict[str, Any]:
    flat = asdict(contrast)
    return {"right" if name == "correct" else name: value for name, value in flat.items()}


def _plain(verdict: Verdict) -> dict[str, str]:
    return {"verdict": verdict.outcome, "why": verdict.why}
