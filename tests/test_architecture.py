"""The flow is the layout: a module imports only from its left."""

import ast
import pkgutil
import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

import antiphase
import antiphase.cli

SOURCE = Path(antiphase.__file__).parent
BELOW = [  # in this order too
    "config",
    "scales",
    "clip_scales",
    "console",
    "rates",
    "tables",
    "locks",
    "files",
    "store",
    "tensors",
    "runtime",
    "processes",
]
FLOW = [
    *BELOW,
    *(
        "data",
        "models",
        "attacks",
        "measures",
        "theory",
        "training",
        "evals",
        "results",
        "paper",
        "report",
        "cli",
        "api",
    ),
]


def _layer(module: str) -> str | None:
    parts = module.split(".")
    return parts[1] if parts[0] == "antiphase" and len(parts) > 1 else None


def _imports(path: Path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module == "antiphase":
            yield from (f"antiphase.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


def test_a_module_imports_only_from_its_left():
    for path in SOURCE.rglob("*.py"):
        own = path.relative_to(SOURCE).with_suffix("").parts[0]
        if own in ("__init__", "__main__"):
            continue
        for layer in filter(None, map(_layer, _imports(path))):
            assert FLOW.index(layer) <= FLOW.index(own), (
                f"{path.relative_to(SOURCE)} imports {layer}, which is to its right"
            )


def test_results_of_commands_do_not_need_the_papers_tables():
    for path in (SOURCE / "results").rglob("*.py"):
        assert "paper" not in map(_layer, _imports(path)), f"{path.name} imports paper"


def test_every_package_is_one_of_the_flow_and_every_folder_of_modules_is_a_package():
    packages = {path.parent.relative_to(SOURCE).parts[0] for path in SOURCE.rglob("*.py") if path.parent != SOURCE}
    assert packages <= set(FLOW) - set(BELOW)
    for folder in {path.parent for path in SOURCE.rglob("*.py")}:
        assert (folder / "__init__.py").exists(), f"{folder.relative_to(SOURCE)} has no __init__.py"


def test_no_module_is_a_drawer_for_anything():
    """A name such as utils does not say what is inside."""
    drawers = {"utils", "util", "helpers", "helper", "misc", "common", "tools"}
    assert not [path for path in SOURCE.rglob("*.py") if path.stem in drawers]


def test_no_test_file_imports_another():
    """What several test files need is in a conftest or in a module that is no test."""
    tests = Path(__file__).parent
    for path in tests.rglob("*.py"):
        for module in _imports(path):
            assert not re.match(r"tests\..*\btest_", module), f"{path.relative_to(tests)} imports {module}"


def test_every_folder_of_tests_is_named_after_a_package():
    folders = {path.parent.relative_to(Path(__file__).parent) for path in Path(__file__).parent.rglob("test_*.py")}
    packages = {path.parent.relative_to(SOURCE) for path in SOURCE.rglob("__init__.py")}
    assert folders <= packages


def test_every_module_has_a_place_in_the_flow():
    assert {m.name for m in pkgutil.iter_modules([str(SOURCE)])} - {"__main__"} <= set(FLOW)


def test_the_static_table_is_the_real_set_of_commands():
    modules = {m.name.replace("_", "-") for m in pkgutil.iter_modules(antiphase.cli.__path__)} - {
        "dispatch",
        "flags",
        "values",
    }
    assert modules == set(antiphase.cli.COMMANDS)
    for name in modules:
        module = import_module(f"antiphase.cli.{name.replace('-', '_')}")
        assert {"Command", "run", "show", "EXAMPLES"} <= set(vars(module))
        assert f"antiphase {name}" in module.EXAMPLES


HEAVY = {"torch", "timm", "sklearn", "open_clip", "matplotlib", "scipy"}
ASK = """
import contextlib, io, sys
from antiphase.cli import main
with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
    with contextlib.suppress(SystemExit):
        main(sys.argv[1:])
print(*sys.modules)
"""


@pytest.mark.parametrize(
    "words",
    ["--help", "train --help", "compare --help", "attack nowhere", "train --data cifra10", "eval nowhere --on mmvp"],
)
def test_help_and_refusals_load_nothing_heavy(words):
    done = subprocess.run([sys.executable, "-c", ASK, *words.split()], capture_output=True, text=True, check=True)
    assert not HEAVY & set(done.stdout.split())
