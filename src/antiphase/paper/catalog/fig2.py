"""Figure 2: is the differential twin easier to fool? (a, b) perturbed pixels, (c, d) patches; (a, c) ViT, (b, d) CLIP."""

from __future__ import annotations

from collections.abc import Callable

from antiphase.measures.bootstrap import difference, difference_of_gaps
from antiphase.paper.contrasts import ASR, Side, contrast, difference_line, line, success, trained_lines
from antiphase.paper.grid import Setting
from antiphase.paper.questions import Attack, Attacked, Cell
from antiphase.paper.study import FIGURE_ONLY, Found, Line, Prediction, Study

Attacks = dict[str, Attack]  # by what a table calls them
Asked = Callable[[Setting], Attacks]


def pixels(setting: Setting) -> Attacks:
    return {f"eps {eps}": setting.pgd(eps) for eps in setting.eps}


def patches(setting: Setting) -> Attacks:
    return {f"patch {w} x {w}": setting.patch(w) for w in setting.s.patch_widths}


def data_sets(setting: Setting) -> list[str]:
    more = setting.s.more_classes
    return [setting.data, *([more] if more not in (None, setting.data) else [])]


def twins(setting: Setting, data: str, attack: Attack) -> tuple[tuple[Attacked, ...], tuple[Attacked, ...]]:
    """The ViT's cells and the DiffViT's, a seed each."""
    models = [(setting.vit(seed, data=data), setting.diffvit(seed, data=data)) for seed in setting.seeds()]
    vit, diff = (tuple(setting.attacked(pair[i], attack) for pair in models) for i in (0, 1))
    return vit, diff


def variants(setting: Setting) -> Attacks:
    """What the paper leaves open about its PGD: away from which label, and with how many steps of which size."""
    away = {f"eps {eps} away from the predicted label": setting.pgd(eps, label="predicted") for eps in setting.eps}
    corners = setting.pgd(setting.middle, steps=10, step_size=2 / 255)
    return {**away, f"eps {setting.middle}, torchattacks' 10 steps of 2/255": corners}


def _none(_: Setting) -> Attacks:
    return {}


def _cells(attacks: Asked, besides: Asked = _none) -> Callable[[Setting], list[Cell]]:
    def cells(setting: Setting) -> list[Cell]:
        return [
            cell
            for data in data_sets(setting)
            for attack in [*attacks(setting).values(), *besides(setting).values()]
            for side in twins(setting, data, attack)
            for cell in side
        ]

    return cells


def _lines(attacks: Asked, besides: Asked = _none) -> Callable[[Setting, Found], list[Line]]:
    def lines(setting: Setting, found: Found) -> list[Line]:
        table: list[Line] = []
        for data in data_sets(setting):
            models = [[setting.vit(s, data=data), setting.diffvit(s, data=data)] for s in setting.seeds()]
            for name, of_seeds in zip(("ViT", "DiffViT"), zip(*models)):
                table += trained_lines(found, f"{name}, {data}", of_seeds)
            drawn = attacks(setting)
            for label, attack in (drawn | besides(setting)).items():
                for reading in (*ASR, "robust_error"):
                    vit, diff = (Side(side, success(reading)) for side in twins(setting, data, attack))
                    told = FIGURE_ONLY if reading == "asr_change" and label in drawn else None
                    for name, side in (("ViT", vit), ("DiffViT", diff)):
                        table.append(line(found, f"{name}, {data}, {label}", side, reading, reference=told))
                    table.append(difference_line(found, f"DiffViT - ViT, {data}, {label}", diff, vit, reading))
        return table

    return lines


def _contrasts(attacks: Asked, what: str) -> Callable[[Setting], list[Prediction]]:
    """K1: the DiffViT is easier to fool at every budget and width, on every data set."""

    def contrasts(setting: Setting) -> list[Prediction]:
        return [
            contrast("K1", f"ASR of DiffViT - ViT, {data}, {label}", f"{data}, {what}", reading, sides, difference)
            for reading in ASR
            for data in data_sets(setting)
            for label, attack in attacks(setting).items()
            for sides in [[Side(side, success(reading)) for side in reversed(twins(setting, data, attack))]]
        ]

    return contrasts


def _narrows(setting: Setting) -> list[Prediction]:
    """K19: the gap is smaller where there are more classes, at every budget."""
    few, *more = data_sets(setting)
    return [
        contrast(
            "K19", f"gap on {few} - gap on {many}, {label}", f"{few} and {many}", reading, sides, difference_of_gaps
        )
        for reading in ASR
        for many in more
        for label, attack in pixels(setting).items()
        for sides in [
            [Side(side, success(reading)) for data in (few, many) for side in reversed(twins(setting, data, attack))]
        ]
    ]


STUDIES = (
    Study(
        name="fig2a",
        title="Figure 2a: PGD on ViT and DiffViT of depth 1",
        question="Is a depth-1 DiffViT easier to fool than its ViT at every budget, and does the gap narrow with more classes?",
        minutes=12.7,
        cells=_cells(pixels, variants),
        lines=_lines(pixels, variants),
        contrasts=lambda setting: [*_contrasts(pixels, "pixels")(setting), *_narrows(setting)],
    ),
    Study(
        name="fig2c",
        title="Figure 2c: patch attacks on ViT and DiffViT of depth 1",
        question="Is a depth-1 DiffViT easier to fool than its ViT by a patch of every width?",
        minutes=4.3,
        cells=_cells(patches),
        lines=_lines(patches),
        contrasts=_contrasts(patches, "patches"),
    ),
)
