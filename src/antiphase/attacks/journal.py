"""The journal of an attack: examples are written to disk as they end, one line of JSON each.

The next process goes on from what a killed one left. Lines are only ever appended, so SIGKILL leaves at most the last one
torn; it is cut off, and its example attacked again. Every line has its digest: from a damaged one on, the rest is cut off.

A journal is of one attack on one model: the first line has the digest of the attack and of the model's weights. Each example
has the digest of its pixels and label, so that a journal serves any choice of these images and no others. What is in a model
beside its weights (a function, an intervention) shows in its two largest clean logits, which are compared with a tolerance:
another batch size or number of threads rounds their last bits otherwise. A journal in the format of an earlier version cannot be
checked like this: it is begun anew.
"""

from __future__ import annotations

import base64
import hashlib
import json
import math
import os
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from antiphase import console, files
from antiphase.attacks.red_flags import DRIFT
from antiphase.config import InputError
from antiphase.files import room, seal, unseal

FORMAT = 2  # 1 did not say which model and images it was about
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
    image: str  # digest of its clean pixels and its label
    clean: (
        list[float] | None
    )  # its two largest clean logits; None of a randomised model, whose logits differ every time

    def is_of(self, image: str, clean: list[float] | None) -> bool:
        """Whether it is about this image and a model that answers like this."""
        if self.image != image or clean is None or self.clean is None:
            return self.image == image
        scale = max(map(abs, clean))
        return len(clean) == len(self.clean) and all(
            math.isclose(a, b, rel_tol=DRIFT, abs_tol=DRIFT * scale) for a, b in zip(clean, self.clean)
        )


class Journal:
    """Entries of one question (attack, seed, protocol, model), named in the first line: those of another are refused."""

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
        header = {"question": self.question, "format": FORMAT}
        if values and _is_of_the_first_format(values[0]):
            console.say(f"{self.path} is of an earlier version: the attack begins anew")
            values, whole = [], 0
        if values and values[0] != header:
            raise self.another()
        os.truncate(self.path, whole)
        if not values:
            self._append([header])
        with files.of_another_shape(self.path):
            return [JournalEntry(**value) for value in values[1:]]

    def another(self) -> InputError:
        """The refusal of entries that are not about this attack on this model and these images."""
        return InputError(
            f"{self.path} is the journal of another attack, or of another model or other images: delete it, or name another"
        )

    def write(self, entries: Sequence[JournalEntry]) -> None:
        self._append([asdict(entry) for entry in entries])

    def _append(self, values: Sequence[dict[str, Any]]) -> None:
        text = "".join(json.dumps(seal(value)) + "\n" for value in values)
        with room(self.path), self.path.open("ab") as file:
            file.write(text.encode())


def _is_of_the_first_format(header: Any) -> bool:
    """The first line of a journal that did not say which model it was about: a fingerprint, and the stage if any."""
    own = isinstance(header, dict) and header.keys() == {"question"} and isinstance(header["question"], str)
    return own and re.fullmatch(r"[0-9a-f]{8,64}( \d+)*", header["question"]) is not None


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


# ------------------------------------------------------------------------------------------------- what an entry is about


def digest_of_image(pixels: Tensor, label: Tensor) -> str:
    """Of an image's very bits, (C, H, W), and its label."""
    return _digest([f"{pixels.dtype} {tuple(pixels.shape)} {int(label)}".encode(), _bytes(pixels)])


def digest_of_weights(classifier: nn.Module) -> str:
    """Of the parameters and buffers in their order; not of their names, to which a wrapper adds its own."""
    parts = []
    for tensor in (*classifier.parameters(), *classifier.buffers()):
        parts += [f"{tensor.dtype} {tuple(tensor.shape)}".encode(), _bytes(tensor)]
    return _digest(parts)


def _bytes(tensor: Tensor) -> bytes:
    try:
        content: bytes = tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
    except (RuntimeError, TypeError):  # a packed or quantized tensor: it counts by its type and shape
        return b""
    return content


def _digest(parts: Sequence[bytes]) -> str:
    digest = hashlib.sha256()
    for part in parts:
        digest.update(part)
    return digest.hexdigest()[:16]
