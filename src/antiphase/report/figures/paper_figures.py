"""Figures 2 to 6 drawn as the paper draws them, from the lines of their studies (paper/study.py).

Colour and mark say the model, the kind of line says the data set, the budget or the depth. A panel without a number is left out,
and the others keep the paper's letters.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from matplotlib.lines import Line2D

from antiphase.paper.study import MODELS, SURROGATE
from antiphase.paper.titles import data_name
from antiphase.report.figures.series import apart, curve, number_axis
from antiphase.report.numbers import scaled
from antiphase.report.page_parts import Figure, Panel, columns_of_lines
from antiphase.report.theme import CONTROL_MARKS, INK, LEGEND_WIDTH, SOFT, legend_above, letter, look_of
from antiphase.report.words import AXES, QUANTILES, axis_words, detail_words, label_words, reading_words

Row = Mapping[str, Any]  # a line of a study
Lines = Mapping[str, Sequence[Row]]  # by study
PLACES = {name: i for i, name in enumerate(MODELS)}  # whose colours are theirs in every figure of the paper
DASHES: tuple[Any, ...] = ("-", (0, (4, 1.6)), (0, (1.2, 1.4)), (0, (6, 1.4, 1, 1.4)), (0, (9, 2)))
COLUMNS = ("study", "label", "reading", "value", "interval", "n", "seeds", "unit")
SHARE = "attack success (%)"


class Part(NamedTuple):
    """One panel, and the lines that it draws."""

    panel: Panel
    lines: Sequence[Row]


class PaperFigure(NamedTuple):
    """A figure of the paper: the studies that it is drawn from, and how."""

    name: str
    title: str
    studies: tuple[str, ...]
    parts: Callable[[Lines], list[Part]]
    note: str  # how it is to be read
    wide: bool = False
    height: float = 2.45  # inches of a row of panels in print


def paper_figure(figure: PaperFigure, lines: Lines) -> Figure | None:
    """None where no line that it draws has a number."""
    measured = {
        study: [{**line, "study": study} for line in lines.get(study, ()) if isinstance(line["value"], float | int)]
        for study in figure.studies
    }
    parts = [part for part in figure.parts(measured) if part.lines]
    if not parts:
        return None
    drawn = [line for part in parts for line in part.lines]
    return Figure(
        name=f"{figure.name}-figure",
        title=figure.title,
        alt=_alt(drawn),
        panels=tuple(part.panel for part in parts),
        data=columns_of_lines(drawn, COLUMNS),
        note=f"{_note(drawn)} {figure.note}",
        wide=figure.wide,
        height=figure.height,
    )


def _alt(lines: Sequence[Row]) -> str:
    """Readings in words with the number of each model's first and last line, for readers who cannot see the panels."""
    sentences = []
    for reading in dict.fromkeys(line["reading"] for line in lines if "quantile" not in line["reading"]):
        of = [line for line in lines if line["reading"] == reading and line["model"]]
        ends = [end for model in dict.fromkeys(line["model"] for line in of) for end in _ends(of, model)]
        words = [
            f"{label_words(line['label'])}: {scaled(line['value'], line['unit']):.3g}{' %' * (line['unit'] == '%')}"
            for line in ends
        ]
        sentences += [f"{reading_words(reading)}: {'; '.join(words)}"] if words else []
    return ". ".join(sentences[:4]) + "."


def _ends(lines: Sequence[Row], model: str) -> list[Row]:
    mine = [line for line in lines if line["model"] == model]
    return mine[:1] if len(mine) == 1 else [mine[0], mine[-1]]


def _note(lines: Sequence[Row]) -> str:
    """What is drawn, over how many images and seeds."""
    readings = dict.fromkeys(reading_words(line["reading"]) for line in lines if "quantile" not in line["reading"])
    images = sorted({line["n"] for line in lines if line["n"]})
    seeds = sorted({line["seeds"] for line in lines if line["seeds"]})
    sizes = [f"{_span(images)} images"] * bool(images) + [f"{_span(seeds)} seed{'s' * (seeds != [1])}"] * bool(seeds)
    stands_in = " SURROGATES: the CLIPs are small models that stand in for the published ones." * any(
        line["note"] == SURROGATE for line in lines
    )
    return f"Drawn: {'; '.join(readings)}. {', '.join(sizes)}.{stands_in}"


def _span(numbers: Sequence[int]) -> str:
    return " to ".join(f"{n:,}" for n in dict.fromkeys((numbers[0], numbers[-1])))


def where(lines: Iterable[Row], reading: str, axis: str, models: Iterable[str]) -> list[Row]:
    return [line for line in lines if line["reading"] == reading and line["axis"] == axis and line["model"] in models]


