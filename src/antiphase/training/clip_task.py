"""Contrastive learning: an image and its caption are to be nearer to each other than to all others of the batch.

N pairs in a batch, U different captions among them (class prompts repeat), E width of the joint space.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from antiphase import console
from antiphase.config import InputError
from antiphase.data.imageset import ImageSet
from antiphase.data.pairs import PairSet, of_classes
from antiphase.data.tolerance import Tolerance
from antiphase.measures.retrieval import image_ranks, recall, text_ranks
from antiphase.measures.success import accuracy
from antiphase.models.attention import lambdas
from antiphase.models.clip import CLIP
from antiphase.models.clip_config import CLIPConfig
from antiphase.models.prompts import texts
from antiphase.models.run import Run
from antiphase.models.tokenizer import tokens_for, too_long
from antiphase.models.zero_shot import zero_shot
from antiphase.runtime import frozen
from antiphase.training.augment import augmented
from antiphase.training.config import ContrastiveConfig
from antiphase.training.diagnose import signs, spread
from antiphase.training.distributed import World, leads
from antiphase.training.loop import follow
from antiphase.training.run_folder import Progress
from antiphase.training.tasks import Task, check_splits, task_of

EXPLAINED_ON = 256  # images and texts on which a loss that blew up is explained


class PairBatch(NamedTuple):
    """This process's share of N pairs. Every caption is there once; the processes share the captions too."""

    pixels: Tensor  # (B, C, H, W)
    tokens: Tensor  # (V, T) of this process's share of the U captions
    labels: Tensor  # (N,) which caption belongs to each image of the whole batch
    captions: int  # U
    own: NDArray[np.int64]  # (B,) which of the N images these are
    ids: NDArray[np.int64]  # (B,)

    @property
    def inputs(self) -> tuple[Tensor, ...]:
        """What the model is called with, of a size to look at."""
        return self.pixels[:EXPLAINED_ON], self.tokens[:EXPLAINED_ON]


def contrast(
    image: Tensor, text: Tensor, labels: Tensor, scale: Tensor, chunk: int | None = None
) -> tuple[Tensor, Tensor]:
    """The symmetric loss of N normalised images and U different normalised captions, and whose nearest caption is its own.

    It is the cross-entropy of the N x N matrix of pairs in both directions, where all copies of a caption are right and
    share the target evenly, less the entropy of that target: 0 is the best. A caption that n images have counts n times.
    With `chunk`, the matrix is never whole in memory.
    """
    n, copies = len(image), torch.bincount(labels, minlength=len(text)).to(image.dtype)  # (U,)

    def to_text(some: Tensor, right: Tensor) -> tuple[Tensor, Tensor]:
        logits = scale * some @ text.T + copies.log()  # (chunk, U)
        return F.cross_entropy(logits, right, reduction="sum"), (logits - copies.log()).detach().argmax(dim=1) == right

    def to_image(some: Tensor, which: Tensor) -> Tensor:
        logits, count = scale * some @ image.T, copies[which]  # (chunk, N)
        own = (logits * (labels == which[:, None])).sum(dim=1) / count
        return (count * (logits.logsumexp(dim=1) - own - count.log())).sum()

    which, size = torch.arange(len(text), device=text.device), chunk or max(n, len(text))
    rows = [_light(to_text, chunk, *part) for part in zip(torch.split(image, size), torch.split(labels, size))]
    columns = [_light(to_image, chunk, *part) for part in zip(torch.split(text, size), torch.split(which, size))]
    loss = (sum(term for term, _ in rows) + sum(columns)) / (2 * n)
    return loss, torch.cat([right for _, right in rows])


def _light(function: Callable[..., Any], chunk: int | None, *inputs: Tensor) -> Any:
    """The function's value; where work is done in chunks, what its gradient needs is computed again when it is asked for."""
    if chunk is None or not torch.is_grad_enabled():
        return function(*inputs)
    return checkpoint(function, *inputs, use_reentrant=False, preserve_rng_state=False)


