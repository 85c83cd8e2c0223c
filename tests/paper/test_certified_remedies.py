"""Certificates of models that were trained with noise, and of the remedy that came first."""

import numpy as np
import pytest
from benchmarks.replication import LEDGER

from antiphase.paper.catalog import studies
from antiphase.paper.catalog.certificates import DECIDED_AT
from antiphase.paper.catalog.remedies import fresh_seeds, look_seeds
from antiphase.paper.grid import Grid
from antiphase.paper.ledger import Ledger
from antiphase.paper.questions import Ask, Chosen, Train

GRID = Grid.at("cpu")


@pytest.mark.parametrize("scale", ["smoke", "cpu", "desk", "paper"])
def test_only_certificates_are_computed_and_every_model_is_one_of_another_study(scale):
    grid = Grid.at(scale)
    known = {cell.key for name in ("remedies", "certificates") for cell in studies()[name].cells(grid)}
    own = [cell for cell in studies()["certified-remedies"].cells(grid) if cell.key not in known]
    seeds = len(look_seeds(grid)) + len(fresh_seeds(grid))
    fresh = [cell for cell in own if isinstance(cell.of, Chosen) or cell.of.training.noise]
    assert {cell.kind for cell in own} == {"certificates"}
    assert len(fresh) == 2 * seeds * len(DECIDED_AT)
    assert len(own) - len(fresh) == (4 if scale == "smoke" else 0)  # its second seed is in no other study
    noisy = {cell.of for cell in fresh if isinstance(cell.of, Train)}
    assert {(model.training.noise, model.run_seed) for model in noisy} == {(8 / 255, s) for s in look_seeds(grid)}


def test_e4_is_decided_by_the_same_two_contrasts_of_plain_models():
    deciding = [(name, p) for name, study in studies().items() for p in study.predictions(GRID) if p.claim == "E4"]
    assert [(name, p.name) for name, p in deciding] == [
        ("certificates", "ViT - DiffViT at L2 radius 0.125, sigma 0.12"),
        ("certificates", "ViT - DiffViT at L2 radius 0.25, sigma 0.25"),
    ]
    for _, prediction in deciding:
        asked = [cell for cell in prediction.cells if isinstance(cell, Ask)]
        plain = {make(seed).key for seed in GRID.seeds() for make in (GRID.vit, GRID.diffvit)}
        assert {cell.of.key for cell in asked} == plain
        assert len(asked) == len(plain) == 20
    assert studies()["certified-remedies"].claims == ()


def test_certificates_that_were_computed_before_keep_their_keys():
    ledger, cells = Ledger(LEDGER), studies()["certificates"].cells(GRID)
    assert len(cells) == 60
    assert all(ledger.has(cell) for cell in cells)


def test_a_model_is_held_against_the_plain_one_of_its_own_seed():
    """Every seed certifies another share; with noise ten points more. Unpaired, the interval would be several times as wide."""
    images = 1_000

    def certified(cell):
        share = 0.2 + 0.05 * cell.of.run_seed + 0.1 * bool(cell.of.training.noise) * cell.of.model.is_differential
        radius = np.where(np.arange(images) < share * images, 1.0, 0.0)
        return {"images": {"label": [0] * images, "predicted": [0] * images, "radius": radius.tolist()}}

    label = "DiffViT (noise augmentation) - plain {}, sigma 0.12, L2 radius 0.125"
    lines = {str(line.label): line for line in studies()["certified-remedies"].lines(GRID)}
    for base in ("DiffViT", "ViT"):
        (row,) = lines[label.format(base)].rows(certified)
        assert (row.seeds, row.n, row.unit) == (3, images, "points")
        assert row.value == pytest.approx(0.1)
        assert row.interval[1] - row.interval[0] < 0.05
