"""The cells of a study on machines that another program hands out: tasks of a Ray cluster, or a Slurm array by submitit.

Both fill the same ledger as processes of this machine do (workers.py), so its folder must be one that every machine sees.
Ray and submitit are extras, imported only here and only when they are asked for.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from importlib.util import find_spec
from typing import Any, Literal

import torch

from antiphase import console
from antiphase.config import InputError
from antiphase.paper.execute import Outcome, Workplace, run
from antiphase.paper.ledger import Ledger
from antiphase.paper.questions import Cell, ordered
from antiphase.paper.workers import merged, run_on_workers, threads_of_each
from antiphase.runtime import pick_device

Executor = Literal["local", "ray", "submitit"]
RETRIES = 3  # of a task whose worker was lost
REQUEUED = 100  # times that a job of an array may run into its time limit; it goes on from the ledger


def check_installed(executor: Executor) -> None:
    """Refuse in a sentence what is not installed, before anything is computed."""
    if executor != "local" and find_spec(executor) is None:
        raise InputError(f"--executor {executor} needs {executor}: pip install 'antiphase[{executor}]'")


def resources_of(words: Sequence[str]) -> dict[str, int | float | str]:
    """name=value as the executor takes them: `num_gpus=1` of Ray, `slurm_partition=gpu` of submitit."""
    named: dict[str, int | float | str] = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not (name and equals and value):
            raise InputError(f"{word!r} is no resource: write name=value, such as num_gpus=1 or slurm_partition=gpu")
        for kind in (int, float, str):
            try:
                named[name] = kind(value)
                break
            except ValueError:
                continue
    return named


def run_cells(
    cells: Sequence[Cell],
    place: Workplace,
    absent: dict[str, str] | None = None,
    *,
    executor: Executor = "local",
    workers: int = 1,
    address: str | None = None,
    resources: Mapping[str, Any] | None = None,
) -> Outcome:
    """Do what is missing, by processes here, on a Ray cluster, or by so many jobs of an array."""
    if executor == "local":
        return run_on_workers(cells, place, absent, workers=workers)
    check_installed(executor)
    data_root = None if place.data_root is None else place.data_root.resolve()
    clips = {weights: folder.resolve() for weights, folder in place.user_clips.items()}
    everywhere = replace(
        place, ledger=Ledger(place.ledger.folder.resolve()), data_root=data_root, user_clips=clips, loaded={}
    )
    if executor == "ray":
        return _run_on_ray(cells, everywhere, absent or {}, address, dict(resources or {}))
    return _run_by_submitit(cells, everywhere, absent or {}, workers, dict(resources or {}))


# ------------------------------------------------------------------------------------------------- Ray


def _run_on_ray(
    cells: Sequence[Cell], place: Workplace, absent: dict[str, str], address: str | None, resources: dict[str, Any]
) -> Outcome:
    """A task for each cell that is missing, after those that it needs; a task whose worker is lost is tried again."""
    import ray

    plan = ordered(cells)
    todo = [cell for cell in plan if place.ledger.row(cell) is None]  # a damaged row is named before anything is done
    outcomes = [Outcome(present=[cell.key for cell in plan if place.ledger.has(cell)])]
    ours = not ray.is_initialized()
    if ours:
        try:
            ray.init(address=address, log_to_driver=True, logging_level="warning")
        except (ConnectionError, ValueError, RuntimeError) as error:
            raise InputError(f"no Ray cluster answers at {address}: {' '.join(str(error).split())}") from None
    try:
        try:
            task = ray.remote(_cell_on_ray).options(**{"num_cpus": 1, "max_retries": RETRIES, **resources})
        except (ValueError, TypeError) as error:
            raise InputError(f"--resources: {' '.join(str(error).split())}") from None
        shared, promised = ray.put((place, absent)), dict[str, Any]()
        threads = max(1, int(resources.get("num_cpus", 1)))
        for cell in todo:
            needed = [promised[need.key] for need in cell.needs if need.key in promised]
            promised[cell.key] = task.remote(cell, shared, threads, *needed)
        titles = {ref: cell.title for cell in todo for ref in [promised[cell.key]]}
        keys, waiting = {ref: key for key, ref in promised.items()}, list(promised.values())
        while waiting:
            (done, *_), waiting = ray.wait(waiting)
            outcomes.append(_outcome(ray, done, keys[done]))
            console.say(f"[{len(plan) - len(waiting)}/{len(plan)}] {titles[done]}")
    finally:
        if ours:
            ray.shutdown()
    return merged(outcomes)


def _cell_on_ray(cell: Cell, shared: tuple[Workplace, dict[str, str]], threads: int, *needed: Outcome) -> Outcome:
    """One cell, in a worker of the cluster; it waits for ever if what it needs has failed."""
    if any(outcome.failed or outcome.waiting for outcome in needed):
        return Outcome(waiting=[cell.key])
    torch.set_num_threads(threads)
    place, absent = shared
    outcome = run([cell], replace(place, device=pick_device(str(place.device))), absent, workers=2)
    failed = {key: why for key, why in outcome.failed.items() if key == cell.key}
    own = ([key for key in keys if key == cell.key] for keys in (outcome.computed, outcome.present, outcome.waiting))
    computed, present, waiting = own
    return Outcome(computed, present, failed, waiting)


def _outcome(ray: Any, ref: Any, key: str) -> Outcome:
    """What became of the task of a cell. One that the cluster lost has failed: a worker, its memory, its machine."""
    try:
        outcome: Outcome = ray.get(ref)
        return outcome
    except ray.exceptions.RayTaskError as error:
        if isinstance(error.cause, InputError):
            raise InputError(str(error.cause)) from None
        if not isinstance(error.cause, ray.exceptions.RayError):
            raise
        lost: Exception = error.cause  # of a task that this one needed
    except ray.exceptions.RayError as error:
        lost = error
    why = next(iter(str(lost).strip().splitlines()), "").rstrip(".")
    said = f"{type(lost).__name__}: {why}" if why else type(lost).__name__
    return Outcome(failed={key: f"the cluster lost it, after up to {RETRIES} more tries ({said}): see ray logs"})


# ------------------------------------------------------------------------------------------------- Slurm, by submitit


class ArrayJob:
    """One job of an array: takes cells that no other is at until none is left. At its time limit it is put in the queue again."""

    def __init__(self, cells: list[Cell], place: Workplace, absent: dict[str, str], workers: int, threads: int | None):
        self.cells, self.place, self.absent, self.workers, self.threads = cells, place, absent, workers, threads

    def __call__(self) -> Outcome | str:
        """What became of the cells, or the sentence by which they were refused."""
        if self.threads is not None:
            torch.set_num_threads(self.threads)
        try:
            place = replace(self.place, device=pick_device(str(self.place.device)))
            return run(self.cells, place, self.absent, workers=self.workers)
        except InputError as refusal:
            return str(refusal)

    def checkpoint(self) -> Any:
        """What submitit queues when the job is stopped: the same, which goes on from what is in the ledger."""
        from submitit.helpers import DelayedSubmission

        return DelayedSubmission(self)


def _run_by_submitit(
    cells: Sequence[Cell], place: Workplace, absent: dict[str, str], workers: int, resources: dict[str, Any]
) -> Outcome:
    """An array of so many jobs: of Slurm where it is installed, else processes of this machine."""
    import submitit

    folder = place.ledger.folder / "jobs"
    executor = submitit.AutoExecutor(folder=folder / "%j", slurm_max_num_timeout=REQUEUED)
    here = executor.cluster == "local"
    try:
        executor.update_parameters(**{"name": "antiphase", "timeout_min": 24 * 60, **resources})
    except (NameError, TypeError, ValueError) as error:
        raise InputError(f"--resources: {' '.join(str(error).split())}") from None
    job = ArrayJob(list(cells), place, absent, workers, threads_of_each(workers) if here else None)
    with executor.batch():
        jobs = [executor.submit(job) for _ in range(workers)]
    console.say(f"{workers} jobs, {jobs[0].job_id} and on; what they say is in {folder}")
    results = [_result(job, submitit) for job in jobs]
    if refusals := [result for result in results if isinstance(result, str)]:
        raise InputError(refusals[0])
    outcomes = [result for result in results if isinstance(result, Outcome)]
    if not outcomes:
        raise InputError(f"every job was lost: see {folder}; the same command goes on from what is in the ledger")
    return merged(outcomes)


def _result(job: Any, submitit: Any) -> Outcome | str | None:
    """None of a job that was lost."""
    try:
        result: Outcome | str = job.result()
        return result
    except submitit.core.utils.UncompletedJobError as error:
        console.say(f"job {job.job_id} was lost; the others do its cells ({str(error).splitlines()[0]})")
        return None
