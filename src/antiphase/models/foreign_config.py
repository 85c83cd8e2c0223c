"""Models that were made elsewhere, as values: where one comes from, how it wants its images, and what it is. No torch."""

from __future__ import annotations

import re
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Literal

from antiphase.config import InputError, check_fields
from antiphase.models.config import check_normalisation

Interpolation = Literal["nearest", "bilinear", "bicubic"]
IMAGENET_MEAN, IMAGENET_STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
CLIP_MEAN, CLIP_STD = (0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711)
REMEDY = (
    "say it by --preprocessing (in Python preprocessing=...): none if the model takes pixels in [0,1] as they are, imagenet, "
    "clip, inception, or words such as resize=256,crop=224,interpolation=bicubic,mean=0.485/0.456/0.406,std=0.229/0.224/0.225"
)


# ------------------------------------------------------------------------------------------------- preprocessing


@dataclass(frozen=True, kw_only=True)
class Preprocessing:
    """What happens to the pixels in [0,1] of an image before the model itself is called: resize, crop, normalise."""

    resize: int | tuple[int, int] | None = (
        None  # the shorter side, or (height, width) whatever the shape; None: as it is
    )
    crop: int | tuple[int, int] | None = None  # a square or (height, width) in the centre; None: everything
    interpolation: Interpolation = "bilinear"
    antialias: bool = True  # as PIL does when it shrinks
    mean: float | tuple[float, ...] = 0.0  # subtracted, for all channels or one each
    std: float | tuple[float, ...] = 1.0  # the difference is divided by it

    def __post_init__(self) -> None:
        check_normalisation(self.mean, self.std)
        for name in ("resize", "crop"):
            value = getattr(self, name)
            sides = value if isinstance(value, tuple) else (value,)
            if value is not None and not all(isinstance(side, int) and side > 0 for side in sides):
                raise InputError(f"{name}={value} must be a whole number of pixels, or (height, width)")
        if self.interpolation not in ("nearest", "bilinear", "bicubic"):
            raise InputError(
                f"interpolation {self.interpolation!r} is not known: it takes nearest, bilinear or bicubic"
            )

    @property
    def side(self) -> int | None:
        """The side to which a photograph is best brought before: then the model's own resizing changes nothing."""
        size = self.crop if self.resize is None else self.resize
        return max(size) if isinstance(size, tuple) else size

    def __str__(self) -> str:
        """As `--preprocessing` takes it; none where nothing happens to the pixels."""
        words = []
        for field in fields(self):
            value = getattr(self, field.name)
            if value != field.default:
                separator = "x" if field.name in ("resize", "crop") else "/"
                words.append(f"{field.name}={separator.join(map(str, value)) if isinstance(value, tuple) else value}")
        return ",".join(words) or "none"


NAMED = {
    "none": Preprocessing(),
    "imagenet": Preprocessing(resize=256, crop=224, interpolation="bilinear", mean=IMAGENET_MEAN, std=IMAGENET_STD),
    "clip": Preprocessing(resize=224, crop=224, interpolation="bicubic", mean=CLIP_MEAN, std=CLIP_STD),
    "inception": Preprocessing(resize=256, crop=224, interpolation="bicubic", mean=0.5, std=0.5),
}


def as_preprocessing(given: Any) -> Preprocessing:
    """A `Preprocessing` as it is; one of the named ones, words as on the command line, or a mapping of its fields."""
    if isinstance(given, Preprocessing):
        return given
    if isinstance(given, dict):
        named = {field.name for field in fields(Preprocessing)}
        if unknown := sorted(set(map(str, given)) - named):
            raise InputError(f"preprocessing has no field {unknown[0]!r}; it takes {', '.join(sorted(named))}")
        try:
            fields_given: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in given.items()}
            return Preprocessing(**fields_given)
        except TypeError as error:
            raise InputError(f"preprocessing {given!r} cannot be read ({error})") from None
    if not isinstance(given, str):
        raise InputError(f"preprocessing is {type(given).__name__}: give words, a mapping or a Preprocessing")
    if given in NAMED:
        return NAMED[given]
    values: dict[str, Any] = {}
    for word in given.split(","):
        name, equals, text = (part.strip() for part in word.partition("="))
        if not equals:
            raise InputError(f"preprocessing {given!r} is not known: it takes {', '.join(NAMED)}, or name=value words")
        values[name] = _value(name, text)
    return as_preprocessing(values)


