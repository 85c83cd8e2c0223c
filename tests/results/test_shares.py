"""Processes that torchrun started share the images, and answer as one process does."""

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from antiphase.measures.alignment import align
from antiphase.measures.cancellation import cancellation
from antiphase.measures.correlation import correlation
from antiphase.measures.lipschitz import l_sample
from antiphase.processes import GONE, World
from antiphase.results.shares import whole

TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m", "antiphase"]
ATTACK = ["--eps", "8/255", "--restarts", "2", "--steps", "20", "--protocol", "paper", "--images", "200", "--json"]


@pytest.mark.parametrize("n", [1, 5, 40, 300])
@pytest.mark.parametrize("size", [1, 2, 3])
def test_every_image_is_in_exactly_one_share(n, size):
    shares = World(0, size).shares(n, 128)
    assert np.array_equal(np.sort(np.concatenate(shares)), np.arange(n))
    assert max(map(len, shares)) - min(map(len, shares)) <= max(1, n // size)


MEASURES = {
    "lipschitz": partial(l_sample, draws=2, batch_size=8),
    "alignment": partial(align, probes=2, max_probes=8, batch_size=8),
    "cancellation": partial(cancellation, perturbations=("sign", "pgd"), batch_size=8),
    "correlation": partial(correlation, perturbations=("blur",), batch_size=8),
}


@pytest.mark.parametrize("name", MEASURES)
def test_shares_of_whole_batches_put_together_are_the_measure_of_all_images_to_the_bit(name, pair, digits):
    model, images = pair[1].classifier(), digits[1].subset(20)
    shares = World(0, 2).shares(len(images), 8)
    measured = MEASURES[name](model, images)
    parts = [MEASURES[name](model, images.take(share)) for share in shares]
    together = whole(parts, shares)
    assert [layer.summary() for layer in together] == [layer.summary() for layer in measured]
    for ours, theirs in zip(together, measured):
        assert json.dumps(ours.rows(images.ids)) == json.dumps(theirs.rows(images.ids))


def test_images_that_took_fewer_probes_than_those_of_another_share_have_nan_there():
    parts = [np.ones((2, 3, 4)), np.ones((1, 3, 8))]
    together = whole(parts, [np.array([0, 2]), np.array([1])])
    assert together.shape == (3, 3, 8)
    assert np.isnan(together[[0, 2], :, 4:]).all()
    assert (together[1] == 1).all()


def test_a_command_that_cannot_share_its_work_is_refused_under_torchrun(cli, monkeypatch, tmp_path):
    monkeypatch.setenv("WORLD_SIZE", "2")
    code, _, error = cli("study", "run", "fig2a", "--ledger", tmp_path)
    assert code == 2
    assert "torchrun started several: study run --workers 2" in error
    assert error.count("\n") == 1


def run(*words: object) -> dict:
    """By two processes."""
    done = subprocess.run([*TORCHRUN, *map(str, words)], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)  # one process speaks


def per_image(answer: dict) -> dict:
    """Of each image; passes also count what each process checks on its first images."""
    (cell,) = answer["cells"]
    return {name: column for name, column in cell["images"].items() if name not in ("forwards", "backwards")}


@pytest.fixture
def copies(pair, tmp_path):
    """The same run twice, with no answer kept."""
    for name in ("one", "two"):
        shutil.copytree(
            pair[1].folder, tmp_path / name, ignore=shutil.ignore_patterns("attacks", "measures", "predictions")
        )
    return tmp_path / "one", tmp_path / "two"


@pytest.mark.slow
def test_two_ranks_attack_and_measure_as_one_process_does(copies, cli):
    one, two = copies
    assert per_image(run("attack", two, *ATTACK)) == per_image(json.loads(cli("attack", one, *ATTACK)[1]))
    words = ["--measures", "lipschitz,alignment", "--draws", "2", "--probes", "2", "--images", "300", "--json"]
    shared, single = run("measure", two, *words), json.loads(cli("measure", one, *words)[1])
    for kind in ("lipschitz", "alignment"):
        (ours,), (theirs,) = shared[kind], single[kind]
        assert ours["environment"]["processes"] == 2
        for name in ("layers", "rows"):
            assert ours[name] == theirs[name], kind


def numbers_of(value, at=""):
    """Every number of a result by its place, without what differs between two runs of one command: clocks and passes."""
    if isinstance(value, dict):
        parts = [(key, one) for key, one in value.items() if not ABOUT_THE_RUN.search(key)]
    elif isinstance(value, list):
        parts = [(str(place), one) for place, one in enumerate(value)]
    else:
        return {at: value} if isinstance(value, int | float) else {}
    return {place: number for key, one in parts for place, number in numbers_of(one, f"{at}/{key}").items()}


ABOUT_THE_RUN = re.compile("seconds|began|environment|forwards|backwards")
DIGITS = ["--on", "digits", "--tasks", "probe,few-shot", "--images", "60", "--train-images", "60"]
FOG = ["--on", "corrupted", "--corruptions", "fog", "--severities", "1,3", "--images", "60"]
SHARED = {  # command, flags, numbers at least
    "eval of features": ("eval", DIGITS, 10),
    "eval under corruptions": ("eval", FOG, 10),
    "audit": ("audit", ["--quick", "--images", "32"], 500),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", SHARED)
def test_two_ranks_evaluate_and_audit_as_one_process_does(name, copies, cli, tmp_path, monkeypatch):
    """But for the last bits: with fewer than 128 images each, ranks measure in smaller batches (docs/scale.md)."""
    command, flags, least = SHARED[name]
    results = []
    for folder, started in zip(copies, (lambda *words: json.loads(cli(*words)[1]), run)):
        monkeypatch.setenv("ANTIPHASE_CACHE", str(tmp_path / f"{folder.name}-cache"))  # of features: none is shared
        out = ["--out", tmp_path / f"{folder.name}-out"] if command == "audit" else []
        results.append(numbers_of(started(command, folder, *flags, *out, "--json")))
    alone, shared = results
    assert len(alone) >= least
    assert shared == pytest.approx(alone, rel=1e-4, abs=1e-6, nan_ok=True)


def _rank(process: Path) -> str | None:
    try:
        words = (process / "environ").read_bytes().split(b"\0")
        command = (process / "cmdline").read_bytes()
    except OSError:
        return None
    ranks = [word[5:].decode() for word in words if word.startswith(b"RANK=")]
    return ranks[0] if ranks and b"antiphase" in command else None


def _ranks_of(launcher: int) -> dict[str, int]:
    """Process numbers by rank."""
    found = {}
    for process in (path for path in Path("/proc").iterdir() if path.name.isdecimal()):
        rank = _rank(process)
        if rank is not None and int((process / "stat").read_text().split(")")[1].split()[1]) == launcher:
            found[rank] = int(process.name)
    return found


@pytest.mark.slow
@pytest.mark.parametrize("victim", ["a rank", "torchrun"])
def test_what_is_killed_midway_leaves_nobody_waiting_and_costs_the_answer_nothing(victim, copies, cli):
    one, two = copies
    words = [
        "attack",
        str(two),
        *ATTACK,
        "--steps",
        "1000",
        "--images",
        "360",
    ]  # seconds are left when the first images end
    started = subprocess.Popen([*TORCHRUN, *words], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 120
    while not any(path.stat().st_size > 2000 for path in two.glob("attacks/*/part-1of2-*.journal*")):
        assert started.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.02)
    ranks = _ranks_of(started.pid)
    os.kill(ranks["1"] if victim == "a rank" else started.pid, signal.SIGKILL)
    assert started.wait(timeout=120) != 0
    deadline = time.monotonic() + 30
    while any(_rank(Path("/proc") / str(pid)) for pid in ranks.values()):
        assert time.monotonic() < deadline
        time.sleep(0.1)
    assert not list(two.glob("attacks/*.json"))  # no half answer
    assert per_image(run(*words)) == per_image(json.loads(cli("attack", one, *words[2:])[1]))


def test_a_process_whose_torchrun_is_gone_before_they_met_ends_at_once(pair):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    gone = {"WORLD_SIZE": "2", "RANK": "0", "LOCAL_RANK": "0", "TORCHELASTIC_USE_AGENT_STORE": "True"}
    environment = {**os.environ, **gone, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    argv = [sys.executable, "-m", "antiphase", "attack", str(pair[1].folder), *ATTACK]
    ended = subprocess.run(argv, env=environment, capture_output=True, text=True, timeout=60)
    assert ended.returncode == 2
    assert ended.stderr.strip().endswith(GONE)
