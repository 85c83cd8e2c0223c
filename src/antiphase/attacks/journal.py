"""The journal of an attack: examples are written to disk as they end, one line of JSON each.

The next process goes on from what a killed one left. Lines are only ever appended, so SIGKILL leaves at most the last one
torn; it is cut off, and its example attacked again. Every line has its digest: from a damaged one on, the rest is cut off.
"""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from antiphase import files
from antiphase.config import InputError
from antiphase.files import room, seal, unseal

_BEGINNING = b'{"question": '


@dataclass(frozen=True)
class JournalEntry:
    """An example whose restarts have all ended."""

    id: int
    changed: list[int]  # one per restart: 1 where it succeeded
    forwards: int
    backwards: int
    tally: list[int]  # in the order of RedFlagCounts.NAMES
    pixels: str | None  # of an example that was fooled, in base64


class Journal:
    """Entries of one question (attack, seed, protocol), named in the first line: those of another are refused."""

    def __init__(self, path: Path, question: str) -> None:
        self.path, self.question = path, question

    def for_stage(self, stage: int) -> Journal:
        """The journal of one stage of the attack, beside this one."""
        return Journal(self.path.with_name(f"{self.path.name}.{stage}"), f"{self.question} {stage}")

    def read(self) -> list[JournalEntry]:
        """What is there already; anything after the last whole line is cut off."""
        if not self.path.exists():
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self.path.touch()
        if not self.path.is_file():
            raise InputError(f"{self.path} is no file that a journal could be: it is a folder, a pipe or a device")
        content = self.path.read_bytes()
        values, whole = _whole_lines(content)
        if content and not values and not _BEGINNING.startswith(content[: len(_BEGINNING)]):
            raise InputError(f"{self.path} is no journal of an attack, and would be overwritten: name another file")
        if values and values[0] != {"question": self.question}:
            raise InputError(f"{self.path} is the journal of another attack: delete it, or name another")
        os.truncate(self.path, whole)
        if not values:
            self._append([{"question": self.question}])
        with files.of_another_shape(self.path):
            return [JournalEntry(**value) for value in values[1:]]

    def write(self, entries: Sequence[JournalEntry]) -> None:
        self._append([asdict(entry) for entry in entries])

    def _append(self, values: Sequence[dict[str, Any]]) -> None:
        text = "".join(json.dumps(seal(value)) + "\n" for value in values)
        with room(self.path), self.path.open("ab") as file:
            file.write(text.encode())


def _whole_lines(content: bytes) -> tuple[list[Any], int]:
    """The values of the lines up to the first that is torn, and the number of bytes they take."""
    values, size = [], 0
    for line in content.splitlines(keepends=True):
        try:
            if not line.endswith(b"\n"):
                break
            values.append(unseal(json.loads(line)))
        except (ValueError, RecursionError):
            break
        size += len(line)
    return values, size


def pack(pixels: Tensor) -> str:
    return base64.b64encode(np.ascontiguousarray(pixels.numpy()).tobytes()).decode()


def unpack(packed: str, like: Tensor) -> Tensor:
    """The very bits that were packed; dtype and shape are those of `like`."""
    array = np.frombuffer(base64.b64decode(packed), dtype=like.numpy().dtype)
    return torch.from_numpy(array.reshape(like.shape).copy())
