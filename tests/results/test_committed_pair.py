"""The committed pair is what its log says, and the contract of the attacks holds on it: real CIFAR-10, real training."""

from contextlib import nullcontext

import numpy as np
import pytest
import torch

from antiphase.attacks import L2, PGD, Linf, Patch, engine, scheduler
from antiphase.data import load
from antiphase.measures.jacobians_forward import branch_alignment
from antiphase.measures.success import accuracy
from antiphase.models.fast_path import fast_path
from antiphase.models.run import Run
from antiphase.models.taps import taps
from tests.conftest import ROOT

PAIR = ROOT / "results" / "pair"


@pytest.fixture(scope="module", params=["ViT", "DiffViT", "DiffViT-depth4"])
def run(request):
    return Run(PAIR / request.param)


@pytest.fixture(scope="module")
def images(data_root):
    return load("cifar10", "test", root=data_root)


def test_the_pair_is_small_and_whole():
    files = [p for p in PAIR.rglob("*") if p.is_file() and not p.name.startswith(".")]
    assert sum(p.stat().st_size for p in files) < 4 * 2**20
    assert {p.parent.name for p in files if p.suffix == ".safetensors"} == {"ViT", "DiffViT", "DiffViT-depth4"}


def test_its_accuracy_is_the_logged_one(run, images):
    """On all 10,000 images, but for near-ties on another processor."""
    assert accuracy(run.classifier(), images) == pytest.approx(run.log[-1]["test_accuracy"], abs=5e-4)


def test_accuracy_on_the_fast_path_is_that_of_the_full_computation(run, images):
    """It takes the fast path; no prediction differs from the full computation's."""
    classifier, some = run.classifier(), images.subset(1000)
    with torch.no_grad():
        predictions = torch.cat([classifier(batch.pixels).argmax(dim=1) for batch in some.batches(250)])
    assert accuracy(classifier, some) == float((predictions.numpy() == some.labels).mean())


@pytest.mark.parametrize(
    "attack",
    [PGD(within=Linf("1/255"), steps=10), PGD(within=L2(0.3), steps=10), PGD(within=Patch(width=4), steps=10)],
    ids=lambda a: str(a.within),
)
def test_attacks_stay_within_their_budget_and_do_not_depend_on_the_batch_size(run, images, attack):
    few = images.subset(48)
    x, y, ids = few.all
    a, b = (engine.run(run.classifier(), x, y, attack, ids=ids, batch_size=size) for size in (48, 13))
    assert torch.equal(a.success, b.success)
    assert torch.equal(a.adversarial_prediction, b.adversarial_prediction)
    assert a.distance.max() <= attack.within.eps + 1e-7
    assert 0.05 < a.success.double().mean() < 1
    assert a.flags == ()


def test_the_fast_path_gives_the_same_logits_and_leaves_no_trace(run, images):
    model, x = run.classifier(), images.subset(32).all.pixels
    plain = model(x)
    with fast_path(model):
        assert "forward" in vars(model.model.blocks[-1])
        assert torch.allclose(model(x), plain, atol=2e-5)
    assert not any("forward" in vars(m) for m in model.modules())
    assert torch.equal(model(x), plain)


def test_a_model_with_hooks_runs_in_full(run, images):
    model, x = run.classifier(), images.subset(4).all.pixels
    with taps(model) as record, fast_path(model):
        model(x)
    assert len(record) == run.config.depth


def test_the_fast_path_changes_no_success_of_an_attack(run, images, monkeypatch):
    x, y, ids = images.subset(128).all
    attack = PGD(within=Linf("1/255"), steps=10)
    a = engine.run(run.classifier(), x, y, attack, ids=ids)
    monkeypatch.setattr(scheduler, "fast_path", lambda *_: nullcontext())
    b = engine.run(run.classifier(), x, y, attack, ids=ids)
    assert torch.equal(a.success, b.success)
    assert torch.equal(a.adversarial_prediction, b.adversarial_prediction)
    assert torch.equal(a.forwards, b.forwards)


def test_the_sweep_of_the_paper_spans_little_to_most(run, images):
    x, y, ids = images.subset(96).all
    grid = [PGD(within=Linf(f"{e}/255"), steps=10) for e in (0.25, 1, 4)]
    rates = [float(r.success.double().mean()) for r in engine.sweep(run.classifier(), x, y, grid, ids=ids)]
    assert rates == sorted(rates)
    assert rates[0] < 0.4
    assert rates[-1] > 0.7


def test_branch_alignment_of_the_trained_twin_is_measured(images):
    (layer,) = branch_alignment(Run(PAIR / "DiffViT").classifier(), images.subset(8), probes=8)
    assert np.isfinite(layer.cos).all()
    assert layer.summary()["dead"] == 0
