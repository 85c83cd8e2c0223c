"""Figures as SVG text, drawn from rows. One colour a model, everywhere."""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import matplotlib
import matplotlib.ticker
import numpy as np

matplotlib.use("Agg")
from matplotlib import pyplot as plt
from matplotlib.figure import Figure

from antiphase import files

Row = dict[str, Any]
COLOURS = ("#2a6f97", "#c8553d")
STYLE = {
    "font.family": "sans-serif",
    "font.size": 11,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": "#8a8f98",
    "axes.labelcolor": "#30343b",
    "xtick.color": "#565c66",
    "ytick.color": "#565c66",
    "axes.grid": True,
    "grid.color": "#e6e8eb",
    "svg.fonttype": "none",
    "svg.hashsalt": "antiphase",  # the same rows give the same bytes
}


def write_figures(folder: Path, drawn: Mapping[str, Callable[[], Figure]]) -> None:
    """Each as PNG and PDF, under its name."""
    for name, draw in drawn.items():
        with plt.rc_context(STYLE):
            figure = draw()
            for form in ("png", "pdf"):
                files.write_whole(folder / f"{name}.{form}", partial(_save, figure, form))
            plt.close(figure)


def _save(figure: Figure, form: str, path: Path) -> None:
    figure.savefig(path, format=form, dpi=160, bbox_inches="tight")


def by_layer(rows: Row, name: str, **only: Any) -> dict[str, list[float]]:
    """One column of a cell's rows, layer by layer, where the other columns say so; what is undefined is left out."""
    found: dict[str, list[float]] = {}
    for i, (layer, value) in enumerate(zip(rows["layer"], rows[name])):
        if all(rows[key][i] == wanted for key, wanted in only.items()):
            found.setdefault(layer, []).extend([] if value is None else [value])
    return found


def _svg(figure: Figure) -> str:
    buffer = io.StringIO()
    figure.savefig(buffer, format="svg", bbox_inches="tight", metadata={"Date": None})
    plt.close(figure)
    text = buffer.getvalue()
    return text[text.index("<svg") :]


def asr_curves(comparison: Row) -> str:
    """Attack success against the budget, with 95 % intervals; left over all images, right over those first correct."""
    with plt.rc_context(STYLE):
        figure, axes = plt.subplots(1, 2, figsize=(9.6, 3.7), sharey=True)
        panels = (("asr_change", "of all images"), ("asr_correct", "of correctly classified images"))
        for axis, (rate, title) in zip(axes, panels):
            for side, colour in zip(comparison["models"], COLOURS):
                cells = [cell for cell in side["attacks"] if cell["rates"][rate]["value"] is not None]
                eps = np.array([255 * cell["eps"] for cell in cells])
                value = np.array([cell["rates"][rate]["value"] for cell in cells])
                low, high = np.array([cell["rates"][rate]["interval"] for cell in cells]).reshape(-1, 2).T
                axis.fill_between(eps, 100 * low, 100 * high, color=colour, alpha=0.16, linewidth=0)
                axis.plot(eps, 100 * value, "o-", color=colour, label=side["name"], markersize=4.5, linewidth=1.8)
            axis.set_title(title, fontsize=11, loc="left", color="#30343b")
            axis.set_xlabel("budget ε (Linf, in 255ths)")
            axis.set_xscale("log", base=2)
            ticks = sorted({round(255 * cell["eps"], 6) for cell in comparison["models"][0]["attacks"]})
            axis.set_xticks([t for t in ticks if t > 0], [f"{t:g}" for t in ticks if t > 0])
            axis.minorticks_off()
            axis.set_ylim(-2, 102)
        axes[0].set_ylabel("predictions changed (%)")
        axes[0].legend(frameon=False, loc="upper left")
        figure.tight_layout()
        return _svg(figure)


def sensitivity(comparison: Row) -> str:
    """Per-image local Lipschitz estimates of each model, and the cosine between branches where there are two."""
    aligned = [side for side in comparison["models"] if side["alignment"]]
    with plt.rc_context(STYLE):
        figure, axes = plt.subplots(1, 2 if aligned else 1, figsize=(9.6 if aligned else 4.8, 3.3), squeeze=False)
        _lipschitz_panel(axes[0, 0], comparison)
        if aligned:
            _cosine_panel(axes[0, 1], comparison)
        figure.tight_layout()
        return _svg(figure)


