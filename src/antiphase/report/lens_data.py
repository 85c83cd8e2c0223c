"""What the lens of a page is given: the cells of results/look.py, their packed bytes as they are, the rest made compact."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from antiphase.config import Budget

Cell = Mapping[str, Any]
Look = tuple[str, Cell]  # name of the model, its cell
ROOM = 20_000_000  # characters of packed maps on one page, of at most 25 MB
NUMBERS = ("cos", "cos_se", "rho", "amplification", "energy", "angle")


def images_and_budgets(cell: Cell) -> Any:
    """Equal for looks that one lens can show."""
    return cell["data"]["fingerprint"], tuple(cell["eps"])


def together(looks: Sequence[Look]) -> tuple[list[Look], list[str]]:
    """Those that one lens can show, the same images at the same budgets, within the room of a page; and the others' names."""
    groups: dict[Any, list[Look]] = {}
    for name, cell in looks:
        groups.setdefault(images_and_budgets(cell), []).append((name, cell))
    largest = max(groups.values(), key=len, default=[])
    chosen: list[Look] = []
    for name, cell in largest:
        if sum(len(c["packed"]) for _, c in chosen) + len(cell["packed"]) <= ROOM:
            chosen.append((name, cell))
    kept = {id(cell) for _, cell in chosen}
    return chosen, [name for name, cell in looks if id(cell) not in kept]


def payload(looks: Sequence[Look], places: Mapping[str, int]) -> dict[str, Any]:
    """Plain values for the script of the page. The packed bytes are apart, one text per model, in the same order."""
    first = looks[0][1]
    return {
        "data": first["data"],
        "classes": first["class_names"],
        "ids": first["ids"],
        "labels": first["labels"],
        "budgets": [{"text": str(Budget(eps)), "eps": eps} for eps in first["eps"]],
        "attack": first["attack"],
        "models": [_model(name, _place(name, places, i), cell) for i, (name, cell) in enumerate(looks)],
        "start": start(looks),
    }


def _place(name: str, places: Mapping[str, int], number: int) -> int:
    """The colour of a model of the page by its name, or by what its name begins with: a seed of it is the same model."""
    return places.get(name, places.get(name.split(", ")[0], len(places) + number))


def start(looks: Sequence[Look]) -> dict[str, int]:
    """Where a reader begins: the smallest budget at which an image that all models have right is lost by all of them."""
    labels = looks[0][1]["labels"]
    for budget in range(len(looks[0][1]["eps"])):
        for image, label in enumerate(labels):
            clean, attacked = (
                [cell["predictions"][state][image][0][0] == label for _, cell in looks] for state in (0, budget + 1)
            )
            if all(clean) and not any(attacked):
                return {"image": image, "budget": budget}
    return {"image": 0, "budget": len(looks[0][1]["eps"]) - 1}


def _model(name: str, place: int, cell: Cell) -> dict[str, Any]:
    same = ("patches", "class_tokens", "pooled", "pixels", "shrunk", "predictions", "layers")
    return {"name": name, "place": place, "title": cell["model"], "branches": _branches(cell)} | {
        k: cell[k] for k in same
    }


def _numbers(rows: Cell, i: int, layer: Cell) -> list[float | None]:
    """NUMBERS of one row, and the factor of a third term; of a layer without one lambda, lambda is in rho already."""
    values = {key: rows[key][i] for key in NUMBERS}
    if "maps" not in layer:
        return [_short(value) for value in values.values()]
    if values["rho"] is not None:
        values["rho"] *= rows["lambda"][i]
    return [_short(value) for value in (*values.values(), rows["third"][i] if "third" in rows else None)]


def _branches(cell: Cell) -> list[dict[str, Any]]:
    """For each layer: kind -> state -> image -> head (all stacked first) -> the numbers; null where a branch is dead."""
    rows = cell["rows"]
    heads = {layer["layer"]: layer["heads"] for layer in cell["layers"]}
    layers = {layer["layer"]: layer for layer in cell["layers"]}
    order = {image: i for i, image in enumerate(cell["ids"])}
    states = len(cell["eps"]) + 1
    tables: dict[str, dict[str, list[Any]]] = {layer: {} for layer in heads}
    for i, layer in enumerate(rows.get("layer", [])):
        empty = [[[None] * (heads[layer] + 1) for _ in order] for _ in range(states)]
        table = tables[layer].setdefault(rows["of"][i], empty)
        head = 0 if rows["head"][i] is None else rows["head"][i] + 1
        table[rows["state"][i]][order[rows["image"][i]]][head] = _numbers(rows, i, layers[layer])
    return [tables[layer["layer"]] for layer in cell["layers"]]


def _short(value: float | None) -> float | None:
    return None if value is None else float(f"{value:.4g}")
