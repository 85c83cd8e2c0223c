"""The trained pair, as words of a command line."""

import pytest


@pytest.fixture(scope="module")
def runs(pair):
    return [str(run.folder) for run in pair]
