"""What several tests of the report share."""

from dataclasses import asdict, replace

import pytest

from antiphase.paper.study import Line


@pytest.fixture
def lines():
    """Two lines of a study as mappings: one measured, one not run yet."""
    measured = Line(
        label="ViT, eps 1/255",
        reading="asr_change",
        value=0.4321,
        interval=(0.39, 0.47),
        n=512,
        seeds=3,
        reference=0.41,
    )
    return [asdict(measured), asdict(replace(measured, label="DiffViT, eps 1/255", value=None, note="not run yet"))]
