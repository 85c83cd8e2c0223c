"""Captions in the published layouts: Flickr's token files, COCO's captions, Karpathy's splits. Defects are named or counted.

`allow` names what may be left out: "missing" image files, "empty" captions, "broken" images. All else is refused.
"""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

import numpy as np

from antiphase import files
from antiphase.config import InputError, read_text
from antiphase.data.decode import FileSource, file_pixels, stamp, undecodable
from antiphase.data.pairs import PairSet, held_out
from antiphase.data.tolerance import Tolerance

Captioned = dict[str, list[str]]  # image file name -> its captions


def load_flickr(name: str, split: str, folder: Path, size: int, allow: Collection[str] = ()) -> PairSet:
    """A token file (`image.jpg#0<tab>caption`), its photographs, and the lists `Flickr_8k.{train,dev,test}Images.txt` if there.

    Karpathy's `dataset_flickr{8,30}k.json` serves too, and carries its own splits.
    """
    if tables := sorted(folder.glob("dataset_flickr*.json")):
        return load_karpathy(name, split, tables[0], folder, size, allow)
    tables = sorted([*folder.glob("*.token.txt"), *folder.glob("*.token")])
    if not tables:
        raise InputError(
            f"{folder} has no captions: expected Flickr8k.token.txt, results_20130124.token or a dataset_*.json"
        )
    tolerance = Tolerance(allow)
    captioned = _token_file(tables[0], tolerance)
    lists = {"train": "train", "val": "dev", "test": "test"}
    named = sorted(folder.glob(f"*{lists[split]}Images.txt")) if split in lists else []
    if named:
        wanted = [line.strip() for line in read_text(named[0]).split("\n") if line.strip()]
        unknown = [image for image in wanted if image not in captioned]
        for image in unknown:
            tolerance.meet("empty", f"{named[0]} lists {image}, and {tables[0].name} has no caption of it")
        captioned = {image: captioned[image] for image in wanted if image in captioned}
    elif split != "all":
        if any(folder.glob("*Images.txt")):
            raise InputError(
                f"{folder} has no {split} split: expected a list such as Flickr_8k.{lists[split]}Images.txt"
            )
        kept = held_out(list(captioned), split, name)
        captioned = {image: captioned[image] for image in kept}
    return _assemble(name, split, captioned, _photographs(folder), tables[0], size, tolerance)


def load_coco_captions(split: str, folder: Path, size: int, allow: Collection[str] = ()) -> PairSet:
    """`annotations/captions_{val,train}20xx.json` with `{val,train}20xx/*.jpg`; "test" is its val, "all" is both."""
    notes, tolerance = folder / "annotations", Tolerance(allow)
    captioned: Captioned = {}
    for part in {"train": ("train",), "all": ("train", "val")}.get(split, ("val",)):
        tables = sorted(notes.glob(f"captions_{part}20*.json"))
        if not tables:
            raise InputError(f"{folder} has no {split} captions: expected {notes / f'captions_{part}2017.json'}")
        captioned |= _coco_table(tables[-1], tolerance)
    return _assemble("coco", split, captioned, folder, notes if split == "all" else tables[-1], size, tolerance)


def _coco_table(table: Path, tolerance: Tolerance) -> Captioned:
    """By the place of the image below COCO's folder, in the order of the ids."""
    raw, photographs = files.read_json(table, "images", "annotations"), table.stem.removeprefix("captions_")
    try:
        images = sorted(raw["images"], key=lambda image: int(image["id"]))
        names = {int(image["id"]): f"{photographs}/{image['file_name']}" for image in images}
        captioned: Captioned = {name: [] for name in names.values()}
        for annotation in sorted(raw["annotations"], key=lambda a: int(a["id"])):
            _keep(
                captioned[names[int(annotation["image_id"])]],
                str(annotation["caption"]),
                f"{table}, annotation {annotation['id']},",
                tolerance,
            )
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"{table} is not a COCO captions file ({error!r} is missing or of another kind)") from None
    return captioned


def load_karpathy(name: str, split: str, table: Path, folder: Path, size: int, allow: Collection[str] = ()) -> PairSet:
    """Karpathy's JSON: images with `filename`, `split` and `sentences` of `raw` text; "restval" belongs to train."""
    raw, tolerance = files.read_json(table, "images"), Tolerance(allow)
    captioned: Captioned = {}
    try:
        for image in raw["images"]:
            own = "train" if image["split"] == "restval" else str(image["split"])
            if split in (own, "all"):
                texts = captioned.setdefault(str(image["filename"]), [])
                for sentence in image["sentences"]:
                    _keep(texts, str(sentence["raw"]), f"{table}, {image['filename']},", tolerance)
    except (KeyError, TypeError) as error:
        raise InputError(
            f"{table} is not Karpathy's list of captions ({error!r} is missing or of another kind)"
        ) from None
    return _assemble(name, split, captioned, _photographs(folder), table, size, tolerance)


def _token_file(table: Path, tolerance: Tolerance) -> Captioned:
    captioned: Captioned = {}
    for number, line in enumerate(read_text(table).split("\n"), start=1):
        key, tab, caption = line.partition("\t")
        if not line.strip():
            continue
        if not tab or "#" not in key:
            raise InputError(f"{table}, line {number}: expected image.jpg#0, a tab and a caption")
        _keep(captioned.setdefault(key.rpartition("#")[0], []), caption, f"{table}, line {number},", tolerance)
    return captioned


def _keep(texts: list[str], caption: str, where: str, tolerance: Tolerance) -> None:
    if caption.strip():
        texts.append(" ".join(caption.split()))
    else:
        tolerance.meet("empty", f"{where} is an empty caption")


def _photographs(folder: Path) -> Path:
    """Flickr8k's images come in Flicker8k_Dataset (their spelling), Flickr30k's in flickr30k-images; or beside the captions."""
    for pattern in ("Flick*_Dataset", "flickr*images*", "[Ii]mages"):
        for inner in sorted(folder.glob(pattern)):
            if inner.is_dir():
                return inner
    return folder


def _assemble(
    name: str, split: str, captioned: Captioned, photographs: Path, table: Path, size: int, tolerance: Tolerance
) -> PairSet:
    there: list[tuple[Path, tuple[str, ...]]] = []
    for image, texts in captioned.items():
        path = photographs / image
        if not path.is_file():
            tolerance.meet("missing", f"{path} is missing: {table.name} has captions of it")
        elif not texts:
            tolerance.meet("empty", f"{table} has no caption of {image}")
        else:
            there.append((path, tuple(texts)))
    if "broken" in tolerance.allow:
        paths = tuple(path for path, _ in there)
        bad = undecodable(FileSource(paths, size), stamp(paths), f"{name} {split}")
        tolerance.count("broken", len(bad))
        there = [pair for row, pair in enumerate(there) if row not in bad]
    if not there:
        raise InputError(f"{table} leaves no captioned image for the {split} split")
    source, content = file_pixels(tuple(path for path, _ in there), size, f"{name} {split}")
    return PairSet(
        name=name,
        split=split,
        captions=tuple(texts for _, texts in there),
        ids=np.arange(len(there)),
        source=source,
        content=content,
        skipped=tolerance.skipped,
    )
