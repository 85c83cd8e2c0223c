"""What a command costs before it works, and whether the threads that it takes and the way it keeps memory pay."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from subprocess import PIPE
from tempfile import TemporaryDirectory

from benchmarks.bench_models import PAIR
from benchmarks.timing import Line, Measured, interleaved, timed

BUSY = "import torch; torch.set_num_threads(1); a = torch.randn(512, 512)\nwhile True: a @ a"
# for each line on its standard input, it trains for a second and says what a step took; threads and memory as of a command
STEPS = """
import sys, time
from antiphase.cli import environ_for_threads, keep_freed_memory
environ_for_threads()
keep_freed_memory()
import torch
from antiphase.data import load
from antiphase.models import Differential, ViTConfig
from antiphase.models.vit import build
from antiphase.runtime import use_threads_that_pay
from antiphase.training import TrainConfig
from antiphase.training.loop import Learner
from antiphase.training.tasks import CrossEntropy
data, width, images, depth = sys.argv[1], *map(int, sys.argv[2:])
batch = load(data, "train").subset(images).all
shape = tuple(batch.pixels.shape[1:])
use_threads_that_pay(shape)
patch = 2 if shape[-1] == 8 else 4
config = ViTConfig(depth=depth, patch=patch, width=width, heads=4, attention=(Differential(),))
model = build(config, shape=shape, classes=10)
learner = Learner(model.train(), TrainConfig(), CrossEntropy())
for _ in range(3):
    learner.update(batch, lr=1e-3)
print("ready", flush=True)
for _ in sys.stdin:
    began, steps = time.perf_counter(), 0
    while time.perf_counter() - began < 1:
        learner.update(batch, lr=1e-3)
        steps += 1
    print((time.perf_counter() - began) / steps, flush=True)
"""


def start_vs_imports(n: int) -> Measured:
    """(`antiphase attack RUN` on 8 images, which were never attacked) / (python -c "import torch, timm")."""
    with TemporaryDirectory() as folder:
        run = Path(folder) / "run"
        shutil.copytree(PAIR / "DiffViT", run, ignore=shutil.ignore_patterns("attacks"))
        words = ["attack", str(run), "--images", "8", "--eps", "1/255", "--steps", "5"]

        def attack() -> None:
            shutil.rmtree(run / "attacks", ignore_errors=True)
            _quiet([sys.executable, "-m", "antiphase", *words])

        imports = partial(_quiet, [sys.executable, "-c", "import torch, timm"])
        return Measured([a / b for a, b in interleaved(timed(attack), timed(imports), n, warm=1)])


def _quiet(command: list[str]) -> None:
    subprocess.run(command, check=True, capture_output=True)


def threads(data: str, width: int, busy: int, n: int) -> Measured:
    """(a step with the threads that a command takes) / (the quicker of one thread and all), beside so many busy processes."""
    with _busy(busy):
        return threads_of_several(data, width, 1, n)


def threads_of_several(data: str, width: int, processes: int, n: int) -> Measured:
    """The same of so many processes that run at once, all with the default, with one thread or with all: their mean step."""
    ratios = []
    with ExitStack() as stack:
        counts = {}, {"OMP_NUM_THREADS": "1"}, {"OMP_NUM_THREADS": str(os.cpu_count() or 1)}
        teams = [_team(stack, (data, width, 64, 1), count, processes) for count in counts]
        for team in teams:
            _step(team)  # to warm up
        for i in range(n):
            took = [_step(team) for team in teams[:: -1 if i % 2 else 1]]  # those that are not asked sleep
            default, one, every = took[:: -1 if i % 2 else 1]
            ratios.append(default / min(one, every))
    return Measured(ratios, {"cores": str(os.cpu_count())})


def kept_memory(depth: int, n: int) -> Measured:
    """(a step where the allocator works by glibc's defaults) / (one as a command has it), each in a process of its own."""
    one = {"OMP_NUM_THREADS": "1"}
    with ExitStack() as stack:
        plain, kept = (_team(stack, ("cifar10", 192, 128, depth), one | env, 1) for env in ({"GLIBC_TUNABLES": ""}, {}))
        return Measured([a / b for a, b in interleaved(partial(_step, plain), partial(_step, kept), n, warm=1)])


def _team(
    stack: ExitStack, trains: tuple[str, int, int, int], env: dict[str, str], processes: int
) -> list[subprocess.Popen[str]]:
    """Processes that are ready to train on this data at this width, batch and depth; threads and memory as of a command, but for
    what `env` says."""
    ours = ("OMP_", "GOMP_", "MALLOC_", "GLIBC_")
    env = {name: value for name, value in os.environ.items() if not name.startswith(ours)} | env
    command = [sys.executable, "-c", STEPS, *map(str, trains)]
    team = [
        stack.enter_context(subprocess.Popen(command, env=env, stdin=PIPE, stdout=PIPE, text=True))
        for _ in range(processes)
    ]
    for process in team:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n", "a training step failed"
    return team


def _step(team: list[subprocess.Popen[str]]) -> float:
    """Seconds of a step, the mean over processes that begin together."""
    for process in team:
        assert process.stdin is not None
        process.stdin.write("\n")
        process.stdin.flush()
    return sum(float(process.stdout.readline()) for process in team if process.stdout is not None) / len(team)


@contextmanager
def _busy(count: int) -> Iterator[None]:
    others = [subprocess.Popen([sys.executable, "-c", BUSY]) for _ in range(count)]
    try:
        yield
    finally:
        for other in others:
            other.kill()
            other.wait()


TRAINED = (("digits", 64), ("cifar10", 96))  # data and width
START_LINES = (
    {
        "start-vs-imports": Line(
            "time of `antiphase attack RUN` on 8 images / that of `import torch, timm` alone",
            "<= 1.20",
            start_vs_imports,
        ),
    }
    | {
        f"kept-memory-depth-{depth}": Line(
            "time of a training step (paper scale, depth "
            f"{depth}, batch 128, CIFAR-10) by glibc's own rules of when to give memory back / by those of a command",
            ">= 1.00",
            partial(kept_memory, depth),
        )
        for depth in (1, 4)
    }
    | {
        f"threads-{data}-beside-{busy}": Line(
            f"time of a training step on {data} (width {width}) with the threads that a command takes / with the better of one "
            f"thread and all, beside {busy} busy processes",
            "<= 1.50",
            partial(threads, data, width, busy),
            long=True,
        )
        for data, width in TRAINED
        for busy in (0, 2)
    }
    | {
        f"threads-{data}-two-at-once": Line(
            f"time of a training step on {data} (width {width}) in two processes at once, both with the threads that a command "
            "takes / the same, both with the better of one thread and all",
            "<= 1.50",
            partial(threads_of_several, data, width, 2),
            long=True,
        )
        for data, width in TRAINED
    }
)
