"""An MMVP pair is correct only if both of its images are."""

import pytest
import torch

from antiphase.evals.mmvp import statement_rows
from antiphase.rates import wilson
from tests.evals.small_models import by_name


def test_a_pair_is_correct_only_if_both_of_its_images_are():
    images = torch.eye(2).repeat(4, 1)  # four pairs: image 0 is (1, 0), image 1 is (0, 1)
    texts = torch.tensor(
        [
            [[0.9, 0.1], [0.1, 0.9]],  # everything right
            [[0.1, 0.9], [0.9, 0.1]],  # everything wrong
            [[0.9, 0.4], [0.8, 0.6]],  # both images, not both statements: the second is nearer to image 0
            [[0.9, 0.1], [0.9, 0.1]],  # a tie
        ]
    ).reshape(8, 2)
    rows = by_name(statement_rows(images, texts, ("Color", "Color", "Texts", "Texts")))
    assert rows["mmvp: Color"].value == 0.5
    assert rows["mmvp: Texts"].value == 0.5
    assert rows["mmvp"].value == 0.5
    assert rows["mmvp, by statement: Texts"].value == 0
    assert rows["mmvp, by statement"].value == 0.25
    assert rows["mmvp"].chance == 0.25
    assert rows["mmvp: Color"].interval == pytest.approx(wilson(0.5, 2))
