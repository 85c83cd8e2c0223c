"""Figures 4 and 5 for CLIP: local Lipschitz and branch opposition in every layer of the vision tower."""

from __future__ import annotations

from antiphase.measures.questions import AlignmentQuestion, LipschitzQuestion
from antiphase.measures.seed_intervals import difference
from antiphase.paper.catalog.fig4 import box_lines, lambda_line
from antiphase.paper.contrasts import predict
from antiphase.paper.grid import Grid, clips
from antiphase.paper.questions import Ask, Images, Model
from antiphase.paper.series import PAIRS, Series, line, mean_of, negative, undecided
from antiphase.paper.study import FIGURE_ONLY, Label, Line, Prediction, Study, Tick
from antiphase.paper.titles import data_name

LARGE = 256  # images of 224 pixels at most: a forward of B/16 takes a second on a CPU


def _data(grid: Grid) -> str:
    return grid.clip_data["imagenet"]


def _images(grid: Grid) -> int:
    return min(LARGE, grid.s.measure_images) if grid.published else grid.s.measure_images


def _lipschitz(grid: Grid) -> dict[str, tuple[Ask, ...]]:
    question = LipschitzQuestion(draws=grid.s.lipschitz_draws)

    def ask(of: Model, images: Images) -> Ask:
        return Ask(of=of, images=images, question=question)

    return clips(grid, _data(grid), ask, _images(grid))


def _readings(grid: Grid) -> tuple[str, ...]:
    """Jacobians (R1) and finite changes (R3); of a large tower only these, for forward-mode probes take hours on a CPU."""
    small = grid.clip(0, "DiffCLIP").grid[0] < 224 or grid.scale == "paper"
    return ("R1", "R3") if small else ("R3",)


def _alignment(grid: Grid, reading: str) -> tuple[Ask, ...]:
    question = AlignmentQuestion(reading=reading, probes=grid.s.probes)
    return tuple(
        Ask(
            of=model,
            base=grid.clip(model.run_seed),
            images=grid.clip_images(model, _data(grid), grid.enough_for_pair(_images(grid))),
            question=question,
        )
        for model in grid.clips("DiffCLIP")
    )


def _depth(grid: Grid) -> int:
    return grid.clip(0, "DiffCLIP").tower.depth


def _lipschitz_lines(grid: Grid) -> list[Line]:
    table: list[Line] = []
    both = _lipschitz(grid)
    for k in range(_depth(grid)):
        for name, cells in both.items():
            table += box_lines(Label(name, Tick.at("layer", k + 1)), Series(cells, mean_of("max", k)))
    models = [cell.of for cell in both["DiffCLIP"]]
    table += [lambda_line(Label("DiffCLIP", Tick.at("layer", k + 1)), models, k) for k in range(_depth(grid))]
    return table


def _alignment_lines(grid: Grid) -> list[Line]:
    return [
        line(
            Label("DiffCLIP", Tick.at("layer", k + 1), "" if pairs == "own" else f"control: {pairs}"),
            Series(_alignment(grid, reading), values(pairs, k)),
            f"{reading}: {what}",
            reference=FIGURE_ONLY if pairs == "own" and values is negative else None,
        )
        for reading in _readings(grid)
        for what, values in (("share of cos < 0", negative), ("share of undecided signs, left out", undecided))
        for k in range(_depth(grid))
        for pairs in PAIRS
    ]


def _alignment_predictions(grid: Grid) -> list[Prediction]:
    """K8: in DiffCLIP the first layer is opposed more often than each of the others. (Their largest would be too large: of
    layers that are alike it is the one that chance favoured.)"""
    if _depth(grid) < 2 or not grid.decides_on("imagenet"):
        return []
    says = "the first layer of DiffCLIP"
    return [
        predict(
            "K8",
            f"share of cos < 0 in layer 1 of DiffCLIP - in layer {k + 1}",
            "DiffCLIP",
            reading,
            [Series(_alignment(grid, reading), negative("own", layer)) for layer in (0, k)],
            difference,
            optional=reading not in _readings(grid),
            says=says,
        )
        for reading in ("R1", "R3")
        for k in range(1, _depth(grid))
    ]


STUDIES = (
    Study(
        name="fig4-clip",
        title=lambda grid: f"Figure 4 for CLIP: local Lipschitz of the maps layer by layer, {data_name(_data(grid))}",
        question="How does L change over the layers of CLIP and DiffCLIP, beside lambda?",
        minutes=34.1,
        lines=_lipschitz_lines,
        clip=True,
    ),
    Study(
        name="fig5-clip",
        claims=("K8",),
        title=lambda grid: (
            f"Figure 5 for DiffCLIP: frequency of opposed changes of the two maps, layer by layer, {data_name(_data(grid))}"
        ),
        question="Are the branches of DiffCLIP opposed most often in its first layer?",
        minutes=37.6,
        lines=_alignment_lines,
        predictions=_alignment_predictions,
        clip=True,
    ),
)
