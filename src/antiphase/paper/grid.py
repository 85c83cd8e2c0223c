"""A scale turned into cells: the models, images and attacks that studies share. No torch.

Two studies that ask for the same thing here get equal cells, so nothing is trained or attacked twice.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Literal

import numpy as np

from antiphase.attacks import CW, PGD, AutoAttack, Linf, Patch
from antiphase.attacks.config import Attack
from antiphase.attacks.question import AttackQuestion
from antiphase.clip_scales import CLIP_SCALES, TILE_SCALES
from antiphase.config import Budget, InputError
from antiphase.data.catalog import entry_of
from antiphase.measures.crossover import crossover
from antiphase.measures.seed_intervals import PerSeed, difference
from antiphase.models.clip_config import VARIANTS, clip_of_sizes
from antiphase.models.config import Attention, Differential, Softmax, ViTConfig
from antiphase.paper.cost import count
from antiphase.paper.questions import Ask, Images, Model, Train, TrainClip, UserClip
from antiphase.paper.series import (
    ALIKE,
    ON_BOTH_SIDES,
    PLAN,
    Series,
    Success,
    Values,
    difference_line,
    line,
    trained_lines,
)
from antiphase.paper.study import FIGURE_ONLY, Answers, Label, Line, Tick
from antiphase.paper.verdict_rule import GAP
from antiphase.scales import SCALES, Scale, ScaleName
from antiphase.training.config import ContrastiveConfig, TrainConfig

Init = Literal["official", "matched"]
OutScale = Literal["official", "fixed", "none"]
CLIP_IMAGES = 1_000  # that a CLIP is attacked on where a scale takes all of a test set
PAPER_PAIRS = "cc12m"  # what DiffCLIP was trained on: a folder of shards
VIT_NAMES = ("ViT", "DiffViT")
CLIP_NAMES = ("CLIP", "DiffCLIP")
PAPER_EPOCHS = {"cifar100": 300}  # at the paper scale, where it is not the scale's own number


def attack_on(of: Model, images: Images, attack: Attack) -> Ask:
    """Every restart to its own end, so that means over restarts and unions are both there."""
    return Ask(of=of, images=images, question=AttackQuestion(attack=attack))


@dataclass(frozen=True)
class Grid:
    """A scale turned into cells: what all studies at this scale have in common."""

    scale: ScaleName
    data: str  # the main data set: the scale's own, or another that the user named
    pair: tuple[UserClip, UserClip] | None = None  # a CLIP and a DiffCLIP of the user's own
    pair_data: str | None = None  # the data set that pair is looked at on; None: the papers', or the surrogates'
    only_depths: tuple[int, ...] | None = None  # of the scale's depths; None: all
    most_seeds: int | None = None  # of every model; None: as the scale has

    def __post_init__(self) -> None:
        depths, seeds = self.s.depths, self.s.seeds
        for depth in () if self.only_depths is None else self.only_depths or (0,):
            if depth not in depths:
                known = ",".join(map(str, depths))
                raise InputError(f"the {self.scale} scale has no depth {depth}: --depths takes some of {known}")
        if self.most_seeds is not None and not 1 <= self.most_seeds <= seeds:
            raise InputError(
                f"the {self.scale} scale has {seeds} seeds, not {self.most_seeds}: --seeds takes 1 to {seeds}"
            )

    @classmethod
    def at(
        cls,
        scale: ScaleName,
        data: str | None = None,
        pair: tuple[UserClip, UserClip] | None = None,
        pair_data: str | None = None,
        *,
        depths: tuple[int, ...] | None = None,
        seeds: int | None = None,
    ) -> Grid:
        return cls(scale, data or SCALES[scale].data, pair, pair_data, depths, seeds)

    @property
    def depths(self) -> tuple[int, ...]:
        """Of the models that are trained, in rising order."""
        return tuple(d for d in self.s.depths if self.only_depths is None or d in self.only_depths)

    @property
    def all_depths(self) -> Grid:
        """The same with every depth of the scale: what a claim about depth is decided on."""
        return replace(self, only_depths=None)

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

    def printed(self, value: float | None) -> float | None:
        """A number of the paper about CIFAR-10, where this is its experiment: not on other data, nor at the smoke scale."""
        return value if self.scale != "smoke" and self.data == "cifar10" else None

    def seeds(self, depth: int = 1) -> range:
        own = self.s.seeds_at(depth)
        return range(own if self.most_seeds is None else min(own, self.most_seeds))

    # --------------------------------------------------------------------------------------------- models

    def vit(self, seed: int, depth: int = 1, **options: Any) -> Train:
        return trained(self, Softmax(), seed, depth, **options)

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
        return trained(self, attention, seed, depth, init=init, **options)

    def witness(self, of: Train) -> Train:
        """The depth-1 model of the same attention, initialisation and seed, by whose accuracy undertrained models are found."""
        return trained(self, of.model.layers[0], of.training.seed, 1, init=of.model.init)

    # --------------------------------------------------------------------------------------------- images and attacks

    def test(self, n: int | None = None, data: str | None = None) -> Images:
        data = data or self.data
        own = self.s.more_images if data == self.s.more_classes else None
        return Images(data=data, n=n or own or self.s.eval_images)

    def learned(self, of: Train) -> Images:
        """Of the images that a run learned from, as many as of the test images; where those are all, as many as measures take."""
        n = self.s.eval_images or self.s.measure_images
        return Images(data=of.data, n=n, split="train", learned=of.images, seed=of.training.seed)

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

    def under_attack(self, of: Train, attack: Attack, n: int | None = None) -> Ask:
        return attack_on(of, self.test(n, of.data), attack)

    # --------------------------------------------------------------------------------------------- CLIP

    @property
    def clip_seeds(self) -> range:
        """One of each where the user gave them, else as many as of everything."""
        return range(1) if self.pair is not None else self.seeds()

    @property
    def clip_data(self) -> dict[str, str]:
        """The paper's data sets for CLIP, and what is looked at for each: a surrogate at what it has learned from, a pair of
        the user's own at the data that were named for it."""
        own = self.pair_data or (None if self.published else _pairs(self.scale))
        return {name: own or name for name in ("coco", "imagenet")}

    def clip_place(self, named: str) -> str:
        """What a table calls the data that are looked at for one of the paper's sets."""
        data = self.clip_data[named]
        return data if data in (named, self.pair_data) else f"{data} in place of {named}"

    def decides_on(self, named: str) -> bool:
        """Models of the published shape decide what is said of a data set on that data set only; surrogates decide nothing."""
        return not self.published or self.clip_data[named] == named

    @property
    def published(self) -> bool:
        """Models of the published shape: given, or trained at the paper scale. A small pair of the user's own stands in too."""
        return not self.clip(0).surrogate

    def clip(self, seed: int, variant: str = "CLIP", vision: Differential | None = None) -> Model:
        """A CLIP of a variant; `vision` says the attention of a vision-only DiffCLIP more exactly."""
        if self.pair is not None and vision is None and variant in ("CLIP", "DiffCLIP"):
            return self.pair[variant == "DiffCLIP"]
        return trained_clip(self.scale, seed, variant, vision)

    def clips(self, variant: str = "CLIP", vision: Differential | None = None) -> list[Model]:
        return [self.clip(seed, variant, vision) for seed in self.clip_seeds]

    def clip_images(self, of: Model, data: str, n: int | None = None) -> Images:
        """Brought to the size that the model takes, where they can be."""
        entry, n = entry_of(data), n or self._images_of_clip(data)
        return Images(data=data, n=n, size=of.grid[0] if entry.resizable and of.grid[0] != entry.size else None)

    def _images_of_clip(self, data: str) -> int:
        """A given pair has one training of each, so images alone must show a gap. At the paper scale so many that they also show
        that two models are equal within two points (K10), or all that there are; elsewhere that would take days."""
        own = self.s.eval_images or CLIP_IMAGES
        if self.pair is None or self.scale == "smoke":
            return own
        if self.scale != "paper":
            return max(own, CLIP_IMAGES)
        return count(Images(data=data, n=PLAN.images_needed(ALIKE, ON_BOTH_SIDES)))

    def enough_for_pair(self, n: int) -> int:
        """Of measures of a given pair: so many images, and no fewer than show a gap of five points over images alone."""
        given = self.pair is not None and self.published and self.scale != "smoke"
        return max(n, PLAN.images_needed(GAP)) if given else n

    def clip_widths(self) -> tuple[int, ...]:
        """Of patches: for images of 224 pixels, else those of the scale."""
        return (16, 32, 48, 64) if self.published else self.s.patch_widths


