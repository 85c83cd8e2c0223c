"""Attacks that are kept with a run."""

import shutil

import pytest


def test_an_interrupted_evaluation_goes_on_where_it_was(pair, digits, tmp_path, monkeypatch):
    from antiphase.attacks import PGD, Linf
    from antiphase.models.run import Run
    from antiphase.results import attack

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
