"""Tensors in a safetensors file that carries their digest: what is read is what was written, or it is refused."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path

from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from antiphase import files
from antiphase.files import Damaged


def write_tensors(path: Path, tensors: Mapping[str, Tensor]) -> None:
    whole = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    about = {"sha256": _digest(whole)}
    files.write_whole(path, lambda temporary: save_file(whole, temporary, metadata=about))


def read_tensors(path: Path) -> dict[str, Tensor]:
    """The tensors that `write_tensors` wrote; Damaged if they are not the same, or have no digest."""
    try:
        with safe_open(path, framework="pt") as stored:
            tensors = {name: stored.get_tensor(name) for name in stored.keys()}  # noqa: SIM118 (no mapping)
            if (stored.metadata() or {}).get("sha256") == _digest(tensors):
                return tensors
    except (SafetensorError, OSError, ValueError):
        pass
    raise Damaged(f"{path} is damaged: delete it, and it is computed again")


def _digest(tensors: Mapping[str, Tensor]) -> str:
    digest = hashlib.sha256()
    for name in sorted(tensors):
        tensor = tensors[name]
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        digest.update(tensor.contiguous().view(-1).numpy().tobytes())
    return digest.hexdigest()
