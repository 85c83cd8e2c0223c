"""How a model is trained, as a value. No torch."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import Any, Literal

from antiphase.attacks import Linf
from antiphase.attacks.threat_model import pixel_budget
from antiphase.clip_scales import ClipScale
from antiphase.config import Budget, InputError, check_fields, named_arguments

PenaltyTerm = Literal["amplification", "kappa", "alignment", "jasmin", "noise-change", "attack-change", "gradient"]
PENALTY_EPS = Budget("8/255")
OF_BRANCHES = ("amplification", "kappa", "alignment")  # penalties that need two branches, and so differential layers


@named_arguments
@dataclass(frozen=True, kw_only=True)
class Penalty:
    """A term added to the loss, weight times a mean over images, layers and heads (docs/method.md 8.3).

    amplification   log s = log(||J1 - lambda J2|| / ||J1||), isolated layer, by the closed form E4
    kappa           max(0, kappa - above), kappa = |lambda| ||J2|| / ||J1||
    alignment       1 - cos(J1, J2)
    jasmin          log of the largest g = p1 (1 - p1 + p2) of any row of any map, p1 >= p2 its two largest entries
    noise-change    relative change of (A1 - lambda A2) V when every pixel moves by eps, its sign random
    attack-change   the same along the sign of the loss's gradient
    gradient        eps ||d loss / d pixels||_1, by which the loss rises at budget eps, to first order
    """

    term: PenaltyTerm
    weight: float = 0.1
    share: float = 0.0625  # of the images of a batch, on which it is computed: the cost is proportional to it
    eps: Budget = PENALTY_EPS  # of noise-change, attack-change and gradient
    above: float = 0.5  # of kappa

    def __post_init__(self) -> None:
        check_fields(self, weight=0, above=0)
        if not 0 < self.share <= 1:
            raise InputError(
                f"share={self.share} must be above 0 and at most 1: the share of a batch that is penalised"
            )
        object.__setattr__(self, "eps", Linf(self.eps).eps)  # read, and refused above the pixel range
        if not self.eps:
            raise InputError("eps=0 moves no pixel: give the penalty a size, such as 8/255")

    @property
    def forwards(self) -> float:
        """What it costs beside a training step, in forward passes (each with its backward) per image of a batch; an estimate."""
        looks = {"jasmin": 3, "noise-change": 6, "attack-change": 7, "gradient": 2}.get(self.term, 4)
        return self.share * looks


def check_kept_epochs(kept: tuple[int, ...], epochs: int) -> None:
    """Each is an epoch that the training comes to."""
    for epoch in kept:
        if not 1 <= epoch <= epochs:
            raise InputError(f"keep_epochs has {epoch}, and the training has the epochs 1 to {epochs}")


@named_arguments
@dataclass(frozen=True, kw_only=True)
class TrainConfig:
    """The paper's recipe by default: Adam 5e-4, batch 128, constant rate, nothing else."""

    epochs: int = 100  # passes over the training images
    batch_size: int = 128  # images per step
    lr: float = 5e-4  # learning rate of Adam
    weight_decay: float = 0.0  # of Adam
    schedule: Literal["constant", "cosine"] = "constant"  # cosine falls from lr to 0 over all steps
    augment: Literal["none", "crop-flip"] = "none"  # shift by up to an eighth of the side, mirror
    label_smoothing: float = 0.0  # share of each label spread over all classes
    noise: float = 0.0  # standard deviation of Gaussian noise on the pixels of every image, new in every epoch
    penalty: Penalty | None = None  # a term added to the loss, on a share of each batch
    adv_eps: Budget | None = None  # adversarial training: every batch is attacked with PGD at this Linf budget
    adv_steps: int = 7  # of that PGD
    adv_step_size: float | None = None  # pixel units; 2.5 adv_eps / adv_steps when not given
    adv_random_start: bool = True  # begin that PGD at a random point of the ball
    clean_share: float = 0.0  # of each batch that stays clean in adversarial training
    start_from: str | None = None  # folder of a finished run whose weights to begin with (fine-tuning)
    seed: int = 0  # of weights, order, augmentation and inner attacks
    precision: Literal["fp32", "bf16"] = "fp32"  # bf16 is autocast, for GPUs and CPUs with bfloat16 units
    checkpoint_seconds: float = 60.0  # at most this much work is lost to a kill; every epoch's end is kept too
    keep_epochs: tuple[int, ...] = ()  # the weights after these epochs stay, each as a run of its own: OUT/epoch-15
    fit_images: int = 0  # training images for `fit_accuracy` after every epoch (train_accuracy: mean over the epoch)

    def __post_init__(self) -> None:
        check_kept_epochs(self.keep_epochs, self.epochs)
        check_fields(self, epochs=1, batch_size=1, weight_decay=0, label_smoothing=0, seed=0, checkpoint_seconds=0)
        check_fields(self, adv_steps=1, adv_step_size=0, clean_share=0, fit_images=0, noise=0)
        if not self.lr > 0:
            raise InputError(f"lr={self.lr} must be greater than 0")
        if not self.label_smoothing < 1:
            raise InputError(f"label_smoothing={self.label_smoothing} must be less than 1")
        if self.clean_share > 1:
            raise InputError(f"clean_share={self.clean_share} must be at most 1")
        if self.adv_eps is not None:
            object.__setattr__(
                self, "adv_eps", pixel_budget(self.adv_eps, "adv_eps")
            )  # read, and refused above the pixel range

    def lr_at(self, done: float) -> float:
        """The learning rate when this share of all steps is done."""
        return self.lr * (0.5 * (1 + math.cos(math.pi * done)) if self.schedule == "cosine" else 1.0)