def points_of(lines: Iterable[Row]) -> list[tuple[float, float, list[float] | None]]:
    return [
        (
            line["x"],
            scaled(line["value"], line["unit"]),
            None if line["interval"] is None else [scaled(end, line["unit"]) for end in line["interval"]],
        )
        for line in lines
    ]


# ------------------------------------------------------------------------------------------------- curves
VITS, CLIPS = ("ViT", "DiffViT"), ("CLIP", "DiffCLIP")


def _curves(
    axis: Any,
    lines: Sequence[Row],
    title: str,
    xlabel: str,
    ylabel: str = SHARE,
    thin: Sequence[Row] = (),
) -> None:
    """A curve for each model and detail; `thin` are further lines of the same curves, drawn faintly behind them."""
    kinds = list(dict.fromkeys(tuple(line["details"]) for line in lines))
    models = list(dict.fromkeys(line["model"] for line in lines))
    entries: list[tuple[Any, str]] = []
    beside = apart(len(kinds) * len(models))
    for kind in kinds:
        for model in models:
            style = {**look_of(PLACES[model]), "linestyle": DASHES[kinds.index(kind) % len(DASHES)], "markersize": 4}
            mine, behind = (
                [x for x in of if x["model"] == model and tuple(x["details"]) == kind] for of in (lines, thin)
            )
            bars = next(beside) if len(kinds) > 1 else None
            if behind:
                curve(axis, [(x, y, None) for x, y, _ in points_of(behind)], **style | {"marker": "", "linewidth": 0.8})
            if mine:
                drawn = curve(axis, points_of(mine), bars, **style | {"linewidth": 1.5})
                entries.append((drawn, ", ".join([model, *map(_short, kind)])))
    number_axis(axis, (line["x"] for line in lines))
    if len({line["x"] for line in lines}) > 2:  # budgets, widths and depths are doubled from one to the next
        axis.set_xscale("log", base=2)
        number_axis(axis, (line["x"] for line in lines))
    axis.set_ylim(0, 104 if lines[0]["unit"] == "%" else None)
    axis.set_xlabel(xlabel)
    axis.set_ylabel(ylabel)
    if thin:
        entries.append((Line2D([], [], color=SOFT, linewidth=0.8), "thin: mean over restarts"))
    legend_above(axis, entries, _and_surrogates(title, lines))


def _short(detail: str) -> str:
    """A detail in a legend: data sets by their names, an attack that the title names by its budget."""
    for attack in ("PGD ", "AutoAttack "):
        if detail.startswith(attack):
            return f"ε = {detail.removeprefix(attack)}"
    return label_words(detail)


EPS, DEPTH, PATCH = AXES["eps"], AXES["depth"], AXES["patch"]


def _curve_part(title: str, xlabel: str, lines: Sequence[Row], **more: Any) -> Part:
    return Part(partial(_curves, lines=lines, title=title, xlabel=xlabel, **more), lines)


def _figure2(lines: Lines) -> list[Part]:
    return [
        _curve_part(f"({panel}) {what}", xlabel, where(lines[study], "asr_change", axis, models))
        for panel, study, what, xlabel, axis, models in (
            ("a", "fig2a", "PGD, ViT and DiffViT of depth 1", EPS, "eps", VITS),
            ("b", "fig2b", "PGD, CLIP and DiffCLIP", EPS, "eps", CLIPS),
            ("c", "fig2c", "patches, ViT and DiffViT of depth 1", PATCH, "patch", VITS),
            ("d", "fig2d", "patches, CLIP and DiffCLIP", PATCH, "patch", CLIPS),
        )
    ]


def _figure3(lines: Lines) -> list[Part]:
    radii = where(lines["fig3c"], "share of correct images fooled within an L2 radius", "L2 radius", VITS)
    growth = where(lines["fig3d"], "L-sample of maps, mean over layers", "depth", VITS)
    return [
        _curve_part("(a) PGD", DEPTH, where(lines["fig3a"], "asr_change", "depth", VITS)),
        _curve_part("(b) AutoAttack", DEPTH, where(lines["fig3b"], "asr_change", "depth", VITS)),
        Part(partial(_radius_panel, lines=radii), radii),
        _curve_part(
            "(d) sensitivity of the maps, mean over layers", DEPTH, growth, ylabel="local Lipschitz estimate L"
        ),
    ]


