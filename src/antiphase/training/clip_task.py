"""Training a CLIP: each image should be nearer to its own caption than to all others of the batch, and vice versa.

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
from antiphase.models.prompts import as_templates, fill_templates
from antiphase.models.run import Run
from antiphase.models.tokenizer import tokens_for, too_long
from antiphase.models.zero_shot import zero_shot
from antiphase.processes import is_main_process
from antiphase.runtime import frozen
from antiphase.training.augment import augment
from antiphase.training.config import ContrastiveConfig
from antiphase.training.diagnose import embedding_spread, warning_signs
from antiphase.training.distributed import World
from antiphase.training.loop import OnEpoch, train_task
from antiphase.training.run_folder import Progress
from antiphase.training.tasks import Objective, check_splits

DIAGNOSED = 256  # images and texts on which a loss that is no longer a number is explained
SPREAD_IMAGES = 512  # test images whose embeddings are compared with each other after an epoch
BATCH = 256  # images or texts encoded at once when the model is evaluated


def train_clip(
    model_config: CLIPConfig,
    config: ContrastiveConfig,
    train_set: PairSet,
    test_set: ImageSet | PairSet,
    out: Path | str,
    *,
    templates: str | tuple[str, ...] = (),
    allow: tuple[str, ...] = (),
    device: torch.device | str = "cpu",
    scale: str | None = None,
    on_epoch: OnEpoch | None = None,
) -> Run:
    """Train a CLIP to the end, or from where the folder stands to the end (training/loop.py).

    `on_epoch` is called with the record of each epoch (its line of log.jsonl) as soon as its checkpoint is written.
    """
    words = as_templates(templates) if templates else ()
    task = ContrastiveTask(model_config, config, train_set, test_set, words, allow)
    for kind, n in task.skipped.items() if is_main_process() else ():
        console.say(f"{train_set.name}: {n:,} {kind}")
    return train_task(task, out, device=device, scale=scale, on_epoch=on_epoch)


def pairs_from_prompts(images: ImageSet, templates: str | tuple[str, ...]) -> PairSet:
    """Images with classes as image-caption pairs: the captions of an image are the templates filled with its class."""
    return of_classes(images, [fill_templates(name, templates) for name in images.class_names])


@dataclass(frozen=True)
class ContrastiveTask:
    """A CLIP learns from pairs; it is evaluated by zero-shot accuracy on images with classes, or by retrieval on other pairs."""

    model_config: CLIPConfig
    config: ContrastiveConfig
    train_set: PairSet
    test_set: ImageSet | PairSet
    templates: tuple[str, ...] = ()  # prompts for the classes of an ImageSet
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

    def objective(self) -> Objective:
        return ContrastiveObjective(self.config.micro_batch, self.config.max_scale)

    @cached_property
    def skipped(self) -> dict[str, int]:
        """How many examples the user allowed to be left out, by kind, and how many captions are cut."""
        tolerance = Tolerance(self.allow)
        text = self.model_config.text
        captions = sorted({caption for part in self._all_captions for each in part for caption in each})
        for caption, length in too_long(text, captions):
            tolerance.meet(
                "long", f"the caption {caption[:40]!r}... has {length} tokens, and the model reads {text.context}"
            )
        return {**dict(self.train_set.skipped), **{f"{kind} captions cut": n for kind, n in tolerance.skipped}}

    @property
    def _all_captions(self) -> list[tuple[tuple[str, ...], ...]]:
        if isinstance(self.test_set, PairSet):
            return [self.train_set.captions, self.test_set.captions]
        return [
            self.train_set.captions,
            tuple(tuple(fill_templates(c, self.templates)) for c in self.test_set.class_names),
        ]

    def data(self) -> dict[str, Any]:
        train, test, prompts, skipped = self.train_set, self.test_set, {}, {}
        if isinstance(test, ImageSet):
            prompts = {"class_names": list(test.class_names), "templates": list(self.templates)}
        else:
            if train.class_names:
                prompts = {"class_names": list(train.class_names), "templates": list(train.templates)}
            skipped = {"skipped": dict(test.skipped)}
        return {
            "name": train.name,
            "origin": train.origin,
            "shape": list(train.shape),
            **prompts,
            "train": {
                "images": len(train),
                "captions": sum(map(len, train.captions)),
                "fingerprint": train.fingerprint,
                "skipped": self.skipped,
            },
            "test": {"images": len(test), "fingerprint": test.fingerprint, **skipped},
        }

    def batch(self, rows: NDArray[np.int64], world: World, epoch: int, device: torch.device) -> PairBatch:
        """Every process knows all captions of the batch; it encodes its share of the different ones and of the images."""
        config, own = self.config, world.share(np.arange(len(rows)))
        chosen = self.train_set.choose(rows, (config.seed, "caption", epoch))
        captions = sorted(set(chosen))
        index = {caption: i for i, caption in enumerate(captions)}
        own_captions = [captions[i] for i in world.share(np.arange(len(captions)))]
        tokens = tokens_for(self.model_config.text, own_captions, "openai" if "long" in self.allow else "never")
        ids = self.train_set.ids[rows[own]]
        pixels = augment(self.train_set.pixels(rows[own]), ids, config.augment, seed=config.seed, epoch=epoch)
        labels = torch.tensor([index[caption] for caption in chosen])
        if config.micro_batch is None:
            pixels = pixels.to(device, non_blocking=True)
        return PairBatch(pixels, tokens, labels, len(captions), own, ids)

    def evaluate(self, model: nn.Module, progress: Progress) -> dict[str, Any]:
        """Warning signs are printed at once, too: a training that goes wrong should not go on for hours unnoticed."""
        assert isinstance(model, CLIP)
        lam = lambdas(model)
        some = self.test_set.subset(min(SPREAD_IMAGES, len(self.test_set)))
        cosine, rank = embedding_spread(_encode_images(model, some))
        warnings = warning_signs(lam, cosine, rank)
        for sentence in warnings:
            console.say(f"warning: epoch {progress.epoch + 1}: {sentence}")
        return {
            "loss": progress.loss_sum / progress.seen,
            "batch_accuracy": progress.correct / progress.seen,
            "logit_scale": float(model.logit_scale.detach().exp()),
            **self._test_scores(model),
            "lambda": lam,
            "mean_cosine": cosine,
            "effective_rank": rank,
            "signs": warnings,
        }

    def _test_scores(self, model: CLIP) -> dict[str, float]:
        """Zero-shot accuracy where the test set has classes, else recall at 1 in both directions."""
        if isinstance(self.test_set, ImageSet):
            classifier = zero_shot(model, self.test_set.class_names, self.templates)
            device = model.logit_scale.device
            return {"zero_shot_accuracy": accuracy(classifier, self.test_set, device=device)}
        images, (captions, owner) = _encode_images(model, self.test_set), _encode_captions(model, self.test_set)
        return {
            "text_recall_at_1": recall(text_ranks(images, captions, owner), 1),
            "image_recall_at_1": recall(image_ranks(images, captions, owner), 1),
        }


def _encode_images(clip: CLIP, images: ImageSet | PairSet) -> Tensor:
    """(n, E) normalised, on the CPU"""
    with frozen(clip), torch.no_grad():
        device = clip.logit_scale.device
        each = [clip.encode_image(batch.pixels.to(device)) for batch in images.batches(BATCH)]
        return F.normalize(torch.cat(each).float(), dim=-1).cpu()


def _encode_captions(clip: CLIP, pairs: PairSet) -> tuple[Tensor, Tensor]:
    """(m, E) normalised embeddings of all captions, and the image of each"""
    captions = [text for each in pairs.captions for text in each]
    owner = torch.repeat_interleave(torch.arange(len(pairs)), torch.tensor([len(each) for each in pairs.captions]))
    with frozen(clip), torch.no_grad():
        starts = range(0, len(captions), BATCH)
        each = [clip.encode_text(clip.tokenize(captions[i : i + BATCH])) for i in starts]
        return F.normalize(torch.cat(each).float(), dim=-1).cpu(), owner


# ------------------------------------------------------------------------------------------------- the objective


class PairBatch(NamedTuple):
    """This process's share of N pairs. Every different caption is encoded once, by one of the processes."""

    pixels: Tensor  # (B, C, H, W)
    tokens: Tensor  # (V, T) of this process's share of the U captions
    labels: Tensor  # (N,) which caption belongs to each image of the whole batch
    captions: int  # U
    own: NDArray[np.int64]  # (B,) which of the N images these are
    ids: NDArray[np.int64]  # (B,)

    @property
    def inputs(self) -> tuple[Tensor, ...]:
        """What the model is called with to explain a loss that is no longer a number."""
        return self.pixels[:DIAGNOSED], self.tokens[:DIAGNOSED]


