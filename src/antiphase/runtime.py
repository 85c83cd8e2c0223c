"""Where and how things run: device, versions, random streams that belong to an example, models put to rest and woken.

B batch, n the number of examples whose streams are drawn.
"""

from __future__ import annotations

import hashlib
import os
import platform
import subprocess
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from antiphase import console
from antiphase.config import InputError

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)


def pick_device(name: str = "auto") -> torch.device:
    """`auto` takes CUDA, then Apple's MPS, then the CPU; a named device must exist."""
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "mps" if torch.backends.mps.is_available() else "cpu"
    if name == "cuda" and "LOCAL_RANK" in os.environ:
        name = f"cuda:{os.environ['LOCAL_RANK']}"  # under torchrun every process has a device of its own
    try:
        device = torch.empty(0, device=name).device
        if device.type not in ("cpu", "cuda", "mps"):
            raise RuntimeError
        return device
    except (RuntimeError, AssertionError):
        raise InputError(f"device {name!r} is not available here; use --device cpu or auto") from None


_begun_with: list[int] = []  # threads of the run that this command goes on with
MOMENTS = 5  # at which it is counted who is at work: one alone may be anything
SMALL_SIDE = 16  # images up to this side make steps that one thread does as fast as two


def use_threads_that_pay(shape: tuple[int, ...]) -> None:
    """For a command on images of this shape: one thread where they are tiny, elsewhere torch's own number less those cores on
    which others are at work when it begins. Threads that share a step of a few milliseconds wait for each other, beside other
    jobs for many times as long. OMP_NUM_THREADS is obeyed."""
    if "OMP_NUM_THREADS" in os.environ or _begun_with:
        return
    own = _own_threads()
    if max(shape[-2:]) <= SMALL_SIDE:
        torch.set_num_threads(1)
    elif (free := _free_cores()) < torch.get_num_threads():
        torch.set_num_threads(free)
        console.say(
            f"other processes are at work here: this one takes {free} of {own} threads; set OMP_NUM_THREADS to choose"
        )


def use_threads_of(environment: Mapping[str, Any]) -> None:
    """Go on with as many threads as a run was begun with, for the bits of its weights; OMP_NUM_THREADS is obeyed."""
    threads = environment.get("threads")
    if "OMP_NUM_THREADS" not in os.environ and isinstance(threads, int) and 1 <= threads <= _own_threads():
        torch.set_num_threads(threads)
        _begun_with.append(threads)


@cache
def _own_threads() -> int:
    """Torch's own number, before anything was changed."""
    return torch.get_num_threads()


