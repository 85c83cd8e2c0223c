"""Words for the keys that stored results use: what a reader of a figure or a table sees in place of `asr_change`."""

from __future__ import annotations

import re
from collections.abc import Sequence

from antiphase.data.corruption_table import CORRUPTIONS
from antiphase.paper.titles import DATA_NAMES

QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)  # of which a box is drawn
READINGS = {
    "accuracy": "accuracy",
    "test_accuracy": "test accuracy",
    "train_accuracy": "train accuracy",
    "asr_change": "attack success, all images",
    "asr_correct": "attack success, images classified correctly",
    "asr_change, on train images": "attack success, train images",
    "union_change": "fooled by any restart, all images",
    "union_correct": "fooled by any restart, images classified correctly",
    "robust_error": "wrong from the start or fooled, all images",
    "certified accuracy": "certified accuracy of the smoothed model, all images",
    "lambda": "λ",
    "lambda after training": "λ after training",
    "lambda, from 0.8 on average": "λ, mean over seeds",
    "zero-shot": "zero-shot accuracy",
    "probe": "accuracy of a linear probe",
    "few-shot": "few-shot accuracy",
    "pairs": "statements told apart, all pairs",
    "pairs: left or right": "statements told apart: left or right",
    "pairs: above or below": "statements told apart: above or below",
    "pairs: which object": "statements told apart: which object",
    "pairs: how many": "statements told apart: how many",
    "share of correct images that CW fools": "fooled by Carlini-Wagner at any distance, images classified correctly",
    "share of correct images fooled within an L2 radius": "fooled within an L2 radius, images classified correctly",
    "CW l2, median": "L2 perturbation of Carlini-Wagner, median",
    "CW l2, 90 %": "L2 perturbation of Carlini-Wagner that fools 90 %",
    "CW l2, 95 %": "L2 perturbation of Carlini-Wagner that fools 95 %",
    "CW l2, 99 %": "L2 perturbation of Carlini-Wagner that fools 99 %",
    "CW l2, largest": "L2 perturbation of Carlini-Wagner, largest",
    "- median CW l2": "less the median L2 perturbation of Carlini-Wagner",
    "L-sample of maps": "local Lipschitz estimate L of the map, mean over images",
    **{f"L-sample of maps, quantile {q}": f"L of the map, {100 * q:g} % quantile over images" for q in QUANTILES},
    "the same per head": "local Lipschitz estimate L per head, mean over layers",
    "the same relative to the size of the map": "L relative to the size of the map, mean over layers",
    "Spearman of lambda and L over layers": "rank correlation of λ and L over layers",
    "L-sample of maps, mean over layers": "local Lipschitz estimate L of the maps, mean over layers",
    "L-power of maps, mean over layers": "L of the maps by power iteration, mean over layers",
    "L-ascent of maps, mean over layers": "L of the maps by ascent, mean over layers",
    "R1: share of cos < 0": "opposed input gradients of A1 and A2 (cos < 0)",
    "R2: share of cos < 0, heads together": "opposed input gradients, heads together (cos < 0)",
    "R3: share of cos < 0": "opposed changes of A1 and A2 under noise (cos < 0)",
    "R8: share of cos < 0": "opposed gradients of A1 and A2, the layer by itself (cos < 0)",
    "R1: mean cos": "mean cosine of the input gradients of A1 and A2",
    "R1: share of undecided signs, left out": "input gradients whose sign is undecided, left out",
    "R3: share of undecided signs, left out": "changes under noise whose sign is undecided, left out",
    "cos of changes, maps": "cosine of the changes of A1 and A2",
    "cos of changes, values": "cosine of the changes of A1 V and A2 V",
    "cos of changes, held": "cosine of the changes of A1 V and A2 V, V held",
    "1 / CMRR, maps: below 1 cancelled, above 1 amplified": "1 / CMRR of the maps: cancelled below 1, amplified above",
    "lambda, mean over layers": "λ, mean over layers",
    "R3: mean cos": "mean cosine of the changes of A1 and A2 under noise",
    "R3: mean rho": "ρ: size of the change of A2 over that of A1, mean",
    "R3: mean kappa": "κ = λρ, mean",
    "mean margin": "mean margin of clean images",
    "first-order Linf radius, median": "nearest boundary by the gradients (Linf, in 255ths), median of correct images",
    "asr_correct: first epoch from which on it is above 0": "correct images: first epoch from which on it is above 0",
    "asr_change: first epoch from which on it is above 0": "all images: first epoch from which on it is above 0",
    "relative change of mixed values": "relative change of the mixed values (A1 − λ A2) V",
    "audit": "statements of the theory",
    "alpha_slack: gain / sigma_max, mean over blocks": "slack of a block (gain / largest singular value), mean",
}
CONTROLS = {
    "control: untrained": "control: before training",
    "control: shuffled": "control: A2 of the next head",
    "control: pseudo": "control: two softmax heads",
}
AXES = {  # what stands along an axis, and its unit
    "eps": "budget ε (in 255ths of a pixel's range)",
    "attacked at": "attacked within ε (in 255ths of a pixel's range)",
    "patch": "patch width (pixels)",
    "depth": "depth (layers)",
    "lambda_init": "λ_init",
    "L2 radius": "L2 size of the perturbation (pixels from 0 to 1)",
}
LETTERS = {"ASR": "attack success", "lambda_init": "λ_init", "lambda": "λ", "eps": "ε"}
DAMAGES = {name: name.replace("_", " ").replace("jpeg", "JPEG") for name in CORRUPTIONS if "_" in name}
KEYS = {**{key: name for key, name in DATA_NAMES.items() if key != name}, **CONTROLS, **LETTERS, **DAMAGES}
_KEY = re.compile(rf"(?<![\w./-])({'|'.join(sorted(map(re.escape, KEYS), key=len, reverse=True))})(?![\w./-])")


def reading_words(reading: str) -> str:
    """In plain words; a difference of two readings word by word, and what has none as it is."""
    if reading not in READINGS and " - " in reading:
        return " minus ".join(reading_words(part) for part in reading.split(" - "))
    return READINGS.get(reading, reading)


def detail_words(detail: str) -> str:
    """What else a label says: a control in plain words, anything else as it is."""
    return CONTROLS.get(detail, detail)


def axis_words(axis: str) -> str:
    """What a number on this axis is, with its unit; an axis without one by its name."""
    return AXES.get(axis, axis)


def label_words(label: str) -> str:
    """A label, a title or a reason as it is read: data sets and controls by their names, Greek letters, a minus between two."""
    return _KEY.sub(lambda key: KEYS[key[1]], label).replace(" - ", " − ")


def told_apart(names: Sequence[Sequence[str]]) -> tuple[list[str], list[str]]:
    """Of names in parts: the parts that all of them have, and what is left of each."""
    common = [part for part in names[0] if all(part in name for name in names)]
    return common, [", ".join(part for part in name if part not in common) for name in names]