@dataclass(frozen=True)
class ContrastiveObjective(Objective):
    """The symmetric contrastive loss of images and captions."""

    micro_batch: int | None = None
    max_scale: float = 100.0
    over_whole_batch = True

    def __call__(self, model: nn.Module, batch: PairBatch, *, epoch: int) -> tuple[Tensor, Tensor]:
        del epoch
        loss, correct = model(batch)
        return loss, correct[torch.from_numpy(batch.own).to(correct.device)]

    def module(self, model: nn.Module, world: World) -> nn.Module:
        assert isinstance(model, CLIP)
        return ClipWithLoss(model, world, self.micro_batch)

    def after_step(self, model: nn.Module) -> None:
        """The temperature is learned, within bounds: cosines are multiplied by 1 to `max_scale`."""
        assert isinstance(model, CLIP)
        with torch.no_grad():
            model.logit_scale.clamp_(0, math.log(self.max_scale))


class ClipWithLoss(nn.Module):
    """A CLIP and its loss in one module, so that several processes can average its gradients.

    Gradient caching: with `micro_batch`, the towers encode so many images or texts at a time. Only the embeddings are kept;
    in the backward pass each part is encoded again for its gradient. The loss, and so the gradient, is that of the whole batch.
    """

    def __init__(self, clip: CLIP, world: World, micro_batch: int | None = None) -> None:
        super().__init__()
        self.clip, self.world, self.micro_batch = clip, world, micro_batch

    def forward(self, batch: PairBatch) -> tuple[Tensor, Tensor]:
        image = self.world.gather(self._encode(self.clip.encode_image, batch.pixels), len(batch.labels))  # (N, E)
        text = self.world.gather(self._encode(self.clip.encode_text, batch.tokens), batch.captions)  # (U, E)
        labels = batch.labels.to(image.device)
        with torch.autocast(image.device.type, enabled=False):
            return contrastive_loss(image, text, labels, self.clip.logit_scale.exp(), self.micro_batch)

    def _encode(self, encoder: Callable[[Tensor], Tensor], inputs: Tensor) -> Tensor:
        """(B, E) normalised, in the dtype of the weights"""
        scale = self.clip.logit_scale

        def encode(some: Tensor) -> Tensor:
            return F.normalize(encoder(some.to(scale.device)).to(scale.dtype), dim=-1)

        if self.micro_batch is None:
            return encode(inputs)
        return torch.cat(
            [_checkpointed(encode, self.micro_batch, part) for part in torch.split(inputs, self.micro_batch)]
        )