@cache
def _free_cores() -> int:
    """Cores less the threads of others that are at work or in line for one: at least 1, at most torch's own number of threads.

    It is at work itself meanwhile: two processes that begin at once and slept between their counts would not see each other.
    """
    counts, began = [], time.monotonic()
    for moment in range(MOMENTS):
        while time.monotonic() < began + moment / 100:
            pass
        counts.append(_others_at_work())
    return max(1, min(_own_threads(), (os.cpu_count() or 1) - sorted(counts)[MOMENTS // 2]))


def _others_at_work() -> int:
    """Threads on this machine that run or stand in line, but this one; 0 where the kernel does not say, and on cores of one's
    own, as in a Slurm job or a container with a quota: others are at work elsewhere."""
    quota = Path("/sys/fs/cgroup/cpu.max")
    try:
        if len(os.sched_getaffinity(0)) < (os.cpu_count() or 1):
            return 0
        if quota.exists() and not quota.read_text().startswith("max"):
            return 0
        return int(Path("/proc/loadavg").read_text().split()[3].partition("/")[0]) - 1
    except (AttributeError, OSError, ValueError, IndexError):
        return 0


def environment() -> dict[str, Any]:
    """What a result may depend on besides its config. A different thread count changes float32 bits."""
    packages = ("antiphase", "torch", "torchvision", "timm", "numpy")
    return {
        "python": platform.python_version(),
        "versions": {name: metadata.version(name) for name in packages},
        "threads": torch.get_num_threads(),
        "processes": int(os.environ.get("WORLD_SIZE", "1")),
        "machine": platform.machine(),
        "cpu_capability": torch.backends.cpu.get_cpu_capability(),
    }


@cache
def code_version() -> str:
    """The commit of the checkout that this package runs from, ending in `-dirty` where its files differ from it; the
    installed version where git does not know them."""
    package = Path(__file__).parent

    def git(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(["git", *words], cwd=package, capture_output=True, text=True, timeout=20)

    with suppress(OSError, subprocess.SubprocessError):
        if git("ls-files", "--error-unmatch", Path(__file__).name).returncode == 0:
            commit = git("rev-parse", "--short=12", "HEAD").stdout.strip()
            return f"{commit}-dirty" if git("status", "--porcelain", ".").stdout else commit
    return metadata.version("antiphase")


# ------------------------------------------------------------------------------------------------- random streams
def _mix(z: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """The finaliser of SplitMix64: a bijection of 64 bits in which every input bit moves every output bit."""
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


def _word(part: int | str) -> np.uint64:
    if isinstance(part, str):
        return np.uint64(int.from_bytes(hashlib.sha256(part.encode()).digest()[:8], "little"))
    return np.uint64(part % 2**64)


def bits(key: tuple[int | str, ...], ids: NDArray[np.int64], shape: tuple[int, ...]) -> NDArray[np.uint64]:
    """(n, *shape) random words; row i depends on `key` and `ids[i]` alone, never on its neighbours or their number."""
    with np.errstate(over="ignore"):
        state = np.zeros(1, np.uint64)
        for part in key:
            state = _mix(state + _GOLDEN + _word(part))
        rows = _mix(state + _GOLDEN + ids.astype(np.uint64) * _GOLDEN)  # (n,)
        count = np.arange(1, int(np.prod(shape)) + 1, dtype=np.uint64)
        return _mix(_mix(rows[:, None] + count * _GOLDEN)).reshape(len(ids), *shape)


def uniform(key: tuple[int | str, ...], ids: NDArray[np.int64], shape: tuple[int, ...]) -> NDArray[np.float64]:
    """Uniform on [0,1), from the example's own stream. Drawn in float64: cast afterwards, so that every dtype agrees."""
    return (bits(key, ids, shape) >> np.uint64(11)).astype(np.float64) * 2.0**-53


def normal(key: tuple[int | str, ...], ids: NDArray[np.int64], shape: tuple[int, ...]) -> NDArray[np.float64]:
    """Standard normal, from the example's own stream."""
    from scipy.special import ndtri  # a tenth of a second, which few commands need

    half_a_step = 2.0**-54  # keeps the argument inside (0,1)
    draws: NDArray[np.float64] = ndtri(uniform(key, ids, shape) + half_a_step)
    return draws


def seed_word(*key: int | str) -> int:
    """One non-negative 63-bit seed for a library that wants a single number."""
    return int(bits(key, np.zeros(1, np.int64), (1,))[0, 0] >> np.uint64(1))


@contextmanager
def seeded(*key: int | str) -> Iterator[None]:
    """torch's global generator under a key, for code that draws from it; put back afterwards."""
    with torch.random.fork_rng(devices=range(torch.cuda.device_count())):
        torch.manual_seed(seed_word(*key))
        yield


# ------------------------------------------------------------------------------------------------- models at rest
@contextmanager
def frozen(model: nn.Module) -> Iterator[None]:
    """Inside: eval mode and no parameter gradients. After: every submodule's mode and every flag as it was."""
    modes = {module: module.training for module in model.modules()}
    wanted = {parameter: parameter.requires_grad for parameter in model.parameters()}
    model.eval()
    for parameter in wanted:
        parameter.requires_grad_(False)
    try:
        yield
    finally:
        for module, mode in modes.items():
            module.training = mode
        for parameter, wants in wanted.items():
            parameter.requires_grad_(wants)


@contextmanager
def at_rest(classifier: nn.Module) -> Iterator[None]:
    """`frozen`, and no graph is built: how measures look at a model."""
    with frozen(classifier), torch.no_grad():
        yield


# ------------------------------------------------------------------------------------------------- forward mode
def jvp(f: Callable[[Tensor], Any], x: Tensor, v: Tensor) -> Any:
    """The derivative of f at x in the direction v, by forward mode: a tensor, or tensors in the form in which f returns them."""
    _load_forward_mode()
    return torch.func.jvp(f, (x,), (v,))[1]


@cache
def _load_forward_mode() -> None:
    """Torch loads its forward mode when it is first used, and warns meanwhile that it uses torch.jit.script itself."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        torch.func.jvp(torch.sin, (torch.zeros(1),), (torch.ones(1),))