@lru_cache(maxsize=10_000)  # studies ask for the same models over and over
def trained(
    grid: Grid,
    attention: Attention,
    seed: int,
    depth: int,
    *,
    data: str | None = None,
    init: Init = "official",
    patch: int | None = None,
    epochs: int | None = None,
    adv_eps: Budget | None = None,
    start: Train | None = None,
    width: int | None = None,
    images: int | None = None,
) -> Train:
    """A model at the sizes of the scale, but for what is said otherwise."""
    s, data = grid.s, data or grid.data
    side = entry_of(data).size
    pixels = patch or (s.patch * 2 if side >= 64 else s.patch)  # Tiny ImageNet: as many tokens as CIFAR has
    model = ViTConfig(
        patch=pixels, width=width or s.width, heads=s.heads, depth=depth, attention=(attention,), init=init
    )
    own = PAPER_EPOCHS.get(data, s.epochs) if grid.scale == "paper" else s.epochs
    watched, last = depth == 1 and adv_eps is None, epochs or own
    training = TrainConfig(
        epochs=last,
        seed=seed,
        adv_eps=adv_eps,
        keep_epochs=tuple(e for e in s.keep_epochs if watched and e < last),
        fit_images=s.fit_images if watched else 0,
    )
    return Train(model=model, training=training, data=data, images=images or s.train_images, start=start)