def _lipschitz_panel(axis: Any, comparison: Row) -> None:
    values, names, colours = [], [], []
    for side, colour in zip(comparison["models"], COLOURS):
        for i, per_image in enumerate(by_layer(side["lipschitz"]["rows"], "max").values()):
            values.append(per_image)
            names.append(f"{side['name']}\nlayer {i + 1}")
            colours.append(colour)
    boxes = axis.boxplot(
        values, tick_labels=names, patch_artist=True, widths=0.5, showfliers=False, medianprops={"color": "#20242a"}
    )
    for box, colour in zip(boxes["boxes"], colours):
        box.set(facecolor=colour, alpha=0.45, edgecolor=colour)
    axis.set_ylim(bottom=0)
    axis.set_title("map moves per unit of pixel noise (sampled, lower bound)", fontsize=11, loc="left", color="#30343b")
    axis.grid(axis="x", visible=False)


def _cosine_panel(axis: Any, comparison: Row) -> None:
    for side, colour in zip(comparison["models"], COLOURS):
        if side["alignment"]:
            for cosines in by_layer(side["alignment"]["rows"], "cos", pairs="own").values():
                axis.hist(
                    cosines,
                    bins=24,
                    color=colour,
                    alpha=0.55,
                    label=side["name"],
                )
    axis.axvline(0, color="#20242a", linewidth=1)
    for word, side, shift in (("opposed", "right", -6), ("aligned", "left", 6)):
        place = {
            "xy": (0, 1),
            "xycoords": ("data", "axes fraction"),
            "xytext": (shift, -2),
            "textcoords": "offset points",
        }
        axis.annotate(word, **place, ha=side, va="top", color="#565c66")
    axis.set_xlabel("cosine between the input gradients of A1 and A2")
    axis.set_ylabel("(image, head) pairs")
    axis.margins(y=0.15)
    axis.grid(axis="x", visible=False)


def maps(pictures: Row, names: list[str]) -> str:
    """What each model looked at: its image and its maps; clean, attacked, and the change between the two."""
    columns = [
        (name, model, key)
        for name, model in zip(names, pictures["models"])
        for key in ("pixels", "A1", *(("A2", "combined") if model["clean"]["A2"] else ()))
    ]
    with plt.rc_context({**STYLE, "axes.grid": False}):
        figure, axes = plt.subplots(3, len(columns), figsize=(1.75 * len(columns), 6.2), layout="constrained")
        for column, (name, model, key) in zip(axes.T, columns):
            clean, attacked = (np.array(model[state][key]) for state in ("clean", "attacked"))
            _column(figure, column, key, clean, attacked)
            column[0].set_title(_title(key, name, model["clean"]), fontsize=10, color="#30343b")
            if key == "pixels":
                for axis, state in zip(column, ("clean", "attacked")):
                    look = model[state]
                    axis.set_xlabel(f"“{look['prediction']}” {100 * look['confidence']:.0f} %", fontsize=9)
        for axis, label in zip(axes[:, 0], ("clean", "attacked", "change")):
            axis.set_ylabel(label, rotation=0, ha="right", va="center", labelpad=8)
        return _svg(figure)


def _title(key: str, name: str, look: Row) -> str:
    if key == "combined":
        return f"A1 − {look['lambda']:.2f} A2"
    return {"pixels": name, "A1": "A1" if look["A2"] else "A", "A2": "A2"}[key]


def _column(figure: Figure, column: Any, key: str, clean: Any, attacked: Any) -> None:
    """Clean and attacked on one scale, the change on its own, symmetric about zero."""
    top = max(np.abs(clean).max(), np.abs(attacked).max()) or 1.0
    scale: dict[str, Any] = {"cmap": "viridis", "vmin": 0, "vmax": top}
    if key == "pixels":
        scale = {"cmap": "gray", "vmin": 0, "vmax": 1}
    elif key == "combined":
        scale = {"cmap": "RdBu_r", "vmin": -top, "vmax": top}
    for axis, data in zip(column, (clean, attacked)):
        image = axis.imshow(data[..., 0] if key == "pixels" and data.shape[-1] == 1 else data, **scale)
    change = (attacked - clean).mean(axis=-1) if key == "pixels" else attacked - clean
    reach = np.abs(change).max() or 1.0
    changed = column[2].imshow(change, cmap="RdBu_r", vmin=-reach, vmax=reach)
    bars = [(changed, column[2])] if key == "pixels" else [(image, column[1]), (changed, column[2])]
    for drawn, axis in bars:
        bar = figure.colorbar(drawn, ax=axis, location="bottom", shrink=0.85, aspect=14, pad=0.03)
        bar.outline.set_visible(False)
        bar.locator = matplotlib.ticker.MaxNLocator(2)
        bar.formatter = matplotlib.ticker.FormatStrFormatter("%.2g")
        bar.ax.tick_params(labelsize=7.5, length=0)
    for axis in column:
        axis.set_xticks([])
        axis.set_yticks([])
        axis.spines[:].set_visible(False)
