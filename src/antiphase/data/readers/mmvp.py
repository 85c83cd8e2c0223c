"""MMVP-VLM: pairs of images that CLIP confuses, a statement for each image, in nine categories of what tells them apart."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from antiphase import files
from antiphase.config import InputError
from antiphase.data.catalog import MMVP, find_folder
from antiphase.data.decode import file_pixels
from antiphase.data.pairs import PairSet
from antiphase.data.readers.image_folders import required

NAME = "mmvp"
PHOTOGRAPHS = ("MLLM_VLM Images", "MMVP_VLM_Images")  # as the authors' script says, and as their README does


@dataclass(frozen=True)
class Statements:
    """Image 2i and image 2i + 1 are a pair; the caption of each is true of it and false of the other."""

    images: PairSet
    categories: tuple[str, ...]  # of each pair


def load_mmvp(*, root: str | Path | None = None, image_size: int | None = None) -> Statements:
    """`Questions.csv` (number, category, statement; a header first) and `MLLM_VLM Images/<category>/<number>.jpg`."""
    folder = find_folder(NAME, MMVP, root)
    table = required(folder / "Questions.csv", "the list of statements")
    folders = [folder / name for name in PHOTOGRAPHS if (folder / name).is_dir()]
    if not folders:
        raise InputError(f"{folder / PHOTOGRAPHS[0]} is missing: expected one folder of images for each category in it")
    rows = _rows(table)
    source, content = file_pixels(
        tuple(folders[0] / category / f"{number}.jpg" for number, category, _ in rows), image_size or MMVP.size, NAME
    )
    images = PairSet(
        name=NAME,
        split="test",
        captions=tuple((statement,) for _, _, statement in rows),
        ids=np.arange(len(rows)),
        source=source,
        content=content + files.sha256(table),
        origin=NAME,
    )
    return Statements(images, tuple(category for _, category, _ in rows[::2]))


def _rows(table: Path) -> list[tuple[str, str, str]]:
    """(number, category, statement) of every image; neighbours are a pair and of one category."""
    try:
        _, *lines = csv.reader(table.read_text(encoding="utf-8-sig").splitlines())
    except (UnicodeDecodeError, csv.Error, ValueError) as error:
        raise InputError(f"{table} is not a table of statements ({error})") from None
    rows = []
    for number, line in enumerate(lines, start=2):
        if len(line) < 3 or not line[0].strip().isdigit() or not line[2].strip():
            raise InputError(f"{table}, line {number}: expected the number of an image, its category and its statement")
        rows.append((line[0].strip(), line[1].strip(), line[2].strip()))
    if not rows or len(rows) % 2:
        raise InputError(f"{table} lists {len(rows)} images: they come in pairs")
    for number, (first, second) in enumerate(zip(rows[::2], rows[1::2])):
        if first[1] != second[1]:
            raise InputError(
                f"{table}, line {2 * number + 3}: a pair is of one category, and this is {first[1]} and {second[1]}"
            )
    return rows