def _radius_panel(axis: Any, lines: Sequence[Row]) -> None:
    """Success against the L2 radius: colour says the model, the kind of line the depth."""
    depths = list(dict.fromkeys(tuple(line["details"]) for line in lines))
    models = list(dict.fromkeys(line["model"] for line in lines))
    for kind, dashes in zip(depths, DASHES):
        for model in models:
            mine = [line for line in lines if line["model"] == model and tuple(line["details"]) == kind]
            style = {"color": look_of(PLACES[model])["color"], "linestyle": dashes, "linewidth": 1.4, "marker": ""}
            curve(axis, [(x, y, None) for x, y, _ in points_of(mine)], **style)
    entries = [(Line2D([], [], color=look_of(PLACES[m])["color"], linewidth=2.5), m) for m in models]
    entries += [(Line2D([], [], color=SOFT, linestyle=d), ", ".join(k)) for k, d in zip(depths, DASHES)]
    axis.set_xscale("log")
    ticks = [tick for tick in (0.02, 0.05, 0.1, 0.2, 0.5, 1, 2) if tick <= max(line["x"] for line in lines)]
    axis.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    axis.minorticks_off()
    axis.set_ylim(0, 104)
    axis.set_xlabel(axis_words("L2 radius"))
    axis.set_ylabel("fooled within this size (%)")
    legend_above(axis, entries, "(c) Carlini-Wagner, images classified correctly")


def _figure6(lines: Lines) -> list[Part]:
    """Fooled by any restart, and thin the mean over restarts: the union less what it is above the mean."""
    parts = []
    for panel, study, axis, models, title, xlabel in (
        ("a", "fig6", "eps", VITS, "PGD with restarts, depth 1", EPS),
        ("b", "fig6", "depth", VITS, "PGD with restarts, by depth", DEPTH),
        ("c", "fig6-clip", "eps", CLIPS, "PGD with restarts, CLIP and DiffCLIP", EPS),
    ):
        unions = where(lines[study], "union_change", axis, models)
        gains = where(lines[study], "union_change - asr_change", axis, models)
        gained = {line["label"]: line["value"] for line in gains}
        several = any(gained.values())  # of one restart a union is its own mean
        means = [{**u, "value": u["value"] - gained[u["label"]]} for u in unions if several and u["label"] in gained]
        parts.append(_curve_part(f"({panel}) {title}", xlabel, unions, thin=means, ylabel="fooled by any restart (%)"))
    return parts


# ------------------------------------------------------------------------------------------------- layers
Slot = tuple[tuple[str, ...], float]  # (data and depth, layer)
GAP = 0.7  # between groups of layers, in layers
FEWEST = 8  # layers that an axis has room for, so that one layer is not drawn as broad as the page


def _slots(lines: Iterable[Row]) -> dict[Slot, float]:
    """Where each layer of each model depth stands, one beside the other; groups a little apart."""
    slots: dict[Slot, float] = {}
    at, group = 0.0, None
    for slot in dict.fromkeys((_group(line), line["x"]) for line in lines):
        at += 0 if group is None else 1 if slot[0] == group else 1 + GAP
        slots[slot], group = at, slot[0]
    return slots


def _is_own(line: Row) -> bool:
    """About the branches of a head, and no control."""
    return not any(detail.startswith("control") for detail in line["details"])


def _group(line: Row) -> tuple[str, ...]:
    return tuple(detail for detail in line["details"] if not detail.startswith("control"))


def _and_surrogates(title: str, lines: Sequence[Row]) -> str:
    """What is drawn in a panel; small CLIPs that stand in for published ones are called what they are."""
    return f"{title}, surrogates" if any(line["note"] == SURROGATE for line in lines) else title


def _layer_axis(axis: Any, slots: Mapping[Slot, float]) -> None:
    """The layer below each slot; below that the depth of the model, and the data set where there are several."""
    axis.set_xticks(list(slots.values()), [f"{layer:g}" for _, layer in slots])
    last = max(slots.values())
    half = max(last + 1.4, FEWEST) / 2
    axis.set_xlim(last / 2 - half, last / 2 + half)
    axis.grid(axis="x", visible=False)
    groups: dict[tuple[str, ...], list[float]] = {}
    for (group, _), at in slots.items():
        groups.setdefault(group, []).append(at)
    rows: list[tuple[str, dict[float, str]]] = [("layer", {})]  # the words of its ticks stand there already
    if any(groups):
        depths = {_middle(at): group[-1].removeprefix("depth ") for group, at in groups.items()}
        rows.append(("depth", depths))
    data = dict.fromkeys(name for name, *_ in filter(None, groups))
    if len(data) > 1:
        spans = {name: [x for group, at in groups.items() if group[0] == name for x in at] for name in data}
        rows.append(("", {_middle(at): data_name(name) for name, at in spans.items()}))
    for row, (name, texts) in enumerate(rows):
        _below(axis, row, name, 0, "axes fraction", ha="right")
        for x, text in texts.items():
            _below(axis, row, text, x, "data")


