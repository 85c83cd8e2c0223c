"""A slice of `make calibrate`: intervals cover, and the page says what was simulated."""

import pytest
from benchmarks.calibrate import (
    COVERED,
    PAGE,
    RESULTS,
    SIMULATIONS,
    WORLDS,
    coverage,
    coverage_cells,
    page,
    verdict_cells,
)

from antiphase import files


@pytest.mark.parametrize(
    "cell", [(0.0, 200, 3, 0.1), (0.03, 512, 3, 0.5), (0.05, 1_000, 3, 0.95), (0.03, 512, 10, 0.5)]
)
def test_nominal_95_percent_covers(cell):
    assert COVERED[0] - 0.02 <= coverage(*cell, simulations=1_500) <= COVERED[1] + 0.01


def test_the_page_of_statistics_is_what_the_simulations_gave():
    kept = files.read_json(RESULTS)
    assert PAGE.read_text() == page(kept)
    assert len(kept["coverage"]) == len(coverage_cells()) == 144
    assert SIMULATIONS >= 10_000
    for scale, cells in kept["verdicts"].items():
        assert all(sum(outcomes.values()) >= WORLDS for outcomes in cells.values())
        assert set(cells) == set(verdict_cells(scale))
