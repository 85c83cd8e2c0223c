"""Figure 1 measured: one image clean and attacked, its maps, and where the gradient of each branch points."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np
from matplotlib import colormaps
from matplotlib import pyplot as plt
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure as Drawing

from antiphase.config import Budget
from antiphase.report.page_parts import Figure
from antiphase.report.theme import DIVERGING, INK

Row = Mapping[str, Any]
Array = np.ndarray[Any, np.dtype[np.float64]]
SIDE, GAP = 64, 6  # pixels of a tile and between two
ABOUT_ZERO = LinearSegmentedColormap.from_list("antiphase", DIVERGING)
SIGNED = ("combined", "first_direction", "second_direction")


def picture_figure(name: str, seen: Row) -> Figure:
    """`seen`: the answer of a `Looked` cell (studies/pictures.py)."""
    states = seen["states"]
    words = [
        f"{state}: {told['prediction']} at {100 * told['confidence']:.0f} %, cos {told['cos']:+.2f}, rho {told['rho']:.2f}"
        for state, told in states.items()
    ]
    tops = {key: max(float(np.abs(told[key]).max()) for told in states.values()) for key in ("A1", "A2", *SIGNED)}
    numbers = ("prediction", "confidence", "lambda", "cos", "rho", "amplification", "contribution_cos")
    return Figure(
        name=f"{name}-figure",
        title="As the papers draw it",
        alt=f"Image {seen['image']} ({seen['label']}), its maps and gradients. {'. '.join(words)}.",
        panels=tuple(partial(_panel, state=state, told=told, tops=tops) for state, told in states.items()),
        data={"state": list(states), **{key: [told[key] for told in states.values()] for key in numbers}},
        note=f"Image {seen['image']} ({seen['label']}) under PGD. Maps are those of the last layer, mean over heads, from the "
        "class token; J1 and −λJ2 are what each branch gives to the gradient of the loss, of unit length. Both states share a "
        "scale, whose ends stand above each picture; blue is below zero, orange above.",
    )


def _panel(axis: Any, state: str, told: Row, tops: Mapping[str, float]) -> None:
    lam = told["lambda"]
    tiles = {
        "image, 0 to 1": _grey(told["pixels"]),
        f"A1, 0 to {100 * tops['A1']:.2g} %": _mapped(told["A1"], colormaps["viridis"], 0, tops["A1"]),
        f"A2, 0 to {100 * tops['A2']:.2g} %": _mapped(told["A2"], colormaps["viridis"], 0, tops["A2"]),
        f"A1 − {lam:.2f} A2, ±{100 * tops['combined']:.2g} %": _signed(told["combined"], tops["combined"]),
        f"J1, ±{tops['first_direction']:.2g}": _signed(told["first_direction"], tops["first_direction"]),
        f"−λJ2, ±{tops['second_direction']:.2g}": _signed(told["second_direction"], tops["second_direction"]),
    }
    rows = [list(tiles.items())[:3], list(tiles.items())[3:]]
    for r, row in enumerate(rows):
        for c, (title, tile) in enumerate(row):
            x, y = c * (SIDE + GAP), r * (SIDE + 3 * GAP)
            axis.imshow(tile, extent=(x, x + SIDE, y + SIDE, y), interpolation="nearest")
            axis.text(x, y - 2, title, fontsize=9, color=INK)
    axis.set_xlim(0, 3 * SIDE + 2 * GAP)
    axis.set_ylim(2 * SIDE + 3 * GAP, -2 * GAP)
    axis.set_axis_off()
    axis.set_title(
        f"{state}: “{told['prediction']}” {100 * told['confidence']:.0f} %, cos {told['cos']:+.2f}, ρ {told['rho']:.2f}"
    )


def _grey(pixels: Any) -> Array:
    image = np.asarray(pixels, dtype=np.float64)
    return np.repeat(image, 3, axis=-1) if image.shape[-1] == 1 else image


def _signed(values: Any, top: float) -> Array:
    flat = np.asarray(values, dtype=np.float64)
    return _mapped(flat.mean(axis=-1) if flat.ndim == 3 else flat, ABOUT_ZERO, -top, top)


def _mapped(values: Any, colours: Any, low: float, high: float) -> Array:
    share = (np.asarray(values, dtype=np.float64) - low) / max(high - low, 1e-12)
    tile: Array = colours(np.clip(share, 0, 1))[..., :3]
    return tile


# ------------------------------------------------------------------------------------------------- report.illustration
# Figure 1 as measured: one image clean and attacked, its maps, and where the gradients of the two branches point.


COLUMNS = ("pixels", "A1", "A2", "combined", "first_direction", "second_direction")


def illustration(look: dict[str, Any]) -> Drawing:
    """From the answer of a `Looked` cell; clean and attacked maps share a scale in every column."""
    states = look["states"]
    figure, axes = plt.subplots(len(states), len(COLUMNS), figsize=(12.5, 4.6), layout="constrained")
    for place, name in enumerate(COLUMNS):
        arrays = [np.array(seen[name]) for seen in states.values()]
        top = max(float(np.abs(a).max()) for a in arrays) or 1.0
        for axis, array, seen in zip(axes[:, place], arrays, states.values()):
            _map_panel(axis, name, array, top)
            axis.set_title(_title(name, seen), fontsize=9)
    for axis, (state, seen) in zip(axes[:, 0], states.items()):
        said = f"{state}\n“{seen['prediction']}”\ncos {seen['cos']:.2f}\nrho {seen['rho']:.2f}"
        axis.set_ylabel(said, rotation=0, ha="right", va="center", labelpad=6)
    figure.suptitle(f"image {look['image']} ({look['label']}), PGD {Budget(look['eps'])}", fontsize=11)
    drawing: Drawing = figure
    return drawing


def _title(name: str, seen: dict[str, Any]) -> str:
    if name == "combined":
        return f"A1 − {seen['lambda']:.2f} A2"
    if name == "second_direction":
        return f"−λ J2ᵀu, cos {seen['contribution_cos']:.2f}"
    return {"pixels": "image", "first_direction": "J1ᵀu"}.get(name, name)


def _map_panel(axis: Any, name: str, array: Any, top: float) -> None:
    if name == "pixels":
        axis.imshow(array[..., 0] if array.shape[-1] == 1 else array, cmap="gray", vmin=0, vmax=1)
    elif name in ("A1", "A2"):
        axis.imshow(array, cmap="viridis", vmin=0, vmax=top)
    else:
        shown = array.mean(axis=-1) if array.ndim == 3 else array
        reach = float(np.abs(shown).max()) or 1.0
        axis.imshow(shown, cmap="RdBu_r", vmin=-reach, vmax=reach)
    axis.grid(visible=False)
    axis.set_xticks([])
    axis.set_yticks([])
    axis.spines[:].set_visible(False)
