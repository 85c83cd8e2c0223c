"""C2: does differential attention do the same in an encoder that is no CLIP's? Two twins on the same pairs, attacked."""

from __future__ import annotations

from antiphase.attacks import PGD
from antiphase.clip_scales import CLIP_SCALES
from antiphase.measures.bootstrap import PerImage, difference, interval
from antiphase.models.clip_config import VARIANTS, clip_of_sizes
from antiphase.paper.contrasts import ASR, pair, success
from antiphase.paper.grid import PAPER_PAIRS, Setting
from antiphase.paper.questions import Cell, Foreign, Images
from antiphase.paper.study import SURROGATE, Found, Line, Missing, Study
from antiphase.training.config import ContrastiveConfig

KINDS = {"softmax": False, "differential": True}


def _attacks(setting: Setting) -> tuple[PGD, ...]:
    return setting.pgd(setting.middle), setting.pgd(setting.large)


def _cells(setting: Setting, differential: bool) -> tuple[Foreign, ...]:
    scale = CLIP_SCALES[setting.scale]
    attention = VARIANTS["CLIP"]
    data = scale.pairs or PAPER_PAIRS
    judged = Images(data=data if scale.pairs else "imagenet", n=setting.s.measure_images)
    return tuple(
        Foreign(
            model=clip_of_sizes(scale, attention[:1], attention[1:]),
            training=ContrastiveConfig.at(scale, seed=seed),
            differential=differential,
            pairs=data,
            prompts=scale.prompts,
            images=setting.s.train_images,
            attacks=_attacks(setting),
            judged=judged,
        )
        for seed in setting.seeds()
    )


def cells(setting: Setting) -> list[Cell]:
    return [cell for kind in KINDS.values() for cell in _cells(setting, kind)]


def lines(setting: Setting, found: Found) -> list[Line]:
    table: list[Line] = []
    for place, attack in enumerate(_attacks(setting)):
        for reading in ("accuracy", *ASR) if place == 0 else ASR:
            where = "zero-shot" if reading == "accuracy" else str(attack.within)
            arms: list[PerImage] = []
            for name, kind in KINDS.items():
                label = f"encoder of torch's layers, {name}, {where}"
                try:
                    arms.append(_arm(found, _cells(setting, kind), place, reading))
                except Missing:
                    table.append(Line(label=label, reading=reading, note="not run yet"))
                    continue
                size = {"n": arms[-1].top.shape[1], "seeds": len(arms[-1].top)}
                table.append(Line(label=label, reading=reading, **pair(interval(arms[-1:])), **size, note=SURROGATE))
            if len(arms) == 2:
                got = pair(interval(arms[::-1], difference))
                table.append(Line(label=f"differential - softmax, {where}", reading=reading, **got, note=SURROGATE))
    return table


def _arm(found: Found, cells: tuple[Foreign, ...], place: int, reading: str) -> PerImage:
    import numpy as np

    tops, bottoms = zip(*(success(reading)(found(cell)["attacks"][place]) for cell in cells))
    return PerImage(np.stack(tops), np.stack(bottoms), repr(cells[0].judged))


STUDIES = (
    Study(
        name="c2",
        title="C2: an encoder that is no CLIP's, with and without differential attention, on the same pairs",
        question="Does differential attention make another encoder, trained on the same pairs, better or easier to fool?",
        minutes=11.0,
        priced=True,
        cells=cells,
        lines=lines,
    ),
)
