"""What several tests of the report share."""

from dataclasses import asdict, replace

import pytest

from antiphase.paper.study import TableRow


@pytest.fixture
def lines():
    """Two lines of a study as mappings: one measured, one not run yet."""
    measured = TableRow(
        label="ViT, eps 1/255",
        model="ViT",
        series="ViT",
        axis="eps",
        x=1.0,
        reading="asr_change",
        value=0.4321,
        interval=(0.39, 0.47),
        n=512,
        seeds=3,
        reference=0.41,
    )
    diffvit = {"label": "DiffViT, eps 1/255", "model": "DiffViT", "series": "DiffViT"}
    return [asdict(measured), asdict(replace(measured, **diffvit, value=None, note="not run yet"))]
