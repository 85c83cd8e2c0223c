"""Figures drawn: a panel as SVG for a page, and a whole figure as PNG, PDF and CSV."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import matplotlib
from matplotlib import pyplot as plt
from matplotlib.figure import Figure as Drawing
from matplotlib.layout_engine import ConstrainedLayoutEngine

from antiphase import files
from antiphase.report.page_parts import Figure, Panel, Table
from antiphase.report.theme import PRINT, STYLE, themed

matplotlib.use("Agg")

SIZE = (5.0, 3.6)  # inches of one panel on a page: wide enough for a hand-held screen without shrinking its words
WIDE_SIZE = (10.2, 3.9)  # of one that takes the whole width of the page
PRINT_WIDTH = 180 / 25.4  # inches of a figure in a file: 180 mm, the width of a printed page
ACROSS = 2  # panels side by side in a file
FORMS = ("png", "pdf")


@dataclass(frozen=True)
class Drawn:
    """What is drawn of a figure."""

    panels: tuple[str, ...]  # as SVG for a page, in the order of Figure.drawn
    files: Mapping[str, bytes]  # by their form


def draw(figure: Figure) -> Drawn:
    """Each panel for a page, and the whole for print."""
    heights = figure.heights or (None,) * len(figure.drawn)
    panels = (svg_of(panel, figure.wide, height) for panel, height in zip(figure.drawn, heights))
    return Drawn(tuple(panels), printed(figure))


def svg_of(panel: Panel, wide: bool = False, height: float | None = None) -> str:
    """One panel as SVG text for a page: transparent, its colours those of the page's theme."""
    width, usual = WIDE_SIZE if wide else SIZE
    with plt.rc_context(STYLE):
        drawing, axis = plt.subplots(figsize=(width, height or usual))
        panel(axis)
        buffer = io.StringIO()
        _lay_out(drawing)
        drawing.savefig(buffer, format="svg", metadata={"Date": None}, transparent=True)
        plt.close(drawing)
    text = buffer.getvalue()
    return themed(text[text.index("<svg") :])


def write_figures(folder: Path, figures: Mapping[str, Callable[[], Drawing]]) -> None:
    """Each as PNG and PDF, under its name."""
    for name, draw in figures.items():
        with plt.rc_context(STYLE):
            drawing = draw()
            for form in FORMS:
                files.write_bytes(folder / f"{name}.{form}", _saved(drawing, form, "tight"))
            plt.close(drawing)


def printed(figure: Figure, forms: Sequence[str] = FORMS) -> dict[str, bytes]:
    """A file of each form, with all panels at print size."""
    with plt.rc_context(STYLE | PRINT):
        drawing = _whole(figure)
        contents = {form: _saved(drawing, form, None) for form in forms}
        plt.close(drawing)
    return contents


def write_figure(figure: Figure, folder: Path, forms: Sequence[str] = FORMS) -> None:
    """NAME.png and NAME.pdf, and NAME.csv with what they show."""
    write_printed(figure, printed(figure, forms), folder)


def write_printed(figure: Figure, contents: Mapping[str, bytes], folder: Path) -> None:
    """The same of a figure that is drawn already."""
    for form, content in contents.items():
        files.write_bytes(folder / f"{figure.name}.{form}", content)
    write_data(figure, folder)


def write_data(part: Figure | Table, folder: Path) -> None:
    """NAME.csv, where the part has data."""
    if part.data is None:
        return
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(part.data)
    writer.writerows(["" if v is None else v for v in row] for row in zip(*part.data.values()))
    files.write_text(folder / f"{part.name}.csv", text.getvalue())


def _lay_out(drawing: Drawing) -> None:
    """Room for all words, found once: a figure that has a layout of its own is drawn twice for every file."""
    ConstrainedLayoutEngine().execute(drawing)


def _saved(drawing: Drawing, form: str, trim: str | None) -> bytes:
    metadata = {"CreationDate": None} if form == "pdf" else {"Software": "antiphase"}  # the same rows, the same bytes
    whole = io.BytesIO()  # matplotlib's PDF writer hides that the disk is full behind an error of its own
    drawing.savefig(whole, format=form, dpi=300, bbox_inches=trim, metadata=metadata)
    return whole.getvalue()


def _whole(figure: Figure) -> Drawing:
    """All panels on a drawing that is as wide as a printed page."""
    panels = figure.drawn
    across = 1 if figure.wide else min(len(panels), ACROSS)
    down = -(-len(panels) // across)
    shrunk = figure.height / SIZE[1]  # from a page to print
    rows = [shrunk * max(figure.heights[i * across : (i + 1) * across], default=SIZE[1]) for i in range(down)]
    drawing: Drawing = plt.figure(figsize=(PRINT_WIDTH, sum(rows)))
    if figure.heights:  # rows of words beside dots: each panel has its own room for them
        axes = [part.subplots() for part in drawing.subfigures(down, across, squeeze=False, height_ratios=rows).flat]
    else:
        axes = list(drawing.subplots(down, across, squeeze=False).flat)
    for axis, panel in zip(axes, panels):
        panel(axis)
    for axis in axes[len(panels) :]:
        axis.set_axis_off()
    _lay_out(drawing)
    return drawing
