"""Ray and submitit fill a ledger as one process does."""

from types import SimpleNamespace

import pytest
import torch

from antiphase.config import InputError
from antiphase.paper import execute
from antiphase.paper.execute import Workplace
from antiphase.paper.executors import _outcome, check_installed, resources_of, run_cells
from antiphase.paper.ledger import Ledger
from tests.paper.small_cells import CELLS, TRAIN, answers


@pytest.fixture(scope="module")
def serial(tmp_path_factory):
    """With one thread, as every worker has: their number changes the last bits."""
    place, threads = Workplace(Ledger(tmp_path_factory.mktemp("serial")), scale="smoke"), torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        execute.run(CELLS, place)
    finally:
        torch.set_num_threads(threads)
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
