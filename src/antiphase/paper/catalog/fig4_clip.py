"""Figures 4 and 5 for CLIP: local Lipschitz and branch opposition in every layer of the vision tower."""

from __future__ import annotations

import numpy as np

from antiphase.measures.stats import Array
from antiphase.paper.catalog.fig4 import box_lines
from antiphase.paper.contrasts import PAIRS, Side, contrast, lambdas, line, mean_of, negative, undecided
from antiphase.paper.grid import Setting, asked_of_clips
from antiphase.paper.questions import Aligned, Cell, Images, Lipschitz, Model, OfImages
from antiphase.paper.study import FIGURE_ONLY, Found, Line, Prediction, Study

LARGE = 256  # images of 224 pixels at most: a forward of B/16 takes a second on a CPU


def _data(setting: Setting) -> str:
    return setting.clip_data["imagenet"]


def _images(setting: Setting) -> int:
    return min(LARGE, setting.s.measure_images) if setting.published else setting.s.measure_images


def _lipschitz(setting: Setting) -> dict[str, tuple[OfImages, ...]]:
    def ask(of: Model, images: Images) -> Lipschitz:
        return Lipschitz(of=of, images=images, draws=setting.s.lipschitz_draws)

    return asked_of_clips(setting, _data(setting), ask, _images(setting))


def _readings(setting: Setting) -> tuple[str, ...]:
    """Jacobians (R1) and finite changes (R3); of a large tower only these, for forward-mode probes take hours on a CPU."""
    small = setting.clip(0, "DiffCLIP").grid[0] < 224 or setting.scale == "paper"
    return ("R1", "R3") if small else ("R3",)


def _aligned(setting: Setting, reading: str) -> tuple[OfImages, ...]:
    def ask(of: Model, images: Images) -> Aligned:
        base = setting.clip(of.run_seed)
        return Aligned(of=of, base=base, images=images, reading=reading, probes=setting.s.probes)

    models = setting.clips("DiffCLIP")
    return tuple(ask(model, setting.clip_images(model, _data(setting), _images(setting))) for model in models)


def _depth(setting: Setting) -> int:
    return setting.clip(0, "DiffCLIP").tower.depth


def _lipschitz_lines(setting: Setting, found: Found) -> list[Line]:
    table: list[Line] = []
    both = _lipschitz(setting)
    for k in range(_depth(setting)):
        for name, cells in both.items():
            table += box_lines(found, f"{name}, layer {k + 1}", Side(cells, mean_of("max", k)))
    for k, side in enumerate(lambdas(both["DiffCLIP"], _depth(setting))):
        table.append(line(found, f"DiffCLIP, layer {k + 1}", side, "lambda", unit=""))
    return table


def _aligned_cells(setting: Setting) -> list[Cell]:
    cells = [cell for reading in _readings(setting) for cell in _aligned(setting, reading)]
    return [*cells, *(setting.predicted(cell.of, cell.images) for cell in cells)]


def _aligned_lines(setting: Setting, found: Found) -> list[Line]:
    return [
        line(
            found,
            f"DiffCLIP, layer {k + 1}" + ("" if pairs == "own" else f", control: {pairs}"),
            Side(_aligned(setting, reading), values(pairs, k)),
            f"{reading}: {what}",
            reference=FIGURE_ONLY if pairs == "own" and values is negative else None,
        )
        for reading in _readings(setting)
        for what, values in (("share of cos < 0", negative), ("share of undecided signs, left out", undecided))
        for k in range(_depth(setting))
        for pairs in PAIRS
    ]


def _over_the_rest(first: Array, *rest: Array) -> Array:
    apart: Array = first - np.max(rest, axis=0)
    return apart


def _aligned_contrasts(setting: Setting) -> list[Prediction]:
    """K8: in DiffCLIP the first layer is opposed most often."""
    if _depth(setting) < 2:
        return []
    name, layers = "share of cos < 0 in layer 1 of DiffCLIP - the largest of the others", range(_depth(setting))
    return [
        contrast("K8", name, "DiffCLIP", reading, by_layer, _over_the_rest)
        for reading in ("R1", "R3")
        for by_layer in [[Side(_aligned(setting, reading), negative("own", k)) for k in layers]]
    ]


STUDIES = (
    Study(
        name="fig4-clip",
        title="Figure 4 for CLIP: local Lipschitz of the maps, layer by layer",
        question="How does L change over the layers of CLIP and DiffCLIP, beside lambda?",
        minutes=7.0,
        priced=True,
        cells=lambda setting: [cell for cells in _lipschitz(setting).values() for cell in cells],
        lines=_lipschitz_lines,
        clip=True,
    ),
    Study(
        name="fig5-clip",
        title="Figure 5 for DiffCLIP: frequency of opposed changes of the two maps, layer by layer",
        question="Are the branches of DiffCLIP opposed most often in its first layer?",
        minutes=7.8,
        priced=True,
        cells=_aligned_cells,
        lines=_aligned_lines,
        contrasts=_aligned_contrasts,
        clip=True,
    ),
)
