"""What commands refuse of a run folder: a missing, altered, broken or unfinished one."""

import json
import shutil

import pytest


def test_a_run_without_a_checkpoint_or_with_a_broken_one_is_refused(cli, runs, tmp_path):
    broken = tmp_path / "broken"
    shutil.copytree(runs[1], broken)
    (broken / "checkpoint.json").write_text("{")
    code, _, err = cli("attack", broken)
    assert code == 2
    assert "checkpoint.json is not valid JSON" in err
    for damage in ("{}", "[]", "null"):
        (broken / "checkpoint.json").write_text(damage)
        code, _, err = cli("attack", broken)
        assert code == 2
        assert "checkpoint.json has no entry" in err
    (broken / "checkpoint.json").unlink()
    code, _, err = cli("measure", broken)
    assert code == 2
    assert "no checkpoint" in err


def test_a_run_json_that_was_altered_is_refused(cli, runs, tmp_path):
    altered = tmp_path / "altered"
    shutil.copytree(runs[1], altered)
    text = (altered / "run.json").read_text()
    (altered / "run.json").write_text(text.replace('"lambda_init": 0.8', '"lambda_init": -2'))
    code, _, err = cli("attack", altered, "--eps", "4/255")
    assert code == 2
    assert "was altered" in err


def test_an_unfinished_run_is_refused(cli, digits, tmp_path, monkeypatch):
    from antiphase.models import ViTConfig
    from antiphase.training import TrainConfig, loop

    real = loop.save

    def once(*args):
        real(*args)
        raise KeyboardInterrupt

    monkeypatch.setattr(loop, "save", once)
    with pytest.raises(KeyboardInterrupt):
        loop.train(ViTConfig(patch=2, width=32, heads=4), TrainConfig(epochs=5), *digits, tmp_path / "half")
    code, _, err = cli("attack", tmp_path / "half")
    assert code == 2
    assert "is not finished (epoch 1)" in err


def test_runs_of_one_name_are_shown_with_their_folders(cli, runs, tmp_path):
    for folder, run in (("a", runs[0]), ("b", runs[1])):
        shutil.copytree(run, tmp_path / folder / "run")
    words = ("--images", "8", "--eps", "8/255,8/255", "--steps", "2", "--draws", "1", "--probes", "2", "--json")
    code, out, err = cli("compare", tmp_path / "a/run", tmp_path / "b/run", "--out", tmp_path / "c", *words)
    assert code == 0, err
    result = json.loads(out)
    assert [side["name"] for side in result["models"]] == [str(tmp_path / "a/run"), str(tmp_path / "b/run")]
    assert len(result["paired"]) == 1  # the same budget twice is one budget
    assert result["scale"] == "smoke"
