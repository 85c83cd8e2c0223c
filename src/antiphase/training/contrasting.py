"""A CLIP learns from image-caption pairs, and is judged by zero-shot accuracy or retrieval."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from antiphase import console
from antiphase.config import InputError
from antiphase.data.imageset import ImageSet
from antiphase.data.leniency import Leniency
from antiphase.data.pairs import PairSet, of_classes
from antiphase.measures.retrieval import image_ranks, recall, text_ranks
from antiphase.measures.success import accuracy
from antiphase.models.attention import lambdas
from antiphase.models.checkpoint import Run
from antiphase.models.clip import CLIP
from antiphase.models.clip_config import CLIPConfig
from antiphase.models.prompts import texts
from antiphase.models.tokenizer import tokens_for, too_long
from antiphase.models.zero_shot import zero_shot
from antiphase.runtime import frozen
from antiphase.training.augment import augmented
from antiphase.training.config import ContrastiveConfig
from antiphase.training.contrastive import PairBatch
from antiphase.training.course import check_splits
from antiphase.training.folder import Progress
from antiphase.training.loop import follow
from antiphase.training.signs import signs, spread
from antiphase.training.tasks import Task, task_of
from antiphase.training.world import World, leads

LOOKED_AT = 512  # test images whose embeddings are held against each other after an epoch
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
        lenient = Leniency(self.allow)
        text = self.model_config.text
        captions = sorted({caption for part in self._captioned for each in part for caption in each})
        for caption, length in too_long(text, captions):
            lenient.meet(
                "long", f"the caption {caption[:40]!r}... has {length} tokens, and the model reads {text.context}"
            )
        return {**dict(self.train_set.skipped), **{f"{kind} captions cut": n for kind, n in lenient.skipped}}

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
            spread(_images(model, self.test_set.subset(min(LOOKED_AT, len(self.test_set))))),
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
