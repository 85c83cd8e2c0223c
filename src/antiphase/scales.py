"""The four sizes at which anything here can be run. One definition; `--scale` means these numbers everywhere."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

ScaleName = Literal["smoke", "cpu", "desk", "paper"]


@dataclass(frozen=True, kw_only=True)
class Scale:
    """What a scale fixes; any single value can still be overridden by its own flag."""

    purpose: str
    data: str
    train_images: int | None  # class-balanced subset of the training split; None: all of it
    width: int
    heads: int  # baseline (softmax) heads; a differential layer has half as many
    patch: int
    depths: tuple[int, ...]
    epochs: int
    seeds: int
    fewer_seeds: tuple[tuple[int, int], ...] = ()  # (depth, seeds) where there are fewer
    keep_epochs: tuple[int, ...] = ()  # of depth-1 models also the weights after these epochs are studied
    fit_images: int = 0  # of the training images, looked at after every epoch of a depth-1 model
    lambda_seeds: int | None = None  # of models with another lambda_init than 0.8; None: as of those with 0.8
    adv_epochs: int  # of adversarial fine-tuning
    adv_from_scratch: bool  # adversarial training from scratch as well
    more_classes: str | None  # a second data set, with more classes; None: not at this scale
    larger_images: str  # a data set of larger images (the paper's Tiny ImageNet)
    eval_images: int | None  # class-balanced subset of the test split; None: all of it
    more_images: int | None  # of the second data set, where fewer are classified correctly; None: as of the first
    measure_images: int  # of those, for what looks inside attention
    sharp_images: int  # of those, for estimates that search: L-power and L-ascent
    eps: tuple[str, ...]  # Linf budgets on which success spans little to nearly all
    pgd_steps: int
    pgd_restarts: int
    patch_widths: tuple[int, ...]  # in pixels
    patch_steps: int
    autoattack: tuple[int, int, int]  # iterations, targets, queries of Square: 100, 9, 5000 is `standard`
    autoattack_images: int
    cw: tuple[int, int]  # searches, steps of each
    cw_images: int
    certify_images: int  # of those, for certificates
    certify_samples: int  # draws per image that bound a probability
    lipschitz_draws: int  # M of L-sample
    probes: int  # K of the forward-mode alignment estimator
    max_probes: int  # doubled up to so many for images whose sign is undecided
    probe_images: int | None  # class-balanced subset of the training split for linear probes; None: all of it
    probe_costs: int  # values of C that a linear probe tries
    accuracy_floor: float | None  # depth-1 test accuracy below which no verdict is given; None: no verdicts at all

    def seeds_at(self, depth: int) -> int:
        return dict(self.fewer_seeds).get(depth, self.seeds)


STANDARD = (100, 9, 5000)
PAPER_EPS = ("0.25/255", "0.5/255", "1/255", "2/255", "4/255")
SCALES: dict[ScaleName, Scale] = {
    "smoke": Scale(
        purpose="tests, seconds",
        data="digits",
        train_images=None,
        width=32,
        heads=4,
        patch=2,
        depths=(1, 2),
        epochs=8,
        keep_epochs=(2, 4),
        fit_images=100,
        seeds=1,
        adv_epochs=2,
        adv_from_scratch=True,
        more_classes=None,
        larger_images="digits",
        eval_images=64,
        more_images=None,
        measure_images=32,
        sharp_images=16,
        eps=("2/255", "4/255", "8/255", "16/255", "32/255"),
        pgd_steps=10,
        pgd_restarts=1,
        patch_widths=(1, 2),
        patch_steps=10,
        autoattack=(20, 3, 200),
        autoattack_images=32,
        cw=(5, 100),
        cw_images=32,
        certify_images=16,
        certify_samples=100,
        lipschitz_draws=8,
        probes=8,
        max_probes=8,
        probe_images=500,
        probe_costs=7,
        accuracy_floor=None,
    ),
    "cpu": Scale(
        purpose="a laptop: from minutes to a few hours per study",
        data="cifar10",
        train_images=10_000,
        width=96,
        heads=4,
        patch=4,
        depths=(1, 2, 4),
        epochs=15,
        seeds=10,
        fewer_seeds=((2, 5), (4, 5)),
        adv_epochs=4,
        adv_from_scratch=True,
        more_classes="cifar100",
        larger_images="tiny-imagenet",
        eval_images=512,
        more_images=2_000,
        measure_images=512,
        sharp_images=64,
        eps=PAPER_EPS,
        pgd_steps=20,
        pgd_restarts=3,
        patch_widths=(2, 4, 8),
        patch_steps=50,
        autoattack=STANDARD,
        autoattack_images=64,
        cw=(5, 100),
        cw_images=64,
        certify_images=256,
        certify_samples=500,
        lipschitz_draws=32,
        probes=32,
        max_probes=32,
        probe_images=5_000,
        probe_costs=13,
        accuracy_floor=0.40,
    ),
    "desk": Scale(
        purpose="replication on 2 cores, resumable, days to weeks",
        data="cifar10",
        train_images=None,
        width=128,
        heads=4,
        patch=4,
        depths=(1, 2, 4, 8, 12),
        epochs=12,
        seeds=10,
        fewer_seeds=((2, 5), (4, 5), (8, 3), (12, 2)),
        adv_epochs=6,
        adv_from_scratch=True,
        more_classes="cifar100",
        larger_images="tiny-imagenet",
        eval_images=1_000,
        more_images=2_000,
        measure_images=1_000,
        sharp_images=128,
        eps=PAPER_EPS,
        pgd_steps=20,
        pgd_restarts=3,
        patch_widths=(2, 4, 8),
        patch_steps=50,
        autoattack=STANDARD,
        autoattack_images=1_000,
        cw=(9, 200),
        cw_images=2_000,
        certify_images=1_000,
        certify_samples=1_000,
        lipschitz_draws=64,
        probes=32,
        max_probes=512,
        probe_images=None,
        probe_costs=25,
        accuracy_floor=0.50,
    ),
    "paper": Scale(
        purpose="a GPU machine",
        data="cifar10",
        train_images=None,
        width=192,
        heads=6,
        patch=4,
        depths=(1, 2, 4, 8, 12),
        epochs=100,
        keep_epochs=(15, 35),
        fit_images=10_000,
        seeds=5,
        fewer_seeds=((2, 3), (4, 3), (8, 3), (12, 3)),
        lambda_seeds=3,
        adv_epochs=50,
        adv_from_scratch=True,
        more_classes="cifar100",
        larger_images="tiny-imagenet",
        eval_images=None,
        more_images=None,
        measure_images=1_000,
        sharp_images=256,
        eps=PAPER_EPS,
        pgd_steps=20,
        pgd_restarts=3,
        patch_widths=(2, 4, 8),
        patch_steps=50,
        autoattack=STANDARD,
        autoattack_images=1_000,
        cw=(9, 1_000),
        cw_images=1_000,
        certify_images=1_000,
        certify_samples=10_000,
        lipschitz_draws=64,
        probes=32,
        max_probes=512,
        probe_images=None,
        probe_costs=96,
        accuracy_floor=0.55,
    ),
}
