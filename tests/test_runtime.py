"""Every random number belongs to one example and does not depend on its neighbours."""

import os
import platform
import signal
import subprocess
import sys
import time
from importlib import metadata

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from antiphase import console, runtime


@settings(max_examples=50, deadline=None)
@given(st.lists(st.integers(0, 10**9), min_size=1, max_size=20, unique=True), st.integers(0, 2**40))
def test_a_stream_belongs_to_its_example(ids, seed):
    ids = np.array(ids)
    together = runtime.uniform((seed, "start", 0), ids, (3, 4))
    alone = np.concatenate([runtime.uniform((seed, "start", 0), ids[i : i + 1], (3, 4)) for i in range(len(ids))])
    assert np.array_equal(together, alone)
    assert not np.array_equal(together, runtime.uniform((seed, "start", 1), ids, (3, 4)))
    assert ((together >= 0) & (together < 1)).all()


def test_streams_are_uniform_normal_and_uncorrelated():
    from scipy.stats import kstest

    draws = runtime.uniform((0, "test"), np.arange(2000), (50,))
    assert kstest(draws.ravel(), "uniform").pvalue > 0.01
    assert kstest(runtime.normal((0, "test"), np.arange(2000), (50,)).ravel(), "norm").pvalue > 0.01
    assert abs(np.corrcoef(draws[:, 0], draws[:, 1])[0, 1]) < 0.07  # along a stream
    assert abs(np.corrcoef(draws[:-1].ravel(), draws[1:].ravel())[0, 1]) < 0.015  # between neighbours
    other = runtime.uniform((1, "test"), np.arange(2000), (50,))
    assert abs(np.corrcoef(draws.ravel(), other.ravel())[0, 1]) < 0.015  # between seeds


def test_without_a_terminal_progress_is_a_line_every_half_minute(capsys, monkeypatch):
    clock = iter(range(0, 10_000, 11))
    monkeypatch.setattr(console, "_said", [0.0])
    monkeypatch.setattr(console.time, "monotonic", lambda: next(clock))
    with console.progress("attack", 10) as advance:
        for _ in range(6):
            advance(1, "epoch 2")
    lines = capsys.readouterr().err.splitlines()
    assert lines == [
        "attack: 3 of 10, about 77 s left; epoch 2",
        "attack: 6 of 10, about 44 s left; epoch 2",
    ]


def test_steps_that_are_unequal_have_one_estimate_which_the_note_gives(capsys, monkeypatch):
    clock = iter(range(0, 10_000, 11))
    monkeypatch.setattr(console, "_said", [0.0])
    monkeypatch.setattr(console.time, "monotonic", lambda: next(clock))
    with console.progress("cells", 10, paced=False) as advance:
        for _ in range(3):
            advance(1, "about 8 min left")
    assert capsys.readouterr().err == "cells: 3 of 10, about 8 min left\n"


THREADS = """
import itertools, sys, torch
from antiphase import runtime
torch.set_num_threads(4)
others = itertools.cycle(map(int, sys.argv[1].split(",")))
runtime._others_at_work = lambda: next(others)
runtime.os.cpu_count = lambda: int(sys.argv[2])
for side in (32, 32, 8):
    runtime.use_threads_that_pay((1, side, side))
    print(torch.get_num_threads())
runtime.use_threads_of({"threads": 64})  # of another machine
print(torch.get_num_threads())
runtime.use_threads_of({"threads": 3})
runtime.use_threads_that_pay((1, 8, 8))
print(torch.get_num_threads())
"""


@pytest.mark.parametrize(
    ("asked", "others", "cores", "threads"),
    [
        ({}, "0", 4, "4 4 1 1 3"),
        ({}, "1", 4, "3 3 1 1 3"),
        ({}, "1", 8, "4 4 1 1 3"),  # torch takes no more than 4 here
        ({}, "9", 4, "1 1 1 1 3"),
        ({}, "0,9,0,0,0", 4, "4 4 1 1 3"),  # a moment's work of another
        ({"OMP_NUM_THREADS": "4"}, "9", 4, "4 4 4 4 4"),
    ],
)
def test_a_command_takes_the_cores_that_others_leave_and_a_number_that_was_asked_for_is_obeyed(
    asked, others, cores, threads
):
    """Images of 32 pixels twice and tiny ones, for which one thread is enough; then as many as a run was begun with."""
    plain = {name: value for name, value in os.environ.items() if name != "OMP_NUM_THREADS"}
    done = subprocess.run(
        [sys.executable, "-c", THREADS, others, str(cores)], env=plain | asked, capture_output=True, text=True
    )
    assert done.stdout.split() == threads.split(), done.stderr
    assert ("other processes are at work here" in done.stderr) == (not asked and threads[0] != "4")