def contrastive_loss(
    image: Tensor, text: Tensor, labels: Tensor, scale: Tensor, chunk: int | None = None
) -> tuple[Tensor, Tensor]:
    """The symmetric loss of N normalised images and U different normalised captions, and which images are nearest to their own.

    It is the cross-entropy of the N x N matrix of pairs in both directions, where all copies of a caption are correct
    and share the target evenly, less the entropy of that target: its minimum is 0. A caption that n images have counts n times.
    With `chunk`, the matrix is never whole in memory.
    """
    n, copies = len(image), torch.bincount(labels, minlength=len(text)).to(image.dtype)  # (U,)

    def to_text(some: Tensor, own: Tensor) -> tuple[Tensor, Tensor]:
        logits = scale * some @ text.T + copies.log()  # (chunk, U)
        return F.cross_entropy(logits, own, reduction="sum"), (logits - copies.log()).detach().argmax(dim=1) == own

    def to_image(some: Tensor, which: Tensor) -> Tensor:
        logits, count = scale * some @ image.T, copies[which]  # (chunk, N)
        own = (logits * (labels == which[:, None])).sum(dim=1) / count
        return (count * (logits.logsumexp(dim=1) - own - count.log())).sum()

    which, size = torch.arange(len(text), device=text.device), chunk or max(n, len(text))
    rows = [_checkpointed(to_text, chunk, *part) for part in zip(torch.split(image, size), torch.split(labels, size))]
    columns = [_checkpointed(to_image, chunk, *part) for part in zip(torch.split(text, size), torch.split(which, size))]
    loss = (sum(term for term, _ in rows) + sum(columns)) / (2 * n)
    return loss, torch.cat([correct for _, correct in rows])


def _checkpointed(function: Callable[..., Any], chunk: int | None, *inputs: Tensor) -> Any:
    """The function's value; with `chunk`, what its gradient needs is not kept but computed again in the backward pass."""
    if chunk is None or not torch.is_grad_enabled():
        return function(*inputs)
    return checkpoint(function, *inputs, use_reentrant=False, preserve_rng_state=False)
