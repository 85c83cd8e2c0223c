"""C2: does differential attention do the same in an encoder that is no CLIP's? Two twins on the same pairs, attacked."""

from __future__ import annotations

from typing import Any

import numpy as np

from antiphase.attacks import PGD
from antiphase.clip_scales import CLIP_SCALES
from antiphase.measures.seed_intervals import PerImage, difference, estimated
from antiphase.models.clip_config import VARIANTS, clip_of_sizes
from antiphase.paper.grid import PAPER_PAIRS, Grid
from antiphase.paper.questions import Images, OtherEncoder
from antiphase.paper.series import ASR, Success, shown
from antiphase.paper.study import SURROGATE, Answers, Label, Line, Study
from antiphase.training.config import ContrastiveConfig

KINDS = {"softmax": False, "differential": True}
Cells = tuple[OtherEncoder, ...]


def _attacks(grid: Grid) -> tuple[PGD, ...]:
    return grid.pgd(grid.middle), grid.pgd(grid.large)


def _cells(grid: Grid, differential: bool) -> Cells:
    scale = CLIP_SCALES[grid.scale]
    attention = VARIANTS["CLIP"]
    data = scale.pairs or PAPER_PAIRS
    tested_on = Images(data=data if scale.pairs else "imagenet", n=grid.s.measure_images)
    return tuple(
        OtherEncoder(
            model=clip_of_sizes(scale, attention[:1], attention[1:]),
            training=ContrastiveConfig.at(scale, seed=seed),
            differential=differential,
            pairs=data,
            prompts=scale.prompts,
            images=grid.s.train_images,
            attacks=_attacks(grid),
            tested_on=tested_on,
        )
        for seed in grid.seeds()
    )


def lines(grid: Grid) -> list[Line]:
    table: list[Line] = []
    kinds = {name: _cells(grid, kind) for name, kind in KINDS.items()}
    for place, attack in enumerate(_attacks(grid)):
        for reading in ("accuracy", *ASR) if place == 0 else ASR:
            where = "zero-shot" if reading == "accuracy" else str(attack.within)
            for name, cells in kinds.items():
                table.append(_line(Label("encoder of torch's layers", name, where), cells, place, reading))
            table.append(_difference(Label("differential - softmax", where), kinds, place, reading))
    return table


def _line(label: Label, cells: Cells, place: int, reading: str) -> Line:
    def read(answers: Answers) -> dict[str, Any]:
        arm = _arm(answers, cells, place, reading)
        return {**shown(estimated([arm])), "n": arm.top.shape[1], "seeds": len(arm.top), "note": SURROGATE}

    return Line(label=label, reading=reading, cells=cells, read=read)


def _difference(label: Label, kinds: dict[str, Cells], place: int, reading: str) -> Line:
    def read(answers: Answers) -> dict[str, Any]:
        arms = [_arm(answers, kinds[name], place, reading) for name in ("differential", "softmax")]
        sizes = {"n": arms[0].top.shape[1], "seeds": len(arms[0].top)}
        return {**shown(estimated(arms, difference)), **sizes, "note": SURROGATE}

    cells = tuple(cell for each in kinds.values() for cell in each)
    return Line(label=label, reading=reading, cells=cells, read=read, unit="points")


def _arm(answers: Answers, cells: Cells, place: int, reading: str) -> PerImage:
    tops, bottoms = zip(*(Success(reading)(answers(cell)["attacks"][place]) for cell in cells))
    return PerImage(np.stack(tops), np.stack(bottoms), repr(cells[0].tested_on))


STUDIES = (
    Study(
        name="other-encoder",
        aliases=("c2",),
        title="C2: an encoder that is no CLIP's, with and without differential attention, on the same pairs",
        question="Does differential attention make another encoder, trained on the same pairs, better or easier to fool?",
        minutes=41.6,
        lines=lines,
    ),
)
