"""What the lens is given are the model's own maps, predictions and numbers, in few bytes."""

import json

import numpy as np
import pytest
import torch

from antiphase.config import Budget, InputError
from antiphase.measures.jacobians_forward import branch_alignment
from antiphase.models.taps import taps
from antiphase.results import look
from antiphase.results.look import factor_for, pooled, quantised, restored
from antiphase.results.questions import LookQuestion
from tests.packed_looks import read_look

EPS = (Budget("8/255"), Budget("24/255"), Budget("48/255"))


@pytest.fixture(scope="module")
def few(digits):
    return digits[1].subset(8)


@pytest.fixture(scope="module")
def cells(pair, few):
    return [look.look(run, few, LookQuestion(eps=EPS, probes=8)).content for run in pair]


def test_the_maps_are_the_models_own_to_eight_bits(pair, few, cells):
    for run, cell in zip(pair, cells):
        clean, attacked, maps = read_look(cell)
        model = run.classifier_for(few)
        assert clean == pytest.approx(few.all.pixels.permute(0, 2, 3, 1).numpy(), abs=1 / 500)
        for state, pixels in enumerate(
            (few.all.pixels, *(torch.tensor(a).permute(0, 3, 1, 2).float() for a in attacked))
        ):
            with torch.no_grad(), taps(model) as record:
                model(pixels)
            for layer, found in record.items():
                stored = maps[layer][state]
                tolerance = stored.max() / 400 + (
                    0.002 if state else 0
                )  # attacked pixels themselves are kept in 127ths of eps
                assert np.abs(stored[:, 0] - found.signal.numpy()).max() < tolerance
                if found.noise is not None:
                    assert np.abs(stored[:, 1] - found.noise.numpy()).max() < tolerance


def test_perturbations_reach_their_budget_and_stay_in_it(cells):
    for cell in cells:
        clean, attacked, _ = read_look(cell)
        for eps, pixels in zip(cell["eps"], attacked):
            assert np.abs(pixels - clean).max() == pytest.approx(eps, rel=1e-6)


def test_predictions_are_probabilities_of_the_model_itself(pair, few, cells):
    model = pair[1].classifier_for(few)
    with torch.no_grad():
        p = model(few.all.pixels).softmax(dim=1)
    for i, guesses in enumerate(cells[1]["predictions"][0]):
        assert guesses[0][0] == int(p[i].argmax())
        assert guesses[0][1] == pytest.approx(float(p[i].max()), abs=1e-5)
        assert [g[1] for g in guesses] == sorted((g[1] for g in guesses), reverse=True)
    lost = [cell["predictions"][-1][i][0][0] != label for cell in cells for i, label in enumerate(few.labels)]
    assert np.mean(lost) > 0.8  # 48/255 breaks nearly everything


def test_alignment_in_the_lens_is_the_measure_at_that_point(pair, few, cells):
    model, rows = pair[1].classifier_for(few), cells[1]["rows"]
    (layer,) = branch_alignment(model, few.with_pixels(few.all.pixels), probes=8)
    mine = {
        (rows["image"][i], rows["head"][i]): (rows["cos"][i], rows["energy"][i], rows["angle"][i])
        for i in range(len(rows["cos"]))
        if rows["state"][i] == 0 and rows["of"][i] == "jacobians"
    }
    assert len(mine) == 8 * (layer.cos.shape[1] + 1)  # each head, and all stacked
    for row in layer.rows(few.ids):
        assert mine[row["image"], row["head"]] == pytest.approx((row["cos"], row["energy"], row["angle"]))
    stacked = layer.stacked.rows(few.ids)
    assert mine[stacked[0]["image"], None][0] == pytest.approx(stacked[0]["cos"])
    assert cells[0]["rows"] == {}  # one branch has nothing to be aligned with


def test_a_look_is_stored_and_read_again(pair, few, cells, monkeypatch):
    monkeypatch.setattr(look, "_view", None)  # would fail if anything were computed
    assert look.look(pair[1], few, LookQuestion(eps=EPS, probes=8)).content == json.loads(json.dumps(cells[1]))


def test_budgets_of_zero_are_refused():
    with pytest.raises(InputError, match="budgets above 0"):
        LookQuestion(eps=(Budget(0),))


def test_quantised_maps_return_within_half_a_level_of_the_largest_entry():
    maps = np.random.default_rng(0).dirichlet(np.ones(17), size=(3, 2, 4, 17))
    steps, top = quantised(maps)
    assert np.all(np.abs(restored(steps, top) - maps) <= maps.max(axis=(0, -1))[..., None] / 510 + 1e-7)


def test_pooling_keeps_what_a_row_sums_to_and_the_class_token_apart():
    maps = np.random.default_rng(1).dirichlet(np.ones(17), size=(2, 17))
    small = pooled(maps, 2)
    assert small.shape == (2, 5, 5)
    assert small.sum(axis=-1) == pytest.approx(np.ones((2, 5)))
    assert small[:, 0, 0] == pytest.approx(maps[:, 0, 0])
    block = [1, 2, 5, 6]  # the patches of the first cell
    assert small[:, 1, 0] == pytest.approx(maps[:, block, 0].mean(axis=1))
    assert small[:, 0, 1] == pytest.approx(maps[:, 0, block].sum(axis=1))


def test_large_models_are_pooled_and_small_ones_are_not():
    assert factor_for(65, 10 * 6 * 4) == 1  # CIFAR, depth 1
    assert factor_for(197, 8 * 4 * 144) == 2  # ViT-B/16 on 8 images at 3 budgets: 7 x 7
    assert 14 % factor_for(197, 10**6) == 0


def test_of_a_large_model_the_lens_keeps_three_budgets(pair, few, monkeypatch):
    monkeypatch.setattr("antiphase.results.look.ROOM", 30_000)
    eps = tuple(Budget(f"{e}/255") for e in (1, 2, 4, 8, 16))
    cell = look.look(pair[1], few, LookQuestion(eps=eps, probes=2, seed=1)).content
    assert [round(255 * e) for e in cell["eps"]] == [1, 4, 16]
    assert [round(255 * e) for e in cell["left_out"]] == [2, 8]
