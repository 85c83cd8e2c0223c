"""A scale turned into cells: the models, images and attacks that studies share. No torch.

Two studies that ask for the same thing here get equal cells, so nothing is trained or attacked twice.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from antiphase.attacks import CW, PGD, AutoAttack, Linf, Patch
from antiphase.clip_scales import CLIP_SCALES
from antiphase.config import Budget
from antiphase.data.catalog import CATALOG, entry_of
from antiphase.models.clip_config import VARIANTS, sized
from antiphase.models.config import Differential, Softmax, ViTConfig
from antiphase.scales import SCALES, Scale, ScaleName
from antiphase.studies.plan import Given, Images, Model, Train, TrainClip
from antiphase.studies.questions import Attack, Attacked, Predicted
from antiphase.training.config import ContrastiveConfig, TrainConfig

Init = Literal["official", "matched"]
OutScale = Literal["official", "fixed", "none"]
CLIP_IMAGES = 1_000  # that a CLIP is attacked on where a scale takes all of a test set
PAPER_PAIRS = "cc12m"  # what DiffCLIP was trained on: a folder of shards
PAPER_EPOCHS = {"cifar100": 300}  # at the paper scale, where it is not the scale's own number


@dataclass(frozen=True)
class Setting:
    """What all cells of a study at one scale have in common."""

    scale: ScaleName
    data: str  # the main data set: the scale's own, or another that the user named
    pair: tuple[Given, Given] | None = None  # a CLIP and a DiffCLIP of the user's own

    @classmethod
    def at(cls, scale: ScaleName, data: str | None = None, pair: tuple[Given, Given] | None = None) -> Setting:
        return cls(scale, data or SCALES[scale].data, pair)

    @property
    def s(self) -> Scale:
        return SCALES[self.scale]

    @property
    def eps(self) -> tuple[Budget, ...]:
        return tuple(map(Budget, self.s.eps))

    @property
    def middle(self) -> Budget:
        """The paper's 1/255; at the smoke scale the budget in its place."""
        return self.eps[2]

    @property
    def large(self) -> Budget:
        """The paper's 4/255, or the budget in its place."""
        return self.eps[4]

    @property
    def deepest(self) -> int:
        """Of the depths with enough seeds to decide anything, the largest."""
        return max(d for d in self.s.depths if self.s.seeds_at(d) == self.s.seeds)

    def printed(self, value: float | None) -> float | None:
        """A number of the paper about CIFAR-10, where this is its experiment: not on other data, nor at the smoke scale."""
        return value if self.scale != "smoke" and self.data == "cifar10" else None

    def seeds(self, depth: int = 1) -> range:
        return range(self.s.seeds_at(depth))

    # --------------------------------------------------------------------------------------------- models

    def vit(self, seed: int, depth: int = 1, **options: Any) -> Train:
        return self._train(Softmax(), seed, depth, **options)

    def diffvit(
        self,
        seed: int,
        depth: int = 1,
        *,
        lambda_init: float = 0.8,
        out_scale: OutScale = "official",
        init: Init = "official",
        **options: Any,
    ) -> Train:
        """A gain fixed at 0.2 is the official 1 - lambda_init where that is 0.8: then it is one and the same model."""
        if out_scale == "fixed" and lambda_init == 0.8:
            out_scale = "official"
        attention = Differential(lambda_init=lambda_init, out_scale=out_scale)
        return self._train(attention, seed, depth, init=init, **options)

    def _train(
        self,
        attention: Softmax | Differential,
        seed: int,
        depth: int,
        *,
        data: str | None = None,
        init: Init = "official",
        patch: int | None = None,
        epochs: int | None = None,
        adv_eps: Budget | None = None,
        start: Train | None = None,
    ) -> Train:
        s, data = self.s, data or self.data
        side = entry_of(data).size
        grid = patch or (s.patch * 2 if side >= 64 else s.patch)  # Tiny ImageNet: as many tokens as CIFAR has
        model = ViTConfig(patch=grid, width=s.width, heads=s.heads, depth=depth, attention=(attention,), init=init)
        own = PAPER_EPOCHS.get(data, s.epochs) if self.scale == "paper" else s.epochs
        training = TrainConfig(epochs=epochs or own, seed=seed, adv_eps=adv_eps)
        return Train(model=model, training=training, data=data, images=s.train_images, start=start)

    def witness(self, of: Train) -> Train:
        """By whose test accuracy it is judged whether a model of its kind was trained enough: depth 1, main data, as usual."""
        return self._train(of.model.layers[0], of.training.seed, 1, init=of.model.init)

    # --------------------------------------------------------------------------------------------- images and attacks

    def test(self, n: int | None = None, data: str | None = None) -> Images:
        data = data or self.data
        own = self.s.more_images if data == self.s.more_classes else None
        return Images(data=data, n=n or own or self.s.eval_images)

    def learned(self, of: Train) -> Images:
        """As many of the images that a run learned from."""
        return Images(data=of.data, n=self.s.eval_images, split="train", learned=of.images, seed=of.training.seed)

    def pgd(self, eps: Budget, *, steps: int | None = None, **options: Any) -> PGD:
        return PGD(within=Linf(eps), steps=steps or self.s.pgd_steps, runs=self.s.pgd_runs, **options)

    def patch(self, width: int, **options: Any) -> PGD:
        """Free pixels in a square: 50 steps of 0.05 in the paper's setting."""
        steps = self.s.patch_steps
        return PGD(within=Patch(1.0, width), steps=steps, step_size=2.5 / steps, **options)

    def autoattack(self, eps: Budget) -> AutoAttack:
        """Away from the predicted label: of correct images that is the true one, and wrong ones are not left out."""
        steps, targets, queries = self.s.autoattack
        return AutoAttack(within=Linf(eps), label="predicted", steps=steps, targets=targets, queries=queries)

    def cw(self) -> CW:
        searches, steps = self.s.cw
        return CW(searches=searches, steps=steps)

    def attacked(self, of: Train, attack: Attack, n: int | None = None) -> Attacked:
        return Attacked(of=of, images=self.test(n, of.data), attack=attack)

    def predicted(self, of: Model, images: Images | None = None) -> Predicted:
        """What it says of the images that measures look at; by default those of the main data set."""
        return Predicted(of=of, images=images or self.test(self.s.measure_images))

    # --------------------------------------------------------------------------------------------- CLIP

    @property
    def clip_seeds(self) -> range:
        """One of each where the user gave them, else as many as of everything."""
        return range(1) if self.pair is not None else self.seeds()

    @property
    def clip_data(self) -> dict[str, str]:
        """The paper's data sets for CLIP; a surrogate looks at what it has learned from instead."""
        own = self._pairs
        return {name: name if self.published else own for name in ("coco", "imagenet")}

    @property
    def published(self) -> bool:
        """Models of the published shape: given, or trained at the paper scale. A small pair of the user's own stands in too."""
        return not self.clip(0).surrogate

    @property
    def _pairs(self) -> str:
        return CLIP_SCALES[self.scale].pairs or PAPER_PAIRS

    def clip(self, seed: int, variant: str = "CLIP", vision: Differential | None = None) -> Model:
        """A CLIP of a variant; `vision` says the attention of a vision-only DiffCLIP more exactly."""
        if self.pair is not None and vision is None and variant in ("CLIP", "DiffCLIP"):
            return self.pair[variant == "DiffCLIP"]
        scale = CLIP_SCALES[self.scale]
        ours, theirs = VARIANTS[variant]
        model = sized(scale, (vision or ours,), (theirs,))
        training = ContrastiveConfig.at(scale, seed=seed)
        return TrainClip(
            model=model, training=training, pairs=self._pairs, prompts=scale.prompts, images=self.s.train_images
        )

    def clips(self, variant: str = "CLIP", vision: Differential | None = None) -> list[Model]:
        return [self.clip(seed, variant, vision) for seed in self.clip_seeds]

    def clip_images(self, of: Model, data: str, n: int | None = None) -> Images:
        size = of.grid[0] if data in CATALOG and CATALOG[data].resizable else None
        n = n or self.s.eval_images or CLIP_IMAGES
        return Images(data=data, n=n, size=size if size != entry_of(data).size else None)

    def clip_widths(self) -> tuple[int, ...]:
        """Of patches: for images of 224 pixels, else those of the scale."""
        return (16, 32, 48, 64) if self.published else self.s.patch_widths
