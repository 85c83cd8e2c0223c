"""Figure 1 as measured: one image clean and attacked, its maps, and where the gradients of the two branches point."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib import pyplot as plt
from matplotlib.figure import Figure as Drawing

from antiphase.config import Budget

COLUMNS = ("pixels", "A1", "A2", "combined", "first_direction", "second_direction")


def illustration(look: dict[str, Any]) -> Drawing:
    """From the answer of a `Looked` cell; clean and attacked maps share a scale in every column."""
    states = look["states"]
    figure, axes = plt.subplots(len(states), len(COLUMNS), figsize=(12.5, 4.6), layout="constrained")
    for place, name in enumerate(COLUMNS):
        arrays = [np.array(seen[name]) for seen in states.values()]
        top = max(float(np.abs(a).max()) for a in arrays) or 1.0
        for axis, array, seen in zip(axes[:, place], arrays, states.values()):
            _panel(axis, name, array, top)
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


def _panel(axis: Any, name: str, array: Any, top: float) -> None:
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
