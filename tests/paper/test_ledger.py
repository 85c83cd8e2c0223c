"""The ledger keeps what is finished, whatever happens to the processes that fill it."""

import errno
import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, replace

import pytest

from antiphase import files, locks, runtime, store
from antiphase.config import InputError, to_plain
from antiphase.files import Damaged, DiskFull
from antiphase.measures.questions import PredictionQuestion
from antiphase.models.config import ViTConfig
from antiphase.paper import execute
from antiphase.paper.execute import Workplace
from antiphase.paper.ledger import Ledger
from antiphase.paper.questions import Ask, Cell, Images, Train, ordered
from antiphase.training.config import TrainConfig


@dataclass(frozen=True, kw_only=True)
class Toy(Cell):
    """A cell that costs nothing: what it answers is in its config."""

    number: int
    after: Cell | None = None

    @property
    def title(self) -> str:
        return f"toy {self.number}"


@pytest.fixture
def place(tmp_path, monkeypatch):
    monkeypatch.setattr(execute, "operations", lambda _: 1.0)
    monkeypatch.setattr("antiphase.paper.cost.operations", lambda _: 1.0)
    monkeypatch.setattr("antiphase.paper.execute.data_fingerprints", lambda *_: {})
    return Workplace(Ledger(tmp_path / "ledger"))


def toys(n: int) -> list[Toy]:
    return [Toy(number=i) for i in range(n)]


def answered(cell: Cell, _: Workplace) -> dict:
    return {"square": cell.number**2}


def test_a_key_changes_with_every_value_and_not_with_a_new_field_at_its_default():
    training = TrainConfig(epochs=2)
    cell = Train(model=ViTConfig(), training=training, data="digits")
    assert cell.key == Train(model=ViTConfig(depth=1), training=TrainConfig(epochs=2), data="digits").key
    others = [
        replace(cell, data="cifar10"),
        replace(cell, training=replace(training, seed=1)),
        replace(cell, model=ViTConfig(depth=2)),
        replace(cell, start=cell),
    ]
    assert len({cell.key, *(other.key for other in others)}) == 5
    assert (
        Ask(of=cell, images=Images(data="digits"), question=PredictionQuestion()).key
        != Ask(of=others[0], images=Images(data="digits"), question=PredictionQuestion()).key
    )


def test_a_model_on_its_way_is_a_cell_that_the_whole_training_fills(tmp_path):
    whole = Train(
        model=ViTConfig(patch=4, width=16, heads=2),
        training=TrainConfig(epochs=2, keep_epochs=(1,)),
        data="digits",
        images=100,
    )
    early = replace(whole, after=1)
    asked = [Ask(of=of, images=Images(data="digits", n=20), question=PredictionQuestion()) for of in (early, whole)]
    assert early.needs == (whole,)
    assert early.title.endswith("after epoch 1, digits, seed 0")
    place = Workplace(Ledger(tmp_path / "ledger"))
    outcome = execute.run(asked, place)
    assert outcome.computed == [whole.key, early.key, asked[0].key, asked[1].key]
    half, full = (place.ledger.answer(place.ledger.row(cell)) for cell in (early, whole))
    assert (len(half["log"]), len(full["log"])) == (1, 2)
    assert half["weights_sha256"] != full["weights_sha256"]
    assert half["test_accuracy"] == full["log"][0]["test_accuracy"]


def test_a_row_made_under_other_defaults_is_refused(place):
    cell = Train(model=ViTConfig(), training=TrainConfig(), data="digits")
    config = to_plain(cell)
    config["training"]["lr"] = 1.0
    place.ledger.keep(cell, {"config": config, "answer": {}})
    with pytest.raises(Damaged, match="other defaults"):
        place.ledger.row(cell)


def test_what_is_needed_comes_first_and_once():
    base = Toy(number=0)
    late = Toy(number=2, after=Toy(number=1, after=base))
    assert [c.number for c in ordered([late, base])] == [0, 1, 2]


def test_run_does_only_what_is_missing(place):
    first = execute.run(toys(3), place, answer=answered)
    again = execute.run(toys(5), place, answer=answered)
    assert (len(first.computed), len(again.computed), len(again.present)) == (3, 2, 3)
    row = place.ledger.row(Toy(number=4))
    assert row["answer"] == {"square": 16}
    assert {"environment", "machine", "seeds", "data", "seconds"} <= set(row["provenance"])
    assert row["provenance"]["code"] == runtime.code_version()


def test_a_failing_cell_is_recorded_the_others_go_on_and_the_next_run_tries_again(place):
    def fragile(cell, _):
        if cell.number == 1:
            raise RuntimeError("the loss became nan")
        return answered(cell, _)

    cells = [*toys(3), Toy(number=7, after=Toy(number=1)), Toy(number=8, after=Toy(number=7, after=Toy(number=1)))]
    outcome = execute.run(cells, place, answer=fragile)
    assert len(outcome.computed) == 2
    assert list(outcome.failed.values()) == ["the loss became nan"]
    assert len(outcome.waiting) == 2
    kept = place.ledger.failure(Toy(number=1))
    assert kept["type"] == "RuntimeError"
    assert "fragile" in kept["traceback"]
    assert len(execute.run(cells, place, answer=answered).computed) == 3
    assert place.ledger.failure(Toy(number=1)) is None


def test_ctrl_c_leaves_what_is_finished_and_no_failure(place):
    def stopped(cell, _):
        if cell.number == 1:
            raise KeyboardInterrupt
        return answered(cell, _)

    with pytest.raises(KeyboardInterrupt):
        execute.run(toys(3), place, answer=stopped)
    assert place.ledger.failure(Toy(number=1)) is None
    with place.ledger.held(Toy(number=1)) as mine:
        assert mine
    assert len(execute.run(toys(3), place, answer=answered).computed) == 2


