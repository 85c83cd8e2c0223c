"""A small CLIP with random weights, as a run."""

import pytest

from antiphase.models.run import Run
from tests.evals.small_models import clip_run


@pytest.fixture(scope="module")
def clip(tmp_path_factory) -> Run:
    return clip_run(tmp_path_factory.mktemp("clip"))
