"""Run folders: what a run is (run.json), what it has logged (log.jsonl), where it stands (checkpoint.json + tensors), and the
answers to what was asked of it (attacks/, measures/, ...).

checkpoint.json is the commit point. It names the tensor files with their digests and is replaced in one step, so a
process killed at any moment leaves either the old checkpoint or the new one.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Protocol

import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from antiphase import console, files, processes, runtime
from antiphase.config import InputError, check_value, fingerprint, from_plain, to_plain
from antiphase.data.imageset import ImageSet
from antiphase.files import Damaged
from antiphase.models.clip import CLIP
from antiphase.models.clip_config import CLIPConfig
from antiphase.models.config import ViTConfig
from antiphase.models.foreign_config import ForeignConfig, Source
from antiphase.models.prompts import templates
from antiphase.models.run_json import read_about, read_checkpoint, read_log
from antiphase.models.sources import Loaded, check_code, code_digest, load, weights_digest
from antiphase.models.vit import build
from antiphase.models.weights import check_room, fill, read_safetensors
from antiphase.models.zero_shot import class_embeddings, zero_shot, zero_shot_from_embeddings
from antiphase.rates import Rate
from antiphase.store import Content, Entry, Question, Store, entries_in
from antiphase.tables import Shown, Table, number, size_text, with_interval
from antiphase.tensors import read_tensors as read_tensor_file
from antiphase.tensors import write_tensors

ANSWERS = 3  # raised when an answer to the same question would come out differently


def save_checkpoint(
    folder: Path, groups: Mapping[str, Mapping[str, Tensor]], progress: Mapping[str, Any], tag: str
) -> None:
    """Write every group of tensors to its own file, then point checkpoint.json at them, then remove the old files."""
    named = {}
    for group, tensors in groups.items():
        path = folder / f"{group}-{tag}.safetensors"
        whole = {k: v.detach().cpu().contiguous() for k, v in tensors.items()}
        files.write_whole(path, lambda temporary, whole=whole: save_file(whole, temporary))  # type: ignore[misc]
        named[group] = {"file": path.name, "sha256": files.sha256(path)}
    content = {"run": files.sha256(folder / "run.json"), "tensors": named, "progress": dict(progress)}
    if progress.get("complete") and (folder / "log.jsonl").exists():
        content["log"] = files.sha256(folder / "log.jsonl")
    files.write_json(folder / "checkpoint.json", content)
    current = {entry["file"] for entry in named.values()}
    for stale in folder.glob("*.safetensors"):
        if stale.name not in current:
            stale.unlink()


def kept_epoch(folder: Path, epoch: int) -> Path:
    """Where a run's weights after an epoch lie, if they were kept (`train --keep-epochs`)."""
    return folder / f"epoch-{epoch}"


def read_progress(folder: Path) -> dict[str, Any] | None:
    """Where the run stands; None if it has no checkpoint yet."""
    if not (folder / "checkpoint.json").exists():
        return None
    progress: dict[str, Any] = read_checkpoint(folder)["progress"]
    return progress


def _entry(folder: Path, group: str) -> dict[str, str]:
    entry: dict[str, str] | None = read_checkpoint(folder)["tensors"].get(group)
    if entry is None:
        raise InputError(f"{folder / 'checkpoint.json'} lists no {group!r} tensors")
    return entry


def read_tensors(folder: Path, group: str) -> dict[str, Tensor]:
    """One group of the checkpoint, refused by name unless every byte is as it was written."""
    entry = _entry(folder, group)
    tensors = folder / entry["file"]
    if not tensors.is_file():
        raise InputError(f"{tensors} is missing, though checkpoint.json names it; restore it or train again")
    if files.sha256(tensors) != entry["sha256"]:
        raise InputError(
            f"{tensors} is damaged or was altered (its checksum does not match checkpoint.json); restore it or train again"
        )
    return read_safetensors(tensors)


