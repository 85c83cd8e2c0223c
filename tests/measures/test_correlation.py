"""Correlation of maps and of their changes, row by row and by hand."""

import json

import numpy as np
import pytest
import torch
from timm.layers import DiffAttention
from torch import nn

from antiphase.measures.branch_pairs import BranchPair
from antiphase.measures.cancellation import cancellation
from antiphase.measures.correlation import MEANING, correlation, likeness, movement, subtraction
from antiphase.measures.perturbations import CORRUPTIONS

DOUBLE = torch.float64


BOTH = [(0, "pseudo"), (1, "branches")]  # of the pair: which run, how its maps are coupled


ALL = torch.ones(1, 1, 1, 4, dtype=torch.bool)


def row(*weights):
    return torch.tensor(weights, dtype=DOUBLE).reshape(1, 1, 1, -1)


def test_likeness_of_rows_by_hand():
    same = likeness(row(0.4, 0.3, 0.2, 0.1), row(0.4, 0.3, 0.2, 0.1), ALL, top=2)
    assert {name: float(v) for name, v in same.items()} == pytest.approx(
        {"pearson": 1, "cosine": 1, "divergence": 0, "overlap": 1, "chance": 0.5}
    )
    reverse = likeness(row(0.4, 0.3, 0.2, 0.1), row(0.1, 0.2, 0.3, 0.4), ALL, top=2)
    assert float(reverse["pearson"]) == pytest.approx(-1)
    assert float(reverse["cosine"]) == pytest.approx(0.2 / 0.3)
    assert float(reverse["overlap"]) == 0
    disjoint = likeness(row(0.5, 0.5, 0, 0), row(0, 0, 0.5, 0.5), ALL, top=3)
    assert float(disjoint["divergence"]) == pytest.approx(1)
    assert float(disjoint["cosine"]) == 0
    uniform = likeness(row(0.25, 0.25, 0.25, 0.25), row(0.4, 0.3, 0.2, 0.1), ALL, top=2)
    assert uniform["pearson"].isnan()  # a constant row has no correlation


def test_subtraction_and_movement_of_rows_by_hand():
    found = subtraction(BranchPair(row(0.5, 0.5, 0, 0), row(0.25, 0.25, 0.25, 0.25), torch.tensor(0.8)), ALL)
    assert {name: float(v) for name, v in found.items()} == pytest.approx(
        {
            "negative_share": 0.5,
            "negative_mass": 0.4,  # .3 .3 -.2 -.2
            "entropy_first": 1,
            "entropy_second": 2,
            "entropy_combined": -(2 * 0.3 * np.log2(0.3) + 2 * 0.2 * np.log2(0.2)),
        }
    )
    gone = subtraction(BranchPair(row(0.4, 0.3, 0.2, 0.1), row(0.4, 0.3, 0.2, 0.1), torch.ones(())), ALL)
    assert gone["entropy_combined"].isnan()  # nothing is left
    assert gone["negative_mass"].isnan()
    moved = movement(row(0.1, -0.1, 0, 0), row(-0.2, 0.2, 0, 0), ALL)
    assert [float(v) for v in moved.values()] == pytest.approx([-1, -1])
    assert movement(row(0, 0, 0, 0), row(0.1, -0.1, 0, 0), ALL)["change_cosine"].isnan()


def test_short_rows_of_a_causal_map_are_left_out():
    seen = torch.ones(6, 6, dtype=torch.bool).tril()[None, None]
    torch.manual_seed(0)
    a, b = (torch.randn(1, 1, 6, 6, dtype=DOUBLE).masked_fill(~seen, -torch.inf).softmax(-1) for _ in range(2))
    found = likeness(a, b, seen, top=2)
    by_hand = [np.corrcoef(a[0, 0, i, : i + 1], b[0, 0, i, : i + 1])[0, 1] for i in (3, 4, 5)]
    assert float(found["pearson"]) == pytest.approx(np.mean(by_hand))
    assert float(found["chance"]) == pytest.approx(np.mean([2 / 4, 2 / 5, 2 / 6]))
    shortest = likeness(a[:, :, :3], b[:, :, :3], seen[:, :, :3], top=2)
    assert all(v.isnan().all() for v in shortest.values())


class Causal(nn.Module):
    """A differential layer that may only look back, as text towers do."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.attn = DiffAttention(16, num_heads=2, depth=1)
        self.head = nn.Linear(16, 10)

    def forward(self, pixels):
        return self.head(self.attn(pixels.reshape(len(pixels), -1, 16), is_causal=True).mean(dim=1))


def test_the_mask_of_the_running_model_is_respected(digits):
    few = digits[1].subset(3)
    assert few.shape == (1, 8, 8)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("antiphase.measures.correlation.SHORTEST", 2)
        looser = correlation(Causal().eval(), few, perturbations=("blur",))
    found = correlation(Causal().eval(), few, perturbations=("blur",))
    assert (found[0].rows_used, looser[0].rows_used) == (1, 3)  # of 4 tokens
    assert found[0].statistics["chance"] == pytest.approx(1)  # 4 tokens, top 5
    assert np.isfinite(found[1].statistics["change_pearson"]).all()


@pytest.mark.parametrize(("which", "coupling"), BOTH)
def test_correlation_of_a_real_model(which, coupling, pair, digits):
    model, few = pair[which].classifier(), digits[1].subset(5)
    found = {c.perturbation: c for c in correlation(model, few, coupling=coupling)}
    assert list(found) == ["clean", *CORRUPTIONS]
    (other,) = cancellation(model, few, perturbations=("blur",), coupling=coupling, quantities=("maps",))
    assert found["blur"].statistics["change_cosine"] == pytest.approx(other.cos)  # two routes to one number
    clean = found["clean"]
    assert set(clean.statistics) == set(MEANING)
    assert np.isnan(clean.statistics["change_cosine"]).all()
    assert clean.rows_used == 17
    assert (clean.l2 == 0).all()
    assert (np.diff([found[f"gaussian{s}"].l2.mean() for s in (8, 16, 32)]) > 0).all()
    half = correlation(model, few, coupling=coupling, batch_size=2)
    for a, b in zip(found.values(), half):
        for name in MEANING:
            assert a.statistics[name] == pytest.approx(b.statistics[name], rel=1e-3, abs=1e-4, nan_ok=True)
        json.dumps([a.summary(), a.rows(few.ids)], allow_nan=False)
