"""Tiles: pictures of two by two cells, each an image of another set or clutter, with captions that say what is where.

An object is an image of CIFAR-10 (or of the embedded digits). Clutter is an image with its pixels shuffled: its colours, and
nothing to see. What stands in a scene is drawn from the example's own stream, so there are as many pictures as one likes, and
example i is the same whatever their number. Training never shows the compositions of the test split: a cat beside a ship, in
either order, is in one of the two. n pictures, C channels, s the side of a cell in pixels.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cache
from itertools import combinations, permutations
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from antiphase import runtime
from antiphase.config import InputError
from antiphase.data.imageset import ImageSet, PixelSource
from antiphase.data.pairs import PairSet
from antiphase.data.readers.cifar import load_cifar10
from antiphase.data.readers.digits import load_digits
from antiphase.data.readers.mmvp import Statements

Kind = Literal["one", "corner", "beside", "stacked", "apart", "several", "four"]
KINDS: tuple[Kind, ...] = ("one", "corner", "beside", "stacked", "apart", "several", "four")
FORMAT = 1  # raised when the same numbers would make other pictures
OFTEN: tuple[Kind, ...] = (*KINDS, "beside", "stacked")  # how often each is drawn: relations are the hardest to learn
TRAINING_PAIRS = 100_000  # pictures of the training split; a larger number begins with the same ones
STATEMENT_PAIRS = 150  # of each category
HELD_OUT = (3, 5, 7)  # classes so many apart (around the circle of all) stand together in the test split only
CORNERS = ("top left", "top right", "bottom left", "bottom right")
COUNTS = ("", "a", "two", "three", "four")
PLURALS = {"deer": "deer", "six": "sixes"}  # the others end in s
TEMPLATES = ("a photo of a {}",)  # how one object is captioned, so that class prompts are among the captions
EMPTY = -1  # a cell of clutter


# ------------------------------------------------------------------------------------------------- what stands where


class Scene(NamedTuple):
    """Which class stands in each cell (top left, top right, bottom left, bottom right), and what is said of it."""

    cells: tuple[int, int, int, int]
    captions: tuple[str, ...]


def _is_held_out(first: int, second: int, classes: int) -> bool:
    return (second - first) % classes in HELD_OUT


@cache
def compositions(kind: Kind, classes: int, split: str) -> tuple[tuple[int, ...], ...]:
    """The classes of a scene in the order in which it names them; of "corner" the class and where it is, of "several" the
    class and how many. One object wherever it is belongs to both splits."""
    test, every = split == "test", range(classes)
    if kind == "one":
        return tuple((a,) for a in every)
    if kind == "corner":
        return tuple((a, corner) for a in every for corner in range(4) if ((a + corner) % 5 == 0) == test)
    if kind == "several":
        return tuple((a, count) for a in every for count in (2, 3, 4) if ((a + count) % 5 == 0) == test)
    pairs = [pair for pair in permutations(every, 2) if _is_held_out(*pair, classes) == test]
    if kind == "apart":
        return tuple((a, b) for a, b in pairs if a < b)
    if kind == "four":  # a row above a row
        return tuple((*above, *below) for above in pairs for below in pairs if not set(above) & set(below))
    return tuple(pairs)


def placements(kind: Kind, composition: tuple[int, ...]) -> tuple[tuple[int, ...], ...]:
    """The cells that its objects may take, in the order of the composition."""
    if kind == "corner":
        return ((composition[1],),)
    if kind == "several":
        return tuple(combinations(range(4), composition[1]))
    places: dict[Kind, tuple[tuple[int, ...], ...]] = {
        "one": ((0,), (1,), (2,), (3,)),
        "beside": ((0, 1), (2, 3)),
        "stacked": ((0, 2), (1, 3)),
        "apart": ((0, 3), (3, 0), (1, 2), (2, 1)),
        "four": ((0, 1, 2, 3),),
    }
    return places[kind]


def captions(kind: Kind, composition: tuple[int, ...], class_names: tuple[str, ...]) -> tuple[str, ...]:
    """What can be said of a scene, each in one wording; the first is the one that statements use."""
    if kind == "several":
        name, count = class_names[composition[0]], composition[1]
        return (f"a photo of {COUNTS[count]} {PLURALS.get(name, name + 's')}",)
    if kind == "corner":
        return (f"a photo of {_with_article(class_names[composition[0]])} in the {CORNERS[composition[1]]} corner",)
    names = [_with_article(class_names[c]) for c in composition]
    if kind == "one":
        return tuple(
            dict.fromkeys((*(t.format(class_names[composition[0]]) for t in TEMPLATES), f"a photo of {names[0]}"))
        )
    if kind == "four":
        above, below = f"{names[0]} left of {names[1]}", f"{names[2]} left of {names[3]}"
        return f"a photo of {above}, above {below}", f"a photo of {below}, below {above}"
    a, b = names
    worded = {
        "beside": (f"{a} to the left of {b}", f"{b} to the right of {a}"),
        "stacked": (f"{a} above {b}", f"{b} below {a}"),
        "apart": (f"{a} and {b}", f"{b} and {a}"),
    }[kind]
    return tuple(f"a photo of {words}" for words in worded)


def _with_article(name: str) -> str:
    return f"{'an' if name[0] in 'aeiou' else 'a'} {name}"


def scene(kind: Kind, composition: tuple[int, ...], place: tuple[int, ...], class_names: tuple[str, ...]) -> Scene:
    cells = [EMPTY] * 4
    classes = composition[:1] * len(place) if kind in ("corner", "several") else composition
    for cell, label in zip(place, classes):
        cells[cell] = label
    return Scene((cells[0], cells[1], cells[2], cells[3]), captions(kind, composition, class_names))


# ------------------------------------------------------------------------------------------------- pixels


@dataclass(frozen=True)
class TiledSource:
    """Pictures put together from four images each when they are read."""

    images: PixelSource
    rows: NDArray[np.int64]  # (n, 4) of `images`, by cell
    clutter: NDArray[np.bool_]  # (n, 4): the cell shows its image with the pixels shuffled

    @property
    def shape(self) -> tuple[int, int, int]:
        channels, height, width = self.images.shape
        return channels, 2 * height, 2 * width

    def read(self, rows: NDArray[np.int64]) -> Tensor:
        n, (channels, height, width) = len(rows), self.images.shape
        cells = self.images.read(self.rows[rows].reshape(-1)).reshape(n, 4, channels, height * width)
        order = torch.from_numpy(np.random.default_rng(0).permuted(np.tile(np.arange(height * width), (4, 1)), axis=1))
        shuffled = cells.gather(-1, order[None, :, None].expand(n, 4, channels, height * width))
        mixed = torch.where(torch.from_numpy(self.clutter[rows])[:, :, None, None], shuffled, cells)
        grid = mixed.reshape(n, 2, 2, channels, height, width)  # (n, row, column, C, s, s)
        return grid.permute(0, 3, 1, 4, 2, 5).reshape(n, channels, 2 * height, 2 * width)


def _pictures(images: ImageSet, cells: NDArray[np.int64], draws: NDArray[np.float64]) -> TiledSource:
    """The source of scenes: for each cell (n, 4) an image of its class, for an empty one any image; draws (n, 4)."""
    by_class = [np.flatnonzero(images.labels == label) for label in range(images.classes)]
    order = np.concatenate(by_class)
    sizes = np.array([len(rows) for rows in by_class])
    starts = np.concatenate([[0], np.cumsum(sizes)[:-1]])
    empty = cells == EMPTY
    size, start = np.where(empty, len(images), sizes[cells]), np.where(empty, 0, starts[cells])
    return TiledSource(images.source, images.ids[order[start + (draws * size).astype(np.int64)]], empty)


# ------------------------------------------------------------------------------------------------- the sets


def base_images(name: str, split: str, folder: Path) -> ImageSet:
    """The images that stand in the cells."""
    return load_digits(split) if name == "tiles-digits" else load_cifar10(split, folder, 32)


def load_tile_pairs(name: str, split: str, folder: Path, pictures: int | None = None) -> PairSet:
    """Captioned pictures. The training split has as many as one likes; the test split every scene that is held out, once."""
    if split not in ("train", "test"):
        raise InputError(f"{name} comes without a {split} split of its own: it takes train or test")
    images = base_images(name, split, folder)
    if split == "test":
        scenes, draws = _every_scene(images)
    else:
        scenes, draws = _drawn_scenes(images, pictures or TRAINING_PAIRS)
    cells = np.array([each.cells for each in scenes], dtype=np.int64)
    return PairSet(
        name=name,
        split=split,
        captions=tuple(each.captions for each in scenes),
        ids=np.arange(len(scenes)),
        source=_pictures(images, cells, draws),
        content=_content(images),
        class_names=images.class_names,
        templates=TEMPLATES,
    )


def _content(images: ImageSet) -> str:
    return hashlib.sha256(f"tiles {FORMAT} {images.fingerprint}".encode()).hexdigest()


def _drawn_scenes(images: ImageSet, n: int) -> tuple[list[Scene], NDArray[np.float64]]:
    """n scenes of the training compositions, and (n, 4) draws of the images in the cells."""
    draws = runtime.uniform(("tiles", images.split), np.arange(n), (7,))
    listed = {kind: compositions(kind, images.classes, images.split) for kind in KINDS}
    made = _SceneMaker(images.class_names)
    scenes = []
    for which, what, where in draws[:, :3]:
        kind = OFTEN[int(which * len(OFTEN))]
        composition = listed[kind][int(what * len(listed[kind]))]
        places = placements(kind, composition)
        scenes.append(made(kind, composition, places[int(where * len(places))]))
    return scenes, draws[:, 3:]


def _every_scene(images: ImageSet) -> tuple[list[Scene], NDArray[np.float64]]:
    """Every composition of the split once, so that no two pictures have the same captions."""
    listed = [(kind, c) for kind in KINDS for c in compositions(kind, images.classes, images.split)]
    draws = runtime.uniform(("tiles", images.split), np.arange(len(listed)), (5,))
    scenes = []
    for (kind, composition), where in zip(listed, draws[:, 0]):
        places = placements(kind, composition)
        scenes.append(scene(kind, composition, places[int(where * len(places))], images.class_names))
    return scenes, draws[:, 1:]


class _SceneMaker:
    """Scenes by kind, composition and place, each made once: a hundred thousand pictures show a few thousand of them."""

    def __init__(self, class_names: tuple[str, ...]) -> None:
        self.class_names = class_names
        self.made: dict[tuple[Kind, tuple[int, ...], tuple[int, ...]], Scene] = {}

    def __call__(self, kind: Kind, composition: tuple[int, ...], place: tuple[int, ...]) -> Scene:
        key = kind, composition, place
        if key not in self.made:
            self.made[key] = scene(kind, composition, place, self.class_names)
        return self.made[key]


def load_tiles(name: str, split: str, folder: Path) -> ImageSet:
    """With classes: every image once as the one object of a picture, in a cell of its own stream among three of clutter."""
    images = base_images(name, split, folder)
    n = len(images)
    draws = runtime.uniform(("tile of a class", images.split), images.ids, (5,))  # (n, 5)
    cell = (draws[:, 0] * 4).astype(np.int64)
    rows = images.ids[(draws[:, 1:] * n).astype(np.int64)]  # of the clutter
    clutter = np.ones((n, 4), dtype=bool)
    rows[np.arange(n), cell], clutter[np.arange(n), cell] = images.ids, False
    top, left = cell // 2 / 2, cell % 2 / 2
    boxes = np.stack([top, left, top + 0.5, left + 0.5], axis=1)
    return ImageSet(
        name=name,
        split=split,
        class_names=images.class_names,
        labels=images.labels,
        ids=np.arange(n),
        source=TiledSource(images.source, rows, clutter),
        content=_content(images),
        boxes=tuple(box[None] for box in boxes),
    )


def load_tiles_of_cifar10(split: str, folder: Path, _: int) -> ImageSet:
    return load_tiles("tiles", split, folder)


def load_tiles_of_digits(split: str, folder: Path, _: int) -> ImageSet:
    return load_tiles("tiles-digits", split, folder)


# ------------------------------------------------------------------------------------------------- pairs of statements


def load_tile_statements(name: str, folder: Path, pairs: int = STATEMENT_PAIRS) -> Statements:
    """In MMVP's manner: two pictures of the same images that differ in one thing, which one statement is true of each.

    left or right, above or below: the two objects have changed places. Which object: another one stands to the right. How
    many: one more or one less. Compositions and images are those of the test split.
    """
    images = base_images(name, "test", folder)
    scenes: list[Scene] = []
    draws: list[NDArray[np.float64]] = []
    for category, make in STATEMENTS.items():
        drawn = runtime.uniform(("tile statements", category), np.arange(pairs), (7,))  # (pairs, 7)
        for row in drawn:
            both = make(images.class_names, row[:3])
            scenes += both
            draws += [row[3:], _moved(both, row[3:])]
    cells = np.array([each.cells for each in scenes], dtype=np.int64)
    captioned = PairSet(
        name=f"{name} statements",
        split="test",
        captions=tuple((each.captions[0].removeprefix("a photo of "),) for each in scenes),
        ids=np.arange(len(scenes)),
        source=_pictures(images, cells, np.stack(draws)),
        content=_content(images),
        origin=name,
    )
    return Statements(captioned, tuple(category for category in STATEMENTS for _ in range(pairs)))


def _moved(both: list[Scene], draws: NDArray[np.float64]) -> NDArray[np.float64]:
    """(4,) draws for the second picture: where two objects have changed places, their images go with them."""
    one, other = (np.array(each.cells) for each in both)
    changed = np.flatnonzero(one != other)
    moved = draws.copy()
    if len(changed) == 2 and set(one[changed]) == set(other[changed]):
        moved[changed] = draws[changed[::-1]]
    return moved


def _exchange(kind: Kind, class_names: tuple[str, ...], draws: NDArray[np.float64]) -> list[Scene]:
    listed = compositions(kind, len(class_names), "test")
    a, b = listed[int(draws[0] * len(listed))]
    places = placements(kind, (a, b))
    place = places[int(draws[1] * len(places))]
    return [scene(kind, each, place, class_names) for each in ((a, b), (b, a))]


def _left_or_right(class_names: tuple[str, ...], draws: NDArray[np.float64]) -> list[Scene]:
    return _exchange("beside", class_names, draws)


def _above_or_below(class_names: tuple[str, ...], draws: NDArray[np.float64]) -> list[Scene]:
    return _exchange("stacked", class_names, draws)


def _which_object(class_names: tuple[str, ...], draws: NDArray[np.float64]) -> list[Scene]:
    listed = compositions("beside", len(class_names), "test")
    a, b = listed[int(draws[0] * len(listed))]
    others = [second for first, second in listed if first == a and second != b]
    c = others[int(draws[2] * len(others))]
    place = placements("beside", (a, b))[int(draws[1] * 2)]
    return [scene("beside", each, place, class_names) for each in ((a, b), (a, c))]


def _how_many(class_names: tuple[str, ...], draws: NDArray[np.float64]) -> list[Scene]:
    listed = compositions("several", len(class_names), "test")
    label, count = listed[int(draws[0] * len(listed))]
    other = count - 1 if count > 2 else count + 1
    more = placements("several", (label, max(count, other)))
    place = more[int(draws[1] * len(more))]
    return [scene("several", (label, k), place[:k], class_names) for k in (count, other)]


STATEMENTS = {
    "left or right": _left_or_right,
    "above or below": _above_or_below,
    "which object": _which_object,
    "how many": _how_many,
}