def load_weights(model: nn.Module, tensors: Mapping[str, Tensor], where: str) -> None:
    fill(model, tensors, f"{where} does not fit the model in its run.json")


class Data(Protocol):
    """What a question is about: an ImageSet or a PairSet."""

    @property
    def name(self) -> str: ...
    @property
    def split(self) -> str: ...
    @property
    def shape(self) -> tuple[int, int, int]: ...
    @property
    def fingerprint(self) -> str: ...
    def __len__(self) -> int: ...


@dataclass(frozen=True)
class Run(Shown):
    """A model on disk, self-describing: a trained ViT, a CLIP that classifies by prompts, or a model that was made elsewhere.

    It prints as a table; `.summary()` has the numbers, `.to_pandas()` a row per epoch of its training.
    """

    folder: Path  # may be given as a string
    prompts: str | None = None  # how a CLIP words the classes: a named set or a file (models/prompts.py); None: its own

    def __post_init__(self) -> None:
        check_value("folder", self.folder, Path | str)
        check_value("prompts", self.prompts, str | None)
        object.__setattr__(self, "folder", Path(self.folder))

    @property
    def wording(self) -> str:
        """The name of the prompts: what was asked for, else those it was trained with, else the paper's."""
        return self.prompts or ("own" if self.about["data"].get("templates") else "paper")

    @property
    def templates(self) -> tuple[str, ...]:
        own: list[str] = self.about["data"].get("templates", [])
        return tuple(own) if self.wording == "own" else templates(self.wording)

    @property
    def classes_by(self) -> str:
        """By which prompts it classifies, in words; that they are a fallback, where it stores none and none were asked for."""
        first, *more = self.templates
        texts = f'"{first}"' + (f" and {len(more)} more" if more else "")
        if self.wording == "own":
            return f"classes by the prompts that the run was trained with: {texts}"
        fallback = "" if self.prompts else "; a fallback, since the run stores none: --prompts chooses others"
        return f"classes by the prompts {self.wording}: {texts}{fallback}"

    @cached_property
    def about(self) -> dict[str, Any]:
        """run.json: model, training, data, seed, versions; a converted run has no training and no data."""
        return read_about(self.folder)

    @cached_property
    def config(self) -> ViTConfig | CLIPConfig | ForeignConfig:
        kinds: Any = ViTConfig | CLIPConfig | ForeignConfig
        config: ViTConfig | CLIPConfig | ForeignConfig = from_plain(
            kinds, self.about["model"], where=str(self.folder / "run.json")
        )
        return config

    @property
    def by_prompts(self) -> bool:
        """Whether it has no classes of its own and takes those of the images, as words."""
        return isinstance(self.config, CLIPConfig) or (
            isinstance(self.config, ForeignConfig) and self.config.by_prompts
        )

    @property
    def name(self) -> str:
        folder = self.folder.resolve()
        return f"{folder.parent.name}/{folder.name}" if "kept_epoch" in self.about else folder.name

    @property
    def log(self) -> list[dict[str, Any]]:
        """One record an epoch."""
        rows = read_log(self.folder)
        if not rows:
            raise InputError(f"{self.folder / 'log.jsonl'} is missing or empty: no epoch of this run is finished")
        return rows

    def summary(self) -> dict[str, Any]:
        """What it is, how far its training has come, and how many answers are kept in its folder. No weights are read."""
        data, last = self.about["data"], (read_log(self.folder) or [{}])[-1]
        foreign = self.config if isinstance(self.config, ForeignConfig) else None
        own_classes = foreign.classes if foreign else len(data.get("class_names", ()))
        return {
            "run": str(self.folder),
            "model": self.config.title,
            "depth": self.config.depth,
            "shape": self.input_shape,
            "classes": None if self.by_prompts else own_classes,
            "data": data.get("name"),
            "epochs": last.get("epoch"),
            "complete": foreign is not None or bool((read_progress(self.folder) or {}).get("complete")),
            "loss": last.get("loss"),
            "accuracy": _accuracy(last, data.get("test", {}).get("images", 0)),
            "lambda": last.get("lambda") or {},
            "answers": _count_answers(self.folder),
        }

    def table(self) -> Table:
        """The same; what cannot be read is said."""
        try:
            said = self.summary()
        except InputError as refusal:
            return Table(f"a run in {self.folder}", ("", ""), [], [str(refusal)])
        classes = "by prompts" if said["classes"] is None else f"{said['classes']:,} classes"
        rows = [
            ("model", f"{said['model']}, depth {said['depth']}"),
            ("takes", f"{size_text(said['shape'])}, {classes}"),
        ]
        if said["data"]:
            rows.append(("trained on", said["data"]))
        if said["epochs"] is not None:
            stopped = "" if said["complete"] else ", not finished"
            rows.append(("training", f"{said['epochs']} epochs, loss {number(said['loss'])}{stopped}"))
        if said["accuracy"] is not None:
            rows.append(("test accuracy", f"{with_interval(said['accuracy'])}, n = {said['accuracy']['n']:,}"))
        if said["lambda"]:
            rows.append(("lambda", ", ".join(map(number, said["lambda"].values()))))
        if said["answers"]:
            rows.append(("answers kept", ", ".join(f"{name} {n}" for name, n in said["answers"].items())))
        return Table(said["run"], ("", ""), rows)

    def records(self) -> list[dict[str, Any]]:
        """One per epoch of the training: its log, with lambda of each layer in a column of its own."""
        return [
            {name: value for name, value in row.items() if name != "lambda"}
            | {f"lambda {layer}": value for layer, value in (row.get("lambda") or {}).items()}
            for row in self.log
        ]

    @property
    def weights_digest(self) -> str:
        if isinstance(self.config, ForeignConfig):
            return str(self.about["source"]["sha256"])
        return _entry(self.folder, "weights")["sha256"]

    @cached_property
    def source(self) -> Source:
        """Where a model that was made elsewhere is built from."""
        return from_plain(Source, self.about["source"]["from"], where=str(self.folder / "run.json"))

    @cached_property
    def loaded(self) -> Loaded:
        """A model that was made elsewhere; refused if it is no longer the one that answers were computed of."""
        assert isinstance(self.config, ForeignConfig)
        check_code(self.source, self.folder)
        loaded = load(self.source, self.config.preprocessing)
        if weights_digest(loaded.model, code_digest(self.source)) != self.weights_digest:
            raise InputError(
                f"{self.source.spec} is not what it was when {self.folder} was made: its weights or its code have changed; "
                "choose another folder, or delete this one"
            )
        return loaded

    def model(self, device: torch.device | str = "cpu", *, unfinished: bool = False) -> nn.Module:
        """Everything that has weights, in eval mode. A run that has not come to its end must be asked for as such."""
        if isinstance(self.config, ForeignConfig):
            return self.loaded.model.to(device)
        progress = read_checkpoint(self.folder)["progress"]
        if not (progress.get("complete") or unfinished):
            raise InputError(
                f"{self.folder} is not finished (epoch {progress.get('epoch')}): let antiphase train end it first"
            )
        tensors = read_tensors(self.folder, "weights")
        check_room(self._least_parameters, tensors, self.folder / "run.json")
        model = self._fresh()
        load_weights(model, tensors, str(self.folder))
        return model.to(device).eval()

    @property
    def _least_parameters(self) -> int:
        if isinstance(self.config, CLIPConfig):
            return self.config.least_parameters
        assert isinstance(self.config, ViTConfig)
        return self.config.least_parameters_for(self.input_shape, len(self._trained_on["class_names"]))

    @property
    def _trained_on(self) -> dict[str, Any]:
        data: dict[str, Any] = self.about["data"]
        if not data:
            raise InputError(f"{self.folder / 'run.json'} does not say what data it was trained on: it was altered")
        return data

    def _fresh(self, seed: int = 0) -> nn.Module:
        if isinstance(self.config, CLIPConfig):
            return CLIP(self.config, seed)
        assert isinstance(self.config, ViTConfig)
        data = self._trained_on
        return build(self.config, shape=tuple(data["shape"]), classes=len(data["class_names"]), seed=seed)

    def classifier(self, device: torch.device | str = "cpu", *, unfinished: bool = False) -> nn.Module:
        """The trained model behind the seam. A CLIP has no classes of its own: `classifier_for` says which."""
        if self.by_prompts:
            raise InputError(f"{self.folder} is a {self.config.title}, which has no classes of its own: name images")
        if isinstance(self.config, ForeignConfig):
            return self.loaded.classifier().to(device)
        return self.model(device, unfinished=unfinished)

    def classifier_for(self, images: ImageSet, device: torch.device | str = "cpu") -> nn.Module:
        """The model behind the seam for these images: a ViT as it was trained, a CLIP by prompts of their classes."""
        if isinstance(self.config, ViTConfig):
            return self.classifier(device)
        clip = self.model(device)
        if isinstance(self.config, ForeignConfig):
            return self._classifier_of(self.loaded, images).to(device)
        return zero_shot_from_embeddings(clip, self.class_embeddings(clip, images))

    def _classifier_of(self, loaded: Loaded, images: ImageSet) -> nn.Module:
        """A model that was made elsewhere behind the seam, for the classes of these images."""
        if loaded.clip is not None:
            return loaded.classifier(self.class_embeddings(loaded, images))
        rows = columns_for(self.config, images)
        return loaded.classifier() if rows is None else OfClasses(loaded.classifier(), rows)

    def untrained_for(self, images: ImageSet, device: torch.device | str = "cpu") -> nn.Module | None:
        """The model as this run began, or would have begun had it not been fine-tuned; of a CLIP one with fresh weights. None
        where that cannot be known."""
        if isinstance(self.config, ForeignConfig):
            return self._untrained_foreign(images, device)
        if isinstance(self.config, ViTConfig):
            return self._fresh(self._training_seed).to(device).eval()
        fresh = self._fresh(self._training_seed).to(device).eval()
        return zero_shot(fresh, images.class_names, self.templates)

    @property
    def _training_seed(self) -> int:
        return int(self.about["training"].get("seed", 0))

    def _untrained_foreign(self, images: ImageSet, device: torch.device | str) -> nn.Module | None:
        if self.source.library == "python":
            return None
        fresh = load(replace(self.source, weights=None, random=True), self.config.preprocessing)  # type: ignore[union-attr]
        if fresh.clip is None:
            return self._classifier_of(fresh, images).to(device)
        return fresh.classifier(fresh.class_embeddings(images.class_names, self.templates)).to(device)

    def words_for(self, images: ImageSet) -> dict[str, Any]:
        """What the classifier depends on besides weights and pixels."""
        if isinstance(self.config, ForeignConfig) and not self.by_prompts:
            rows = columns_for(self.config, images)
            return {} if rows is None else {"columns": list(rows)}
        if isinstance(self.config, ViTConfig):
            return {}
        return {"prompts": self.templates, "class_names": images.class_names}

    @property
    def input_shape(self) -> tuple[int, int, int]:
        """(C, H, W) of the images that this run takes"""
        if isinstance(self.config, CLIPConfig):
            return 3, self.config.vision.image, self.config.vision.image
        if isinstance(self.config, ForeignConfig):
            side = self.config.preprocessing.side or self.about["source"]["side"]
            return self.config.channels, side, side
        channels, height, width = self._trained_on["shape"]
        return channels, height, width

    @property
    def identity(self) -> dict[str, Any]:
        """What a result depends on where this run takes part in it as a second model."""
        return {"model": to_plain(self.config), "weights": self.weights_digest}

    def answer(
        self,
        question: Question,
        data: Data,
        compute: Callable[[Path], Content],
        *,
        words: Mapping[str, Any],
        base: Run | None = None,
    ) -> Entry:
        """The answer to a question about this run and these data: read if it is kept in the run's folder, else computed and
        kept. `compute` gets the path of a folder beside it, for what it keeps in parts; `words`: what the answer depends on
        besides weights and data, such as prompts. A damaged answer is named and computed again. Of several processes all
        compute what is `shared` and else one; one keeps it, and all have it.
        """
        depends = {"format": ANSWERS, "model": self.config, "weights": self.weights_digest, "images": data.fingerprint}
        second = {"base": None if base is None else base.identity} if question.takes_base else {}
        own, others = question.fields(), {**depends, **words, **second}
        if same := own.keys() & others.keys():
            raise TypeError(
                f"{type(question).__name__} may not have a field {min(same)!r}: the key says it of the run and data"
            )
        key = fingerprint({**others, **own})
        store, world = Store(self.folder / question.folder, bare=True), processes.current()
        if (kept := world.once(lambda: _kept(store, key))) is not None:
            return kept
        began, beside = time.perf_counter(), store.path(key).with_suffix("")
        content = {
            "model": self.config.title,
            "run": self.name,
            "data": {"name": data.name, "split": data.split, "n": len(data), "fingerprint": data.fingerprint},
            **({"prompts": self.wording} if "prompts" in words else {}),
            "seed": question.seed,
            **(compute(beside) if question.shared else world.once(lambda: compute(beside))),
            "seconds": round(time.perf_counter() - began, 3),
            "environment": runtime.environment(),
        }
        return world.once(lambda: store.put(key, content))

    def answer_on(
        self, question: Question, images: ImageSet, compute: Callable[[Path], Content], *, base: Run | None = None
    ) -> Entry:
        """The same of this run as a classifier of images that it was trained for."""
        check_classes(self, images)
        return self.answer(question, images, compute, words=self.words_for(images), base=base)

    def class_embeddings(self, clip: nn.Module | Loaded, images: ImageSet) -> Tensor:
        """(classes, E) by this run's prompts, computed once and kept beside the weights."""
        words = self.words_for(images)
        path = self.folder / "texts" / f"{fingerprint({**words, 'weights': self.weights_digest})}.safetensors"
        files.sweep_once(path.parent)
        if path.exists():
            try:
                kept = read_tensor_file(path).get("classes")
                if kept is not None and kept.ndim == 2 and len(kept) == images.classes:
                    return kept
            except Damaged:
                pass
            console.say(f"the text embeddings at {path} are damaged: computing them again")
        of = clip.class_embeddings if isinstance(clip, Loaded) else partial(class_embeddings, clip)
        embeddings = of(images.class_names, words["prompts"]).cpu()
        write_tensors(path, {"classes": embeddings})
        return embeddings


