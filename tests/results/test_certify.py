"""Certificates that are kept with a run, and the sandwich: certified <= true <= attacked."""

import shutil

import numpy as np
import pytest
from scipy.stats import norm

from antiphase.config import InputError
from antiphase.measures.certificates import RADII, CertificateAnswer
from antiphase.measures.questions import CertificateQuestion
from antiphase.models.run import Run
from antiphase.results import certify
from antiphase.results.questions import CertifyConfig
from tests.conftest import ROOT


@pytest.fixture(scope="module")
def committed(tmp_path_factory):
    """A copy of the committed pair, so that nothing is written into the checkout."""
    folder = tmp_path_factory.mktemp("committed")
    for name in ("DiffViT", "ViT"):
        shutil.copytree(ROOT / "results/pair" / name, folder / name)
    return [Run(folder / name) for name in ("DiffViT", "ViT")]


@pytest.mark.parametrize("place", [0, 1])
def test_no_attack_breaks_a_certificate_of_a_committed_model(committed, data_root, place):
    """On real CIFAR-10: a confirmed image of another class nearer than a certified radius would refute the certificate."""
    from antiphase.data import load

    images = load("cifar10", "test", root=data_root).subset(12)
    config = CertifyConfig(sigma=(0.12,), samples=300, attack_images=8, attack_draws=16, attack_steps=30)
    result = certify.certify(committed[place : place + 1], images, config)
    rows = result["runs"][0]["certificates"][0]["sandwich"]
    attacked = [row for row in rows if row["attacked"] is not None]
    assert len(rows) == 8
    assert len(attacked) >= 2
    assert all(row["certified"] <= row["attacked"] for row in attacked)
    assert not any(row["broken"] for row in rows)
    assert result["runs"][0]["certificates"][0]["flags"] == []


def test_an_attack_that_breaks_a_certificate_is_a_red_flag_with_its_chance():
    row = {"id": 7, "certified": 0.5, "attacked": 0.4}
    assert certify.is_broken(row)
    (flag,) = certify.flags_of([row | {"broken": True}, row | {"broken": False}], 0.001)
    assert "image 7" in flag
    assert "0.2 % of images" in flag
    assert not certify.is_broken(row | {"attacked": None})
    assert not certify.is_broken(row | {"certified": None})


def test_an_interrupted_certification_goes_on_where_it_was_and_ends_with_the_same_bits(
    pair, digits, tmp_path, monkeypatch
):
    shutil.copytree(pair[1].folder, tmp_path / "run", ignore=shutil.ignore_patterns("certificates"))
    monkeypatch.setattr(certify, "PART", 4)
    images, question = digits[1].subset(14), CertificateQuestion(sigma=0.5, samples=50)
    whole = certify.certificates(pair[1], images, question)
    real, calls = certify.certificates_of_model, []

    def counted(model, few, *args, **kwargs):
        if len(calls) == 2:
            calls.append("pulled")
            raise KeyboardInterrupt
        calls.append(len(few))
        return real(model, few, *args, **kwargs)

    monkeypatch.setattr(certify, "certificates_of_model", counted)
    with pytest.raises(KeyboardInterrupt):
        certify.certificates(Run(tmp_path / "run"), images, question)
    again = certify.certificates(Run(tmp_path / "run"), images, question)
    assert calls == [4, 4, "pulled", 4, 2]
    assert again.content["images"] == whole.content["images"]
    assert not list((tmp_path / "run" / "certificates").glob("*/"))  # nothing half-done is left


def test_an_interrupted_attack_on_the_smoothed_model_goes_on_too(pair, digits, tmp_path, monkeypatch):
    from antiphase.measures import smoothing

    shutil.copytree(pair[1].folder, tmp_path / "run", ignore=shutil.ignore_patterns("certificates", "attacks"))
    images = digits[1].subset(6)
    config = CertifyConfig(sigma=(0.5,), samples=60, attack_images=6, attack_draws=4, attack_steps=10)
    whole = certify.certify([pair[1]], images, config)["runs"][0]["certificates"]
    real = smoothing.votes

    def pulled(*args, **kwargs):
        if kwargs.get("batch_size") is None and len(args) < 6:  # the votes that confirm
            raise KeyboardInterrupt
        return real(*args, **kwargs)

    monkeypatch.setattr(smoothing, "votes", pulled)
    with pytest.raises(KeyboardInterrupt):
        certify.certify([Run(tmp_path / "run")], images, config)
    assert list((tmp_path / "run" / "certificates").glob("*/journal"))
    monkeypatch.setattr(smoothing, "votes", real)
    assert certify.certify([Run(tmp_path / "run")], images, config)["runs"][0]["certificates"] == whole


def test_two_runs_are_tested_at_every_noise_and_radius_with_one_correction(pair, digits):
    config = CertifyConfig(sigma=(0.5, 0.25), samples=50, attack_images=0)
    result = certify.certify(pair, digits[1].subset(16), config)
    assert [(test["sigma"], test["radius"]) for test in result["paired"]] == [
        (sigma, radius) for sigma, largest in ((0.25, 0.282), (0.5, 0.564)) for radius in RADII if radius < largest
    ]
    for test in result["paired"]:
        assert test["n"] == 16
        assert test["p"] <= test["p_holm"] <= 1
    for run in result["runs"]:
        for own in run["certificates"]:
            values = [rate["value"] for rate in own["rates"]]
            assert values == sorted(values, reverse=True)
            assert own["sandwich"] == []


def test_what_so_many_draws_cannot_certify_is_neither_measured_nor_tested(pair, digits):
    config = CertifyConfig(sigma=(0.12,), samples=100, attack_images=0)
    result = certify.certify(pair, digits[1].subset(4), config)
    for run in result["runs"]:
        (own,) = run["certificates"]
        assert own["largest_radius"] == pytest.approx(0.12 * norm.ppf(0.001**0.01))
        assert [rate["radius"] for rate in own["rates"]] == [0, 0.125]
        assert own["out_of_reach"] == [0.25, 0.5, 0.75, 1]
    assert [test["radius"] for test in result["paired"]] == [0, 0.125]
    kept = certify.certificates(pair[0], digits[1].subset(4), config.questions()[0]).content
    assert [rate["radius"] for rate in kept["rates"]] == list(RADII)  # what is stored has the format that it had


def test_a_study_and_the_command_share_one_answer(pair, digits):
    from antiphase.results.ask import ask

    question, images = CertificateQuestion(sigma=0.25, samples=50), digits[1].subset(5)
    asked = ask(pair[0], images, question)
    assert asked.path == certify.certificates(pair[0], images, question).path
    assert np.array_equal(CertificateAnswer(asked.content).labels, images.labels)


def test_a_damaged_certificate_is_computed_again(pair, digits, tmp_path, capsys):
    shutil.copytree(pair[1].folder, tmp_path / "run", ignore=shutil.ignore_patterns("certificates"))
    question, images = CertificateQuestion(sigma=0.5, samples=20), digits[1].subset(2)
    first = certify.certificates(Run(tmp_path / "run"), images, question)
    first.path.write_text(first.path.read_text().replace('"hits": [', '"hits": [9, '))
    again = certify.certificates(Run(tmp_path / "run"), images, question)
    assert again.content["images"] == first.content["images"]
    assert "computed again" in capsys.readouterr().err


def test_a_run_is_not_held_against_itself(pair, digits):
    with pytest.raises(InputError, match="with itself"):
        certify.certify([pair[0], pair[0]], digits[1].subset(2), CertifyConfig(sigma=(0.5,), samples=20))
