"""webdataset shards, as img2dataset writes CC3M and CC12M: `*.tar` with key.jpg and key.txt, or key.json with a "caption".

A shard is walked once; where each image lies and what its caption is, is kept. Then any sample is read by its offset, so the
order of training is a function of (seed, epoch) and not of the shards.
"""

from __future__ import annotations

import hashlib
import io
import os
import tarfile
from collections.abc import Collection
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path, PurePosixPath

import numpy as np
from numpy.typing import NDArray

from antiphase import console, files
from antiphase.config import InputError, parse_json, shown
from antiphase.data import cache
from antiphase.data.decode import IMAGE_SUFFIXES, EncodedSource, decode, decoded_once, stamp, undecodable
from antiphase.data.pair_catalog import tars
from antiphase.data.pairs import PairSet, held_out
from antiphase.data.readers.image_folders import TEST_NAMES, split_folder
from antiphase.data.tolerance import Tolerance

BLOCK = 512  # bytes of a tar's header, and what its members are padded to
LARGEST_MEMBER = 256 * 2**20  # bytes of one member of a shard, where ANTIPHASE_MEMBER_LIMIT does not say otherwise


@dataclass
class Sample:
    """What a shard holds under one key."""

    key: str
    offset: int = -1  # of the image in the shard; -1: it has none
    length: int = 0
    caption: str = ""
    fault: str = ""  # why it cannot be read, if so


@dataclass(frozen=True)
class ShardSource(EncodedSource):
    """Images by their places in shards."""

    shards: tuple[Path, ...]
    samples: tuple[tuple[int, Sample], ...]  # shard number and place
    size: int

    def __len__(self) -> int:
        return len(self.samples)

    def decode(self, row: int) -> NDArray[np.uint8]:
        shard, sample = self.samples[row]
        with self.shards[shard].open("rb") as file:
            file.seek(sample.offset)
            return decode(file.read(sample.length), f"{self.shards[shard]}, sample {sample.key},", self.size)


def load_shards(name: str, split: str, folder: str, size: int, allow: Collection[str] = ()) -> PairSet:
    """The shards in a folder or of a glob. Below `train` and `test` (or `val`) they are split; else a fixed part is held out."""
    shards, is_split = _shards_of(folder, split)
    tolerance = Tolerance(allow)
    chosen = _whole_samples(name, shards, tolerance)
    if not is_split and split != "all":
        keys = [f"{shards[number].name}/{sample.key}" for number, sample in chosen]
        wanted = set(held_out(keys, split, name))
        chosen = [place for key, place in zip(keys, chosen) if key in wanted]
    content = _digest(shards, chosen)
    if "broken" in tolerance.allow:
        bad = undecodable(ShardSource(shards, tuple(chosen), size), content, name)
        tolerance.count("broken", len(bad))
        chosen = [place for row, place in enumerate(chosen) if row not in bad]
        content = _digest(shards, chosen)
    if not chosen:
        raise InputError(f"{folder} leaves no captioned image for the {split} split")
    source, content = decoded_once(ShardSource(shards, tuple(chosen), size), content, f"{name} {split}")
    return PairSet(
        name=name,
        split=split,
        captions=tuple((sample.caption,) for _, sample in chosen),
        ids=np.arange(len(chosen)),
        source=source,
        content=content,
        skipped=tolerance.skipped,
    )


def _shards_of(folder: str, split: str) -> tuple[tuple[Path, ...], bool]:
    """The shards of a split, and whether a folder of that split holds them."""
    base = Path(folder)
    if not base.is_dir():
        return tars(folder), False
    if any((base / name).is_dir() for name in ("train", *TEST_NAMES)) and split != "all":
        return tuple(sorted(split_folder(base, split).rglob("*.tar"))), True
    return tuple(sorted(base.rglob("*.tar"))), False


def _whole_samples(name: str, shards: tuple[Path, ...], tolerance: Tolerance) -> list[tuple[int, Sample]]:
    """Every sample with an image and a caption, with the number of its shard."""
    chosen: list[tuple[int, Sample]] = []
    with ThreadPoolExecutor(max_workers=4) as pool, console.progress(f"indexing {name}", len(shards)) as advance:
        for number, (samples, cut) in enumerate(pool.map(index, shards)):
            shard = shards[number]
            if cut is not None:
                tolerance.meet("broken", f"{shard} is truncated: it ends in sample {cut}")
            for sample in samples:
                if sample.fault:
                    tolerance.meet("broken", f"{shard}, sample {sample.key}, {sample.fault}")
                elif sample.offset < 0:
                    tolerance.meet("missing", f"{shard}, sample {sample.key}, has no image")
                elif not sample.caption:
                    tolerance.meet("empty", f"{shard}, sample {sample.key}, has no caption, or an empty one")
                else:
                    chosen.append((number, sample))
            advance(1, "")
    return chosen


