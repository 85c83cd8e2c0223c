"""CLIP and DiffCLIP side by side: the user's own pair, or small surrogates that every table calls so. No torch."""

from __future__ import annotations

from collections.abc import Callable

from antiphase.studies.plan import Images, Model
from antiphase.studies.questions import Attack, Attacked, OfImages
from antiphase.studies.setting import Setting
from antiphase.studies.sides import Side, Values, difference_line, line, success
from antiphase.studies.study import Found, Line

NAMES = ("CLIP", "DiffCLIP")
Ask = Callable[[Model, Images], OfImages]


def asked(setting: Setting, data: str, ask: Ask, n: int | None = None) -> dict[str, tuple[OfImages, ...]]:
    """What is asked of both, a seed each; a given pair has one."""
    return {
        name: tuple(ask(model, setting.clip_images(model, data, n)) for model in setting.clips(name)) for name in NAMES
    }


def under(attack: Attack) -> Ask:
    def ask(of: Model, images: Images) -> Attacked:
        return Attacked(of=of, images=images, attack=attack)

    return ask


def sides(setting: Setting, data: str, ask: Ask, values: Values, n: int | None = None) -> dict[str, Side]:
    return {name: Side(cells, values) for name, cells in asked(setting, data, ask, n).items()}


def success_lines(
    setting: Setting,
    found: Found,
    attacks: dict[str, Attack],
    readings: tuple[str, ...],
    reference: str | None = None,
) -> list[Line]:
    """Both models and their difference on the paper's data sets, or on what the surrogates learned from."""
    table: list[Line] = []
    for named, data in setting.clip_data.items():
        where = named if named == data else f"{data} in place of {named}"
        for label, attack in attacks.items():
            for reading in readings:
                both = sides(setting, data, under(attack), success(reading))
                told = reference if reading == readings[0] else None
                for name, side in both.items():
                    table.append(line(found, f"{name}, {where}, {label}", side, reading, reference=told))
                apart = f"DiffCLIP - CLIP, {where}, {label}"
                table.append(difference_line(found, apart, both["DiffCLIP"], both["CLIP"], reading))
        if not setting.published:
            break  # surrogates have one data set: once is enough
    return table