def _middle(at: Sequence[float]) -> float:
    return (at[0] + at[-1]) / 2


def _below(axis: Any, row: int, text: str, x: float, coordinates: str, ha: str = "center") -> None:
    """A word in one of the rows of words below an axis, the first of which is that of its ticks."""
    points = letter("xtick.labelsize")
    axis.annotate(
        text,
        (x, 0),
        (-6 if ha == "right" else 0, -7 - 1.4 * points * row),
        xycoords=(coordinates, "axes fraction"),
        textcoords="offset points",
        ha=ha,
        va="top",
        color=SOFT,
        fontsize=points,
        annotation_clip=False,
    )


def _figure4(lines: Lines) -> list[Part]:
    parts = []
    for panel, study, models in (("a", "fig4", VITS), ("b", "fig4-clip", CLIPS)):
        boxes = [line for line in lines[study] if line["axis"] == "layer" and line["reading"].startswith("L-sample")]
        measured = _slots(boxes)  # lambda is known as soon as a model is trained
        lambdas = where(lines[study], "lambda", "layer", models)
        lambdas = [line for line in lambdas if (_group(line), line["x"]) in measured]
        title = f"({panel}) {' and '.join(models)}: sensitivity of each layer's map, over images"
        parts.append(
            Part(
                partial(_box_panel, boxes=boxes, lambdas=lambdas, title=title),
                [*boxes, *lambdas] if boxes else [],
            )
        )
    return parts


def _box_panel(axis: Any, boxes: Sequence[Row], lambdas: Sequence[Row], title: str) -> None:
    """Boxes of L over images, layer by layer, each model's beside the other's; below them lambda of the same layer."""
    axis, below = _split(axis)
    slots = _slots(boxes)
    models = list(dict.fromkeys(line["model"] for line in boxes))
    entries = []
    for shift, model in zip((-0.19, 0.19), models):
        colour, stats = look_of(PLACES[model])["color"], []
        for slot in slots:
            of = {
                line["reading"]: line["value"]
                for line in boxes
                if line["model"] == model and (_group(line), line["x"]) == slot
            }
            quantiles = [of.get(f"L-sample of maps, quantile {q}") for q in QUANTILES]
            if None not in quantiles:
                keys = ("whislo", "q1", "med", "q3", "whishi")
                stats.append(({**dict(zip(keys, quantiles)), "mean": of.get("L-sample of maps")}, slots[slot] + shift))
        if stats:
            line = {"color": colour, "linewidth": 1}
            drawn = axis.bxp(
                [of for of, _ in stats],
                [at for _, at in stats],
                widths=0.32,
                patch_artist=True,
                showfliers=False,
                showmeans=True,
                boxprops={"facecolor": colour, "alpha": 0.45, "edgecolor": colour},
                medianprops={"color": INK, "linewidth": 1.2},
                whiskerprops=line,
                capprops=line,
                meanprops={
                    "marker": look_of(PLACES[model])["marker"],
                    "markersize": 3,
                    "markerfacecolor": INK,
                    "markeredgecolor": INK,
                },
                manage_ticks=False,
            )
            entries.append((drawn["boxes"][0], model))
    axis.set_ylim(bottom=0)
    axis.set_ylabel("local Lipschitz\nestimate L")
    axis.grid(axis="x", visible=False)
    axis.tick_params(labelbottom=False)
    for group in dict.fromkeys(_group(line) for line in lambdas):
        mine = [line for line in lambdas if _group(line) == group]
        style = {**look_of(PLACES[mine[0]["model"]]), "linestyle": "-", "markersize": 4, "linewidth": 1.2}
        below.plot([slots[group, line["x"]] for line in mine], [line["value"] for line in mine], **style)
    below.set_ylabel("λ")
    low, high = (f((line["value"] for line in lambdas), default=0.0) for f in (min, max))
    apart = max(high - low, SMALLEST)  # so that a little is not drawn as much
    below.set_ylim((low + high - 1.5 * apart) / 2, (low + high + 1.5 * apart) / 2)
    _layer_axis(below, slots)
    entries.append((Line2D([], [], color=INK, linewidth=1.2), "median"))
    entries.append(
        (Line2D([], [], color=INK, marker="o", markersize=3, linestyle=""), "mean; whiskers at 5 % and 95 %")
    )
    legend_above(axis, entries, _and_surrogates(title, boxes), 2 * LEGEND_WIDTH)


