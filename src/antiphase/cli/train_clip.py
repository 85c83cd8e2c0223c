"""antiphase train-clip"""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import tyro

from antiphase.cli.train import ABOUT_A_RUN
from antiphase.clip_scales import ClipScale, clip_scale
from antiphase.config import InputError, check_fields, from_plain, overlaid, read_yaml
from antiphase.data.catalog import check_name, entry_of, load
from antiphase.data.pair_catalog import is_captioned, load_pairs
from antiphase.data.tolerance import ALLOWABLE, allowed
from antiphase.files import require_folder
from antiphase.models import attention_syntax
from antiphase.models.clip_config import VARIANTS, CLIPConfig, TokenizerName, clip_of_sizes
from antiphase.models.config import Attention
from antiphase.models.prompts import PROMPT_SETS, check_prompts, templates
from antiphase.models.run_json import check_about
from antiphase.scales import ScaleName
from antiphase.training.config import ContrastiveConfig

if TYPE_CHECKING:
    from antiphase.data.imageset import ImageSet
    from antiphase.data.pairs import PairSet


EXAMPLES = """\
  antiphase train-clip --out runs/clip
  antiphase train-clip --out runs/diffclip --variant DiffCLIP --epochs 20
  antiphase train-clip --out runs/c10 --scale cpu --variant DiffCLIP-dagger --init matched
  antiphase train-clip --out runs/half --scale cpu --variant DiffCLIP --attention differential:lambda_init=0.5
  antiphase train-clip --out runs/tiles --pairs tiles --scale cpu --variant DiffCLIP
  antiphase train-clip --out runs/f8k --pairs flickr8k --image 64 --patch 8 --tokenizer clip --context 77
  antiphase train-clip --out runs/cc3m --scale paper --pairs 'cc3m/*.tar' --allow broken,empty --precision bf16
  torchrun --nproc-per-node 8 -m antiphase train-clip --out runs/cc12m --scale paper --pairs cc12m --variant DiffCLIP"""
NOTES = f"""

--attention and --text-attention KIND[:KEY=VALUE,...], as in differential:lambda_init=0.5:
{attention_syntax.explained()}"""


@dataclass(frozen=True, kw_only=True)
class ClipFlags:
    """Both towers of the CLIP."""

    variant: Literal["CLIP", "DiffCLIP", "DiffCLIP-dagger", "DiffCLIP-star"] = "CLIP"  # attention of both towers
    attention: tuple[Attention, ...] = ()  # of the vision tower, one or one per layer, instead of the variant's
    text_attention: tuple[Attention, ...] = ()  # of the text tower
    init: Literal["official", "matched"] = "official"  # of differential vision blocks: DiffCLIP's, or the twin's
    image: int = 224  # side of an image in pixels
    patch: int = 16  # side of a patch in pixels
    width: int = 768  # of the vision tower
    depth: int = 12  # layers of the vision tower
    heads: int = 12  # of softmax attention; differential attention has half as many
    text_width: int = 512  # of the text tower
    text_depth: int = 12  # layers of the text tower
    text_heads: int = 8  # of the text tower, counted as the vision tower's
    context: int = 77  # tokens of a text
    tokenizer: TokenizerName = "clip"  # clip: 49,408 tokens; bytes: 259, for a small model
    joint: int = 512  # width of the joint space

    @classmethod
    def at(cls, scale: ClipScale) -> ClipFlags:
        return cls(**{f.name: getattr(scale, f.name) for f in fields(cls) if hasattr(scale, f.name)})

    @classmethod
    def of(cls, config: CLIPConfig, where: str) -> ClipFlags:
        """The flags that describe this model."""
        vision, text = config.vision, config.text
        same = {
            name: getattr(vision, name) for name in ("attention", "init", "image", "patch", "width", "depth", "heads")
        }
        shape = cls(
            **same,
            text_attention=text.attention,
            text_width=text.width,
            text_depth=text.depth,
            text_heads=text.heads,
            context=text.context,
            tokenizer=text.tokenizer,
            joint=config.joint,
        )
        if config.title in VARIANTS:
            by_name = replace(shape, variant=config.title, attention=(), text_attention=())  # type: ignore[arg-type]
            shape = by_name if by_name.config() == config else shape
        if shape.config() != config:
            raise InputError(
                f"{where} has a model that no flags here make: its vocabulary, MLP or normalisation is another"
            )
        return shape

    def __post_init__(self) -> None:
        self.config()  # refuses what the model would refuse

    def config(self) -> CLIPConfig:
        ours, theirs = VARIANTS[self.variant]
        return clip_of_sizes(self, self.attention or (ours,), self.text_attention or (theirs,), self.init)


