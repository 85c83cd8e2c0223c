"""What several tests of the report share."""

from dataclasses import asdict, replace

import pytest

from antiphase.paper.catalog import studies
from antiphase.paper.grid import Grid
from antiphase.paper.study import TableRow
from antiphase.report.figures.over_training import OVER_TRAINING


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


def invented_value(line, place):
    """A number of the size that the line could have, for tests of the layout alone."""
    if "quantile" in line.reading:
        return 0.2 + 0.6 * float(line.reading.rsplit(" ", 1)[1])
    if line.label.tick is not None and line.label.tick.axis == "L2 radius":
        return min(1.0, line.label.tick.x)
    return 0.4 + 0.05 * (place % 7) + 0.1 * line.label.model.startswith("Diff")


@pytest.fixture(scope="session")
def invented_tables():
    """scale -> the tables of the studies that have a figure or table of their own, with invented numbers; nothing is run."""

    def tables(scale):
        grid = Grid.at(scale)
        made = []
        for name, study in studies().items():
            if (name.startswith(("table", "fig")) and name != "fig1") or name == OVER_TRAINING.name:
                rows = []
                for place, line in enumerate(study.lines(grid)):
                    value, images = invented_value(line, place), None if line.reading.startswith("lambda") else 512
                    interval = None if images is None else (max(0.0, value - 0.03), min(1.0, value + 0.03))
                    rows.append(asdict(line.row(value=value, interval=interval, n=images, seeds=3)))
                made.append({"name": name, "title": study.titled(grid), "scale": scale, "lines": rows})
        return made

    return tables
