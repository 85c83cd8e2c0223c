"""What README and docs show is what happens."""

import json
import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from antiphase import files
from antiphase.cli import COMMANDS
from tests.conftest import ROOT
from tests.doc_blocks import blocks, commands

COMPARISON = "runs/demo/comparison.json"


def reordered(words: list[str]) -> list[str]:
    """The same command with its flags in reverse order, positional arguments last."""
    program, command, *rest = words
    groups: list[list[str]] = [[]]
    for word in rest:
        if word.startswith("--"):
            groups.append([])
        groups[-1].append(word)
    positional, *flags = groups
    return [program, command, *(word for group in reversed(flags) for word in group), *positional]


@pytest.fixture(scope="module")
def demo(tmp_path_factory, shell):
    folder = tmp_path_factory.mktemp("demo")
    done = shell("demo", cwd=folder)
    assert done.returncode == 0, done.stderr
    return folder, done.stdout


def test_every_readme_command_runs_and_again_with_its_flags_in_another_order(
    cli, tmp_path, monkeypatch, data_root, demo
):
    """Beginning with the demo's runs, which `train` accepts as its own only if model, training and data are the same."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ANTIPHASE_DATA", str(data_root))
    Path("tests").symlink_to(ROOT / "tests")  # README speaks to somebody in the root of the clone
    for name in ("ViT", "DiffViT"):
        shutil.copytree(demo[0] / "runs/demo" / name, tmp_path / "runs" / name)
    ours = [words for words in commands("README.md") if words[0] == "antiphase"]
    assert {words[1] for words in ours} == set(COMMANDS) - {"demo"}
    for words in ours:
        code, out, err = cli(*words[1:])
        assert code == 0, err
        assert out
    for words in ours:
        code, again, err = cli(*reordered(words)[1:], "--json")
        assert code == 0, err
        assert again == cli(*words[1:], "--json")[1]
    steps, whole = (files.read_json(path) for path in (Path("runs/comparison/comparison.json"), demo[0] / COMPARISON))
    assert without_folders(steps) == without_folders(whole)  # seconds and all: no attack or measure was computed again
    assert "A stored result could not be read" not in Path("runs/report/index.html").read_text()


def without_folders(comparison: dict) -> dict:
    """A comparison without what the place and the scale that it was asked at add to it."""
    models = [{k: v for k, v in model.items() if k != "folder"} for model in comparison["models"]]
    return {k: v for k, v in comparison.items() if k != "scale"} | {"models": models}


@pytest.mark.parametrize(
    "page",
    [
        "README.md",
        *(f"docs/{name}.md" for name in ("index", "data", "attacks", "lens", "clip", "training", "certify", "scale")),
    ],
)
def test_every_python_block_runs(page, tmp_path):
    for body in blocks(page, "python"):
        done = subprocess.run([sys.executable, "-c", body], cwd=tmp_path, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stderr
        assert done.stdout


def test_the_python_example_is_about_ten_lines():
    (body,) = blocks("README.md", "python")
    assert len([line for line in body.splitlines() if line]) <= 10


def test_every_make_target_in_the_docs_exists():
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.M))
    for page in ("README.md", "CONTRIBUTING.md"):
        for words in commands(page):
            if words[0] == "make":
                assert words[1] in targets


def test_every_link_leads_somewhere():
    for page in [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md")]:
        for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


def test_the_demo_prints_what_the_readme_says(demo):
    """Line by line; the numbers are this machine's, so they are left out of the comparison."""
    _, printed = demo
    (shown,) = blocks("README.md", "text")

    def form(text: str) -> set[str]:
        return {re.sub(r"[-+]?\d[\d.]*(e-\d+)?", "#", " ".join(line.split())) for line in text.splitlines()}

    headline = "easier to fool than"
    assert form(shown.partition("\n- ")[0]) <= form(printed)
    assert headline in shown
    assert shown.strip().splitlines()[-1] == printed.strip().splitlines()[-1]


