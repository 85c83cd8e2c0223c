"""Accuracy, success and L under interventions, on the same images as the untouched model, kept like every answer."""

import json

import numpy as np
import pytest

from antiphase.attacks import PGD, Linf, engine
from antiphase.config import InputError
from antiphase.measures.interventions import interventions
from antiphase.measures.lipschitz import l_sample
from antiphase.measures.questions import InterventionQuestion
from antiphase.measures.stats import paired_rates
from antiphase.measures.success import predictions
from antiphase.models import Differential, Softmax, ViTConfig
from antiphase.models.attention import lambdas
from antiphase.models.interventions import intervene
from antiphase.training import TrainConfig
from antiphase.training.loop import train

ATTACK = PGD(within=Linf("24/255"), steps=5)


@pytest.fixture(scope="module")
def run(tmp_path_factory, digits):
    config = ViTConfig(patch=4, width=32, heads=4, attention=(Differential(),))
    folder = tmp_path_factory.mktemp("interventions") / "diffvit"
    return train(config, TrainConfig(epochs=6, batch_size=64), digits[0].subset(600), digits[1].subset(50), folder)


@pytest.fixture(scope="module")
def few(digits):
    return digits[1].subset(24)


def test_the_lambda_that_a_layer_has_changes_nothing_and_comes_out_so(run, few):
    model = run.classifier()
    (lam,) = lambdas(model).values()
    none, same = interventions(model, few, ATTACK, names=[f"lam={lam!r}"], draws=2)
    assert none.name == "none"
    assert same.clean.tolist() == none.clean.tolist()
    assert same.fooled.tolist() == none.fooled.tolist() == same.transferred.tolist()
    (layer,) = none.lipschitz
    assert same.lipschitz[layer] == pytest.approx(none.lipschitz[layer], rel=1e-5)
    gap = same.summary(none)["against_none"]["asr_change"]
    assert gap["value"] == 0
    assert gap["interval"][0] < 0 < gap["interval"][1]  # 24 images do not prove that there is no difference


def test_each_number_is_what_one_gets_by_hand(run, few):
    model, batch = run.classifier(), few.all
    none, swapped, held = interventions(model, few, ATTACK, names=["swap", "hold=A2"], draws=2)
    made = engine.run(model, batch.pixels, batch.labels, ATTACK, ids=batch.ids)
    with intervene(model, swap=True):
        assert swapped.clean.tolist() == predictions(model, few).tolist()
        anew = engine.run(model, batch.pixels, batch.labels, ATTACK, ids=batch.ids)
        shown = predictions(model, few.with_pixels(made.adversarial))
    assert swapped.fooled.tolist() == anew.success.tolist()
    assert swapped.transferred.tolist() == (shown != swapped.clean).tolist()
    with intervene(model, hold="A2", clean=few):
        (ratios,) = (layer.ratios.max(axis=1) for layer in l_sample(model, few, draws=2))
    assert next(iter(held.lipschitz.values())) == pytest.approx(ratios)
    assert held.clean.tolist() == none.clean.tolist()  # a held map is the clean image's own
    summary = swapped.summary(none)
    assert summary["accuracy"]["hits"] == int(np.equal(swapped.clean, few.labels).sum())
    assert summary["transfer_fooled"]["n"] == int(made.success.sum()) > 0


def test_a_softmax_model_is_refused(digits, tmp_path):
    config = ViTConfig(patch=4, width=16, heads=2, attention=(Softmax(),))
    run = train(config, TrainConfig(epochs=1), digits[0].subset(20), digits[1].subset(10), tmp_path / "vit")
    with pytest.raises(InputError, match="no differential layer"):
        interventions(run.classifier(), digits[1].subset(4), ATTACK)


@pytest.mark.parametrize("name", ["lam", "lam=nan", "lam=x", "hold", "hold=A3", "swap=1", "drop"])
def test_an_intervention_that_is_not_known_is_refused(name):
    with pytest.raises(InputError, match="is not known: it is lam=NUMBER, swap, hold=A1 or hold=A2"):
        InterventionQuestion(interventions=(name,))


def test_the_command_keeps_the_answer_and_prints_it(cli, run):
    words = (
        "measure",
        run.folder,
        "--measures",
        "interventions",
        "--interventions",
        "lam=0,hold=A2",
        "--eps",
        "24/255",
    )
    words += ("--images", "12", "--steps", "3", "--draws", "2")
    code, out, _ = cli(*words)
    assert code == 0
    assert "lam=0" in out
    assert "hold=A2" in out
    kept = list((run.folder / "measures").glob("*.json"))
    code, out, _ = cli(*words, "--json")
    (cell,) = json.loads(out)["interventions"]
    assert [row["intervention"] for row in cell["interventions"]] == ["none", "lam=0", "hold=A2"]
    assert all(row["n"] == row["accuracy"]["n"] == 12 for row in cell["interventions"])
    assert list((run.folder / "measures").glob("*.json")) == kept  # read, not computed again
    code, _, err = cli(*words[:4], "--interventions", "lam=much")
    assert code == 2
    assert "lam=much" in err


def test_intervals_of_paired_differences_cover_the_truth():
    draw, covered, trials, n = np.random.default_rng(0), 0, 600, 60
    for _ in range(trials):
        shared, first, second = draw.random(n) < 0.5, draw.random(n) < 0.5, draw.random(n) < 0.3
        own = draw.random(n)
        a, b = np.where(shared, own < 0.4, first), np.where(shared, own < 0.4, second)
        low, high = paired_rates(a, b)["interval"]
        covered += low <= 0.5 * (0.5 - 0.3) <= high
    assert 0.93 <= covered / trials <= 0.985


def test_a_paired_difference_is_the_difference_of_the_rates():
    a, b = np.array([True, True, False, False]), np.array([True, False, False, False])
    assert paired_rates(a, b)["value"] == 0.25
    assert paired_rates(a[:0], b[:0]) == {"value": None, "interval": None, "n": 0}
    assert paired_rates(a, a)["interval"] == pytest.approx(
        [-paired_rates(a, a)["interval"][1], paired_rates(a, a)["interval"][1]]
    )
