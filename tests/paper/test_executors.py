"""Ray and submitit fill a ledger as one process does."""

import os
import signal
import threading
from contextlib import contextmanager, suppress
from pathlib import Path
from types import SimpleNamespace

import pytest
from benchmarks.faults.kills_of_several import descendants

from antiphase.config import InputError
from antiphase.paper import execute
from antiphase.paper.execute import Workplace
from antiphase.paper.executors import _outcome, check_installed, resources_of, run_cells
from antiphase.paper.ledger import Ledger
from tests.paper.small_cells import CELLS, TRAIN, answers


@pytest.fixture(scope="module")
def serial(tmp_path_factory):
    place = Workplace(Ledger(tmp_path_factory.mktemp("serial")), scale="smoke")
    execute.run(CELLS, place)
    return answers(place.ledger)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("executor", "settings"),
    [("submitit", {"workers": 2}), ("ray", {"address": "local", "resources": {"num_cpus": 1}})],
)
def test_an_executor_writes_the_rows_that_one_process_writes(executor, settings, serial, tmp_path):
    pytest.importorskip(executor)
    place = Workplace(Ledger(tmp_path / "ledger"), scale="smoke")
    outcome = run_cells(CELLS, place, executor=executor, **settings)
    assert (len(outcome.computed), outcome.failed, outcome.waiting) == (6, {}, [])
    assert answers(place.ledger) == serial
    if executor == "ray":
        assert set(run_cells(CELLS[:1], place, executor=executor, **settings).present) == {TRAIN.key, CELLS[0].key}


@contextmanager
def struck(words, sign, rows):
    """Meanwhile, between the first row and the last, one process of ours with these words in its command line gets a signal."""
    hit, over = [], threading.Event()

    def watch():
        while not over.wait(0.02):
            for pid in descendants(os.getpid()) if 0 < len(list(rows.glob("*.json"))) < 6 else ():
                with suppress(OSError):
                    if words in Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" "):
                        os.kill(pid, sign)
                        hit.append(pid)
                        return

    watching = threading.Thread(target=watch)
    watching.start()
    try:
        yield hit
    finally:
        over.set()
        watching.join()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("executor", "settings", "words", "sign"),
    [
        ("ray", {"address": "local", "resources": {"num_cpus": 1}}, b"ray::_cell_on_ray", signal.SIGKILL),
        ("submitit", {"workers": 1}, b"submitit.core._submit", signal.SIGUSR2),  # as at the end of a job's time
    ],
)
def test_a_worker_that_is_lost_or_out_of_time_is_replaced(executor, settings, words, sign, serial, tmp_path):
    pytest.importorskip(executor)
    ledger = Ledger(tmp_path / "ledger")
    with struck(words, sign, ledger.folder / "rows") as hit:
        outcome = run_cells(CELLS, Workplace(ledger, scale="smoke"), executor=executor, **settings)
    assert hit, "nothing was at work between the first row and the last"
    assert (outcome.failed, outcome.waiting) == ({}, [])
    assert answers(ledger) == serial


def test_what_a_ray_cluster_loses_is_a_failed_cell_and_a_refusal_a_sentence():
    ray = pytest.importorskip("ray")
    errors = ray.exceptions

    def outcome(error):
        def get(_):
            raise error

        return _outcome(SimpleNamespace(get=get, exceptions=errors), None, "key")

    for lost in (
        errors.WorkerCrashedError(),
        errors.NodeDiedError("the node died"),
        errors.OutOfMemoryError("too much"),
        errors.LocalRayletDiedError(),
        errors.RayTaskError("task", "the worker's words", errors.WorkerCrashedError()),
    ):
        (sentence,) = outcome(lost).failed.values()
        assert "the cluster lost it" in sentence
        assert "\n" not in sentence
    with pytest.raises(InputError, match="wrong data"):
        outcome(errors.RayTaskError("task", "the worker's words", InputError("wrong data")))
    with pytest.raises(errors.RayTaskError):  # a fault of ours stays visible
        outcome(errors.RayTaskError("task", "the worker's words", KeyError("key")))


def test_an_executor_that_is_not_installed_is_refused_with_the_remedy(cli, monkeypatch, tmp_path):
    monkeypatch.setattr("antiphase.paper.executors.find_spec", lambda _: None)
    for name in ("ray", "submitit"):
        code, _, error = cli("study", "run", "fig2a", "--executor", name, "--ledger", tmp_path / "ledger")
        assert code == 2
        assert f"pip install 'antiphase[{name}]'" in error
        assert not (tmp_path / "ledger").exists()
    check_installed("local")


def test_resources_are_numbers_where_they_can_be():
    named = resources_of(["num_gpus=0.5", "timeout_min=60", "slurm_partition=gpu"])
    assert named == {"num_gpus": 0.5, "timeout_min": 60, "slurm_partition": "gpu"}
    with pytest.raises(InputError, match="write name=value"):
        resources_of(["gpu"])
