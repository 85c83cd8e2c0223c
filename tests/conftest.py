"""Real things to test on: the data beside the checkout, a pair trained on digits, the command line, a browser."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from antiphase.cli import main
from antiphase.data import load
from antiphase.models import Differential, Softmax, ViTConfig
from antiphase.training import TrainConfig

ROOT = Path(__file__).parents[1]


def _missing(what: str) -> None:
    if os.environ.get("CI"):
        pytest.fail(f"{what}: in CI this must not be missing")
    pytest.skip(what)


@pytest.fixture(scope="session")
def data_root() -> Path:
    """Folder with the real data sets; see docs/data.md for its layout."""
    given = os.environ.get("ANTIPHASE_DATA")
    if not given or not Path(given).is_dir():
        _missing("set ANTIPHASE_DATA to a folder with cifar10, coco, ... to run the tests on real data")
    return Path(str(given))


@pytest.fixture(scope="session")
def fixtures() -> Path:
    """Small checkpoints in the published container, and what the DiffCLIP authors' own code returned for them."""
    return ROOT / "tests" / "fixtures"


@pytest.fixture(scope="session", autouse=True)
def own_cache(tmp_path_factory) -> None:
    """Decoded copies of data sets go to a folder of this test run, never to the user's."""
    os.environ["ANTIPHASE_CACHE"] = str(tmp_path_factory.mktemp("cache"))


@pytest.fixture(scope="session")
def digits():
    return load("digits", "train"), load("digits", "test")


@pytest.fixture(scope="session")
def pair(tmp_path_factory, digits):
    """A ViT and its twin, trained on digits to about 90 %."""
    from antiphase.training.loop import train

    folder = tmp_path_factory.mktemp("pair")
    training = TrainConfig(epochs=40, batch_size=64)
    return tuple(
        train(
            ViTConfig(patch=2, width=64, heads=4, attention=(attention,), init="matched"),
            training,
            *digits,
            folder / name,
        )
        for name, attention in (("ViT", Softmax()), ("DiffViT", Differential()))
    )


@pytest.fixture
def cli(capsys):
    """The command line in this process: cli("train", "--out", ...) -> (exit code, stdout, stderr)."""

    def call(*words: object) -> tuple[int, str, str]:
        capsys.readouterr()
        try:
            code = main([str(w) for w in words])
        except SystemExit as stop:  # --help
            code = int(stop.code or 0)
        out = capsys.readouterr()
        return code, out.out, out.err

    return call


@pytest.fixture(scope="session")
def shell():
    """The command line as a process of its own."""

    def call(*words: object, **kwargs) -> subprocess.CompletedProcess[str]:
        argv = [sys.executable, "-m", "antiphase", *map(str, words)]
        return subprocess.run(argv, capture_output=True, text=True, timeout=600, **kwargs)

    return call


@pytest.fixture(scope="session")
def browser():
    """A headless browser: browser(page, "--dump-dom") -> what it printed."""
    found = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if not found:
        _missing("no Chromium on this machine to look at the page with")

    def call(page: Path, *flags: str, profile: Path) -> str:
        quiet = "--headless --no-sandbox --disable-gpu --no-first-run --disable-background-networking --disable-sync"
        argv = [str(found), *quiet.split(), f"--user-data-dir={profile}", *flags, page.resolve().as_uri()]
        return subprocess.run(argv, capture_output=True, text=True, timeout=120, check=True).stdout

    return call
