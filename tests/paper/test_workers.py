"""Several processes fill a ledger as one does."""

import multiprocessing
import threading
import time

import pytest
import torch

from antiphase.paper import execute
from antiphase.paper.execute import Outcome, Workplace
from antiphase.paper.ledger import Ledger
from antiphase.paper.workers import _work, merged, run_on_workers, threads_of_each
from tests.paper.small_cells import CELLS, TRAIN, answers


@pytest.mark.slow
def test_two_workers_write_the_rows_that_one_process_writes(tmp_path):
    serial, shared = (Workplace(Ledger(tmp_path / name), scale="smoke") for name in ("serial", "shared"))
    execute.run(CELLS, serial)
    outcome = run_on_workers(CELLS, shared, workers=2)
    assert (len(outcome.computed), outcome.failed, outcome.waiting) == (6, {}, [])
    assert answers(shared.ledger) == answers(serial.ledger)
    threads = {row["provenance"]["environment"]["threads"] for row in shared.ledger.readable()}
    assert threads == {threads_of_each(2)}


def test_a_refusal_in_a_worker_is_told_as_one_sentence(tmp_path):
    place = Workplace(Ledger(tmp_path), scale="smoke")
    place.ledger.rows.folder.mkdir()
    place.ledger.rows.path(TRAIN.key).write_text("{}")
    ours, theirs = multiprocessing.Pipe(duplex=False)
    _work(theirs, CELLS, place, None, 2, torch.get_num_threads())
    assert "is damaged" in ours.recv()


def test_a_cell_that_fails_in_another_process_meanwhile_is_waited_for_and_not_tried_again(tmp_path):
    place = Workplace(Ledger(tmp_path))
    tried = []

    def fails(cell, _):
        tried.append(cell.key)
        raise RuntimeError("never works")

    with place.ledger.held(TRAIN) as mine:
        assert mine
        other = threading.Thread(target=lambda: outcomes.append(execute.run(CELLS[:1], place, answer=fails)))
        outcomes: list[Outcome] = []
        other.start()
        time.sleep(1.5)  # it looks, finds the cell held, and waits
        assert other.is_alive()
        place.ledger.fail(TRAIN, {"error": "the loss became nan", "began": "now"})
    other.join(timeout=60)
    assert outcomes[0].failed == {TRAIN.key: "the loss became nan"}
    assert outcomes[0].waiting == [CELLS[0].key]
    assert not tried
    assert execute.run(CELLS[:1], place, answer=fails).failed == {TRAIN.key: "never works"}  # the next run tries again


def test_the_outcome_of_several_workers_counts_every_cell_once():
    first = Outcome(computed=["a"], present=["b"], failed={"c": "why"}, waiting=["d"])
    second = Outcome(computed=["b"], present=["a"], failed={"c": "why"}, waiting=["d"])
    assert merged([first, second]) == Outcome(["a", "b"], [], {"c": "why"}, ["d"])


def test_workers_share_the_cores_unless_threads_are_given(monkeypatch):
    monkeypatch.setattr("os.sched_getaffinity", lambda _: set(range(8)), raising=False)
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    assert [threads_of_each(n) for n in (1, 3, 16)] == [8, 2, 1]
    monkeypatch.setenv("OMP_NUM_THREADS", "4")
    assert threads_of_each(3) == 4
