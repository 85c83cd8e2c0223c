"""Rows of a measure say the same, kept as lists or as arrays."""

import numpy as np
import pytest

from antiphase.measures.questions import Rows

COLUMNS = {
    "image": [7, 7, 3, 3, 7],
    "layer": ["blocks.0", "blocks.1", "blocks.0", "blocks.1", None],
    "pairs": ["own", "own", "own", "shuffled", "own"],
    "severity": [0, 1, 1, 2, 1],
    "cos": [0.5, None, -0.25, 1.0, 2.0],
}


@pytest.mark.parametrize("rows", [Rows(COLUMNS), Rows(COLUMNS).as_arrays()], ids=["lists", "arrays"])
def test_numbers_places_and_sums_are_those_of_the_rows(rows):
    assert rows.images == [7, 3]
    np.testing.assert_array_equal(rows.numbers("cos"), [0.5, np.nan, -0.25, 1.0, 2.0])
    assert rows.where(1).tolist() == [False, True, False, True, False]
    assert rows.where(0, pairs="own").tolist() == [True, False, True, False, False]
    assert rows.where(severity=1).tolist() == [False, True, True, False, True]
    cos = rows.numbers("cos")
    tops, bottoms = rows.sums(cos, np.isfinite(cos))
    assert (tops.tolist(), bottoms.tolist()) == ([2.5, 0.75], [2.0, 2.0])
    assert Rows.of(rows) is rows