class Pairing(nn.Module):
    """A CLIP with its loss: what several processes share the gradients of.

    Gradient caching: with `micro_batch`, the towers see so many images or texts at a time. Only the embeddings are kept; in
    the backward pass each part is encoded again for its gradient. The loss, and so the gradient, is that of the whole batch.
    """

    def __init__(self, clip: CLIP, world: World, micro_batch: int | None = None) -> None:
        super().__init__()
        self.clip, self.world, self.micro_batch = clip, world, micro_batch

    def forward(self, batch: PairBatch) -> tuple[Tensor, Tensor]:
        image = self.world.gather(self._encode(self.clip.encode_image, batch.pixels), len(batch.labels))  # (N, E)
        text = self.world.gather(self._encode(self.clip.encode_text, batch.tokens), batch.captions)  # (U, E)
        labels = batch.labels.to(image.device)
        with torch.autocast(image.device.type, enabled=False):
            return contrast(image, text, labels, self.clip.logit_scale.exp(), self.micro_batch)

    def _encode(self, encoder: Callable[[Tensor], Tensor], inputs: Tensor) -> Tensor:
        """(B, E) normalised, in the dtype of the weights"""
        scale = self.clip.logit_scale

        def encode(some: Tensor) -> Tensor:
            return F.normalize(encoder(some.to(scale.device)).to(scale.dtype), dim=-1)

        if self.micro_batch is None:
            return encode(inputs)
        return torch.cat([_light(encode, self.micro_batch, part) for part in torch.split(inputs, self.micro_batch)])


@dataclass(frozen=True)
class Contrastive(Task):
    """Images against captions, both ways."""

    micro_batch: int | None = None
    max_scale: float = 100.0
    of_all = True

    def __call__(self, model: nn.Module, batch: PairBatch, *, epoch: int) -> tuple[Tensor, Tensor]:
        del epoch
        loss, right = model(batch)
        return loss, right[torch.from_numpy(batch.own).to(right.device)]

    def around(self, model: nn.Module, world: World) -> nn.Module:
        assert isinstance(model, CLIP)
        return Pairing(model, world, self.micro_batch)

    def settle(self, model: nn.Module) -> None:
        """The temperature is learned, within bounds: cosines are multiplied by 1 to `max_scale`."""
        assert isinstance(model, CLIP)
        with torch.no_grad():
            model.logit_scale.clamp_(0, math.log(self.max_scale))


# ------------------------------------------------------------------------------------------------- training.contrasting
# A CLIP learns from image-caption pairs, and is judged by zero-shot accuracy or retrieval.


SPREAD_OVER = 512  # test images whose embeddings are held against each other after an epoch
AT_A_TIME = 256  # images or texts, when the model is judged