@named_arguments
@dataclass(frozen=True, kw_only=True)
class ContrastiveConfig:
    """DiffCLIP's recipe by default (docs/method.md 3.3, Z10): AdamW, one epoch of warm-up, cosine to 1e-5, batches of 4096."""

    epochs: int = 40  # passes over the training images
    batch_size: int = 4096  # pairs per step, each contrasted with all others
    micro_batch: int | None = None  # images, and texts, in memory at once (gradient caching); None: the whole batch
    lr: float = 5e-4  # learning rate of AdamW after the warm-up
    end_lr: float = 1e-5  # where the rate begins, and where the cosine ends
    warmup_epochs: float = 1.0  # in which the rate rises linearly
    weight_decay: float = 0.5  # not of vectors, biases and norms
    beta2: float = 0.98  # of AdamW; beta1 is 0.9
    max_scale: float = 100.0  # the learned factor of the cosines stays at or below this
    augment: Literal["none", "crop-flip", "resized-crop"] = "resized-crop"  # resized-crop: half of the area or more
    seed: int = 0  # of weights, order, captions and augmentation
    precision: Literal["fp32", "bf16"] = "fp32"  # bf16 is autocast, for GPUs and CPUs with bfloat16 units
    checkpoint_seconds: float = 60.0  # at most this much work is lost to a kill; every epoch's end is kept too
    keep_epochs: tuple[int, ...] = ()  # the weights after these epochs stay, each as a run of its own: OUT/epoch-15

    def __post_init__(self) -> None:
        check_kept_epochs(self.keep_epochs, self.epochs)
        check_fields(self, epochs=1, batch_size=2, micro_batch=1, weight_decay=0, seed=0, checkpoint_seconds=0)
        check_fields(self, end_lr=0, warmup_epochs=0, beta2=0, max_scale=1)
        if not self.lr > 0:
            raise InputError(f"lr={self.lr} must be greater than 0")
        if not self.beta2 < 1:
            raise InputError(f"beta2={self.beta2} must be less than 1")

    @classmethod
    def at(cls, scale: ClipScale, **options: Any) -> ContrastiveConfig:
        """The recipe of a scale."""
        own = {f.name: getattr(scale, f.name) for f in fields(cls) if hasattr(scale, f.name)}
        return cls(**{**own, **options})

    def lr_at(self, done: float) -> float:
        """The learning rate when this share of all steps is done."""
        warm = min(1.0, self.warmup_epochs / self.epochs)
        if done < warm:
            return self.end_lr + (self.lr - self.end_lr) * done / warm
        fallen = (done - warm) / (1 - warm) if warm < 1 else 0.0
        return self.end_lr + (self.lr - self.end_lr) * 0.5 * (1 + math.cos(math.pi * fallen))
