"""The one log read by a callback, and written for TensorBoard; a training as a file."""

import json
import sys
from pathlib import Path

import pytest
import yaml

from antiphase.config import InputError
from antiphase.models import Differential, Softmax, ViTConfig
from antiphase.models.run import Run
from antiphase.training import TrainConfig
from antiphase.training.loop import train
from antiphase.training.tensorboard import FOLDER, scalars, tensorboard_log
from tests.doc_blocks import blocks

DOCS = Path(__file__).parents[2] / "docs"
TINY = ViTConfig(patch=4, width=16, heads=2, attention=(Differential(),))


@pytest.fixture(scope="module")
def few(digits):
    return digits[0].subset(40), digits[1].subset(20)


def test_a_callback_gets_the_lines_of_the_log_and_cannot_change_them(few, tmp_path):
    records = []

    def keep(record):
        assert (tmp_path / "run" / "checkpoint.json").exists()
        records.append(json.loads(json.dumps(record)))
        record["loss"] = None

    run = train(TINY, TrainConfig(epochs=3), *few, tmp_path / "run", on_epoch=keep)
    assert records == run.log
    train(TINY, TrainConfig(epochs=3), *few, tmp_path / "run", on_epoch=keep)  # finished: nothing to do
    assert len(records) == 3


def test_what_a_callback_stops_goes_on_after_the_epoch_that_is_done(few, tmp_path):
    def stop(_):
        raise ZeroDivisionError

    whole = train(TINY, TrainConfig(epochs=2), *few, tmp_path / "whole")
    with pytest.raises(ZeroDivisionError):
        train(TINY, TrainConfig(epochs=2), *few, tmp_path / "run", on_epoch=stop)
    rest = []
    run = train(TINY, TrainConfig(epochs=2), *few, tmp_path / "run", on_epoch=rest.append)
    assert [record["epoch"] for record in rest] == [2]
    assert run.weights_digest == whole.weights_digest


def test_the_numbers_of_a_record_are_named_by_their_place():
    row = {"epoch": 3, "loss": 0.5, "lambda": {"blocks.0.attn": 0.8}, "best": None, "note": "x", "done": True}
    assert dict(scalars(row)) == {"loss": 0.5, "lambda/blocks.0.attn": 0.8}


def test_without_tensorboardx_the_flag_is_refused_before_anything_is_written(cli, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "tensorboardX", None)
    for command in ("train", "train-clip"):
        code, _, err = cli(command, "--out", tmp_path / "run", "--tensorboard")
        assert code == 2
        assert "pip install 'antiphase[tensorboard]'" in err
    assert not (tmp_path / "run").exists()
    with pytest.raises(InputError), tensorboard_log(tmp_path):
        pass


def test_every_number_of_the_log_is_in_the_event_file_once(few, tmp_path):
    pytest.importorskip("tensorboardX")
    from tensorboardX.proto.event_pb2 import Event

    folder, config = tmp_path / "run", TrainConfig(epochs=3)

    def stop(_):
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        train(TINY, config, *few, folder, on_epoch=stop)
    for _ in range(2):  # resumed, then finished
        with tensorboard_log(folder) as write:
            run = train(TINY, config, *few, folder, on_epoch=write)
        (file,) = (folder / FOLDER).glob("events.out.tfevents.*")
        written = sorted(_scalars(file.read_bytes(), Event))
        wanted = sorted((row["epoch"], name, value) for row in run.log for name, value in scalars(row))
        assert [w[:2] for w in written] == [w[:2] for w in wanted]
        assert [w[2] for w in written] == pytest.approx([w[2] for w in wanted], rel=1e-6)


def _scalars(data, event):
    """The records of an event file: length (8 bytes), its checksum (4), the event, its checksum (4)."""
    place = 0
    while place < len(data):
        length = int.from_bytes(data[place : place + 8], "little")
        one = event.FromString(data[place + 12 : place + 12 + length])
        for value in one.summary.value:
            yield one.step, value.tag, value.simple_value
        place += 16 + length


def test_the_page_shows_the_example_file():
    (block,) = blocks("docs/training.md", "yaml")
    assert yaml.safe_load(block) == yaml.safe_load((DOCS / "run.yaml").read_text())


def test_the_example_of_a_config_file_runs_and_flags_win_over_it(cli, tmp_path):
    words = ("--config", DOCS / "run.yaml", "--epochs", "1", "--train-images", "64", "--json")
    code, out, err = cli("train", "--out", tmp_path / "run", *words)
    assert code == 0, err
    about, file = Run(tmp_path / "run").about, yaml.safe_load((DOCS / "run.yaml").read_text())
    assert Run(tmp_path / "run").config.attention == (Softmax(), Differential(lambda_init=0.5))
    assert about["training"]["epochs"] == 1
    assert len(json.loads(out)["log"]) == 1
    for section in ("model", "training"):
        for name, value in file[section].items():
            if name not in ("attention", "epochs"):
                assert about[section][name] == value