def test_an_answer_that_is_not_a_number_fails_its_cell_only(place):
    outcome = execute.run(toys(2), place, answer=lambda cell, _: {"x": float("nan") if cell.number else 1.0})
    assert len(outcome.failed) == 1
    assert len(outcome.computed) == 1


@pytest.mark.parametrize("damage", ["", '{"digest": 1', '{"row": {}}', "[]", "\udcff"])
def test_a_damaged_row_is_named_with_its_remedy_and_nothing_else_is_lost(place, damage):
    execute.run(toys(3), place, answer=answered)
    path = place.ledger.rows.path(toys(3)[1].key)
    before = {p: p.read_bytes() for p in path.parent.iterdir() if p != path}
    path.write_bytes(damage.encode("utf-8", "surrogateescape"))
    with pytest.raises(Damaged, match=rf"{path.name}.*move it away and run again"):
        execute.run(toys(3), place, answer=answered)
    assert {p: p.read_bytes() for p in path.parent.iterdir() if p != path} == before
    path.unlink()
    assert len(execute.run(toys(3), place, answer=answered).computed) == 1


def test_one_changed_digit_in_a_row_is_noticed(place):
    execute.run(toys(3), place, answer=answered)
    path = place.ledger.rows.path(toys(3)[2].key)
    path.write_text(path.read_text().replace('"square": 4', '"square": 5'))
    assert [sentence for sentence in place.ledger.damaged() if path.name in sentence and "digest" in sentence]


def test_a_text_that_was_checked_is_not_checked_again_and_any_other_text_is(place, monkeypatch):
    execute.run(toys(3), place, answer=answered)
    assert not place.ledger.damaged()  # reads and checks every row
    digested = []
    monkeypatch.setattr(store, "digest_of", lambda content: digested.append(content) or files.digest_of(content))
    again, path = Ledger(place.ledger.folder), place.ledger.rows.path(toys(3)[2].key)
    assert [again.row(cell)["answer"]["square"] for cell in toys(3)] == [0, 1, 4]
    assert digested == []
    path.write_text(path.read_text().replace('"square": 4', '"square": 5'))
    with pytest.raises(Damaged, match=f"{path.name}.*digest"):
        again.row(toys(3)[2])
    assert len(digested) == 1


def test_a_full_disk_is_named_and_what_was_written_stays(place, monkeypatch):
    execute.run(toys(2), place, answer=answered)
    workplace = files._workplace

    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(files, "_workplace", full)
    with pytest.raises(DiskFull, match=r"disk of .* is full"):
        execute.run(toys(4), place, answer=answered)
    monkeypatch.setattr(files, "_workplace", workplace)
    assert not place.ledger.damaged()
    assert len(execute.run(toys(4), place, answer=answered).computed) == 2

    def trainer(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(DiskFull):
        execute.run(toys(5), place, answer=trainer)
    assert not list((place.ledger.folder / "failed").glob("*"))


def test_a_ledger_is_about_one_copy_of_a_data_set(place):
    place.ledger.check_data("cifar10", "test", "abc")
    place.ledger.check_data("cifar10", "train", "def")
    place.ledger.check_data("cifar10", "test", "abc")
    with pytest.raises(InputError, match="not the one"):
        place.ledger.check_data("cifar10", "test", "xyz")


WORKER = """
import os, sys, time
from pathlib import Path
import antiphase.paper.cost as cost
from antiphase.paper import execute
from antiphase.paper.ledger import Ledger
from tests.paper.test_ledger import Toy, toys
execute.operations = cost.operations = lambda _: 1.0
execute.data_fingerprints = lambda *_: {}
folder = Path(sys.argv[1])
def slowly(cell, place):
    with (folder / "started").open("a") as file:
        file.write(f"{cell.number} {os.getpid()}\\n")
    time.sleep(0.02)
    return {"square": cell.number ** 2}
print("ready", flush=True)
execute.run(toys(60), execute.Workplace(Ledger(folder / "ledger")), answer=slowly)
"""


def worker(folder):
    return subprocess.Popen(
        [sys.executable, "-c", WORKER, str(folder)], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )


@pytest.mark.parametrize("kind", ["flock", pytest.param("lease", marks=pytest.mark.slow)])
def test_three_processes_one_of_them_killed_complete_every_cell_once(tmp_path, monkeypatch, kind):
    monkeypatch.setenv(locks.KIND, kind)
    monkeypatch.setenv(locks.SECONDS, "5")
    workers = [worker(tmp_path) for _ in range(3)]
    started = tmp_path / "started"
    deadline = time.monotonic() + 240
    while time.monotonic() < deadline:
        begun = [line.split() for line in started.read_text().splitlines()] if started.exists() else []
        if len(begun) > 10 and any(pid == str(workers[0].pid) for _, pid in begun):
            break
        time.sleep(0.01)
    os.kill(workers[0].pid, signal.SIGKILL)
    for process in workers:
        process.wait(timeout=300)
    ledger = Ledger(tmp_path / "ledger")
    answers = {row["config"]["number"]: row["answer"]["square"] for row in ledger.readable()}
    assert answers == {i: i**2 for i in range(60)}
    begun = [line.split()[0] for line in started.read_text().splitlines()]
    assert len(begun) <= 61  # only the cell in flight began twice
    assert not list((tmp_path / "ledger").rglob("*.partial")) or len(begun) == 61
    assert json.loads(ledger.rows.path(Toy(number=0).key).read_text())["digest"]
