"""The one way in which anything computed is kept: a question, its key, a file with a digest, a lock, a format version.

An entry is one JSON file, `{"format": 4, "digest": SHA-256, "content": ...}`, written whole or not at all. `compress` puts the
same text into KEY.json.gz, which is read wherever KEY.json is not there. What two earlier layouts wrote is read too: a
ledger's `{"digest", "row"}`, and an answer without a digest (docs/architecture.md). No torch.
"""

from __future__ import annotations

import contextlib
import dataclasses
import gzip
import hashlib
import json
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, ClassVar

from antiphase import console, files
from antiphase.config import InputError, fingerprint_of_plain, parse_json, read_text, stored_name, to_plain
from antiphase.files import Damaged, digest_of, room
from antiphase.locks import locked

FORMAT = 4  # of an entry's file
LARGEST = 1 << 30  # bytes of a compressed entry when it is read: nothing that we keep comes near it
BACKWARD = 3  # forward passes that a forward with its backward costs
Content = dict[str, Any]
Digests = Mapping[str, str]
NONE: Digests = {}


# ------------------------------------------------------------------------------------------------- questions


@dataclass(frozen=True, kw_only=True)
class Work:
    """The cost of a question, in forward passes of the model."""

    per_image: float = 1.0
    per_layer: float = 0.0  # of every image, for each of the model's layers
    first: tuple[float, int] = (0.0, 0)  # so many more on each of the first so many images

    def forwards(self, images: int, depth: int) -> float:
        """On one image of so many, on average."""
        more, few = self.first
        return self.per_image + self.per_layer * depth + more * min(1.0, few / images)


class Question:
    """What is asked of a model on data: a frozen dataclass. Its fields are the arguments in Python, the flags of the command
    line, the stored key, and the config of a row; its cost stands with it."""

    kind: ClassVar[str]  # the name under which its answers are kept: "alignment"
    folder: ClassVar[str]  # where they lie in the folder of a run
    takes_base: ClassVar[bool] = False  # a second model takes part in the answer
    compares: ClassVar[bool] = False  # numbers of that second model are in the answer too
    has_predictions: ClassVar[bool] = False  # labels and clean predictions are in the answer
    shared: ClassVar[bool] = False  # several processes take a share of the images each; else one computes it alone
    seed: int = 0  # of everything that is drawn

    @property
    def title(self) -> str:
        """In a few words, for lists of what is to be done."""
        return self.kind

    @property
    def price_group(self) -> str:
        """Questions of one group cost about the same per operation."""
        return self.kind

    def fields(self) -> dict[str, Any]:
        """What the answer depends on besides model and data; part of the key. A field that is added later is left out where it
        stands at its default, or every answer that is kept would be computed again."""
        own = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}  # type: ignore[arg-type]
        return {"measure": self.kind, **own}

    @property
    def work(self) -> Work:
        """What it costs; an estimate, counted from the fields."""
        return Work()


# ------------------------------------------------------------------------------------------------- entries


@dataclass(frozen=True)
class Entry:
    """What is kept under one key."""

    path: Path
    content: Content
    digest: str
    text: str = field(default="", compare=False)  # SHA-256 of the text that it was read from


@dataclass(frozen=True)
class Store:
    """A folder of entries, one file per key. An entry that exists is never written again."""

    folder: Path
    bare: bool = False  # entries without a digest are read too, as the layout before digests wrote them

    def path(self, key: str) -> Path:
        return self.folder / f"{key}.json"

    def __contains__(self, key: str) -> bool:
        return lies_at(self.path(key)).exists()

    def get(self, key: str, digests: Digests = NONE) -> Entry | None:
        """None if there is none; a damaged one is refused by name. `digests` as in `read_entry`."""
        files.sweep_once(self.folder)
        return read_entry(self.path(key), digests, bare=self.bare) if key in self else None

    def kept(self, key: str) -> Entry | None:
        """The same of an entry that can be computed again: a damaged one is named, and taken for missing."""
        try:
            return self.get(key)
        except Damaged as damage:
            console.say(f"{damage}; it is computed again now")
            return None

    def put(self, key: str, content: Content) -> Entry:
        """Refuses NaN and infinity: they are findings to look at, not to file."""
        path, digest = self.path(key), digest_of(content)
        text = json.dumps({"format": FORMAT, "digest": digest, "content": content}, allow_nan=False)
        files.write_text(path, text + "\n")
        return Entry(path, content, digest)

    def names(self) -> list[str]:
        """Of the files of all entries, sorted."""
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            return sorted(path.name for path in self.folder.iterdir() if path.suffix == ".json")
        return []

    def entries(self) -> Iterator[Entry | Damaged]:
        """Every entry by name; in place of a damaged one, what is wrong with it."""
        for name in self.names():
            try:
                yield read_entry(self.folder / name, bare=self.bare)
            except Damaged as damage:
                yield damage