def _kept(store: Store, key: str) -> Entry | None:
    """None if it has to be computed."""
    kept = store.kept(key)
    if kept is None or all(isinstance(kept.content.get(name), dict) for name in ("data", "environment")):
        return kept
    console.say(f"{kept.path} is no answer to a question about a run: it is computed again now")
    return None


def _accuracy(epoch: Mapping[str, Any], n: int) -> dict[str, Any] | None:
    """The accuracy on n test images after an epoch; None where the log has none."""
    share = epoch.get("test_accuracy", epoch.get("zero_shot_accuracy"))
    return Rate(round(share * n), n, n).plain() if share is not None and 0 <= share <= 1 <= n else None


def _count_answers(folder: Path) -> dict[str, int]:
    """By their kind: attacks, measures, ..."""
    kinds = [kind for kind in sorted(folder.iterdir()) if kind.is_dir() and not (kind / "run.json").exists()]
    counts = {kind.name: len(entries_in(kind)) for kind in kinds}
    return {kind: n for kind, n in counts.items() if n}


class OfClasses(nn.Module):
    """A classifier of many classes on images of some of them: only their logits are compared."""

    rows: Tensor

    def __init__(self, model: nn.Module, rows: Sequence[int]) -> None:
        super().__init__()
        self.model = model
        self.register_buffer("rows", torch.tensor(rows), persistent=False)

    def forward(self, pixels: Tensor) -> Tensor:
        logits: Tensor = self.model(pixels)[:, self.rows]
        return logits


