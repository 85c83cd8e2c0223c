"""A run of any model: MODEL as the command line names it, or a module in memory, becomes a folder that every command takes."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from antiphase import files, runtime
from antiphase.config import InputError, to_plain
from antiphase.data.imageset import ImageSet
from antiphase.models.classifier import as_classifier, is_behind_seam, known_preprocessing
from antiphase.models.convert import convert
from antiphase.models.foreign_config import (
    NAMED,
    REMEDY,
    WEIGHTS,
    ForeignConfig,
    Preprocessing,
    Source,
    as_preprocessing,
    read_source,
)
from antiphase.models.preprocessing import Agreement, Preprocessed
from antiphase.models.run import Run
from antiphase.models.sources import (
    Loaded,
    called,
    choose_code,
    code_digest,
    describe,
    hold_against_library,
    load,
    weights_digest,
)

SIDE = 224  # of images on which a model is tried that does not say what it takes
FEW = 8  # images on which a model is held against its library


def open_model(
    spec: str,
    beside: Path,
    *,
    weights: Path | None = None,
    random: bool = False,
    preprocessing: Preprocessing | str | None = None,
    shape: Callable[[], tuple[int, int, int]] | None = None,
    prompts: str | None = None,
    heads: int | None = None,
    text_heads: int | None = None,
) -> Run:
    """The run that MODEL names: a run folder as it is, anything else as a folder of its name below `beside`.

    `shape`: asked for the (C, H, W) of the images where a model neither resizes nor crops, and so does not say what it takes.
    Opening the same again changes nothing.
    """
    source = read_source(spec, weights=weights, random=random)
    if isinstance(source, Path):
        if preprocessing is not None:
            raise InputError(f"{spec} knows its preprocessing: leave --preprocessing out")
        if source.is_dir():
            return Run(source, prompts)
        return Run(_converted(source, beside / source.stem, heads, text_heads).folder, prompts)
    choose_code(source)
    loaded = load(source, None if preprocessing is None else as_preprocessing(preprocessing))
    how = loaded.preprocessing
    channels, side = loaded.channels or 3, how.side
    if side is None:
        given = (channels, SIDE, SIDE) if shape is None else shape()
        channels, side = loaded.channels or given[0], given[-1]
    config = describe(
        _probe_classifier(loaded),
        source.short_name if source.library == "file" or Path(source.name).is_dir() else source.name,
        how,
        side,
        channels,
        parameters=sum(p.numel() for p in loaded.model.parameters()),
        **({"classes": None} if loaded.clip is not None else {"class_names": loaded.class_names}),
    )
    digest = weights_digest(loaded.model, code_digest(source))
    run = Run(_written(beside / source.short_name, config, source, digest, side), prompts)
    run.__dict__["loaded"] = loaded  # it need not be built again
    return run


def _converted(path: Path, out: Path, heads: int | None, text_heads: int | None) -> Run:
    """A DiffCLIP or SLIP checkpoint; weights of anything else have to be named with their model."""
    try:
        return convert(str(path), out, heads=heads, text_heads=text_heads)
    except InputError as refusal:
        if path.suffix not in WEIGHTS or "has no tensor" not in str(refusal):
            raise
        raise InputError(
            f"{path} holds weights, and not of a CLIP in the layout of SLIP or DiffCLIP: say what model they belong to, as in "
            f"timm:NAME --weights {path} or path/to/model.py:factory --weights {path}"
        ) from None


def _probe_classifier(loaded: Loaded) -> nn.Module:
    if loaded.clip is None:
        return loaded.classifier()
    with runtime.at_rest(loaded.model):
        words = loaded.class_embeddings(("cat", "dog"), ("a photo of {}",))
    return loaded.classifier(words)


def _written(folder: Path, config: ForeignConfig, source: Source, digest: str, side: int) -> Path:
    """run.json with what the model is and where it comes from; a folder that holds another model is refused."""
    about: dict[str, Any] = {
        "format": 1,
        "title": config.title,
        "model": to_plain(config),
        "training": {},  # unknown
        "data": {},
        "source": {"from": to_plain(source), "sha256": digest, "side": side},
        "environment": runtime.environment(),
    }
    path = folder / "run.json"
    if path.exists():
        there = files.read_json(path, "model")
        if any(there.get(key) != about[key] for key in ("model", "source")):
            raise InputError(
                f"{folder} holds another model or other weights: choose another --out, or delete that folder"
            )
        return folder
    if folder.exists() and any(p for p in folder.iterdir() if not p.name.startswith(".")):
        raise InputError(f"{folder} is not empty and not a run: choose another --out")
    files.write_json(path, about)
    return folder


def agreement(run: Run, images: ImageSet) -> Agreement | None:
    """How the seam of a model that was made elsewhere compares with its library's own transform; None where there is none."""
    if not isinstance(run.config, ForeignConfig) or run.source.library == "python":
        return None
    loaded = run.loaded
    if (
        loaded.transform is None and run.source.library != "file"
    ):  # it was loaded with the preprocessing that run.json states
        own = load(run.source)
        if own.preprocessing != run.config.preprocessing:
            return None  # the user stated another
        loaded = own
    few = images.take(np.arange(min(FEW, len(images)))).all.pixels
    with runtime.at_rest(loaded.model):
        found: Agreement | None = hold_against_library(loaded, run._classifier_of(loaded, images), few)
    return found


