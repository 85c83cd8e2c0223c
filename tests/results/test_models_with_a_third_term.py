"""A model of a V2 layer and a DINT layer is trained, attacked, measured, audited and looked into, from the command line on."""

import json

import numpy as np
import pytest
import torch

from antiphase.cli import main
from antiphase.config import Budget
from antiphase.models.attention import lambdas
from antiphase.models.config import DifferentialV2, Dint
from antiphase.models.run import Run
from antiphase.models.taps import taps
from antiphase.report.lens_data import payload
from antiphase.results import look
from antiphase.results.questions import LookQuestion
from antiphase.theory.collect import _jacobians, collect
from antiphase.theory.evidence import Evidence, plain, read
from antiphase.theory.gradients import lemma_1_residual
from antiphase.theory.table import audit
from tests.measures.doubled import doubled
from tests.packed_looks import read_look

V2, DINT = "model.blocks.0.attn", "model.blocks.1.attn"


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("third") / "run"
    words = "--depth 2 --width 16 --heads 4 --patch 4 --epochs 3 --attention differential-v2 dint"
    assert main(["train", "--out", str(folder), *words.split()]) == 0
    return Run(folder)


@pytest.fixture(scope="module")
def few(digits):
    return digits[1].subset(4)


def test_the_run_says_what_it_is_and_learns(run):
    assert run.config.layers == (DifferentialV2(), Dint())
    assert run.config.title == "mixed ViT"
    assert run.log[-1]["loss"] < run.log[0]["loss"]
    assert list(run.log[-1]["lambda"]) == [DINT]  # a gate has no lambda of its own to log


def test_it_is_attacked_and_measured_by_the_commands(run, cli):
    code, out, _ = cli("attack", run.folder, "--images", 8, "--eps", "8/255", "--json")
    assert code == 0
    words = ("--images", 2, "--measures", "alignment", "--probes", 2, "--max-probes", 2)
    code, out, _ = cli("measure", run.folder, *words)
    assert code == 0
    assert "(gate)" in out
    assert "(integral)" in out
    code, out, _ = cli("measure", run.folder, *words, "--json")
    first, second = json.loads(out)["alignment"][0]["layers"]
    assert 0 < first["gate_share"] < 1
    assert 0 < second["integral_share"] < 1


def test_the_lens_draws_the_map_that_is_applied(run, few):
    question = LookQuestion(eps=(Budget("8/255"),), probes=2)
    cell = look.look(run, few, question).content
    *_, maps = read_look(cell)
    model = run.classifier_for(few)
    with torch.no_grad(), taps(model) as record:
        model(few.all.pixels)
    for layer in (V2, DINT):
        a1, a2, taken, given = np.moveaxis(maps[layer][0], 1, 0)
        assert np.abs(a1 - record[layer].signal.numpy()).max() < 0.01
        assert np.abs(a2 - record[layer].noise.numpy()).max() < 0.01
        assert np.abs(a1 - taken + given - record[layer].combined.numpy()).max() < 0.01
    (model_of_page,) = payload([("run", cell)], {})["models"]
    numbers = model_of_page["branches"][0]["jacobians"][1][0][0]
    assert len(numbers) == 7  # the last is what the gate does to the amplification
    _, _, kappa, amplification, energy, angle, factor = numbers
    assert amplification == pytest.approx(energy * angle * factor, rel=1e-2)
    assert energy == pytest.approx(np.sqrt(1 + kappa**2), rel=1e-2)


def test_the_audit_has_the_third_term_of_every_layer(run, few):
    """The quick part of the audit: norms of Jacobians at the images themselves."""
    model = run.classifier_for(few).double()
    points = _jacobians(model, None, doubled(few), {V2: None, DINT: None}, 2, frozenset({V2}), seed=0, device="cpu")
    for layer, lam in ((V2, 1.0), (DINT, lambdas(model)[DINT])):
        assert lemma_1_residual(points[layer], lam).max() > 1e-6
        assert lemma_1_residual(points[layer], lam, three=True).max() < (1e-10 if layer == V2 else 1e-6)


@pytest.mark.slow
def test_the_audit_judges_lemma_1_as_printed_and_with_the_third_term(run, few):
    evidence = collect(run.classifier_for(few).double(), None, doubled(few), probes=2, draws=2, steps=2)
    rows = {row.name: row for row in audit(evidence)}
    assert rows["Lemma 1"].verdict.outcome == "violated"
    assert rows["Lemma 1"].figures["largest residual with the gate and integral's term"] < 1e-10
    assert rows["Theorem 1"].figures["residual of the identity"] < 1e-10
    assert rows["row sums"].verdict.outcome == "identity holds"
    assert rows["Theorem 1"].figures["||J_DA|| between the corrected endpoints"]["value"] == 1
    bound = "always true, |L1 - |lambda| L2| <= L_DA <= L1 + |lambda| L2"
    assert rows["Lemma 2, its proof"].figures[bound]["value"] == 1
    again = read(Evidence, json.loads(json.dumps(plain(evidence))))
    assert [row.plain() for row in audit(again)] == [row.plain() for row in rows.values()]