def columns_for(config: Any, images: ImageSet) -> tuple[int, ...] | None:
    """Which logits belong to the classes of these images, found by name; None where there is one for each, in their order."""
    unnamed = images.class_names == tuple(map(str, range(images.classes)))  # of tensors: as many as their labels show
    if config.classes == images.classes or (unnamed and config.classes > images.classes and images.name == "tensors"):
        return None
    places = {name.strip().casefold(): i for i, label in enumerate(config.class_names) for name in label.split(",")}
    wanted = [name.replace("_", " ").strip().casefold() for name in images.class_names]
    if missing := [name for name in wanted if name not in places]:
        of = f"it has none called {missing[0]!r}" if places else "it does not say which they are"
        raise InputError(
            f"{config.title} has {config.classes} classes and {images.name} has {images.classes}, and {of}: "
            "give images of the classes that it was trained for"
        )
    return tuple(places[name] for name in wanted)


# ------------------------------------------------------------------------------------------------- what fits a run


def check_shape(run: Run, data: Data) -> None:
    """The run can take these images."""
    taken = run.input_shape
    if isinstance(run.config, ForeignConfig):
        if data.shape[0] not in (1, taken[0]):
            raise InputError(
                f"{run.config.title} looks at {_colour(taken[0])} images, and those of {data.name} are not"
            )
        if run.config.preprocessing.resize is None and data.shape[1:] != taken[1:]:
            raise InputError(
                f"{run.config.title} takes images of {size_text(taken)} and resizes none, and those of {data.name} are "
                f"{size_text(data.shape)}: give --image-size {taken[-1]}, or state a resizing by --preprocessing"
            )
        return
    grey = tuple(run.about["data"].get("shape", ()))  # if a CLIP learned from such: they are broadcast
    if data.shape not in (taken, grey):
        who = "a CLIP" if isinstance(run.config, CLIPConfig) else "this run"
        alike = data.shape[0] == taken[0]
        remedy = f"give --image-size {taken[-1]}" if alike else f"{who} looks at {_colour(taken[0])} images"
        raise InputError(
            f"{run.folder} takes images of {size_text(taken)}, and those of {data.name} are {size_text(data.shape)}: {remedy}"
        )


