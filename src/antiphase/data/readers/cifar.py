"""CIFAR-10 and CIFAR-100, as torchvision's pickled batches or as Hugging Face parquet. Lossless copies only."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from antiphase import files
from antiphase.config import InputError, parse_json
from antiphase.data import cache
from antiphase.data.decode import decode
from antiphase.data.imageset import ArraySource, ImageSet, Resized, checked_labels

TORCHVISION_FOLDER = {"cifar10": "cifar-10-batches-py", "cifar100": "cifar-100-python"}
CLASSES = {"cifar10": 10, "cifar100": 100}


def load_cifar10(split: str, folder: Path, size: int) -> ImageSet:
    return _of_size(load_cifar("cifar10", split, folder), size)


def load_cifar100(split: str, folder: Path, size: int) -> ImageSet:
    return _of_size(load_cifar("cifar100", split, folder), size)


def _of_size(images: ImageSet, size: int) -> ImageSet:
    return images if size == images.shape[-1] else replace(images, source=Resized(images.source, size))


def load_cifar(name: str, split: str, folder: Path) -> ImageSet:
    """`folder` is torchvision's batch folder or any folder with {train,test}-*.parquet below it."""
    for batches in (folder, folder / TORCHVISION_FOLDER[name]):
        if batches.name == TORCHVISION_FOLDER[name] and batches.is_dir():
            return _from_torchvision(name, split, batches)
    shards = sorted(folder.rglob(f"{split}-*.parquet"))
    if not shards:
        raise InputError(f"{folder} holds neither {split}-*.parquet nor torchvision's {TORCHVISION_FOLDER[name]}")
    return _from_parquet(name, split, shards)


def _from_torchvision(name: str, split: str, folder: Path) -> ImageSet:
    from torchvision import datasets

    reader = datasets.CIFAR10 if name == "cifar10" else datasets.CIFAR100
    try:
        raw: Any = reader(root=str(folder.parent), train=split == "train", download=False)
    except (RuntimeError, OSError, EOFError) as error:
        raise InputError(f"{folder} is not a whole copy of {name} ({error})") from None
    pixels = np.ascontiguousarray(raw.data.transpose(0, 3, 1, 2))
    labels = checked_labels(np.asarray(raw.targets), CLASSES[name], str(folder))
    return ImageSet(
        name=name,
        split=split,
        class_names=tuple(raw.classes),
        labels=labels,
        ids=np.arange(len(labels)),
        source=ArraySource(pixels),
        content=hashlib.sha256(pixels.tobytes()).hexdigest(),
    )


def _from_parquet(name: str, split: str, shards: list[Path]) -> ImageSet:
    import pyarrow as pa
    import pyarrow.parquet as pq

    label_column = "label" if name == "cifar10" else "fine_label"
    try:
        tables = [pq.ParquetFile(shard) for shard in shards]
        columns = tables[0].schema_arrow.names
        image_column = "img" if "img" in columns else "image"
        for column in (image_column, label_column):
            if column not in columns:
                raise InputError(f"{shards[0]} has no column {column!r}, so it is not {name}")
        kept = tables[0].schema_arrow.field(image_column).type
        encoded = pa.types.is_struct(kept) and "bytes" in [field.name for field in kept]
        if not encoded and not pa.types.is_binary(kept) and not pa.types.is_large_binary(kept):
            raise InputError(f"{shards[0]}: {image_column} holds {kept}, not encoded images with their `bytes`")
        labels = pa.concat_tables([table.read(columns=[label_column]) for table in tables])[label_column]
    except (pa.ArrowInvalid, OSError) as error:
        raise InputError(f"{shards[0]} cannot be read as parquet ({error})") from None
    if labels.null_count or not pa.types.is_integer(labels.type):
        raise InputError(
            f"{shards[0]}: {label_column} holds {labels.type} with {labels.null_count} empty: expected whole numbers"
        )
    class_names = _class_names(tables[0].schema_arrow.metadata, label_column, shards[0])
    content = "/".join(files.sha256(shard) for shard in shards)

    def images() -> Iterator[NDArray[np.uint8]]:
        for shard, table in zip(shards, tables):
            row = 0
            for chunk in table.iter_batches(batch_size=512, columns=[image_column]):
                for cell in chunk.column(image_column).to_pylist():
                    encoded = cell.get("bytes") if isinstance(cell, dict) else cell
                    image = decode(encoded or b"", f"{shard}, row {row},")
                    if image.shape != (3, 32, 32):
                        raise InputError(f"{shard}, row {row}, is {image.shape[2]} x {image.shape[1]}, not 32 x 32")
                    yield image
                    row += 1

    labels = checked_labels(
        np.asarray(np.from_dlpack(labels.combine_chunks()), np.int64), len(class_names), str(shards[0])
    )
    array, digest = cache.decoded(content, (len(labels), 3, 32, 32), images, f"{name} {split}")
    return ImageSet(
        name=name,
        split=split,
        class_names=class_names,
        labels=labels,
        ids=np.arange(len(labels)),
        source=ArraySource(array),
        content=digest,
    )


def _class_names(metadata: dict[bytes, bytes] | None, column: str, shard: Path) -> tuple[str, ...]:
    try:
        features = parse_json((metadata or {})[b"huggingface"].decode(), shard)["info"]["features"]
        return tuple(map(str, features[column]["names"]))
    except (KeyError, TypeError, ValueError):
        raise InputError(
            f"{shard} does not name its classes (no 'huggingface' schema metadata for {column!r})"
        ) from None
