"""Shards of a study are the same everywhere, and together they are the study."""

import pytest

from antiphase.config import InputError
from antiphase.paper.catalog import studies
from antiphase.paper.cost import Prices
from antiphase.paper.grid import Grid
from antiphase.paper.questions import ordered
from antiphase.paper.shard import Shard

GRID = Grid.at("cpu")
CELLS = ordered(cell for name in ("table1", "fig2a", "fig5") for cell in studies()[name].cells(GRID))


def test_every_cell_is_in_exactly_one_shard_with_the_training_of_its_model():
    parts = [Shard(i, 4).cells(CELLS) for i in (1, 2, 3, 4)]
    assert sorted(cell.key for part in parts for cell in part) == sorted(cell.key for cell in CELLS)
    for part in parts:
        keys = {cell.key for cell in part}
        assert all(cell.of.key in keys for cell in part if hasattr(cell, "of"))
    assert parts == [Shard(i, 4).cells(CELLS) for i in (1, 2, 3, 4)]


def test_shards_cost_about_the_same():
    prices = Prices()
    costs = [sum(map(prices.seconds, Shard(i, 4).cells(CELLS))) for i in (1, 2, 3, 4)]
    assert max(costs) < 1.1 * min(costs)


def test_a_task_of_a_slurm_array_knows_its_shard_wherever_the_array_begins():
    array = {"SLURM_ARRAY_TASK_ID": "14", "SLURM_ARRAY_TASK_COUNT": "3"}
    array |= {"SLURM_ARRAY_TASK_MIN": "10", "SLURM_ARRAY_TASK_STEP": "2"}
    assert Shard.read("slurm", array) == Shard(3, 3)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [("0/4", "from 1/4 to 4/4"), ("5/4", "from 1/4"), ("half", "write 2/8"), ("slurm", "sbatch --array")],
)
def test_what_is_no_shard_is_refused_with_the_remedy(text, sentence):
    with pytest.raises(InputError, match=sentence):
        Shard.read(text, {})
