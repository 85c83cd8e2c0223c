"""THE SEAM. Everything attacked or measured is pixels in [0,1] in, logits out; normalisation lives inside."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from antiphase.config import InputError
from antiphase.models.foreign_config import REMEDY, Preprocessing, as_preprocessing
from antiphase.models.preprocessing import Preprocessed


class Normalized(nn.Module):
    """A model behind its normalisation: (B, C, H, W) pixels in [0,1] -> (B, K) logits."""

    mean: Tensor
    std: Tensor

    def __init__(self, model: nn.Module, mean: float | Sequence[float], std: float | Sequence[float]) -> None:
        super().__init__()
        self.model = model
        for name, value in (("mean", mean), ("std", std)):  # constants of the config, so they are not in the state_dict
            self.register_buffer(name, torch.as_tensor(value, dtype=torch.float32).reshape(-1, 1, 1), persistent=False)

    def normalize(self, pixels: Tensor) -> Tensor:
        """What the model itself is called with: each channel less its mean, divided by its standard deviation."""
        return (pixels - self.mean) / self.std

    def forward(self, pixels: Tensor) -> Tensor:
        logits: Tensor = self.model(self.normalize(pixels))
        return logits


# ------------------------------------------------------------------------------------------------- anybody's model


class LogitsOf(nn.Module):
    """A module or a function whose output holds the logits somewhere: images -> (B, K) logits."""

    def __init__(self, model: Callable[..., Any]) -> None:
        super().__init__()
        self.model = model  # a module becomes a submodule, so that its layers and weights are seen

    def forward(self, images: Tensor) -> Tensor:
        return logits_in(self.model(images.clone()))  # a copy: what the model does to it in place is its own affair


def logits_in(output: Any) -> Tensor:
    """The logits in what a model returned: a tensor, the first of a tuple, or the entry `logits` of a mapping or an object."""
    found = output
    if isinstance(output, Mapping):  # the outputs of Hugging Face are mappings too
        found = output.get("logits")
    elif isinstance(output, tuple | list):
        found = next((part for part in output if isinstance(part, Tensor)), None)
    elif not isinstance(output, Tensor):
        found = getattr(output, "logits", None)
    if not isinstance(found, Tensor) or found.ndim != 2:
        shape = f" of shape {tuple(found.shape)}" if isinstance(found, Tensor) else ""
        named = f" with {', '.join(map(str, output))}" if isinstance(output, Mapping) else ""
        raise InputError(
            f"the model returned a {type(output).__name__}{named}{shape}, in which there are no logits: "
            "give a function that returns one row of class scores per image"
        )
    return found


def as_classifier(
    model: Callable[..., Any], preprocessing: Preprocessing | str | dict[str, Any] | None = None
) -> nn.Module:
    """A classifier for every function here from a model of your own: a module or a function, whose output may be a tensor, a
    tuple, a mapping or an object with `logits`.

    `preprocessing` says what is to happen to pixels in [0,1] before the model is called: "none", "imagenet", "clip",
    "resize=256,crop=224,mean=0.5,std=0.5", or a mapping of these words. It need not be said of a model of timm, which knows it.
    """
    if isinstance(model, type) or not callable(model):
        what = f"the class {model.__name__}" if isinstance(model, type) else f"a {type(model).__name__}"
        raise InputError(f"{what} is no model: give a module or a function that takes images")
    if is_behind_seam(model) and preprocessing is None:
        assert isinstance(model, nn.Module)
        return model
    how = known_preprocessing(model) if preprocessing is None else as_preprocessing(preprocessing)
    if how is None:
        raise InputError(f"it is not known what preprocessing this {type(model).__name__} wants: {REMEDY}")
    seam = Preprocessed(LogitsOf(model), how, channels_of(model))
    return seam.train(model.training if isinstance(model, nn.Module) else False)


def is_behind_seam(model: Any) -> bool:
    """Whether a model takes pixels in [0,1] already: it is one of ours, or `as_classifier` made it."""
    from antiphase.models.zero_shot import ZeroShot

    return isinstance(model, Normalized | Preprocessed | ZeroShot)


def known_preprocessing(model: Any) -> Preprocessing | None:
    """What a model says of itself: an attribute `preprocessing`, or the data config of timm."""
    if (said := getattr(model, "preprocessing", None)) is not None:
        return as_preprocessing(said)
    if isinstance(getattr(model, "pretrained_cfg", None), Mapping):
        return of_timm(model)
    return None


def of_timm(model: Any) -> Preprocessing:
    """From the data config that timm keeps with its models."""
    from timm.data import resolve_model_data_config

    config = resolve_model_data_config(model)
    _, height, width = config["input_size"]
    if config["crop_mode"] not in ("center", "squash") or (height != width and config["crop_mode"] == "center"):
        raise InputError(f"timm's crop mode {config['crop_mode']!r} for {height} x {width} is not read: {REMEDY}")
    scaled = tuple(int(side / config["crop_pct"]) for side in (height, width))
    resize: Any = scaled if config["crop_mode"] == "squash" else scaled[0]
    return as_preprocessing(
        {
            "resize": resize,
            "crop": (height, width) if height != width else height,
            "interpolation": config["interpolation"],
            "mean": tuple(config["mean"]),
            "std": tuple(config["std"]),
        }
    )


def channels_of(model: Any) -> int | None:
    """The channels that a model takes, by its first convolution; None where it has none."""
    modules = model.modules() if isinstance(model, nn.Module) else ()
    return next((module.in_channels for module in modules if isinstance(module, nn.Conv2d)), None)
