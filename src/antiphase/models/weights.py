"""Weights from files that others made: read without running anything, checked tensor by tensor, put into a model.

Nothing is unpickled but tensors and plain values. A file is never believed about its size: tensors that are larger than what
holds them are refused before anything is built from them.
"""

from __future__ import annotations

import argparse
import re
import stat
import warnings
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from antiphase.config import InputError

Tensors = dict[str, Tensor]
SAFE_GLOBALS: list[Any] = [  # what training scripts save beside tensors: their arguments, numbers of NumPy
    argparse.Namespace,
    np.dtype,
    np.dtypes.Float64DType,
    np.dtypes.Float32DType,
    (np._core.multiarray.scalar, "numpy._core.multiarray.scalar"),  # type: ignore[attr-defined]
    (np._core.multiarray.scalar, "numpy.core.multiarray.scalar"),  # type: ignore[attr-defined]
]


def read_state(path: Path) -> Tensors:
    """The weights in a container, without the prefix that a parallel wrapper left; each is dense and as large as it says."""
    loaded = _load(path)
    state = loaded.get("state_dict", loaded) if isinstance(loaded, dict) else None
    if not isinstance(state, dict) or not state or not all(isinstance(v, Tensor) for v in state.values()):
        raise InputError(f"{path} holds no weights: expected tensors by name, or an entry 'state_dict' with them")
    tensors = {str(name).removeprefix("module."): tensor for name, tensor in state.items()}
    check_sizes(tensors, path)
    for name, tensor in tensors.items():
        if tensor.numel() == 0:
            raise InputError(f"{path}: {short_name(name)} has shape {shape_text(tensor.shape)}: it is empty")
    return tensors


def read_safetensors(path: Path) -> Tensors:
    """The tensors of a safetensors file, checked likewise."""
    tensors = _load(path)
    check_sizes(tensors, path)
    return dict(tensors)


def _load(path: Path) -> Any:
    if not stat.S_ISREG(path.stat().st_mode):
        raise InputError(f"{path} is not a regular file: it is a folder, a pipe or a device")
    if path.suffix != ".safetensors" and zipfile.is_zipfile(path):
        _check_archive(path)
    try:
        if path.suffix == ".safetensors":
            return load_file(path)
        with torch.serialization.safe_globals(SAFE_GLOBALS), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of kinds of tensors that are refused below
            return torch.load(path, map_location="cpu", weights_only=True)
    except (Exception, MemoryError) as error:  # what a damaged file makes a parser raise is anything
        unsafe = re.search(r"GLOBAL (\S+)", str(error))
        why = (
            f"it holds a {unsafe[1]}, and only tensors and plain values are read"
            if unsafe
            else "it is damaged or no checkpoint"
        )
        raise InputError(f"{path} cannot be read: {why}") from None


def _check_archive(path: Path) -> None:
    """torch writes its archives uncompressed; a compressed one may become any size in memory."""
    try:
        with zipfile.ZipFile(path) as archive:
            packed = [entry.filename for entry in archive.infolist() if entry.compress_type != zipfile.ZIP_STORED]
    except (zipfile.BadZipFile, OSError, ValueError, NotImplementedError):
        raise InputError(f"{path} cannot be read: it is damaged or no checkpoint") from None
    if packed:
        raise InputError(
            f"{path} is a compressed archive, and torch writes none: save its weights again with torch.save"
        )


def check_sizes(tensors: Mapping[str, Tensor], path: Path) -> None:
    """Refuse tensors that are not there (meta), not dense, or larger than the bytes that hold them."""
    distinct: dict[tuple[Any, ...], int] = {}
    for name, tensor in tensors.items():
        where = f"{path}: {short_name(name)}"
        if tensor.is_meta:
            raise InputError(f"{where} is a meta tensor: it has a shape and no values")
        if tensor.layout is not torch.strided or tensor.is_quantized or tensor.is_nested:
            raise InputError(f"{where} is sparse, quantized or nested: weights are dense tensors")
        size = tensor.numel() * tensor.element_size()
        if _overlaps(tensor):
            raise InputError(f"{where} repeats its values (an expanded tensor): save it with .clone()")
        distinct[tensor.data_ptr(), tuple(tensor.shape), tensor.stride(), tensor.dtype] = size
    if (total := sum(distinct.values())) > path.stat().st_size:
        raise InputError(
            f"{path} has {path.stat().st_size:,} bytes, and its tensors say they have {total:,}: they overlap one another"
        )


def _overlaps(tensor: Tensor) -> bool:
    """Whether two of its values lie at one place in memory, as in an expanded tensor."""
    reach = 0  # from the first value to the last, over the dimensions with the smaller steps
    for step, n in sorted((step, n) for step, n in zip(tensor.stride(), tensor.shape) if n > 1):
        if step <= reach:
            return True
        reach += step * (n - 1)
    return False


def check_values(tensors: Mapping[str, Tensor], where: object, like: Mapping[str, Tensor] | None = None) -> None:
    """Refuse values that are no weights: numbers that are not finite, or not floating point where the model's are."""
    for name, tensor in tensors.items():
        own = None if like is None else like.get(name)
        if own is not None and not own.is_floating_point():
            if tensor.dtype != own.dtype:
                raise InputError(f"{where}: {short_name(name)} holds {_kind(tensor)}, expected {_kind(own)}")
            continue
        if not tensor.is_floating_point():
            raise InputError(f"{where}: {short_name(name)} holds {_kind(tensor)}: weights are floating-point numbers")
        if not tensor.float().isfinite().all() and (own is None or bool(own.isfinite().all())):
            raise InputError(f"{where}: {short_name(name)} has values that are NaN or infinite")


def _kind(tensor: Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")


def short_name(name: str) -> str:
    """Of a tensor, as a refusal shows it."""
    return name if len(name) <= 100 else f"{name[:60]}...{name[-20:]}"


def shape_text(shape: Any) -> str:
    return f"({', '.join(map(str, shape))})"


def fill(model: nn.Module, state: Mapping[str, Tensor], misfit: str) -> None:
    """Put weights into a model; what does not fit is refused by its name, in a sentence that begins with `misfit`."""
    wanted = model.state_dict()
    for name, tensor in wanted.items():
        if name not in state:
            raise InputError(f"{misfit}: it has no tensor {name}")
        if state[name].shape != tensor.shape:
            raise InputError(
                f"{misfit}: {name} has shape {shape_text(state[name].shape)}, expected {shape_text(tensor.shape)}"
            )
    if extra := sorted(set(state) - set(wanted)):
        raise InputError(f"{misfit}: it has a tensor {short_name(extra[0])} that the model does not have")
    check_values(state, misfit, like=wanted)
    model.load_state_dict(state)


def check_room(parameters: int, tensors: Mapping[str, Tensor], where: object) -> None:
    """Refuse a config that asks for more numbers than its weights have, before a model of that size is built."""
    there = sum(tensor.numel() for tensor in tensors.values())
    if parameters > there:
        raise InputError(
            f"{where} describes a model of at least {parameters:,} parameters, and its weights have {there:,}: "
            "it was altered, or belongs to other weights"
        )