def _pairs(scale: ScaleName) -> str:
    """What CLIPs of this scale learn from."""
    return CLIP_SCALES[scale].pairs or PAPER_PAIRS


@lru_cache(maxsize=10_000)
def trained_clip(name: ScaleName, seed: int, variant: str, vision: Differential | None) -> TrainClip:
    """A CLIP at the sizes of the scale."""
    scale = CLIP_SCALES[name]
    ours, theirs = VARIANTS[variant]
    model = clip_of_sizes(scale, (vision or ours,), (theirs,))
    training, images = ContrastiveConfig.at(scale, seed=seed), SCALES[name].train_images
    return TrainClip(model=model, training=training, pairs=_pairs(name), prompts=scale.prompts, images=images)


# ------------------------------------------------------------------------------------------------- ViT and DiffViT

AskVit = Callable[[Train], Ask]


def vits(grid: Grid, depth: int, ask: AskVit) -> dict[str, tuple[Ask, ...]]:
    """What is asked of both models at a depth, one cell per seed."""
    seeds = grid.seeds(depth)
    models = {"ViT": [grid.vit(s, depth) for s in seeds], "DiffViT": [grid.diffvit(s, depth) for s in seeds]}
    return {name: tuple(map(ask, each)) for name, each in models.items()}


def vits_under(grid: Grid, attack: Attack, n: int | None = None) -> AskVit:
    def ask(of: Train) -> Ask:
        return grid.under_attack(of, attack, n)

    return ask


def vit_series(grid: Grid, depth: int, ask: AskVit, values: Values, quantile: float | None = None) -> dict[str, Series]:
    return {name: Series(cells, values, quantile) for name, cells in vits(grid, depth, ask).items()}


def depth_lines(
    grid: Grid, asks: dict[str, AskVit], readings: tuple[str, ...], reference: str | None = FIGURE_ONLY
) -> list[Line]:
    """Each model at each depth, their difference, and the depth at which they change places."""
    table: list[Line] = []
    for what, ask in asks.items():
        for reading in readings:
            by_depth = {depth: vit_series(grid, depth, ask, Success(reading)) for depth in grid.depths}
            for depth, both in by_depth.items():
                at = Tick.at("depth", depth)
                printed = reference if reading == readings[0] else None
                for name, series in both.items():
                    table.append(line(Label(name, at, what), series, reading, reference=printed))
                apart = Label("DiffViT - ViT", at, what)
                table.append(difference_line(apart, both["DiffViT"], both["ViT"], reading))
            pairs = [(both["DiffViT"], both["ViT"]) for both in by_depth.values()]
            table.append(crossover_line(grid, Label("crossover depth", what), pairs, reading))
    return table