def check_classes(run: Run, images: ImageSet) -> None:
    """The run was trained for images and classes like these; a CLIP takes any classes."""
    if not isinstance(run.config, ViTConfig):
        check_shape(run, images)
        if not run.by_prompts:
            columns_for(run.config, images)
        return
    data = run._trained_on
    if tuple(data["shape"]) != images.shape or tuple(data["class_names"]) != images.class_names:
        raise InputError(
            f"{run.folder} was trained on {data['name']} ({len(data['class_names'])} classes, {size_text(data['shape'])}), "
            f"which does not fit {images.name} ({images.classes} classes, {size_text(images.shape)})"
        )


def check_baseline(run: Run, base: Run | None) -> None:
    """A baseline is a softmax model of the same depth, trained on the same images."""
    if base is None:
        return
    if base.config.is_differential:
        raise InputError(f"{base.folder} has layers with two branches: --base takes a softmax model")
    if base.config.depth != run.config.depth:
        raise InputError(
            f"{base.folder} has depth {base.config.depth} and {run.folder} has {run.config.depth}: "
            "layers are compared one by one, so the depths must be equal"
        )
    ours, theirs = (r.about["data"] for r in (run, base))
    if any(ours.get(key) != theirs.get(key) for key in ("name", "shape", "class_names")):
        raise InputError(
            f"{base.folder} was trained on {theirs.get('name')} and {run.folder} on {ours.get('name')}: the data must be the same"
        )


def _colour(channels: int) -> str:
    return "colour" if channels == 3 else "grey" if channels == 1 else f"{channels}-channel"
