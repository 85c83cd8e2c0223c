"""Focus, the other half of the trade-off: how much of the attention lies on the object, clean and attacked, beside success.

Our own question: it decides no claim of the papers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from antiphase.config import Names
from antiphase.measures.questions import FocusQuestion
from antiphase.models.config import Differential, Softmax
from antiphase.paper.grid import CLIP_NAMES, VIT_NAMES, Grid, attack_on, tile_clips, tile_images
from antiphase.paper.questions import Ask, Images, Model
from antiphase.paper.series import ASR, Series, Success, difference_line, line, mean_of
from antiphase.paper.study import Label, Line, Study, Tick

UNDER = ("clean", "scrambled", "pgd")
MAPS = {False: ("A",), True: ("A1", "A2", "A1 - lambda A2")}  # of a softmax model, of a differential one
APPLIED = {False: "A", True: "A1 - lambda A2"}  # the map that mixes the values
PATCH = {"smoke": 4}  # of a picture of 16 pixels; of one of 64 twice the scale's own


@dataclass(frozen=True)
class Pair:
    """A softmax model and its differential twin, over seeds, and the images on which both are looked at."""

    where: str
    names: tuple[str, str]
    softmax: tuple[Model, ...]
    differential: tuple[Model, ...]
    images: Callable[[Model], Images]

    @property
    def depth(self) -> int:
        return self.softmax[0].tower.depth

    @property
    def models(self) -> dict[bool, tuple[Model, ...]]:
        return {False: self.softmax, True: self.differential}


def _pairs(grid: Grid) -> list[Pair]:
    """ViTs that classify tiles at two depths, and CLIPs: of the published shape on COCO, else surrogates on tiles."""
    listed, on_tiles = [], tile_images(grid, grid.s.measure_images)
    patch, data = PATCH.get(grid.scale), on_tiles.data
    for depth in grid.depths[:2]:
        seeds = grid.seeds(depth)
        plain = tuple(grid.vit(seed, depth, data=data, patch=patch) for seed in seeds)
        twins = tuple(grid.diffvit(seed, depth, data=data, patch=patch) for seed in seeds)
        listed.append(Pair(f"{data}, depth {depth}", VIT_NAMES, plain, twins, lambda _: on_tiles))
    if grid.published:
        plain_clips, twin_clips = (tuple(grid.clips(name)) for name in CLIP_NAMES)
        n = min(grid.s.measure_images, 256)
        listed.append(Pair("coco", CLIP_NAMES, plain_clips, twin_clips, lambda of: grid.clip_images(of, "coco", n)))
    else:
        both = ((Softmax(),), (Softmax(),)), ((Differential(),), (Differential(),))
        plain_clips, twin_clips = (tuple(tile_clips(grid, *towers)) for towers in both)
        listed.append(Pair(data, CLIP_NAMES, plain_clips, twin_clips, lambda _: on_tiles))
    return listed


def _focus(grid: Grid, pair: Pair, differential: bool) -> tuple[Ask, ...]:
    question = FocusQuestion(eps=grid.middle, perturbations=Names(",".join(UNDER[1:])))
    return tuple(Ask(of=model, images=pair.images(model), question=question) for model in pair.models[differential])


def lines(grid: Grid) -> list[Line]:
    return [row for pair in _pairs(grid) for row in (*_focus_lines(grid, pair), *_attack_lines(grid, pair))]


def _focus_lines(grid: Grid, pair: Pair) -> list[Line]:
    cells = {kind: _focus(grid, pair, kind) for kind in MAPS}
    table: list[Line] = []
    on_object = "attention on the object, class token's row"

    def series(kind: bool, column: str, layer: int, which: str, under: str) -> Series:
        return Series(cells[kind], mean_of(column, layer, map=which, perturbation=under))

    for layer in range(pair.depth):
        at = Tick.at("layer", layer + 1)
        for kind, name in zip(MAPS, pair.names):
            for which in MAPS[kind]:
                for column, reading, unit in (
                    ("mass", on_object, "%"),
                    ("mass_rows", "attention on the object, mean over rows", "%"),
                    ("entropy", "entropy of the class token's row, bits", ""),
                ):
                    for under in UNDER:
                        label = Label(name, at, pair.where, which, under)
                        row = series(kind, column, layer, which, under)
                        table.append(line(label, row, reading, unit=unit))  # type: ignore[arg-type]
                label = Label(f"{name}, pgd - clean", at, pair.where, which)
                attacked, clean = (series(kind, "mass", layer, which, under) for under in ("pgd", "clean"))
                table.append(difference_line(label, attacked, clean, on_object))
        for under in UNDER:
            twin, plain = (series(kind, "mass", layer, APPLIED[kind], under) for kind in (True, False))
            label = Label(f"{pair.names[1]} - {pair.names[0]}", at, pair.where, "the map that is applied", under)
            table.append(difference_line(label, twin, plain, on_object))
        applied, signal = (series(True, "mass", layer, which, "clean") for which in ("A1 - lambda A2", "A1"))
        label = Label(f"{pair.names[1]}, A1 - lambda A2 against A1", at, pair.where, "clean")
        table.append(difference_line(label, applied, signal, on_object))
    return table


def _attack_lines(grid: Grid, pair: Pair) -> list[Line]:
    """Success of PGD at the same budget on the same images."""
    attack, table = grid.pgd(grid.middle), []
    cells = {
        kind: tuple(attack_on(model, pair.images(model), attack) for model in models)
        for kind, models in pair.models.items()
    }
    at = Tick.eps(grid.middle)
    for reading in ("accuracy", *ASR):
        both = {kind: Series(each, Success(reading)) for kind, each in cells.items()}
        for kind, name in zip(MAPS, pair.names):
            table.append(line(Label(name, at, pair.where), both[kind], reading))
        apart = Label(f"{pair.names[1]} - {pair.names[0]}", at, pair.where)
        table.append(difference_line(apart, both[True], both[False], reading))
    return table


STUDIES = (
    Study(
        name="focus",
        title="Focus: attention on the object and entropy of the maps, clean and attacked, beside attack success",
        question="Does the subtraction put more of the attention on the object, and what does an attack leave of it?",
        minutes=117.9,
        lines=lines,
        clip=True,
    ),
)
