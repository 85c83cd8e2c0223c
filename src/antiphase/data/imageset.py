"""ImageSet: pixels in [0,1], labels, class names, and ids that stay with an image through every subset.

n images, C channels, H x W pixels.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from antiphase.config import LARGEST_INTEGER, InputError, checked_arguments, shown
from antiphase.tables import Shown, Table, size_text

LISTED = 12  # classes in the table of a set, at most


class PixelSource(Protocol):
    """Where pixels come from; rows are positions in the whole set."""

    @property
    def shape(self) -> tuple[int, int, int]: ...  # (C, H, W)

    def read(self, rows: NDArray[np.int64]) -> Tensor: ...  # (len(rows), C, H, W) float32 in [0,1]


@dataclass(frozen=True)
class ArraySource:
    """Whole numbers 0..levels in one array, possibly mapped from disk and read row by row."""

    array: NDArray[np.uint8]  # (n, C, H, W)
    levels: int = 255

    @property
    def shape(self) -> tuple[int, int, int]:
        _, c, h, w = self.array.shape
        return c, h, w

    def read(self, rows: NDArray[np.int64]) -> Tensor:
        return torch.from_numpy(self.array[rows]).to(torch.float32).div_(self.levels)


@dataclass(frozen=True)
class Resized:
    """Another source resized to another side, for a model that wants larger images: bilinear, on reading."""

    source: PixelSource
    side: int

    @property
    def shape(self) -> tuple[int, int, int]:
        return self.source.shape[0], self.side, self.side

    def read(self, rows: NDArray[np.int64]) -> Tensor:
        return F.interpolate(self.source.read(rows), (self.side, self.side), mode="bilinear", antialias=True).clamp(
            0, 1
        )


@dataclass(frozen=True)
class TensorSource:
    """Pixels in memory, found by the ids of their images."""

    pixels: Tensor  # (n, C, H, W)
    rows: dict[int, int]  # id -> row of `pixels`

    @property
    def shape(self) -> tuple[int, int, int]:
        _, c, h, w = self.pixels.shape
        return c, h, w

    def read(self, rows: NDArray[np.int64]) -> Tensor:
        return self.pixels[[self.rows[int(r)] for r in rows]]


class Batch(NamedTuple):
    """Some images with their labels and ids."""

    pixels: Tensor  # (B, C, H, W) float32 in [0,1]
    labels: Tensor  # (B,) int64
    ids: NDArray[np.int64]  # (B,) the keys of the examples' random streams

    @property
    def inputs(self) -> tuple[Tensor, ...]:
        """What a model is called with."""
        return (self.pixels,)

    def to(self, device: torch.device | str) -> Batch:
        """The same batch with pixels and labels on a device."""
        return Batch(self.pixels.to(device), self.labels.to(device), self.ids)


@dataclass(frozen=True, repr=False)
class ImageSet(Shown):
    """One split of one data set, or a subset of it. Train and test are separate objects and never joined.

    It prints as a table of its classes; `.summary()` has the numbers, `.to_pandas()` a row per image.
    """

    name: str
    split: str  # "train", "test" or "val"
    class_names: tuple[str, ...]
    labels: NDArray[np.int64]  # (n,)
    ids: NDArray[np.int64]  # (n,) rows of the source; they stay with an image through every subset
    source: PixelSource
    content: str  # digest of what the pixels were read from
    origin: str = ""  # the name or path under which `load` finds it again
    categories: tuple[frozenset[int], ...] | None = None  # every label of each image, where an image has several
    boxes: tuple[NDArray[np.float64], ...] | None = (
        None  # of each image, around the objects of its label: (k, 4) shares
    )
    # of the side from the top left corner (top, left, bottom, right), where they are known

    def __post_init__(self) -> None:
        if not len(self.labels):
            raise InputError(f"the {self.split} split of {self.name} is empty")
        if len(self.labels) != len(self.ids):
            raise InputError(f"{self.name}: {len(self.labels)} labels for {len(self.ids)} images")
        if len(np.unique(self.ids)) != len(self.ids):
            raise InputError(
                f"{self.name}: an image is there twice; what is random about it belongs to its id, so take it once"
            )

    @classmethod
    def of_tensors(cls, pixels: Any, labels: Any = None, class_names: Sequence[str] = ()) -> ImageSet:
        """Images in memory, tensors or NumPy arrays: pixels (n, C, H, W) in [0,1] and labels (n,), all 0 where none are given."""
        pixels = _checked_pixels(pixels)
        if isinstance(class_names, str) or not all(isinstance(name, str) for name in class_names):
            raise InputError(f"class_names={shown(class_names)} must be a list with the name of each class")
        if pixels.ndim != 4 or not pixels.numel():
            raise InputError(f"images are a tensor (n, C, H, W) with n >= 1, got shape {tuple(pixels.shape)}")
        n = len(pixels)
        classes = np.zeros(n, np.int64) if labels is None else as_labels(labels).cpu().numpy()
        if classes.shape != (n,):
            raise InputError(
                f"labels are a tensor (n,) with one label per image, got shape {classes.shape} for {n} images"
            )
        names = tuple(class_names) or tuple(map(str, range(int(classes.max()) + 1)))
        ids = np.arange(n)
        content = hashlib.sha256(pixels.cpu().contiguous().numpy().tobytes()).hexdigest()[:16]
        source = TensorSource(pixels.cpu(), {i: i for i in range(n)})
        return cls("tensors", "test", names, checked_labels(classes, len(names), "labels"), ids, source, content)

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def shape(self) -> tuple[int, int, int]:
        return self.source.shape

    @property
    def classes(self) -> int:
        return len(self.class_names)

    @property
    def title(self) -> str:
        classes = "1 class" if self.classes == 1 else f"{self.classes:,} classes"
        return f"{self.name}, {self.split}: {len(self):,} images of {size_text(self.shape)}, {classes}"

    def __repr__(self) -> str:
        return f"<ImageSet {self.title!r}>"

    def table(self) -> Table:
        """How many images each class has."""
        counts = self.summary()["per_class"]
        listed = counts if len(counts) <= LISTED else counts[: LISTED - 1]
        rows = [(row["class"], f"{row['images']:,}") for row in listed]
        if more := counts[len(listed) :]:
            rows.append((f"{len(more):,} more classes", f"{sum(row['images'] for row in more):,}"))
        return Table(self.title, ("class", "images"), rows)

    def summary(self) -> dict[str, Any]:
        """What it is, and how many images each class has."""
        counts = np.bincount(self.labels, minlength=self.classes).tolist()
        return {
            "name": self.name,
            "split": self.split,
            "n": len(self),
            "shape": self.shape,
            "classes": self.classes,
            "per_class": [{"class": name, "images": n} for name, n in zip(self.class_names, counts)],
        }

    def records(self) -> list[dict[str, Any]]:
        """One per image; no pixels."""
        rows = zip(self.ids.tolist(), self.labels.tolist())
        return [{"image": image, "label": label, "class": self.class_names[label]} for image, label in rows]

    @property
    def fingerprint(self) -> str:
        """Changes with the source, the choice of images or any label."""
        digest = hashlib.sha256(f"{self.name}/{self.split}/{self.shape}/{self.content}".encode())
        digest.update(self.ids.tobytes())
        digest.update(self.labels.tobytes())
        return digest.hexdigest()[:16]

    @checked_arguments(seed=0)
    def subset(self, n: int | None, seed: int = 0) -> ImageSet:
        """n images, spread as evenly over the classes as possible; a larger subset of the same seed contains a smaller one."""
        if n is None or n == len(self):
            return self
        if not 0 < n <= len(self):
            raise InputError(f"the {self.split} split of {self.name} holds {len(self)} images: cannot take {n} of them")
        shuffled = np.random.default_rng([seed, 0]).permutation(len(self))
        order = shuffled[np.argsort(self.labels[shuffled], kind="stable")]  # class by class, shuffled inside each
        starts = np.searchsorted(self.labels[order], self.labels[order])
        place = np.arange(len(self)) - starts  # how many of its own class come before it
        turn = np.random.default_rng([seed, 1]).permutation(self.classes)[self.labels[order]]
        chosen = np.sort(order[np.lexsort((turn, place))[:n]])  # first of every class, then second of every class, ...
        return self.take(chosen)

    @checked_arguments(n=0, seed=0)
    def at_most(self, n: int | None, seed: int = 0) -> ImageSet:
        """A subset of n images, or all where there are no more."""
        return self.subset(min(n or len(self), len(self)), seed)

    def take(self, rows: NDArray[np.int64]) -> ImageSet:
        """The images at these positions, in this order."""
        rows = self._places(rows)
        categories = None if self.categories is None else tuple(self.categories[i] for i in rows)
        boxes = None if self.boxes is None else tuple(self.boxes[i] for i in rows)
        return replace(self, labels=self.labels[rows], ids=self.ids[rows], categories=categories, boxes=boxes)

    def with_pixels(self, pixels: Tensor) -> ImageSet:
        """The same images by id and label, with other pixels (n, C, H, W): perturbed ones, for example."""
        rows = {int(i): row for row, i in enumerate(self.ids)}
        return replace(self, source=TensorSource(pixels, rows))

    def batch(self, rows: NDArray[np.int64]) -> Batch:
        """The images at these positions of this (sub)set."""
        rows = self._places(rows)
        ids = self.ids[rows]
        return Batch(self.source.read(ids), torch.from_numpy(self.labels[rows]), ids)

    def _places(self, rows: Any) -> NDArray[np.int64]:
        """Positions that there are, counted from 0: one below 0 would be another image than the one that was meant."""
        places = np.asarray(rows)
        if places.ndim != 1 or (len(places) and places.dtype.kind not in "iu"):
            raise InputError(f"positions of images are whole numbers in a list, not {shown(rows)}")
        if len(wrong := places[(places < 0) | (places >= len(self))]):
            raise InputError(f"there is no image at {wrong[0]}: positions here are 0 to {len(self) - 1}")
        return places.astype(np.int64)

    @checked_arguments(size=1)
    def batches(self, size: int) -> Iterator[Batch]:
        for start in range(0, len(self), size):
            yield self.batch(np.arange(start, min(start + size, len(self))))

    @property
    def all(self) -> Batch:
        """Everything at once; meant for subsets."""
        return self.batch(np.arange(len(self)))


Images = (  # what every function about images takes; a tuple is (pixels, labels)
    ImageSet | Tensor | NDArray[Any] | tuple[Any, Any]
)


def as_images(images: Images, class_names: Sequence[str] = ()) -> ImageSet:
    """An ImageSet as it is; tensors as one."""
    if isinstance(images, ImageSet):
        return images
    if isinstance(images, tuple) and len(images) != 2:
        raise InputError(f"a tuple of images is (pixels, labels), and this one has {len(images)} parts")
    pixels, labels = images if isinstance(images, tuple) else (images, None)
    return ImageSet.of_tensors(pixels, labels, class_names)


def _checked_pixels(pixels: Any) -> Tensor:
    pixels = as_pixels(pixels)
    if pixels.dtype in (torch.float16, torch.bfloat16) or not pixels.is_floating_point():
        raise InputError(
            f"images are {pixels.dtype}: expected float32 in [0,1] (divide bytes by 255, call .float() on halves)"
        )
    if pixels.numel() and not (pixels.min() >= 0 and pixels.max() <= 1):  # NaN fails both comparisons
        low, high = float(pixels.min()), float(pixels.max())
        raise InputError(f"pixels range from {low:g} to {high:g}: expected [0,1], with normalisation inside the model")
    checked: Tensor = pixels
    return checked


def as_pixels(images: Any) -> Tensor:
    """A tensor as it is; a NumPy array as one, in float32 if it is float64."""
    if isinstance(images, np.ndarray) and images.dtype.kind in "fiu":
        wide = images.dtype.kind == "f" and images.dtype.itemsize > 4
        images = np.asarray(images, dtype=np.float32 if wide else images.dtype.newbyteorder("="))
        images = torch.from_numpy(np.ascontiguousarray(images))
    if not isinstance(images, Tensor):
        what = f"{type(images).__name__}" + (f" of {images.dtype}" if isinstance(images, np.ndarray) else "")
        raise InputError(f"images are an ImageSet, a tensor or (pixels, labels), not {what}")
    return _with_values(images.detach(), "images")


def _with_values(tensor: Tensor, what: str) -> Tensor:
    """Refuse a tensor that is no plain table of numbers."""
    if tensor.is_meta or tensor.layout != torch.strided:
        kind = "without values (on the meta device)" if tensor.is_meta else f"{tensor.layout}"
        raise InputError(f"{what} are a tensor that is {kind}: give a dense one, with a number in every place")
    return tensor


def as_labels(labels: Any) -> Tensor:
    """Whole numbers, one per image: a tensor, a NumPy array or a list -> int64"""
    if isinstance(labels, list) and labels and all(isinstance(y, int) and not isinstance(y, bool) for y in labels):
        if any(abs(y) > LARGEST_INTEGER for y in labels):
            raise InputError(f"labels are classes, counted from 0, not {shown(max(labels, key=abs))}")
        return torch.tensor(labels)
    if isinstance(labels, np.ndarray) and labels.dtype.kind in "iu":
        return torch.from_numpy(labels.astype(np.int64))
    whole = isinstance(labels, Tensor) and not (
        labels.is_floating_point() or labels.is_complex() or labels.dtype == torch.bool
    )
    if not whole:
        what = f"{type(labels).__name__}" + (f" of {labels.dtype}" if isinstance(labels, Tensor | np.ndarray) else "")
        raise InputError(f"labels are whole numbers, one per image, not a {what}")
    return _with_values(labels, "labels").long()


def checked_labels(labels: NDArray[np.int64], classes: int, where: str) -> NDArray[np.int64]:
    """Labels as given, if every one of them names a class."""
    wrong = np.flatnonzero((labels < 0) | (labels >= classes))
    if len(wrong):
        raise InputError(f"{where}: label {labels[wrong[0]]} in row {wrong[0]} is out of range for {classes} classes")
    return labels.astype(np.int64)
