"""Configs of CLIP and DiffCLIP: two towers and a joint space; the attention of each tower makes it one or the other. No torch."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal

from antiphase.config import InputError, check_fields, check_most
from antiphase.models.config import TITLES, Attention, Differential, Dint, Schedule, Softmax, Tower, check_normalisation

TokenizerName = Literal["clip", "bytes"]
VOCABULARIES: dict[TokenizerName, int] = {"clip": 49408, "bytes": 259}  # bytes: 256 of them, padding, start, end
IMAGENET_MEAN, IMAGENET_STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


@dataclass(frozen=True, kw_only=True)
class VisionConfig(Tower):
    """A vision transformer whose class token is the image's feature. Defaults are B/16."""

    width: int = 768
    depth: int = 12
    heads: int = 12
    image: int = 224  # side of an image in pixels
    patch: int = 16  # side of a patch in pixels

    def __post_init__(self) -> None:
        super().__post_init__()
        check_fields(self, image=1, patch=1)
        check_most(self, image=10**5, patch=10**5)
        if self.image % self.patch:
            raise InputError(f"patch={self.patch} does not tile an image of {self.image} x {self.image} pixels")

    @property
    def least_parameters(self) -> int:
        return super().least_parameters + self.width * (3 * self.patch**2 + (self.image // self.patch) ** 2)


@dataclass(frozen=True, kw_only=True)
class TextConfig(Tower):
    """A causal transformer; the feature is read at the end of the text."""

    width: int = 512
    depth: int = 12
    heads: int = 8
    context: int = 77  # tokens of a text
    vocabulary: int = VOCABULARIES["clip"]  # ids that have an embedding
    tokenizer: TokenizerName = "clip"  # how a text becomes ids; bytes is for small models

    def __post_init__(self) -> None:
        super().__post_init__()
        check_fields(self, context=2, vocabulary=3)
        check_most(self, context=10**5, vocabulary=10**8)
        if self.tokenizer == "bytes" and self.vocabulary != VOCABULARIES["bytes"]:
            raise InputError(f"tokenizer=bytes has {VOCABULARIES['bytes']} tokens, not vocabulary={self.vocabulary}")
        if any(isinstance(layer, Dint) for layer in self.layers):
            raise InputError(
                "attention=dint averages over all tokens, and a text tower must not see the words that follow: "
                "give it to the vision tower only"
            )

    @property
    def least_parameters(self) -> int:
        return super().least_parameters + self.width * (self.vocabulary + self.context)


@dataclass(frozen=True, kw_only=True)
class CLIPConfig:
    """Two towers, each with its projection into the joint space."""

    vision: VisionConfig = VisionConfig()
    text: TextConfig = TextConfig()
    joint: int = 512  # width of the joint space
    mean: tuple[float, ...] = IMAGENET_MEAN  # of the pixels; ImageNet's, as DiffCLIP and SLIP use, not OpenAI's
    std: tuple[float, ...] = IMAGENET_STD

    def __post_init__(self) -> None:
        check_fields(self, joint=1)
        check_most(self, joint=10**6)
        check_normalisation(self.mean, self.std, channels=3)

    @property
    def least_parameters(self) -> int:
        """At least so many, whatever the attention; counted without building anything."""
        projections = self.joint * (self.vision.width + self.text.width)
        return self.vision.least_parameters + self.text.least_parameters + projections

    @property
    def is_differential(self) -> bool:
        """Whether the vision tower is: it is what is attacked and measured."""
        return self.vision.is_differential

    @property
    def has_lambda_parameters(self) -> bool:
        """Whether a layer of either tower has a lambda that is in its weights."""
        return self.vision.has_lambda_parameters or self.text.has_lambda_parameters

    @property
    def depth(self) -> int:
        """Of the vision tower."""
        return self.vision.depth

    @property
    def title(self) -> str:
        """Its name in the papers: DiffCLIP has two branches in both towers, dagger in the vision tower only, star a schedule."""
        differential = [tower.is_differential for tower in (self.vision, self.text)]
        if not any(differential):
            return "CLIP"
        layers = [a for tower in (self.vision, self.text) for a in tower.layers if isinstance(a, Differential)]
        star = "-star" if any(isinstance(a.lambda_init, Schedule) for a in layers) else ""
        name = "DiffCLIP" if all(differential) else "DiffCLIP-dagger" if differential[0] else "DiffCLIP, text only"
        kinds = {type(a) for tower in (self.vision, self.text) for a in tower.layers} - {Softmax}
        other = sorted(TITLES[kind].format("CLIP") for kind in kinds - {Differential})
        return f"{name}{star}" + (f" ({', '.join(other)})" if other else "")

    def with_attention(self, vision: Attention, text: Attention | None = None) -> CLIPConfig:
        """The same towers with this attention in every layer; one attention serves both."""
        text = vision if text is None else text
        towers = {"vision": replace(self.vision, attention=(vision,)), "text": replace(self.text, attention=(text,))}
        return replace(self, **towers)  # type: ignore[arg-type]


def clip_of_sizes(
    sizes: Any,
    vision: tuple[Attention, ...],
    text: tuple[Attention, ...],
    init: Literal["official", "matched"] = "official",
) -> CLIPConfig:
    """A CLIP with this attention in its towers; `sizes` has fields named as those of a `ClipScale`."""
    same = {name: getattr(sizes, name) for name in ("image", "patch", "width", "depth", "heads")}
    return CLIPConfig(
        vision=VisionConfig(**same, attention=vision, init=init),
        text=TextConfig(
            width=sizes.text_width,
            depth=sizes.text_depth,
            heads=sizes.text_heads,
            context=sizes.context,
            vocabulary=VOCABULARIES[sizes.tokenizer],
            tokenizer=sizes.tokenizer,
            attention=text,
        ),
        joint=sizes.joint,
    )


PRESETS = {
    "B/16": CLIPConfig(),
    "L/14": CLIPConfig(
        vision=VisionConfig(width=1024, depth=24, heads=16, patch=14), text=TextConfig(width=768, heads=12), joint=768
    ),
    "H/14": CLIPConfig(
        vision=VisionConfig(width=1280, depth=32, heads=16, patch=14),
        text=TextConfig(width=1024, depth=24, heads=16),
        joint=1024,
    ),
}
VARIANTS: dict[str, tuple[Attention, Attention]] = {  # attention of the vision and of the text tower
    "CLIP": (Softmax(), Softmax()),
    "DiffCLIP": (Differential(), Differential()),
    "DiffCLIP-dagger": (Differential(), Softmax()),
    "DiffCLIP-star": (Differential(lambda_init=Schedule()), Differential(lambda_init=Schedule())),
}


def preset(size: str, variant: str = "CLIP") -> CLIPConfig:
    """A published shape by name, such as preset("B/16", "DiffCLIP")."""
    for value, known, what in ((size, PRESETS, "size"), (variant, VARIANTS, "variant")):
        if value not in known:
            raise InputError(f"CLIP {what} {value!r} is not known: it takes {', '.join(known)}")
    return PRESETS[size].with_attention(*VARIANTS[variant])