def crossover_line(grid: Grid, label: Label, pairs: list[tuple[Series, Series]], reading: str) -> Line:
    """D* of Corollary 1 as it is seen: interpolated in log depth, never extrapolated."""

    def read(answers: Answers) -> dict[str, Any]:
        gaps = [PerSeed.of([a.arm(answers), b.arm(answers)], difference) for a, b in pairs]
        if not all(np.isfinite(gap.values).all() for gap in gaps):
            return {"text": "not known: a number of some model does not exist"}
        result = crossover(grid.depths, gaps)
        falls, rises = (100 * result[way] for way in ("falls below", "rises above"))
        chances = f"the gap {falls:.0f} % likely falls below 0 with depth (the paper's direction), {rises:.0f} % rises above it"
        if result["depth"] is None:
            return {"text": "none among these depths", "note": chances}
        note = f"the gap {result['direction']} 0; 90 % interval; {result['sign_changes']} changes of sign; {chances}"
        interval = None if result["interval"] is None else tuple(result["interval"])
        return {"value": result["depth"], "interval": interval, "note": note}

    cells = tuple(cell for pair in pairs for series in pair for cell in series.sources)
    return Line(label=label, reading=reading, cells=cells, read=read, unit="")


def accuracy_lines(grid: Grid) -> list[Line]:
    """Train and test accuracy of both models at every depth."""
    return [
        row
        for depth in grid.depths
        for name, make in (("ViT", grid.vit), ("DiffViT", grid.diffvit))
        for row in trained_lines(Label(name, Tick.at("depth", depth)), [make(s, depth) for s in grid.seeds(depth)])
    ]


# ------------------------------------------------------------------------------------------------- CLIP and DiffCLIP

AskClip = Callable[[Model, Images], Ask]


def clips(grid: Grid, data: str, ask: AskClip, n: int | None = None) -> dict[str, tuple[Ask, ...]]:
    """What is asked of the user's own pair, or of small surrogates that every table calls so; one cell per seed."""
    return {
        name: tuple(ask(model, grid.clip_images(model, data, n)) for model in grid.clips(name)) for name in CLIP_NAMES
    }


def clips_under(attack: Attack) -> AskClip:
    def ask(of: Model, images: Images) -> Ask:
        return attack_on(of, images, attack)

    return ask


def clip_series(grid: Grid, data: str, ask: AskClip, values: Values, n: int | None = None) -> dict[str, Series]:
    return {name: Series(cells, values) for name, cells in clips(grid, data, ask, n).items()}


def clip_lines(
    grid: Grid, attacks: dict[Tick, Attack], readings: tuple[str, ...], reference: str | None = None
) -> list[Line]:
    """Both models and their difference on the paper's data sets, or on what is looked at in their place."""
    table: list[Line] = []
    for named, data in grid.clip_data.items():
        where = grid.clip_place(named)
        for tick, attack in attacks.items():
            for reading in readings:
                both = clip_series(grid, data, clips_under(attack), Success(reading))
                printed = reference if reading == readings[0] else None
                for name, series in both.items():
                    table.append(line(Label(name, where, tick), series, reading, reference=printed))
                apart = Label("DiffCLIP - CLIP", where, tick)
                table.append(difference_line(apart, both["DiffCLIP"], both["CLIP"], reading))
        if len(set(grid.clip_data.values())) == 1:
            break  # one data set in place of both: once is enough
    return table


# ------------------------------------------------------------------------------------------------- tiles


def tile_clips(
    grid: Grid, vision: tuple[Attention, ...] = (Softmax(),), text: tuple[Attention, ...] = (Softmax(),)
) -> list[Model]:
    """CLIPs that learn from tiles, one per seed: always trained here, whatever pair the user has."""
    scale = TILE_SCALES[grid.scale]
    assert scale.pairs is not None
    model = clip_of_sizes(scale, vision, text)
    return [
        TrainClip(
            model=model,
            training=ContrastiveConfig.at(scale, seed=seed),
            pairs=scale.pairs,
            prompts=scale.prompts,
            images=scale.train_images,
        )
        for seed in grid.seeds()
    ]


def tile_images(grid: Grid, n: int | None = None) -> Images:
    """Test pictures with one object each, whose class and place are known."""
    pairs = TILE_SCALES[grid.scale].pairs
    assert pairs is not None
    return Images(data=pairs, n=n or grid.s.eval_images)