def test_the_demo_meets_its_promises(demo):
    folder, _ = demo
    comparison = json.loads((folder / COMPARISON).read_text())
    for side in comparison["models"]:
        assert side["test_accuracy"] > 0.90
        rates = [cell["rates"]["asr_correct"]["value"] for cell in side["attacks"]]
        assert rates[0] < 0.1
        assert rates[-1] > 0.9
    html = (folder / "runs/demo/report/index.html").read_text()
    assert all(f'id="{part}"' in html for part in ("headline", "attack-success", "lens-packed-1", "sensitivity"))
    assert len(html) < 6e6


def test_benchmark_page_is_what_the_results_say():
    from benchmarks.__main__ import PAGE, RESULTS, page, whole_runs
    from benchmarks.lines import LINES

    from antiphase import files

    records = files.read_json(RESULTS)
    assert PAGE.read_text() == page(records, whole_runs())
    measured = {r["name"] for r in records}
    assert [r["name"] for r in records] == [name for name in LINES if name in measured]
    for r in records:
        low, high = r["interval"]
        assert low <= r["ratio"] <= high
        assert r["pairs"] >= 30
        sign, goal = r["goal"].split()
        assert r["met"] == (high <= float(goal) if sign == "<=" else low >= float(goal))


# ------------------------------------------------------------------------------------------------- the wheel, away from here


@pytest.fixture(scope="session")
def wheel(tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("wheel")
    subprocess.run([sys.executable, "-m", "build", "--wheel", "--outdir", out, ROOT], check=True, capture_output=True)
    (built,) = out.glob("*.whl")
    return built


def test_the_wheel_carries_all_it_needs_and_nothing_else(wheel):
    names = zipfile.ZipFile(wheel).namelist()
    assert {f"antiphase/report/templates/{name}" for name in ("page.html", "page.css", "lens.js", "theme.js")} <= set(
        names
    )
    assert "antiphase/py.typed" in names
    assert not [n for n in names if n.startswith(("tests", "benchmarks", "docs"))]
    (metadata,) = [n for n in names if n.endswith("METADATA")]
    text = zipfile.ZipFile(wheel).read(metadata).decode()
    assert "Author: The antiphase authors" in text
    assert "License-Expression: MIT" in text


@pytest.mark.slow
def test_make_demo_works_on_a_fresh_clone(tmp_path):
    subprocess.run(["git", "clone", "--quiet", ROOT, tmp_path / "clone"], check=True)
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "ANTIPHASE", "VIRTUAL_ENV", "MAKE"))}
    for _ in range(2):  # and it is quick the second time
        done = subprocess.run(
            ["make", "demo"], cwd=tmp_path / "clone", env=clean, capture_output=True, text=True, timeout=1500
        )
        assert done.returncode == 0, done.stderr
    assert "pip" not in done.stdout
    assert (tmp_path / "clone/runs/demo/report/index.html").exists()


@pytest.mark.slow
@pytest.mark.alone
def test_the_demo_stays_under_three_minutes_beside_two_busy_processes(tmp_path):
    """As a user starts it, with no variable of OpenMP set."""
    spin = "import torch; torch.set_num_threads(1); a = torch.randn(512, 512)\nwhile True: a @ a"
    plain = {k: v for k, v in os.environ.items() if not k.startswith(("OMP_", "GOMP_"))}
    busy = [subprocess.Popen([sys.executable, "-c", spin]) for _ in range(2)]
    try:
        command = [sys.executable, "-m", "antiphase", "demo"]
        done = subprocess.run(command, cwd=tmp_path, env=plain, capture_output=True, text=True, timeout=180)
    finally:
        for process in busy:
            process.kill()
            process.wait()
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
def test_the_wheel_in_an_empty_venv_away_from_the_clone_runs_the_demo(wheel, tmp_path):
    subprocess.run([sys.executable, "-m", "venv", tmp_path / "venv"], check=True)
    python = tmp_path / "venv" / "bin" / "python"
    install = [python, "-m", "pip", "install", "--quiet", "--constraint", ROOT / "constraints.txt", wheel]
    subprocess.run(install, check=True, timeout=1500)
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "ANTIPHASE", "VIRTUAL_ENV"))}
    command = [tmp_path / "venv" / "bin" / "antiphase", "demo"]
    done = subprocess.run(command, cwd=tmp_path, env=clean, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "runs/demo/report/index.html").exists()