FAULTS = """
import resource
import numpy as np
from antiphase.cli import keep_freed_memory
keep_freed_memory()
def page_faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(20):
        np.ones(400_000) + np.ones(400_000) + np.ones(400_000)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
page_faults()
print(page_faults())
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="the allocator is that of another C library")
@pytest.mark.parametrize(("asked", "kept"), [({}, True), ({"MALLOC_MMAP_THRESHOLD_": "100000"}, False)])
def test_a_command_does_not_give_the_memory_of_freed_arrays_back_unless_it_was_told_to(asked, kept):
    """Pages of arrays of 3 MB that are made and freed again and again: 800 each."""
    plain = {name: value for name, value in os.environ.items() if not name.startswith(("MALLOC_", "GLIBC_"))}
    done = subprocess.run([sys.executable, "-c", FAULTS], env=plain | asked, capture_output=True, text=True, check=True)
    assert (int(done.stdout) < 800) == kept


@pytest.mark.slow
@pytest.mark.alone
def test_a_process_that_works_beside_this_one_is_counted(monkeypatch):
    """More than one that is stopped."""

    def counted():
        return sorted(runtime._others_at_work() for _ in range(40) if not time.sleep(0.02))[20]

    monkeypatch.setattr(runtime.os, "sched_getaffinity", lambda _: set(range(os.cpu_count() or 1)))
    with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as busy:
        try:
            time.sleep(1)
            working = counted()
            busy.send_signal(signal.SIGSTOP)
            assert working > counted()
            busy.send_signal(signal.SIGCONT)
            monkeypatch.setattr(runtime.os, "sched_getaffinity", lambda _: {0})
            monkeypatch.setattr(runtime.os, "cpu_count", lambda: 64)
            assert runtime._others_at_work() == 0  # cores of one's own
        finally:
            busy.kill()


@pytest.fixture
def ticking(monkeypatch):
    """A clock that stands still but where it is told how long something takes."""
    now = [0.0]
    monkeypatch.setattr(console.time, "perf_counter", lambda: now[0])

    def work(clock: console.Clock, images: float, seconds: float) -> None:
        with clock.part(images):
            now[0] += seconds

    return work


def test_a_long_measurement_says_how_long_it_will_take_once_libraries_are_loaded(ticking, capsys):
    clock = console.Clock("probes", range(100), "the closed form", at_most=4)
    for seconds in (60, 3, 9):  # the first loads libraries, the third comes too late
        ticking(clock, 1, seconds)
    expected = "probes: about 5 min, at most 20 min for 100 images; cheaper: fewer images, or the closed form"
    assert capsys.readouterr().err.splitlines() == [expected]
    short = console.Clock("probes", range(100), "the closed form")
    for _ in range(2):
        ticking(short, 1, 0.5)
    assert not capsys.readouterr().err


def test_a_measurement_is_announced_with_its_controls_and_they_are_not_announced_again(ticking, capsys):
    with console.passes(3):
        for _ in range(3):
            clock = console.Clock("probes", range(100), "the closed form")
            for _ in range(2):
                ticking(clock, 1, 3)
    expected = "probes: about 15 min for 100 images with its controls; cheaper: fewer images, or the closed form"
    assert capsys.readouterr().err.splitlines() == [expected]


def test_rows_name_the_commit_of_the_code_that_computed_them(tmp_path, monkeypatch):
    code = tmp_path / "runtime.py"
    code.write_text("one = 1\n")
    monkeypatch.setattr(runtime, "__file__", str(code))
    version = runtime.code_version.__wrapped__
    installed = version()  # git does not know the file
    assert installed == metadata.version("antiphase")

    def git(*words):
        named = ("-c", "user.name=a", "-c", "user.email=a@example.org")
        return subprocess.run(["git", *named, *words], cwd=tmp_path, check=True, capture_output=True, text=True).stdout

    git("init")
    assert version() == installed  # nor does it in a repository that ignores it, as a virtual environment is ignored
    git("add", ".")
    git("commit", "--message", "first")
    assert version() == git("rev-parse", "--short=12", "HEAD").strip()
    code.write_text("one = 2\n")
    assert version() == git("rev-parse", "--short=12", "HEAD").strip() + "-dirty"