def read_entry(path: Path, digests: Digests = NONE, *, bare: bool = False) -> Entry:
    """One entry, if it is as it was written; `bare`: without a digest too.

    `digests`: of contents, by the SHA-256 of texts that were read before. The same text has the same content, and the digest of
    a text is made in a fraction of the time.
    """
    remedy = "move it away and run again: only this entry is computed anew"
    if not lies_at(path).exists():
        raise InputError(f"{path} does not exist")
    try:
        written = _text(lies_at(path))
        text = hashlib.sha256(written.encode()).hexdigest()
        stored = parse_json(written, path)
        if not isinstance(stored, dict):
            raise TypeError("no mapping")
        if bare and not stored.keys() & {"format", "digest", "content", "row"}:
            return Entry(path, stored, digests.get(text) or digest_of(stored), text)
        content: Content = stored["content"] if "content" in stored else stored["row"]
        digest, promised = digests.get(text) or digest_of(content), stored["digest"]
        if not isinstance(content, dict):
            raise TypeError("no mapping")
    except InputError as refusal:
        raise Damaged(f"{path} is damaged ({str(refusal).removeprefix(f'{path} ')}): {remedy}") from None
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        raise Damaged(f"{path} is damaged ({type(error).__name__}): {remedy}") from None
    if digest != promised:
        raise Damaged(f"{path} is damaged (its digest does not match): {remedy}")
    return Entry(path, content, digest, text)


def lies_at(path: Path) -> Path:
    """The file of the entry that is called `path`: that one, or the compressed one beside it."""
    compressed = _compressed(path)
    return compressed if not path.exists() and compressed.exists() else path


def compress(path: Path) -> Path:
    """Keep an entry as KEY.json.gz in place of KEY.json, the same bytes each time. A kill leaves one of them or both, which say
    the same."""
    text = path.read_bytes()
    files.write_whole(_compressed(path), lambda temporary: _write_compressed(temporary, text))
    path.unlink()
    return _compressed(path)


def entries_in(folder: Path) -> list[Path]:
    """The entries of a folder by their names, compressed ones too."""
    found = (path for pattern in ("*.json", "*.json.gz") for path in folder.glob(pattern))
    return sorted({path.with_name(path.name.removesuffix(".gz")) for path in found})


def _compressed(path: Path) -> Path:
    return path.with_name(f"{path.name}.gz")


def _write_compressed(path: Path, text: bytes) -> None:
    path.write_bytes(gzip.compress(text, compresslevel=9, mtime=0))


def _text(path: Path) -> str:
    if path.suffix != ".gz":
        return read_text(path)
    if not path.is_file():
        raise InputError(f"{path} is not a regular file: it is a folder, a pipe or a device")
    try:
        whole = zlib.decompressobj(zlib.MAX_WBITS | 16)  # of gzip; at once, for thousands are read
        text = whole.decompress(path.read_bytes(), LARGEST + 1)
    except (OSError, zlib.error) as error:
        raise InputError(f"{path} cannot be decompressed ({type(error).__name__})") from None
    if len(text) > LARGEST:
        raise InputError(f"{path} is larger than {LARGEST:,} bytes when it is decompressed")
    if not whole.eof or whole.unused_data:
        raise InputError(f"{path} cannot be decompressed (it does not end where it should)")
    return text.decode()  # a UnicodeDecodeError is a ValueError: damaged


# ------------------------------------------------------------------------------------------------- keys


def essence(value: Any, *, inner: bool = False) -> Any:
    """A config as plain values without the fields that stand at their defaults: a key made of it stays when a config gains
    a field. `inner`: as part of another one, where a large one stands by its own key."""
    if hasattr(type(value), "__dataclass_fields__"):
        if inner and getattr(value, "named_by_key", False):
            return to_plain(value)
        kind: Any = type(value)
        kept = {
            stored: essence(own, inner=True)
            for name, stored, default in _defaults(kind)
            if (own := getattr(value, name)) != default
        }
        return {"kind": type(value).__name__, **kept}
    if isinstance(value, list | tuple):
        return [essence(v, inner=True) for v in value]
    return to_plain(value)


@lru_cache(maxsize=1_000)
def _defaults(kind: type[Any]) -> tuple[tuple[str, str, Any], ...]:
    """Name, stored name and default of every field, listed once: keys are made by the thousand."""
    fields = dataclasses.fields(kind)
    made = (f.default if f.default_factory is dataclasses.MISSING else f.default_factory() for f in fields)
    return tuple((f.name, stored_name(f), default) for f, default in zip(fields, made))


def agrees(stored: Any, present: Any) -> bool:
    """Whether a stored config says the same as a present one wherever both say something."""
    if isinstance(stored, dict) and isinstance(present, dict):
        return all(agrees(stored[k], present[k]) for k in stored.keys() & present.keys())
    if isinstance(stored, list) and isinstance(present, list):
        return len(stored) == len(present) and all(map(agrees, stored, present))
    return bool(stored == present)


class Keyed:
    """A frozen dataclass that has a key: it changes with anything the config says."""

    FORMAT: ClassVar[int] = 1  # raised when the same config would be answered differently
    named_by_key: ClassVar[bool] = False  # it is large: other configs, and its own row, have its key in its place

    @cached_property
    def key(self) -> str:
        return _fingerprint(self) if self.named_by_key else _key_of(self)  # the hash of the former is its key


@lru_cache(maxsize=100_000)
def _key_of(config: Keyed) -> str:
    """Equal configs are made again and again, and a hash costs far less than a fingerprint."""
    return _fingerprint(config)


def _fingerprint(config: Keyed) -> str:
    return fingerprint_of_plain({"format": config.FORMAT, "cell": essence(config)})


# ------------------------------------------------------------------------------------------------- locks and disks


@contextlib.contextmanager
def held(folder: Path, key: str) -> Iterator[bool]:
    """True inside if this process alone may work on the key; False if another one does. The lock goes with the process
    (a lease, some time after it: locks.py)."""
    path = folder / f"{key}.lock"
    with room(path):
        folder.mkdir(parents=True, exist_ok=True)
        with locked(path, timeout=0) as mine:
            yield mine
