"""The code blocks of README and docs."""

import re
import shlex

from tests.conftest import ROOT

BLOCK = re.compile(r"^```(\w+)\n(.*?)^```", re.M | re.S)


def blocks(page: str, language: str) -> list[str]:
    """The blocks of a language on a page."""
    return [body for kind, body in BLOCK.findall((ROOT / page).read_text()) if kind == language]


def commands(page: str) -> list[list[str]]:
    """The commands of the bash blocks of a page, as lists of words."""
    lines = "".join(blocks(page, "bash")).replace("\\\n", " ").splitlines()
    return [shlex.split(line, comments=True) for line in lines if shlex.split(line, comments=True)]
