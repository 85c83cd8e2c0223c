"""The folder of a run: damage is named, another run is refused, nothing half-written stays."""

import dataclasses
import json

import pytest

from antiphase import files
from antiphase.config import InputError
from antiphase.files import held
from antiphase.models import ViTConfig
from antiphase.training import TrainConfig
from antiphase.training.loop import Diverged, train
from tests.training.small_vit import SHORT, SMALL


def test_a_finished_run_is_returned_as_it_is(digits, tmp_path):
    first = train(SMALL, SHORT, *digits, tmp_path / "run")
    stamp = (tmp_path / "run" / "checkpoint.json").stat().st_mtime_ns
    assert train(SMALL, SHORT, *digits, tmp_path / "run").weights_digest == first.weights_digest
    assert (tmp_path / "run" / "checkpoint.json").stat().st_mtime_ns == stamp


@pytest.mark.parametrize("harm", ["truncate", "alter", "remove"])
def test_a_damaged_checkpoint_is_named_and_refused(digits, tmp_path, harm):
    run = train(SMALL, TrainConfig(epochs=1), *digits, tmp_path / "run")
    (path,) = run.folder.glob("weights-*.safetensors")
    raw = path.read_bytes()
    if harm == "truncate":
        path.write_bytes(raw[: len(raw) // 2])
    elif harm == "alter":
        path.write_bytes(raw[:-1] + bytes([raw[-1] ^ 1]))
    else:
        path.unlink()
    with pytest.raises(InputError, match=path.name):
        run.classifier()


def test_a_folder_with_another_run_or_other_things_is_refused(digits, tmp_path):
    train(SMALL, TrainConfig(epochs=1), *digits, tmp_path / "run")
    with pytest.raises(InputError, match=r"training\.epochs is 1 there, 2 here"):
        train(SMALL, SHORT, *digits, tmp_path / "run")
    with pytest.raises(InputError, match=r"model\.width"):
        train(ViTConfig(patch=2, width=64, heads=4), TrainConfig(epochs=1), *digits, tmp_path / "run")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("all of it")
    with pytest.raises(InputError, match="not empty and not a run"):
        train(SMALL, SHORT, *digits, tmp_path / "mine")


def test_what_a_killed_process_left_half_written_is_swept_up(digits, tmp_path):
    run = train(SMALL, TrainConfig(epochs=1), *digits, tmp_path / "run")
    left = run.folder / ".weights-0.7.safetensors.abc.partial"
    left.write_bytes(b"half")
    train(SMALL, TrainConfig(epochs=1), *digits, tmp_path / "run")
    assert not left.exists()


def test_two_processes_do_not_train_in_one_folder(digits, tmp_path):
    with held(tmp_path / "run"), pytest.raises(InputError, match="another process is at work"):
        train(SMALL, SHORT, *digits, tmp_path / "run")


def test_another_architecture_cannot_be_fine_tuned(pair, digits, tmp_path):
    with pytest.raises(InputError, match="another architecture"):
        train(SMALL, TrainConfig(epochs=1, start_from=str(pair[1].folder)), *digits, tmp_path / "run")


def test_a_run_begun_before_a_setting_existed_goes_on(digits, tmp_path):
    """run.json of an earlier version lacks the fields that came later: they were at their defaults."""
    folder = tmp_path / "run"
    train(SMALL, SHORT, *digits, folder)
    about = json.loads((folder / "run.json").read_text())
    del about["training"]["keep_epochs"], about["digest"]
    (folder / "run.json").write_text(json.dumps(about))
    checkpoint = files.read_json(folder / "checkpoint.json")
    checkpoint["run"] = files.sha256(folder / "run.json")
    (folder / "checkpoint.json").write_text(json.dumps(checkpoint))
    assert train(SMALL, SHORT, *digits, folder).log[-1]["epoch"] == SHORT.epochs
    with pytest.raises(InputError, match=r"training\.lr is 0\.0005 there, 0\.1 here"):
        train(SMALL, dataclasses.replace(SHORT, lr=0.1), *digits, folder)


def test_a_folder_in_which_a_training_diverged_before_its_first_checkpoint_is_taken_over(digits, tmp_path):
    folder = tmp_path / "run"
    with pytest.raises(Diverged, match=r"lower --lr \(1e\+20 here\), in the same --out"):
        train(SMALL, TrainConfig(epochs=1, lr=1e20), *digits, folder)
    assert [path.name for path in folder.iterdir() if not path.name.startswith(".")] == ["run.json"]
    run = train(SMALL, TrainConfig(epochs=1), *digits, folder)
    assert run.about["training"]["lr"] == TrainConfig().lr
    assert run.weights_digest == train(SMALL, TrainConfig(epochs=1), *digits, tmp_path / "fresh").weights_digest
    with pytest.raises(InputError, match=r"training\.lr is 0\.0005 there, 1e\+20 here"):
        train(SMALL, TrainConfig(epochs=1, lr=1e20), *digits, folder)


@pytest.mark.parametrize("name", ["log.jsonl", "checkpoint.json", "weights-0.7.safetensors", "attacks/x.json"])
def test_a_folder_that_holds_anything_of_another_run_is_never_taken_over(digits, tmp_path, name):
    folder = tmp_path / "run"
    with pytest.raises(Diverged):
        train(SMALL, TrainConfig(epochs=1, lr=1e20), *digits, folder)
    (folder / name).parent.mkdir(exist_ok=True)
    (folder / name).touch()
    before = (folder / "run.json").read_bytes()
    with pytest.raises(InputError, match="holds another run"):
        train(SMALL, TrainConfig(epochs=1), *digits, folder)
    assert (folder / "run.json").read_bytes() == before


def test_a_model_made_elsewhere_has_no_checkpoint_and_is_not_taken_over(digits, tmp_path):
    from antiphase.models.open_model import run_of_module

    run = run_of_module(lambda x: x.flatten(1)[:, :10], tmp_path / "run", digits[1], "none")
    with pytest.raises(InputError, match="holds another run"):
        train(SMALL, TrainConfig(epochs=1), *digits, run.folder)
