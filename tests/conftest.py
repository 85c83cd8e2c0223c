"""Real things to test on: the data beside the checkout, a pair of digits and its comparison, the command line, a browser."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from antiphase.cli import main
from antiphase.data import load
from antiphase.models import Differential, Softmax, ViTConfig
from antiphase.training import TrainConfig

ROOT = Path(__file__).parents[1]
# kB that a process of its own has held at most, as Python for a script; getrusage would begin with what its parent held
HIGH_WATER = "next(int(line.split()[1]) for line in open('/proc/self/status') if line.startswith('VmHWM'))"


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


@pytest.fixture(scope="session", autouse=True)
def one_thread() -> None:
    """In tests and in the commands that they run: a number that depended on who else is at work would change the last bits."""
    import torch

    os.environ["OMP_NUM_THREADS"] = "1"
    torch.set_num_threads(1)


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

    def call(*words: object, timeout: float = 600, **kwargs) -> subprocess.CompletedProcess[str]:
        argv = [sys.executable, "-m", "antiphase", *map(str, words)]
        return subprocess.run(argv, capture_output=True, text=True, timeout=timeout, **kwargs)

    return call


@pytest.fixture(scope="session")
def comparison(pair, digits):
    """Both models of the pair attacked and measured on the same 120 digits, with looks at 8 of them."""
    from antiphase.config import Budget
    from antiphase.results.compare import compare
    from antiphase.results.questions import CompareConfig

    eps = tuple(Budget(f"{e}/255") for e in (4, 12, 24, 48))
    settings = CompareConfig(eps=eps, steps=10, restarts=2, draws=8, probes=8, measure_images=32, accuracy_floor=0.5)
    return compare(pair, digits[1].subset(120), settings)


@pytest.fixture(scope="session")
def page(comparison, tmp_path_factory) -> Path:
    """Its report."""
    from antiphase.report.page import write_page
    from antiphase.report.pages.comparison import comparison_page

    return write_page(comparison_page(comparison), tmp_path_factory.mktemp("page"))


@pytest.fixture(scope="session")
def chromium():
    """A real browser, driven by Playwright."""
    found = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if not found:
        _missing("no Chromium on this machine to look at the page with: apt-get install chromium fonts-dejavu")
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        _missing("Playwright is not installed: pip install -e '.[dev]'")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=found, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture
def visit(chromium):
    """visit(page, width=1280, scheme="dark") -> the page in a browser; a message on its console, an error or a request to
    anywhere but the file itself fails the test."""
    contexts, troubles = [], []

    def call(page: Path, fragment: str = "", width: int = 1280, height: int = 900, scheme: str = "light", **settings):
        context = chromium.new_context(viewport={"width": width, "height": height}, color_scheme=scheme, **settings)
        contexts.append(context)
        seen = context.new_page()
        seen.on("console", lambda message: troubles.append(f"console: {message.text}"))
        seen.on("pageerror", lambda error: troubles.append(f"error: {error}"))
        own = page.resolve().as_uri()
        seen.on("request", lambda r: None if r.url.split("#")[0] == own else troubles.append(f"request: {r.url}"))
        seen.goto(own + fragment)
        if seen.locator("#lens-root").count():
            seen.wait_for_selector("#lens-root[data-ready]")
        return seen

    yield call
    for context in contexts:
        context.close()
    assert not troubles


@pytest.fixture(scope="session")
def axe():
    import axe_playwright_python  # the script only; nothing of it is in the page

    return (Path(axe_playwright_python.__file__).parent / "axe.min.js").read_text()


def violations(seen, axe):
    """What axe holds against a page: its rules and the first place of each."""
    seen.evaluate(axe)
    found = seen.evaluate("axe.run()")["violations"]
    return [f"{v['id']}: {v['nodes'][0]['html'][:120]}" for v in found]


class Pulled(Exception):
    """The plug was pulled."""


@pytest.fixture
def pull_the_plug(monkeypatch) -> Callable[..., None]:
    """Do something that keeps checkpoints, and stop it dead when it has kept more than so many."""

    def pull(action: Callable[[], object], *, after: int) -> None:
        from antiphase.training import loop

        real, budget = loop.save, iter(range(after))

        def save_then_stop(*args) -> None:
            real(*args)
            if next(budget, None) is None:
                raise Pulled

        with monkeypatch.context() as patch:
            patch.setattr(loop, "save", save_then_stop)
            with pytest.raises(Pulled):
                action()

    return pull