@dataclass(frozen=True)
class Contrasting:
    """Pairs to learn from; to be judged by, images whose classes are put into words, or pairs to be found again."""

    model_config: CLIPConfig
    config: ContrastiveConfig
    train_set: PairSet
    test_set: ImageSet | PairSet
    templates: tuple[str, ...] = ()  # the words for the classes of an ImageSet
    allow: tuple[str, ...] = ()  # "long": captions longer than the model reads are cut, and counted

    def __post_init__(self) -> None:
        check_splits(self.train_set.split, self.test_set.split)
        side = self.model_config.vision.image
        for part in (self.train_set, self.test_set):
            channels, height, width = part.shape
            if channels not in (1, 3) or (height, width) != (side, side):
                raise InputError(
                    f"{part.name} has images of {width} x {height} pixels in {channels} channels, "
                    f"and the vision tower looks at {side} x {side}: set image={width}"
                )
        if isinstance(self.test_set, ImageSet) and not self.templates:
            raise InputError(
                f"the classes of {self.test_set.name} need words: give templates such as 'a photo of a {{}}'"
            )

    def __len__(self) -> int:
        return len(self.train_set)

    def model(self) -> nn.Module:
        return CLIP(self.model_config, self.config.seed)

    def task(self) -> Task:
        return task_of(self.config)

    @cached_property
    def skipped(self) -> dict[str, int]:
        """What the user allowed to be left out, and how many captions are cut."""
        tolerance = Tolerance(self.allow)
        text = self.model_config.text
        captions = sorted({caption for part in self._captioned for each in part for caption in each})
        for caption, length in too_long(text, captions):
            tolerance.meet(
                "long", f"the caption {caption[:40]!r}... has {length} tokens, and the model reads {text.context}"
            )
        return {**dict(self.train_set.skipped), **{f"{kind} captions cut": n for kind, n in tolerance.skipped}}

    @property
    def _captioned(self) -> list[tuple[tuple[str, ...], ...]]:
        if isinstance(self.test_set, PairSet):
            return [self.train_set.captions, self.test_set.captions]
        return [self.train_set.captions, tuple(tuple(texts(c, self.templates)) for c in self.test_set.class_names)]

    def data(self) -> dict[str, Any]:
        train, test, worded, skipped = self.train_set, self.test_set, {}, {}
        if isinstance(test, ImageSet):
            worded = {"class_names": list(test.class_names), "templates": list(self.templates)}
        else:
            skipped = {"skipped": dict(test.skipped)}
        return {
            "name": train.name,
            "origin": train.origin,
            "shape": list(train.shape),
            **worded,
            "train": {
                "images": len(train),
                "captions": sum(map(len, train.captions)),
                "fingerprint": train.fingerprint,
                "skipped": self.skipped,
            },
            "test": {"images": len(test), "fingerprint": test.fingerprint, **skipped},
        }

    def batch(self, rows: NDArray[np.int64], world: World, epoch: int, device: torch.device) -> PairBatch:
        """Every process knows all captions of the batch, encodes its share of the different ones and of the images."""
        config, own = self.config, world.share(np.arange(len(rows)))
        chosen = self.train_set.choose(rows, (config.seed, "caption", epoch))
        captions = sorted(set(chosen))
        place = {caption: i for i, caption in enumerate(captions)}
        mine = [captions[i] for i in world.share(np.arange(len(captions)))]
        tokens = tokens_for(self.model_config.text, mine, "openai" if "long" in self.allow else "never")
        ids = self.train_set.ids[rows[own]]
        pixels = augmented(self.train_set.pixels(rows[own]), ids, config.augment, seed=config.seed, epoch=epoch)
        labels = torch.tensor([place[caption] for caption in chosen])
        if config.micro_batch is None:
            pixels = pixels.to(device, non_blocking=True)
        return PairBatch(pixels, tokens, labels, len(captions), own, ids)

    def row(self, model: nn.Module, at: Progress) -> dict[str, Any]:
        """What is odd is said at once, too: a training that goes wrong should not go on for hours unseen."""
        assert isinstance(model, CLIP)
        lam, (cosine, rank) = (
            lambdas(model),
            spread(_images(model, self.test_set.subset(min(SPREAD_OVER, len(self.test_set))))),
        )
        odd = signs(lam, cosine, rank)
        for sentence in odd:
            console.say(f"warning: epoch {at.epoch + 1}: {sentence}")
        return {
            "loss": at.loss_sum / at.seen,
            "batch_accuracy": at.correct / at.seen,
            "logit_scale": float(model.logit_scale.detach().exp()),
            **self._judged(model),
            "lambda": lam,
            "mean_cosine": cosine,
            "effective_rank": rank,
            "signs": odd,
        }

    def _judged(self, model: CLIP) -> dict[str, float]:
        if isinstance(self.test_set, ImageSet):
            classifier = zero_shot(model, self.test_set.class_names, self.templates)
            device = model.logit_scale.device
            return {"zero_shot_accuracy": accuracy(classifier, self.test_set, device=device)}
        images, (found, owner) = _images(model, self.test_set), _texts(model, self.test_set)
        return {
            "text_recall_at_1": recall(text_ranks(images, found, owner), 1),
            "image_recall_at_1": recall(image_ranks(images, found, owner), 1),
        }


def _images(clip: CLIP, images: ImageSet | PairSet) -> Tensor:
    """(n, E) normalised, on the CPU"""
    with frozen(clip), torch.no_grad():
        device = clip.logit_scale.device
        each = [clip.encode_image(batch.pixels.to(device)) for batch in images.batches(AT_A_TIME)]
        return F.normalize(torch.cat(each).float(), dim=-1).cpu()


def _texts(clip: CLIP, pairs: PairSet) -> tuple[Tensor, Tensor]:
    """(m, E) normalised embeddings of all captions, and the image of each"""
    captions = [text for each in pairs.captions for text in each]
    owner = torch.repeat_interleave(torch.arange(len(pairs)), torch.tensor([len(each) for each in pairs.captions]))
    with frozen(clip), torch.no_grad():
        starts = range(0, len(captions), AT_A_TIME)
        each = [clip.encode_text(clip.tokenize(captions[i : i + AT_A_TIME])) for i in starts]
        return F.normalize(torch.cat(each).float(), dim=-1).cpu(), owner


def of_words(images: ImageSet, words: tuple[str, ...]) -> PairSet:
    """Images of classes as pairs: the captions of an image are these templates filled with its class."""
    return of_classes(images, [texts(name, words) for name in images.class_names])


def train_clip(
    model_config: CLIPConfig,
    config: ContrastiveConfig,
    train_set: PairSet,
    test_set: ImageSet | PairSet,
    out: Path | str,
    *,
    templates: tuple[str, ...] = (),
    allow: tuple[str, ...] = (),
    device: torch.device | str = "cpu",
    scale: str | None = None,
) -> Run:
    """Train a CLIP to the end, or from where the folder stands to the end (training/loop.py)."""
    course = Contrasting(model_config, config, train_set, test_set, templates, allow)
    for kind, n in course.skipped.items() if leads() else ():
        console.say(f"{train_set.name}: {n:,} {kind}")
    return follow(course, out, device=device, scale=scale)
