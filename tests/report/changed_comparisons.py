"""A real comparison with its rows changed, so that what is said about it must change too."""

import copy


def swapped(comparison):
    """The two models' rows change places; their names stay."""
    other = copy.deepcopy(comparison)
    names = [side["name"] for side in other["models"]]
    other["models"].reverse()
    for side, name in zip(other["models"], names):
        side["name"] = name
    for row in other["paired"]:
        for test in (row["all"], row["both_right"]):
            test["only_first"], test["only_second"] = test["only_second"], test["only_first"]
            test["first"], test["second"] = test["second"], test["first"]
    return other


def decided(comparison, loser):
    """The same rows with one model fooled far more often at every budget."""
    rows = copy.deepcopy(comparison)
    more, less = {"first": 60, "only_first": 30}, {"second": 32, "only_second": 2}
    if loser == 1:
        more, less = {"second": 60, "only_second": 30}, {"first": 32, "only_first": 2}
    for row in rows["paired"]:
        row["both_right"].update(more, **less, p_holm=1e-5)
    return rows