@dataclass(frozen=True, kw_only=True)
class PairFlags:
    """Which pairs."""

    pairs: str | None = None  # tiles, flickr8k, flickr30k, coco, folder or glob of shards; classes: digits, a folder
    prompts: str = "a"  # captions of an image with a class: paper, a, digit, imagenet80, or a file of templates
    allow: str = ""  # what may be left out, and is counted: missing, empty, broken; and long, which is cut
    data_root: Path | None = None  # where data sets lie; $ANTIPHASE_DATA when not given
    download: bool = False  # fetch the data set if it is not there and can be fetched
    train_images: int | None = None  # at most so many; None: all

    def __post_init__(self) -> None:
        check_fields(self, train_images=1)
        check_prompts(self.prompts)
        allowed(self.allow)
        if self.pairs is not None and not is_captioned(self.pairs):
            check_name(self.pairs)

    @property
    def allowed(self) -> tuple[str, ...]:
        return allowed(self.allow)

    def load(self, side: int, seed: int) -> tuple[PairSet, ImageSet | PairSet, tuple[str, ...]]:
        """The training pairs, the test set, and the prompts where the test set has classes."""
        if self.pairs is None:
            raise InputError("no pairs are named: give --pairs")
        if is_captioned(self.pairs):
            options: dict[str, Any] = {"root": self.data_root, "image_size": side, "allow": self.allowed}
            train, test = (load_pairs(self.pairs, split, **options) for split in ("train", "test"))
            return train.subset(min(self.train_images or len(train), len(train)), seed), test, ()
        from antiphase.training.clip_task import pairs_from_prompts

        size = side if entry_of(self.pairs).resizable else None
        options = {"root": self.data_root, "image_size": size, "download": self.download}
        images, test_images = (load(self.pairs, split, **options) for split in ("train", "test"))
        prompts = templates(self.prompts)
        images = images.at_most(self.train_images, seed)
        return pairs_from_prompts(images, prompts), test_images, prompts


@dataclass(frozen=True, kw_only=True)
class Command:
    out: Path  # folder of the run; if it holds the beginning of this very run, training goes on from there
    scale: ScaleName = "smoke"  # sizes of everything below, where a flag does not say otherwise
    config: Path | None = None  # YAML with sections model and training, or a run.json of a CLIP; flags override it
    source: PairFlags = PairFlags()
    model: ClipFlags = ClipFlags()
    training: ContrastiveConfig = ContrastiveConfig()
    device: str = "auto"  # auto, cpu, cuda, cuda:1, mps
    tensorboard: bool = False  # write the log for TensorBoard too, into tensorboard/ of the run (extra: tensorboard)
    json: bool = False  # print the result as JSON on stdout

    @classmethod
    def defaults(cls, scale: ScaleName) -> Command:
        return cls._at(scale, clip_scale(scale))

    @classmethod
    def _at(cls, scale: ScaleName, s: ClipScale) -> Command:
        return cls(
            out=tyro.MISSING,
            scale=scale,
            source=PairFlags(pairs=s.pairs, prompts=s.prompts, train_images=s.train_images),
            model=ClipFlags.at(s),
            training=ContrastiveConfig.at(s),
        )

    def with_pairs(self, pairs: str) -> Command:
        """The defaults with the sizes that these pairs need, where they have some of their own (tiles)."""
        return self._at(self.scale, clip_scale(self.scale, pairs))

    def with_file(self, path: Path) -> Command:
        """These defaults with what the file says laid over them."""
        plain = read_yaml(path)
        if unknown := set(map(str, plain)) - {"model", "training"} - ABOUT_A_RUN:
            raise InputError(f"{path} has a section {min(unknown)!r}: it takes model and training")
        check_about(plain, path)
        model = from_plain(CLIPConfig, plain["model"], f"{path.name}: model") if "model" in plain else None
        training = overlaid(self.training, plain.get("training", {}), f"{path.name}: training")
        source = self.source
        if plain.get("data"):  # a run.json: the same data too
            source = replace(source, pairs=plain["data"].get("origin") or source.pairs)
            source = replace(
                source, train_images=plain["data"]["train"]["images"], prompts=_prompts_name(plain["data"], path)
            )
        return replace(
            self,
            config=path,
            training=training,
            source=source,
            model=ClipFlags.of(model, path.name) if model else self.model,
        )


