"""Each rate of an attack has the denominator that its name says."""

from dataclasses import replace

import torch

from antiphase.attacks.engine import AttackResult
from antiphase.measures.success import success_rates


def _result(labels, clean, changed):
    labels, clean, changed = torch.tensor(labels), torch.tensor(clean), torch.tensor(changed, dtype=torch.bool)
    zero, won = torch.zeros_like(labels), changed.any(0)
    pixels = torch.zeros(len(labels), 1, 1, 1)
    return AttackResult(pixels, labels, clean, torch.where(won, 9, clean), won, changed, zero.double(), zero, zero)


def test_each_rate_has_the_denominator_its_name_says():
    rates = success_rates(_result([0, 0, 0, 0], [0, 0, 0, 1], [[1, 0, 0, 1], [0, 0, 0, 1]]))
    assert {k: (v["hits"], v["n"]) for k, v in rates.items()} == {
        "clean_accuracy": (3, 4),
        "robust_accuracy": (2, 4),
        "asr_change": (3, 8),
        "asr_correct": (1, 6),
        "asr_union": (2, 4),
    }


def test_with_a_target_images_predicted_as_it_already_are_not_counted():
    result = replace(_result([0, 0, 0, 3], [0, 0, 3, 3], [[1, 0, 0, 0], [1, 1, 0, 0]]), target=torch.full((4,), 3))
    assert {k: (v["hits"], v["n"]) for k, v in success_rates(result).items()} == {
        "clean_accuracy": (3, 4),
        "target_reached": (2, 2),
        "target_reached_correct": (2, 2),
    }


def test_an_empty_denominator_is_undefined_not_zero():
    rates = success_rates(_result([0, 0], [1, 1], [[1, 0]]))
    assert rates["asr_correct"] == {"value": None, "interval": None, "hits": 0, "n": 0}