def _digest(shards: tuple[Path, ...], chosen: list[tuple[int, Sample]]) -> str:
    digest = hashlib.sha256(stamp(shards).encode())
    digest.update(np.array([(number, sample.offset) for number, sample in chosen], dtype=np.int64).tobytes())
    return digest.hexdigest()


def index(shard: Path) -> tuple[list[Sample], str | None]:
    """The samples of a shard in their order, and the key at which it breaks off; None if it is whole. Kept for the next time."""
    key = f"v2/{member_limit()}/{stamp([shard])}"
    kept = cache.cache_root() / f"shard-{hashlib.sha256(key.encode()).hexdigest()[:24]}.json"
    if (stored := files.read_kept(kept, "samples", "cut")) is not None:
        return [Sample(**sample) for sample in stored["samples"]], stored["cut"]
    samples, cut = _walk(shard)
    files.write_json(kept, {"samples": [asdict(sample) for sample in samples], "cut": cut, "of": str(shard)})
    return samples, cut


def member_limit() -> int:
    """The most bytes that a member of a shard may have: $ANTIPHASE_MEMBER_LIMIT, or 256 MiB."""
    given = os.environ.get("ANTIPHASE_MEMBER_LIMIT")
    if given is None:
        return LARGEST_MEMBER
    if not (given.isascii() and given.isdigit() and len(given) < 16 and int(given) > 0):
        raise InputError(f"ANTIPHASE_MEMBER_LIMIT={shown(given)} is not a number of bytes such as {LARGEST_MEMBER}")
    return int(given)


class _Bounded(io.FileIO):
    """A shard of which no more is read at once than a member may have: a header can announce any length."""

    def read(self, size: int | None = -1, /) -> bytes:
        if size is None or not 0 <= size <= member_limit() + BLOCK:
            raise InputError(f"{self.name} announces a header of {size} bytes: it is damaged, or no shard")
        return super().read(size) or b""


def _walk(shard: Path) -> tuple[list[Sample], str | None]:
    samples: dict[str, Sample] = {}
    last, end = "", 0
    try:
        with _Bounded(shard) as file, tarfile.open(fileobj=file, mode="r:") as tar:
            for member in tar:
                end = tar.offset  # of what follows: a sparse member is shorter there than it says
                path = PurePosixPath(member.name)
                if not member.isfile() or path.name.startswith("."):
                    continue
                stem, _, suffix = path.name.partition(".")
                last = str(path.parent / stem)
                _add(samples.setdefault(last, Sample(last)), tar, member, suffix.lower())
        whole = _ends_properly(shard, end)
    except InputError:
        raise
    except (tarfile.TarError, EOFError, OSError, ValueError, OverflowError) as error:
        if not samples:
            raise InputError(f"{shard} is not a tar file, or ends before its first sample ({error})") from None
        whole = False
    if not whole:
        samples.pop(last, None)  # whatever of it is there may lack its end
    return list(samples.values()), None if whole else last


def _add(sample: Sample, tar: tarfile.TarFile, member: tarfile.TarInfo, suffix: str) -> None:
    if f".{suffix}" not in IMAGE_SUFFIXES and suffix not in ("txt", "json"):
        return
    if member.issparse():
        sample.fault = "is a sparse member, which is not stored as it is read: write the shard again without --sparse"
    elif member.size > member_limit():
        most = f"{member_limit():,} that ANTIPHASE_MEMBER_LIMIT allows"
        sample.fault = f"has a member of {member.size:,} bytes, more than the {most}"
    elif f".{suffix}" in IMAGE_SUFFIXES:
        sample.offset, sample.length = member.offset_data, member.size
    else:
        file = tar.extractfile(member)
        assert file is not None
        raw = file.read()
        if len(raw) < member.size:
            raise EOFError("unexpected end of data")
        text = raw.decode(errors="replace")
        if suffix == "txt":
            sample.caption = " ".join(text.split())
        elif not sample.caption:
            sample.caption = " ".join(_caption_of(text).split())


def _caption_of(text: str) -> str:
    """The entry "caption" of a sample's JSON; nothing where there is none."""
    try:
        value = parse_json(text, "a caption")
    except InputError:
        return ""
    return str(value.get("caption") or "") if isinstance(value, dict) else ""


def _ends_properly(shard: Path, end: int) -> bool:
    """A tar ends with a block of zeros; tarfile takes a missing one, or half a header, for the end."""
    with shard.open("rb") as file:
        file.seek(end)
        return file.read(BLOCK) == bytes(BLOCK)