def _prompts_name(data: dict[str, Any], path: Path) -> str:
    """The name of the prompts that a run was trained with."""
    own = tuple(data.get("templates", ()))
    for name, prompts in PROMPT_SETS.items():
        if own == prompts or (name == "imagenet80" and len(own) == 80) or not own:
            return name
    raise InputError(f"{path} was trained with templates from a file: leave --config out and give them by --prompts")


def run(command: Command) -> dict[str, Any]:
    require_folder(command.out)
    from antiphase.training.tensorboard import check_installed, tensorboard_log

    if command.tensorboard:
        check_installed()
    from antiphase.processes import is_main_process
    from antiphase.runtime import pick_device, use_threads_that_pay
    from antiphase.training.clip_task import train_clip
    from antiphase.training.run_folder import use_threads_of_run

    device, config = pick_device(command.device), command.model.config()
    use_threads_of_run(command.out, config, command.training)
    train_set, test_set, prompts = command.source.load(config.vision.image, command.training.seed)
    use_threads_that_pay(test_set.shape)
    settings: dict[str, Any] = {"allow": command.source.allowed, "device": device, "scale": command.scale}
    with tensorboard_log(command.out) if command.tensorboard and is_main_process() else nullcontext() as on_epoch:
        run = train_clip(
            config,
            command.training,
            train_set,
            test_set,
            command.out,
            templates=prompts,
            on_epoch=on_epoch,
            **settings,
        )
    skipped = run.about["data"]["train"]["skipped"]
    test_images = run.about["data"]["test"]["images"]
    digest = {"weights_sha256": run.weights_digest, "skipped": skipped, "test_images": test_images}
    return {"run": str(run.folder), "title": run.config.title, **digest, "log": run.log}


def show(result: dict[str, Any]) -> None:
    from antiphase.rates import wilson

    last, n = result["log"][-1], result["test_images"]
    names = {
        "zero_shot_accuracy": "zero-shot test accuracy",
        "text_recall_at_1": "text R@1",
        "image_recall_at_1": "image R@1",
    }
    accuracies = ", ".join(
        f"{name} {100 * last[key]:.1f} % [{100 * low:.1f}, {100 * high:.1f}]"
        for key, name in names.items()
        if key in last
        for low, high in [wilson(last[key], n)]  # the captions of an image stand or fall together: n is of images
    )
    lam = ", ".join(f"{value:.3f}" for value in last["lambda"].values())
    print(
        f"{result['title']} in {result['run']}: {last['epoch']} epochs, loss {last['loss']:.4f}, {accuracies} "
        f"(n = {n:,} test images), logit scale {last['logit_scale']:.1f}" + (f", lambda {lam}" if lam else "")
    )
    for kind, n in result["skipped"].items():
        print(f"left out or cut: {n:,} {ALLOWABLE.get(kind.split()[0], kind)}")
    for sign in last["signs"]:
        print(f"warning: {sign}")