def _value(name: str, text: str) -> Any:
    try:
        if name in ("resize", "crop"):
            sides = tuple(map(int, text.split("x")))
            return sides[0] if len(sides) == 1 else sides
        if name in ("mean", "std"):
            values = tuple(map(float, text.split("/")))
            return values[0] if len(values) == 1 else values
        if name == "antialias":
            return {"true": True, "false": False}[text.lower()]
    except (ValueError, KeyError):
        raise InputError(f"preprocessing has {name}={text!r}, which is no value for it: {REMEDY}") from None
    return text


# ------------------------------------------------------------------------------------------------- where a model comes from


Library = Literal["timm", "open_clip", "hf", "file", "python"]
WEIGHTS = (".safetensors", ".pt", ".pth", ".bin", ".ckpt")


@dataclass(frozen=True, kw_only=True)
class Source:
    """Where a model is built from, again and again: a library and a name in it, or a function in a Python file."""

    library: Library
    name: (
        str  # vit_small_patch16_224; ViT-B-32/openai; google/vit-base-patch16-224 or a folder; path/to/model.py:factory
    )
    weights: str | None = None  # a file; None: the library's own
    random: bool = False  # random weights in place of any, for a dry run
    seed: int = 0  # of random weights

    def __post_init__(self) -> None:
        check_fields(self, seed=0)
        if self.random and self.weights is not None:
            raise InputError(f"--weights {self.weights} and --no-weights exclude each other: give one of them")

    @property
    def spec(self) -> str:
        return self.name if self.library in ("file", "python") else f"{self.library}:{self.name}"

    @property
    def short_name(self) -> str:
        """A name for its folder."""
        name = self.name
        if self.library == "file":
            path, _, factory = name.rpartition(":")
            name = f"{Path(path).stem}-{factory}"
        elif Path(name).is_dir():
            name = Path(name).resolve().name
        return re.sub(r"[^\w.-]+", "-", name).strip("-") + ("-random" if self.random else "")


def read_source(spec: str, *, weights: Path | None = None, random: bool = False) -> Source | Path:
    """What MODEL names on the command line: a source, or the path of a run's folder or of a CLIP checkpoint.

    Nothing is loaded; what cannot be a model is refused at once.
    """
    file = None if weights is None else str(weights)
    if weights is not None and not weights.is_file():
        raise InputError(f"--weights {weights} is not a file")
    library, colon, name = spec.partition(":")
    if colon and library in ("timm", "open_clip", "hf"):
        if not name:
            raise InputError(f"{spec!r} names no model: write {library}:NAME")
        return Source(library=library, name=name, weights=file, random=random)  # type: ignore[arg-type]
    path, _, factory = spec.rpartition(":")
    if path.endswith(".py"):
        if not Path(path).is_file():
            raise InputError(f"{path} is not a file: a model of your own is named path/to/model.py:factory")
        if not factory.isidentifier():
            raise InputError(f"{spec!r} names no function: write {path}:NAME, a function there that returns the model")
        return Source(library="file", name=spec, weights=file, random=random)
    here = Path(spec)
    if here.suffix == ".py":
        raise InputError(f"{spec} is a Python file: name the function that returns the model, as in {spec}:NAME")
    if (here / "run.json").is_file() or here.is_file():
        if file is not None or random:
            raise InputError(f"{spec} brings its own weights: leave --weights and --no-weights out")
        return here
    if (here / "config.json").is_file():
        return Source(library="hf", name=spec, weights=file, random=random)
    why = "a folder without run.json or config.json" if here.is_dir() else "no file or folder here"
    raise InputError(
        f"{spec!r} is {why}, and no model: it takes a run folder, timm:NAME, open_clip:ARCH/TAG, hf:NAME, a Hugging Face folder, "
        "path/to/model.py:factory, or a DiffCLIP or SLIP checkpoint"
    )


# ------------------------------------------------------------------------------------------------- what it is


@dataclass(frozen=True, kw_only=True)
class ForeignConfig:
    """What is known of a model that was made elsewhere."""

    title: str  # its name in tables and figures
    preprocessing: Preprocessing
    parameters: int
    channels: int = 3
    classes: int | None = None  # logits; None: it classifies by prompts
    class_names: tuple[str, ...] = ()  # of its logits, where the model says them
    depth: int = 0  # attention layers that can be looked into
    heads: int = 0  # of the first of them; a differential head has two maps
    width: int = 0  # of the tokens there
    is_differential: bool = False
    lambda_varies: bool = False  # lambda depends on the input
    no_lens: str = ""  # why its attention cannot be looked into, if so

    @property
    def has_lambda_parameters(self) -> bool:
        """Not known before the model is loaded, so `lambda` is measured where it is named; alignment has its mean anyway."""
        return False

    @property
    def by_prompts(self) -> bool:
        return self.classes is None