# ------------------------------------------------------------------------------------------------- modules in memory


@dataclass(frozen=True)
class ModuleRun(Run):
    """A run whose model is an object of this process: its answers are kept, the model is not."""

    module: nn.Module = field(default_factory=nn.Identity)

    def model(self, device: torch.device | str = "cpu", *, unfinished: bool = False) -> nn.Module:
        del unfinished
        return self.module.to(device)

    def classifier(self, device: torch.device | str = "cpu", *, unfinished: bool = False) -> nn.Module:
        return self.model(device, unfinished=unfinished)

    def classifier_for(self, images: ImageSet, device: torch.device | str = "cpu") -> nn.Module:
        del images
        return self.model(device)


def run_of_module(
    model: nn.Module | Callable[..., Any],
    folder: Path,
    images: ImageSet,
    preprocessing: Preprocessing | str | dict[str, Any] | None = None,
) -> Run:
    """A module or a function as a run in `folder`. It is told from others by its weights and by what it answers on the images."""
    how = known_preprocessing(model) if preprocessing is None else as_preprocessing(preprocessing)
    if is_behind_seam(model):
        how = model.preprocessing if isinstance(model, Preprocessed) else NAMED["none"]
        preprocessing = None
    if how is None and not hasattr(model, "preprocessing"):
        raise InputError(f"it is not known what preprocessing this {type(model).__name__} wants: {REMEDY}")
    classifier = as_classifier(model, preprocessing)
    if any(module.training for module in classifier.modules()):
        raise InputError("the model is in train mode: call .eval() on it first")
    few = images.take(np.arange(min(FEW, len(images)))).all.pixels
    device = next((p.device for p in classifier.parameters()), torch.device("cpu"))
    with runtime.at_rest(classifier):
        logits = called(classifier, few.to(device))
    title = getattr(model, "__name__", type(model).__name__)
    config = describe(classifier, title, how or NAMED["none"], few.shape[-1], few.shape[1])
    answers = hashlib.sha256(_rounded(logits)).hexdigest()
    source = Source(library="python", name=title)
    digest = weights_digest(classifier, answers)
    return ModuleRun(_written(folder, config, source, digest, few.shape[-1]), None, classifier)


def _rounded(logits: Tensor) -> bytes:
    """To three digits: another number of threads is no other model."""
    values = logits.detach().double().cpu().numpy()
    scale = max(float(np.abs(values).max()), 1e-12)
    return np.round(values / scale, 3).astype(np.float32).tobytes()
