"""Figures as SVG text, drawn from rows. One colour a model, everywhere."""

from __future__ import annotations

import io
from typing import Any

import matplotlib
import numpy as np

matplotlib.use("Agg")
from matplotlib import pyplot as plt
from matplotlib.figure import Figure

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
        for i, per_image in enumerate(side["lipschitz"]["per_image_max"].values()):
            values.append(per_image)
            names.append(f"{side['name']}\nlayer {i + 1}")
            colours.append(colour)
    boxes = axis.boxplot(values, tick_labels=names, patch_artist=True, widths=0.5, showfliers=False, medianprops={"color": "#20242a"})
    for box, colour in zip(boxes["boxes"], colours):
        box.set(facecolor=colour, alpha=0.45, edgecolor=colour)
    axis.set_ylim(bottom=0)
    axis.set_title("map moves per unit of pixel noise (sampled, lower bound)", fontsize=11, loc="left", color="#30343b")
    axis.grid(axis="x", visible=False)


def _cosine_panel(axis: Any, comparison: Row) -> None:
    for side, colour in zip(comparison["models"], COLOURS):
        if side["alignment"]:
            for layer in side["alignment"]["per_image"].values():
                axis.hist(np.ravel(layer["cos"]), bins=24, color=colour, alpha=0.55, label=side["name"])
    axis.axvline(0, color="#20242a", linewidth=1)
    axis.annotate("opposed  ", (0, 1), xycoords=("data", "axes fraction"), ha="right", va="top", color="#565c66")
    axis.annotate("  aligned", (0, 1), xycoords=("data", "axes fraction"), ha="left", va="top", color="#565c66")
    axis.set_xlabel("cosine between the input gradients of A1 and A2")
    axis.set_ylabel("(image, head) pairs")
    axis.margins(y=0.15)
    axis.grid(axis="x", visible=False)


def maps(pictures: Row, names: list[str]) -> str:
    """What each model looked at: the image and its maps, clean above and attacked below."""
    with plt.rc_context({**STYLE, "axes.grid": False}):
        rows = [(name, state, model[state]) for name, model in zip(names, pictures["models"]) for state in ("clean", "attacked")]
        figure, axes = plt.subplots(len(rows), 4, figsize=(9.6, 2.25 * len(rows)), layout="constrained")
        for line, (name, state, look) in zip(axes, rows):
            pixels = np.array(look["pixels"])
            line[0].imshow(pixels.squeeze(-1) if pixels.shape[-1] == 1 else pixels, cmap="gray", vmin=0, vmax=1)
            line[0].set_ylabel(f"{name}\n{state}", rotation=0, ha="right", va="center", labelpad=12, color="#30343b")
            line[0].set_title(f"“{look['prediction']}” {100 * look['confidence']:.0f} %", fontsize=10, color="#30343b")
            _heat(figure, line[1], look["A1"], "A1" if look["A2"] else "A (softmax)", signed=False)
            if look["A2"]:
                _heat(figure, line[2], look["A2"], "A2", signed=False)
                _heat(figure, line[3], look["combined"], f"A1 − {look['lambda']:.2f} A2", signed=True)
            for axis in line:
                axis.set_xticks([])
                axis.set_yticks([])
                axis.spines[:].set_visible(False)
            for axis in line[2:] if not look["A2"] else ():
                axis.axis("off")
        return _svg(figure)


def _heat(figure: Figure, axis: Any, values: list[list[float]], title: str, *, signed: bool) -> None:
    data = np.array(values)
    top = np.abs(data).max() or 1.0
    image = axis.imshow(data, cmap="RdBu_r" if signed else "viridis", vmin=-top if signed else 0, vmax=top)
    axis.set_title(title, fontsize=10, color="#30343b")
    bar = figure.colorbar(image, ax=axis, shrink=0.8, aspect=12)
    bar.outline.set_visible(False)
    bar.ax.tick_params(labelsize=8, length=0)
