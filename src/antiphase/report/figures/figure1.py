"""The paper's figure 1, measured: one image clean and attacked, its maps, and where the gradient of each branch points."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np
from matplotlib import colormaps, rcParams
from matplotlib.colors import LinearSegmentedColormap

from antiphase.config import Budget
from antiphase.report.page_parts import Figure
from antiphase.report.theme import DIVERGING, INK

Row = Mapping[str, Any]
Array = np.ndarray[Any, np.dtype[np.float64]]
SIDE, GAP = 64, 6  # pixels of a tile and between two
ABOUT_ZERO = LinearSegmentedColormap.from_list("antiphase", DIVERGING)
SIGNED = ("combined", "first_direction", "second_direction")


def figure1(name: str, picture: Row) -> Figure:
    """`picture`: what results/branch_picture.py found about one image; a panel each for clean and attacked."""
    states, subject = picture["states"], f"Image {picture['image']} ({picture['label']})"
    words = [
        f"{when}: {state['prediction']} at {100 * state['confidence']:.0f} %, cos {state['cos']:+.2f}, rho {state['rho']:.2f}"
        for when, state in states.items()
    ]
    tops = {key: max(float(np.abs(state[key]).max()) for state in states.values()) for key in ("A1", "A2", *SIGNED)}
    numbers = ("prediction", "confidence", "lambda", "cos", "rho", "amplification", "contribution_cos")
    return Figure(
        name=name,
        title="As the papers draw it",
        alt=f"{subject}, its maps and gradients. {'. '.join(words)}.",
        panels=tuple(partial(_panel, when=when, state=state, tops=tops) for when, state in states.items()),
        data={"state": list(states), **{key: [state[key] for state in states.values()] for key in numbers}},
        height=2.75,
        note=f"{subject} under PGD within {Budget(picture['eps'])}. Maps are those of the last layer, mean over heads, from the "
        "class token; J1 and −λJ2 are what each branch gives to the gradient of the loss, of unit length. Both states share a "
        "scale, whose ends stand above each picture; blue is below zero, orange above.",
    )


def _panel(axis: Any, when: str, state: Row, tops: Mapping[str, float]) -> None:
    lam = state["lambda"]
    tiles = {
        "image, 0 to 1": _image(state["pixels"]),
        f"A1, 0 to {100 * tops['A1']:.2g} %": _mapped(state["A1"], colormaps["viridis"], 0, tops["A1"]),
        f"A2, 0 to {100 * tops['A2']:.2g} %": _mapped(state["A2"], colormaps["viridis"], 0, tops["A2"]),
        f"A1 − {lam:.2f} A2, ±{100 * tops['combined']:.2g} %": _signed(state["combined"], tops["combined"]),
        f"J1, ±{tops['first_direction']:.2g}": _signed(state["first_direction"], tops["first_direction"]),
        f"−λJ2, ±{tops['second_direction']:.2g}": _signed(state["second_direction"], tops["second_direction"]),
    }
    rows = [list(tiles.items())[:3], list(tiles.items())[3:]]
    for r, row in enumerate(rows):
        for c, (title, tile) in enumerate(row):
            x, y = c * (SIDE + GAP), r * (SIDE + 3 * GAP)
            axis.imshow(tile, extent=(x, x + SIDE, y + SIDE, y), interpolation="nearest")
            axis.text(x, y - 2, title, fontsize=rcParams["legend.fontsize"] - 0.5, color=INK)
    axis.set_xlim(0, 3 * SIDE + 2 * GAP)
    axis.set_ylim(2 * SIDE + 3 * GAP, -2 * GAP)
    axis.set_axis_off()
    axis.set_title(
        f"{when}: “{state['prediction']}” {100 * state['confidence']:.0f} %, cos {state['cos']:+.2f}, ρ {state['rho']:.2f}"
    )


def _image(pixels: Any) -> Array:
    image = np.asarray(pixels, dtype=np.float64)
    return np.repeat(image, 3, axis=-1) if image.shape[-1] == 1 else image


def _signed(values: Any, top: float) -> Array:
    flat = np.asarray(values, dtype=np.float64)
    return _mapped(flat.mean(axis=-1) if flat.ndim == 3 else flat, ABOUT_ZERO, -top, top)


def _mapped(values: Any, colours: Any, low: float, high: float) -> Array:
    share = (np.asarray(values, dtype=np.float64) - low) / max(high - low, 1e-12)
    tile: Array = colours(np.clip(share, 0, 1))[..., :3]
    return tile
