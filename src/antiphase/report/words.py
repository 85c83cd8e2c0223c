"""Words for the keys that stored results use: what a reader of a figure or a table sees in place of `asr_change`."""

from __future__ import annotations

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
    "share of correct images that CW fools": "fooled by Carlini-Wagner at any distance, images classified correctly",
    "share of correct images fooled within an L2 radius": "fooled within an L2 radius, images classified correctly",
    "CW l2, median": "L2 perturbation of Carlini-Wagner, median",
    "CW l2, 90 %": "L2 perturbation of Carlini-Wagner that fools 90 %",
    "CW l2, 95 %": "L2 perturbation of Carlini-Wagner that fools 95 %",
    "CW l2, 99 %": "L2 perturbation of Carlini-Wagner that fools 99 %",
    "CW l2, largest": "L2 perturbation of Carlini-Wagner, largest",
    "L-sample of maps": "local Lipschitz estimate L of the map, mean over images",
    "L-sample of maps, mean over layers": "local Lipschitz estimate L of the maps, mean over layers",
    "L-power of maps, mean over layers": "L of the maps by power iteration, mean over layers",
    "L-ascent of maps, mean over layers": "L of the maps by ascent, mean over layers",
    "R1: share of cos < 0": "opposed input gradients of A1 and A2 (cos < 0)",
    "R2: share of cos < 0, heads together": "opposed input gradients, heads together (cos < 0)",
    "R3: share of cos < 0": "opposed changes of A1 and A2 under noise (cos < 0)",
    "R8: share of cos < 0": "opposed gradients of A1 and A2, the layer by itself (cos < 0)",
    "R1: mean cos": "mean cosine of the input gradients of A1 and A2",
}
CONTROLS = {
    "control: untrained": "control: before training",
    "control: shuffled": "control: A2 of the next head",
    "control: pseudo": "control: two softmax heads",
}


def reading_words(reading: str) -> str:
    """In plain words; a difference of two readings word by word, and what has none as it is."""
    if reading not in READINGS and " - " in reading:
        return " minus ".join(reading_words(part) for part in reading.split(" - "))
    return READINGS.get(reading, reading)


def detail_words(detail: str) -> str:
    """What else a label says: a control in plain words, anything else as it is."""
    return CONTROLS.get(detail, detail)