def _split(axis: Any) -> tuple[Any, Any]:
    """In place of one pair of axes two, the lower one flat, with the same numbers along them."""
    drawing, place = axis.figure, axis.get_subplotspec()
    axis.remove()
    upper, lower = place.subgridspec(2, 1, height_ratios=(3, 1), hspace=0.04)
    above = drawing.add_subplot(upper)
    return above, drawing.add_subplot(lower, sharex=above)


APART = 0.16  # between the marks of two controls, in bars
SMALLEST = 0.05  # difference of two lambdas that fills the height of its axis
OPPOSED = ("R1: share of cos < 0", "R3: share of cos < 0")


def _figure5(lines: Lines) -> list[Part]:
    parts, letters = [], iter("abcdef")
    for study, model in (("fig5", "DiffViT"), ("fig5-clip", "DiffCLIP")):
        for reading in OPPOSED:
            mine = where(lines[study], reading, "layer", (model,))
            mine = mine if any(_is_own(line) for line in mine) else []
            title = f"{model}: {reading_words(reading)}"
            panel = partial(_bar_panel, lines=mine, title=f"({next(letters)}) {title}" if mine else title)
            parts.append(Part(panel, mine))
    return parts


def _bar_panel(axis: Any, lines: Sequence[Row], title: str) -> None:
    """A bar per layer for a head's own branches with its interval, a mark for each control, and a line at one half."""
    slots = _slots(lines)
    own = [line for line in lines if _is_own(line)]
    at = [slots[_group(line), line["x"]] for line in own]
    heights = [scaled(line["value"], "%") for line in own]
    colour = look_of(PLACES[own[0]["model"]])["color"]
    bars = axis.bar(at, heights, width=0.62, color=colour, alpha=0.55, edgecolor=colour)
    for x, line in zip(at, own):
        if line["interval"] is not None:
            axis.plot([x, x], [scaled(end, "%") for end in line["interval"]], color=colour, linewidth=1.6)
    entries: list[tuple[Any, str]] = [(bars, "A1 and A2 of one head")]
    for place, (control, marker) in enumerate(CONTROL_MARKS.items()):
        mine = [line for line in lines if control in line["details"]]
        if mine:
            beside = APART * (place - (len(CONTROL_MARKS) - 1) / 2)  # marks at the same height do not hide each other
            xs = [slots[_group(line), line["x"]] + beside for line in mine]
            ys = [scaled(line["value"], "%") for line in mine]
            (drawn,) = axis.plot(xs, ys, marker, color=INK, markersize=4, markerfacecolor="none", linestyle="")
            entries.append((drawn, detail_words(control).removeprefix("control: ")))
    axis.axhline(50, color=INK, linewidth=1, linestyle=DASHES[1])
    axis.set_ylim(0, 108)
    axis.set_yticks((0, 25, 50, 75, 100))
    axis.set_ylabel("opposed (% of\nimages and heads)")
    _layer_axis(axis, slots)
    legend_above(axis, entries, _and_surrogates(title, lines), 2 * LEGEND_WIDTH)


FIGURES = (
    PaperFigure(
        "fig2",
        "Figure 2: attack success of perturbed pixels and of patches",
        ("fig2a", "fig2b", "fig2c", "fig2d"),
        _figure2,
        note="Bars and bands are 95 % intervals.",
    ),
    PaperFigure(
        "fig3",
        "Figure 3: what depth does",
        ("fig3a", "fig3b", "fig3c", "fig3d"),
        _figure3,
        note="Bars and bands are 95 % intervals; those of a panel (c) are in the table.",
    ),
    PaperFigure(
        "fig4",
        "Figure 4: sensitivity of the maps layer by layer, and λ",
        ("fig4", "fig4-clip"),
        _figure4,
        note="Boxes are the quartiles over images, whiskers the 5 % and 95 % quantiles, each a mean over seeds; below, λ after "
        "training.",
        wide=True,
        height=2.9,
    ),
    PaperFigure(
        "fig5",
        "Figure 5: how often the two branches oppose each other",
        ("fig5", "fig5-clip"),
        _figure5,
        note="Lines on bars are 95 % intervals; marks are controls: the model before training, A1 of a head with A2 of "
        "the next, and pairs of heads of the softmax model. Dashed: one half.",
        wide=True,
        height=1.85,
    ),
    PaperFigure(
        "fig6",
        "Figure 6: attack success with random restarts",
        ("fig6", "fig6-clip"),
        _figure6,
        note="Bars and bands are 95 % intervals.",
    ),
)
