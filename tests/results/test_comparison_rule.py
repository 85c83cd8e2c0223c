"""How a comparison of two models is decided: by the paired tests at its budgets, and by nothing else."""

import pytest

from antiphase.results.comparison_rule import decide, withheld


def compared(*tests, n=100):
    """A comparison with so many images that both classify correctly; of each budget (only first, only second, p)."""
    paired = [
        {"eps": (i + 1) / 255, "both_right": {"only_first": a, "only_second": b, "n": n, "p_holm": p}}
        for i, (a, b, p) in enumerate(tests)
    ]
    models = [{"name": name, "test_accuracy": accuracy} for name, accuracy in (("ViT", 0.9), ("DiffViT", 0.7))]
    return {"paired": paired, "models": models, "config": {"accuracy_floor": 0.5}}


@pytest.mark.parametrize(
    ("tests", "outcome"),
    [
        ([(30, 2, 0.001), (9, 8, 1.0)], "first is easier to fool"),
        ([(2, 30, 0.001), (3, 20, 0.01)], "second is easier to fool"),
        ([(30, 2, 0.001), (2, 30, 0.001)], "neither is more robust"),
        ([(9, 8, 1.0), (30, 2, 0.06)], "no difference shown"),
    ],
)
def test_the_model_that_is_fooled_more_often_wherever_the_test_is_significant_is_the_easier_one(tests, outcome):
    assert decide(compared(*tests)).outcome == outcome


def test_only_budgets_with_a_significant_difference_bear_the_verdict():
    verdict = decide(compared((30, 2, 0.001), (9, 8, 1.0), (3, 1, 0.04)))
    assert [(c.name, c.value) for c in verdict.contrasts] == [("1/255", 0.28), ("3/255", 0.02)]


def test_models_without_an_image_that_both_classify_correctly_are_not_compared():
    assert decide(compared((0, 0, 1.0), n=0)).outcome == "not comparable"


def test_a_verdict_is_withheld_from_undertrained_models_and_at_a_scale_for_tests():
    comparison = compared((30, 2, 0.001))
    assert withheld(comparison) is None
    comparison["config"]["accuracy_floor"] = 0.8
    assert withheld(comparison) == "DiffViT stayed below 80 % test accuracy"
    comparison["config"]["accuracy_floor"] = None
    assert withheld(comparison) == "this scale is for tests"
