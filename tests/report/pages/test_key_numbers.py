"""The cards of a comparison: one number, one interval and one sentence each, all of them from the rows."""

import copy
import re

import numpy as np
import pytest

from antiphase.measures.stats import paired_rates
from antiphase.report.numbers import interval_text
from antiphase.report.pages.key_numbers import key_numbers
from antiphase.tables import percent
from tests.report.changed_comparisons import decided


def of(cards, name):
    return next(card for card in cards if card.name == name)


def test_a_comparison_has_three_cards_with_one_number_and_one_interval_each(comparison):
    cards = key_numbers(comparison)
    assert [card.name for card in cards] == ["Fooled", "Sensitive", "Opposed"]
    for card in cards:
        assert len(re.findall(r"[\d.]+", card.value)) == 1
        assert len(re.findall(r"\[\S+, \S+\]", card.interval)) == 1
        assert card.sentence.count(".") == 1
        assert not re.search(r"\d", re.sub(r"\d+/255", "", card.sentence))  # but for the budget


def test_fooled_is_the_paired_difference_of_the_models_at_the_budget_with_the_largest_gap(comparison):
    rows = decided(comparison, 1)  # DiffViT 60 images, ViT 32, of them 30 and 2 alone
    test = rows["paired"][0]["both_right"]
    of_first, of_second = np.zeros((2, test["n"]), dtype=bool)
    of_first[:32], of_second[2:62] = True, True
    difference = paired_rates(of_second, of_first)
    card = of(key_numbers(rows), "Fooled")
    assert card.value == f"{100 * 28 / test['n']:+.1f} points"
    assert interval_text(difference["interval"], "points") in card.interval
    assert f"{test['n']} images" in card.interval
    assert card.sentence.endswith("PGD breaks more images of DiffViT than of ViT.")
    assert card.model == "DiffViT"
    other = of(key_numbers(decided(comparison, 0)), "Fooled")
    assert other.value.startswith("-")
    assert "fewer images of DiffViT than of ViT" in other.sentence
    assert other.model == "ViT"


def test_a_gap_that_no_test_shows_carries_no_models_colour(comparison):
    even = copy.deepcopy(comparison)
    for row in even["paired"]:
        row["both_right"]["p_holm"] = 0.4
    card = of(key_numbers(even), "Fooled")
    assert card.sentence.startswith("No budget shows a difference between DiffViT and ViT")
    assert card.model == ""
    for row in even["paired"]:
        row["both_right"].update(n=0, first=0, second=0, only_first=0, only_second=0)
    card = of(key_numbers(even), "Fooled")
    assert (card.value, card.interval) == ("-", "0 images")


def test_sensitive_is_the_ratio_of_relative_sensitivities_and_follows_the_rows(comparison):
    card = of(key_numbers(comparison), "Sensitive")
    first, second = (side["lipschitz"]["layers"][0]["relative_max"] for side in comparison["models"])
    assert float(card.value.removesuffix(" ×")) == pytest.approx(
        second / first, rel=0.05
    )  # a geometric mean over images
    turned = copy.deepcopy(comparison)
    rows = turned["models"][1]["lipschitz"]["rows"]
    rows["max"] = [value / 100 for value in rows["max"]]
    less = of(key_numbers(turned), "Sensitive")
    assert float(less.value.removesuffix(" ×")) == pytest.approx(float(card.value.removesuffix(" ×")) / 100, rel=0.01)
    assert "moves the maps of DiffViT less than those of ViT" in less.sentence
    turned["models"][1]["lipschitz"] = turned["models"][0]["lipschitz"]
    same = of(key_numbers(turned), "Sensitive")
    assert same.value == "1 ×"
    assert "not shown to differ" in same.sentence


def test_opposed_is_the_stored_share_of_decided_pairs_and_says_how_many_those_are(comparison):
    layer = comparison["models"][1]["alignment"]["layers"][0]  # depth 1: all its pairs are of this layer
    card = of(key_numbers(comparison), "Opposed")
    assert card.value == percent(layer["negative"])
    assert interval_text(layer["negative"]["interval"], "%") in card.interval
    assert card.interval.endswith(f"{layer['negative']['n']} of {layer['undecided']['n']} pairs decided")


def test_every_differential_model_has_its_own_share_and_a_softmax_model_has_none(comparison):
    both, neither = copy.deepcopy(comparison), copy.deepcopy(comparison)
    both["models"][0]["alignment"] = both["models"][1]["alignment"]
    neither["models"][1]["alignment"] = None
    assert [card.model for card in key_numbers(both) if card.name == "Opposed"] == ["ViT", "DiffViT"]
    assert [card.name for card in key_numbers(neither)] == ["Fooled", "Sensitive"]
