"""Attacks that are kept with a run."""

import shutil

import pytest

from antiphase.attacks import PGD, Linf, engine
from antiphase.models.run import Run
from antiphase.results import attack


def test_an_interrupted_evaluation_goes_on_where_it_was(pair, digits, tmp_path, monkeypatch):
    shutil.copytree(pair[1].folder, tmp_path / "run", ignore=shutil.ignore_patterns("attacks", "measures"))
    monkeypatch.setattr(attack, "PART", 16)
    attacks, images = [PGD(within=Linf("12/255"), steps=5)], digits[1].subset(64)
    whole = attack.attack_answers(pair[1], images, attacks, protocol="fast")[0]
    real, calls = attack.engine.run, []

    def counted(*args, **kwargs):
        if len(calls) == 2:
            calls.append("pulled")
            raise KeyboardInterrupt
        calls.append(len(args[1]))
        return real(*args, **kwargs)

    monkeypatch.setattr(attack.engine, "run", counted)
    with pytest.raises(KeyboardInterrupt):
        attack.attack_answers(Run(tmp_path / "run"), images, attacks, protocol="fast")
    again = attack.attack_answers(Run(tmp_path / "run"), images, attacks, protocol="fast")[0]
    assert calls == [16, 16, "pulled", 16, 16, 32]  # what was left, and the look at a huge budget
    assert again.content["images"] == whole.content["images"]
    assert not list((tmp_path / "run" / "attacks").glob("*/"))  # nothing half-done is left


def test_a_kept_sweep_that_bisects_says_of_every_image_what_the_one_in_memory_says(pair, digits):
    images, budgets = digits[1].subset(48), ("48/255", "2/255", "16/255", "8/255", "32/255")
    attacks = [PGD(within=Linf(eps), steps=5) for eps in budgets]
    kept = attack.attack_answers(pair[1], images, attacks, protocol="bisect")
    batch = images.all
    in_memory = engine.sweep(
        pair[1].classifier_for(images), batch.pixels, batch.labels, attacks, ids=batch.ids, protocol="bisect"
    )
    for answer, result in zip(kept, in_memory):
        columns = answer.content["images"]
        assert columns["label"] == result.labels.tolist()
        assert columns["clean"] == result.clean_prediction.tolist()
        assert columns["adversarial"] == result.adversarial_prediction.tolist()
        assert columns["distance"] == result.distance.tolist()
        assert answer.fooled.tolist() == result.success.tolist()
    assert 0 < kept[0].fooled.sum() < kept[-1].fooled.sum()
    in_order = attack.attack_answers(pair[1], images, attacks, protocol="fast")
    spent = [sum(answer.content["forwards_per_image"] for answer in answers) for answers in (kept, in_order)]
    assert spent[0] < spent[1]
