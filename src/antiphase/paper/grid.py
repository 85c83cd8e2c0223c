"""A scale turned into cells: the models, images and attacks that studies share. No torch.

Two studies that ask for the same thing here get equal cells, so nothing is trained or attacked twice.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from antiphase.attacks import CW, PGD, AutoAttack, Linf, Patch
from antiphase.clip_scales import CLIP_SCALES
from antiphase.config import Budget
from antiphase.data.catalog import CATALOG, entry_of
from antiphase.measures.crossover import crossover
from antiphase.models.clip_config import VARIANTS, clip_of_sizes
from antiphase.models.config import Differential, Softmax, ViTConfig
from antiphase.paper.contrasts import Side, Values, difference_line, line, pair, success, trained_lines
from antiphase.paper.questions import (
    Attack,
    Attacked,
    Cell,
    Given,
    Images,
    Model,
    OfImages,
    Predicted,
    Train,
    TrainClip,
)
from antiphase.paper.study import FIGURE_ONLY, Found, Line, Missing
from antiphase.scales import SCALES, Scale, ScaleName
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
        return PGD(within=Linf(eps), steps=steps or self.s.pgd_steps, restarts=self.s.pgd_restarts, **options)

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
        model = clip_of_sizes(scale, (vision or ours,), (theirs,))
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


# ------------------------------------------------------------------------------------------------- studies.depths
# Both models at every depth of a scale: cells, lines and the depth at which they change places. No torch.


VIT_NAMES = ("ViT", "DiffViT")
AskVit = Callable[[Train], OfImages]


def twins(setting: Setting, depth: int, ask: AskVit) -> dict[str, tuple[OfImages, ...]]:
    """What is asked of both models at a depth, a seed each."""
    seeds = setting.seeds(depth)
    models = {"ViT": [setting.vit(s, depth) for s in seeds], "DiffViT": [setting.diffvit(s, depth) for s in seeds]}
    return {name: tuple(map(ask, each)) for name, each in models.items()}


def vits_under(setting: Setting, attack: Attack, n: int | None = None) -> AskVit:
    def ask(of: Train) -> Attacked:
        return setting.attacked(of, attack, n)

    return ask


def every(setting: Setting, asks: list[AskVit]) -> list[Cell]:
    return [
        cell
        for depth in setting.s.depths
        for ask in asks
        for cells in twins(setting, depth, ask).values()
        for cell in cells
    ]


def vit_series(setting: Setting, depth: int, ask: AskVit, reading: str) -> dict[str, Side]:
    return {name: Side(cells, success(reading)) for name, cells in twins(setting, depth, ask).items()}


def depth_lines(
    setting: Setting,
    found: Found,
    asked: dict[str, AskVit],
    readings: tuple[str, ...],
    reference: str | None = FIGURE_ONLY,
) -> list[Line]:
    """Each model at each depth, their difference, and the depth at which they change places."""
    table: list[Line] = []
    for label, ask in asked.items():
        for reading in readings:
            for depth in setting.s.depths:
                both = vit_series(setting, depth, ask, reading)
                told = reference if reading == readings[0] else None
                for name, side in both.items():
                    table.append(line(found, f"{name}, depth {depth}, {label}", side, reading, reference=told))
                apart = f"DiffViT - ViT, depth {depth}, {label}"
                table.append(difference_line(found, apart, both["DiffViT"], both["ViT"], reading))
            by_depth = [vit_series(setting, depth, ask, reading) for depth in setting.s.depths]
            pairs = [(both["DiffViT"], both["ViT"]) for both in by_depth]
            table.append(crossover_line(setting, found, f"crossover depth, {label}", pairs, reading))
    return table


def crossover_line(setting: Setting, found: Found, label: str, pairs: list[tuple[Side, Side]], reading: str) -> Line:
    """D* of Corollary 1 as it is seen: interpolated in log depth, never extrapolated."""
    try:
        got = crossover(setting.s.depths, [(a.arm(found), b.arm(found)) for a, b in pairs])
    except Missing:
        return Line(label=label, reading=reading, unit="", note="not run yet")
    note = (
        f"90 % interval; {got['sign_changes']} changes of sign; no crossover in {100 * got['none']:.0f} % of replicates"
    )
    value = {"value": got["median"], "interval": got["interval"]}
    shown = note if value["value"] is not None else f"none among these depths; {note}"
    return Line(label=label, reading=reading, **pair(value), unit="", note=shown)


def accuracies(setting: Setting, found: Found) -> list[Line]:
    return [
        row
        for depth in setting.s.depths
        for name, make in (("ViT", setting.vit), ("DiffViT", setting.diffvit))
        for row in trained_lines(found, f"{name}, depth {depth}", [make(s, depth) for s in setting.seeds(depth)])
    ]


# ------------------------------------------------------------------------------------------------- studies.clips
# CLIP and DiffCLIP side by side: the user's own pair, or small surrogates that every table calls so. No torch.


CLIP_NAMES = ("CLIP", "DiffCLIP")
AskClip = Callable[[Model, Images], OfImages]


def asked_of_clips(setting: Setting, data: str, ask: AskClip, n: int | None = None) -> dict[str, tuple[OfImages, ...]]:
    """What is asked_of_clips of both, a seed each; a given pair has one."""
    return {
        name: tuple(ask(model, setting.clip_images(model, data, n)) for model in setting.clips(name))
        for name in CLIP_NAMES
    }


def clips_under(attack: Attack) -> AskClip:
    def ask(of: Model, images: Images) -> Attacked:
        return Attacked(of=of, images=images, attack=attack)

    return ask


def clip_series(setting: Setting, data: str, ask: AskClip, values: Values, n: int | None = None) -> dict[str, Side]:
    return {name: Side(cells, values) for name, cells in asked_of_clips(setting, data, ask, n).items()}


def clip_lines(
    setting: Setting,
    found: Found,
    attacks: dict[str, Attack],
    readings: tuple[str, ...],
    reference: str | None = None,
) -> list[Line]:
    """Both models and their difference on the paper's data sets, or on what the surrogates learned from."""
    table: list[Line] = []
    for named, data in setting.clip_data.items():
        where = named if named == data else f"{data} in place of {named}"
        for label, attack in attacks.items():
            for reading in readings:
                both = clip_series(setting, data, clips_under(attack), success(reading))
                told = reference if reading == readings[0] else None
                for name, side in both.items():
                    table.append(line(found, f"{name}, {where}, {label}", side, reading, reference=told))
                apart = f"DiffCLIP - CLIP, {where}, {label}"
                table.append(difference_line(found, apart, both["DiffCLIP"], both["CLIP"], reading))
        if not setting.published:
            break  # surrogates have one data set: once is enough
    return table
