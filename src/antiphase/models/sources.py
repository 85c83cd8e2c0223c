"""From where a model comes to the model: timm, open_clip, Hugging Face, or a function in a Python file of the user's.

Only that file is ever executed. Weights are tensors: nothing is unpickled, and no code that lies beside them is run.
"""

from __future__ import annotations

import hashlib
import importlib.util
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from antiphase import files, runtime
from antiphase.config import InputError
from antiphase.data.cache import cache_root
from antiphase.models.classifier import LogitsOf, channels_of, known_preprocessing, of_timm
from antiphase.models.foreign_config import REMEDY, ForeignConfig, Preprocessing, Source, as_preprocessing
from antiphase.models.hub import is_offline
from antiphase.models.preprocessing import Preprocessed, Transform, compare_with
from antiphase.models.taps import attention_layers, explicit, outputs
from antiphase.models.weights import fill, read_state
from antiphase.models.zero_shot import ZeroShot, class_embeddings

PROBE = 2  # images on which it is found out what a model is


@dataclass(frozen=True)
class Loaded:
    """A model of somebody else's, in float32 and eval mode, with what its library says of it."""

    model: nn.Module  # everything that has weights
    preprocessing: Preprocessing
    channels: int | None = 3  # None: it does not show
    classes: int | None = None  # logits; None: it classifies by prompts
    class_names: tuple[str, ...] = ()
    transform: Transform | None = None  # the library's own, to hold the seam against
    clip: Any = None  # of a model that classifies by prompts: logit_scale, encode_text, visual
    tokenizer: Callable[[list[str]], Tensor] | None = None

    def classifier(self, embeddings: Tensor | None = None) -> nn.Module:
        """The model behind the seam; one that classifies by prompts needs one embedding per class, (K, E)."""
        if self.clip is None:
            return Preprocessed(LogitsOf(self.model), self.preprocessing, self.channels).eval()
        assert embeddings is not None
        visual = Preprocessed(self.clip.visual, self.preprocessing, self.channels)
        scale = float(self.clip.logit_scale.detach().exp())
        return ZeroShot(visual, embeddings, scale).to(self.clip.logit_scale.device).eval()

    def class_embeddings(self, class_names: Sequence[str], templates: Sequence[str]) -> Tensor:
        return class_embeddings(self.clip, class_names, templates, tokenizer=self.tokenizer)


def load(source: Source, preprocessing: Preprocessing | None = None) -> Loaded:
    """The model that a source names. `preprocessing`, where given, takes the place of what the library says."""
    loader = {"timm": _timm, "open_clip": _open_clip, "hf": _hugging_face, "file": _file}.get(source.library)
    if loader is None:
        raise InputError(
            f"{source.name} is an object of a Python process, which no other can load: call ap.audit there again, or write a "
            "function that returns the model and name it as path/to/model.py:factory"
        )
    with runtime.seeded(source.seed, "random weights"):
        return loader(source, preprocessing)


def weights_digest(model: nn.Module, *more: str) -> str:
    """SHA-256 over names, shapes and values of everything that a model keeps, and over what else is given."""
    digest = hashlib.sha256("\n".join(more).encode())
    for name, tensor in sorted(model.state_dict().items()):
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        digest.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def code_digest(source: Source) -> str:
    """Of the user's Python file, for a model is its code too; empty for a library's."""
    if source.library != "file":
        return ""
    path = Path(source.name.rpartition(":")[0])
    if not path.is_file():
        raise InputError(f"{path} does not exist: {source.name} is built from it")
    return files.sha256(path)


# ------------------------------------------------------------------------------------------------- code of the user's


def choose_code(source: Source) -> None:
    """The user has named this Python file on the command line or in a call: from now on runs may be built by it."""
    if source.library == "file":
        files.write_text(_chosen(source), f"{source.name}\n")


def check_code(source: Source, folder: Path) -> None:
    """Refuse to run a Python file that only a run's folder names: a folder may come from anybody."""
    if source.library == "file" and not _chosen(source).exists():
        raise InputError(
            f"{folder} is built by running {source.name.rpartition(':')[0]}, which was not named to antiphase here as it is now: "
            f"look at that file, and if you trust it, name it yourself (antiphase audit {source.name})"
        )


def _chosen(source: Source) -> Path:
    """Of the file's content, not of its name: a file that was changed is another one."""
    return cache_root() / "chosen-code" / code_digest(source)


# ------------------------------------------------------------------------------------------------- the libraries


def _timm(source: Source, preprocessing: Preprocessing | None) -> Loaded:
    import timm

    name = source.name
    if not timm.is_model(name.partition(".")[0]) and not name.startswith(("hf-hub:", "hf_hub:", "local-dir:")):
        raise InputError(f"timm has no model {name!r}{_meant(name, timm.list_models())}")
    own = source.weights is None and not source.random
    with _download(source, own):
        model: Any = timm.create_model(name, pretrained=own)
    if source.weights is not None:
        state = read_state(Path(source.weights))
        head = getattr(model, "pretrained_cfg", {}).get("classifier")
        rows = len(state.get(f"{head}.weight", ())) if isinstance(head, str) else 0
        if rows and rows != model.num_classes:  # it was fine-tuned for other classes
            model = timm.create_model(name, pretrained=False, num_classes=rows)
        fill(model, state, _misfit(source))
    transform = timm.data.create_transform(**timm.data.resolve_model_data_config(model), is_training=False)
    return Loaded(
        model=model.float().eval(),
        preprocessing=preprocessing or of_timm(model),
        channels=channels_of(model) or 3,
        classes=model.num_classes,
        transform=transform if preprocessing is None else None,
    )


def _misfit(source: Source) -> str:
    return f"{source.weights} does not fit {source.spec}"


def _meant(name: str, known: Sequence[str]) -> str:
    """The nearest names, as the end of a sentence."""
    near = get_close_matches(name, known, n=3)
    return f": did you mean {', '.join(near)}?" if near else ""


def _open_clip(source: Source, preprocessing: Preprocessing | None) -> Loaded:
    import open_clip
    from open_clip.transform import PreprocessCfg, image_transform_v2

    name, tag = source.name, None
    if not name.startswith(("hf-hub:", "local-dir:")):
        name, _, tag = source.name.partition("/")
        if name not in open_clip.list_models():
            raise InputError(f"open_clip has no model {name!r}{_meant(name, open_clip.list_models())}")
    own = source.weights is None and not source.random
    tags = [] if tag is None else open_clip.list_pretrained_tags_by_model(name)
    if own and tag == "":
        listed = f" (there are {', '.join(tags)})" if tags else ""
        raise InputError(
            f"{source.spec} names no weights: write open_clip:{name}/TAG{listed}, or give --weights or --no-weights"
        )
    if own and tag is not None and tag not in tags:
        raise InputError(f"open_clip has no weights {tag!r} of {name}{_meant(tag, tags)}")
    about: dict[str, Any] = (tag and open_clip.get_pretrained_cfg(name, tag)) or {}
    wanted = {key: about[key] for key in ("mean", "std", "interpolation", "resize_mode") if key in about}
    with _download(source, own):
        model: Any = open_clip.create_model(
            name,
            pretrained=(tag or None) if own else None,
            load_weights=own,
            pretrained_text=own,
            force_quick_gelu=bool(about.get("quick_gelu")),
            force_preprocess_cfg=wanted,
        )
    if source.weights is not None:
        fill(model, read_state(Path(source.weights)), _misfit(source))
    config = PreprocessCfg(**model.visual.preprocess_cfg)
    if config.resize_mode == "longest" and preprocessing is None:
        raise InputError(f"open_clip's resize mode 'longest' is not read: {REMEDY}")
    size = config.size if isinstance(config.size, int) else tuple(config.size)
    side = size if isinstance(size, int) or size[0] != size[1] else size[0]
    squash = config.resize_mode == "squash" or isinstance(side, tuple)
    both = side if isinstance(side, tuple) else (side, side)
    said = {"resize": both if squash else side, "crop": side, "interpolation": config.interpolation}
    return Loaded(
        model=model.float().eval(),
        preprocessing=preprocessing or as_preprocessing(said | {"mean": tuple(config.mean), "std": tuple(config.std)}),
        transform=image_transform_v2(config, is_train=False) if preprocessing is None else None,
        clip=model,
        tokenizer=open_clip.get_tokenizer(name),
    )


def _hugging_face(source: Source, preprocessing: Preprocessing | None) -> Loaded:
    if importlib.util.find_spec("transformers") is None:
        raise InputError(f"{source.spec} needs the library transformers: pip install 'antiphase[hf]'")
    import transformers

    here = {"trust_remote_code": False, "local_files_only": Path(source.name).is_dir() or is_offline()}
    own = source.weights is None and not source.random
    with _download(source, own):
        config: Any = transformers.AutoConfig.from_pretrained(source.name, **here)
        by_prompts = hasattr(config, "vision_config") and hasattr(config, "text_config")
        kind: Any = transformers.AutoModel if by_prompts else transformers.AutoModelForImageClassification
        model: Any = (
            kind.from_pretrained(source.name, dtype=torch.float32, **here)
            if own
            else kind.from_config(config, trust_remote_code=False)
        )
    if source.weights is not None:
        fill(model, read_state(Path(source.weights)), _misfit(source))
    transform = None
    if preprocessing is None:
        with _download(source, own, "preprocessor_config.json"):
            processors: Any = transformers.AutoImageProcessor
            processor: Any = processors.from_pretrained(source.name, **here)
        preprocessing = _of_processor(processor)

        def transform(picture: Any) -> Tensor:
            pixels: Tensor = processor(images=picture, return_tensors="pt")["pixel_values"][0]
            return pixels

    model = model.float().eval()
    if not by_prompts:
        names = getattr(config, "id2label", None) or {}
        said = sorted(names) == list(range(len(names))) and names.get(0) != "LABEL_0"  # what a config without names has
        listed = tuple(str(names[i]) for i in sorted(names)) if said else ()
        return Loaded(model, preprocessing, classes=config.num_labels, class_names=listed, transform=transform)
    with _download(source, own, "the files of its tokenizer"):
        words: Any = transformers.AutoTokenizer.from_pretrained(source.name, **here)
    context = config.text_config.max_position_embeddings

    def tokenizer(texts: list[str]) -> Tensor:
        ids: Tensor = words(texts, padding="max_length", truncation=True, max_length=context, return_tensors="pt")[
            "input_ids"
        ]
        return ids

    return Loaded(model, preprocessing, transform=transform, clip=HuggingFaceCLIP(model), tokenizer=tokenizer)


class HuggingFaceCLIP:
    """A CLIP of Hugging Face under the names of open_clip."""

    def __init__(self, model: Any) -> None:
        if not hasattr(model, "logit_scale"):
            raise InputError(
                f"a {type(model).__name__} has no logit_scale: it does not classify by prompts as a CLIP does"
            )
        self.model, self.logit_scale, self.visual = model, model.logit_scale, _Images(model)

    def encode_text(self, tokens: Tensor) -> Tensor:
        return _features(self.model.get_text_features(input_ids=tokens))


class _Images(nn.Module):
    """Its image tower with the projection: images -> (B, E)."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.vision_model = model.vision_model
        self.visual_projection = getattr(model, "visual_projection", None)

    def forward(self, images: Tensor) -> Tensor:
        pooled: Tensor = self.vision_model(pixel_values=images).pooler_output
        return pooled if self.visual_projection is None else self.visual_projection(pooled)


def _features(output: Any) -> Tensor:
    features: Tensor = output if isinstance(output, Tensor) else output.pooler_output
    return features


def _of_processor(processor: Any) -> Preprocessing:
    """From an image processor of Hugging Face; what it does beyond resizing, cropping and normalising is refused."""
    said = processor.to_dict()
    if said.get("do_flip_channel_order") or said.get("do_pad") or said.get("crop_pct") is not None:
        raise InputError(f"the image processor {type(processor).__name__} does more than is read here: {REMEDY}")
    factor = said.get("rescale_factor", 1 / 255)
    if not said.get("do_rescale", True) or abs(255 * factor - 1) > 1e-3:
        raise InputError(f"the image processor {type(processor).__name__} does not bring pixels to [0,1]: {REMEDY}")
    values: dict[str, Any] = {}
    if said.get("do_resize", True):
        values["resize"] = _sides(said.get("size"), processor)
        interpolations = {0: "nearest", 2: "bilinear", 3: "bicubic"}
        resample = int(said.get("resample", 2))
        if resample not in interpolations:
            raise InputError(
                f"the image processor {type(processor).__name__} resamples by a filter that is not read: {REMEDY}"
            )
        values["interpolation"] = interpolations[resample]
    if said.get("do_center_crop"):
        values["crop"] = _sides(said.get("crop_size"), processor)
    if said.get("do_normalize", True):
        values |= {"mean": tuple(said["image_mean"]), "std": tuple(said["image_std"])}
    return as_preprocessing(values)


def _sides(size: Any, processor: Any) -> Any:
    size = dict(size or {}) if not isinstance(size, int) else {"shortest_edge": size}
    known = {key: value for key, value in size.items() if value is not None}
    if set(known) == {"shortest_edge"}:
        return known["shortest_edge"]
    if set(known) == {"height", "width"}:
        return known["height"], known["width"]
    raise InputError(f"the image processor {type(processor).__name__} has sizes {known} that are not read: {REMEDY}")


def _file(source: Source, preprocessing: Preprocessing | None) -> Loaded:
    """A function of the user's file, which is run: it returns a module, and the module or the file says its preprocessing."""
    path, _, factory = source.name.rpartition(":")
    module = _run_file(Path(path))
    make = getattr(module, factory, None)
    if not callable(make):
        there = [name for name, value in vars(module).items() if callable(value) and not name.startswith("_")]
        raise InputError(
            f"{path} has no function {factory!r}" + (f"; there are {', '.join(there[:8])}" if there else "")
        )
    try:
        model: Any = make()
    except (Exception, SystemExit) as error:
        raise InputError(f"{source.name} failed: {_first_line(error)}") from error
    said = getattr(module, "PREPROCESSING", None)
    if isinstance(model, tuple) and len(model) == 2:
        model, said = model
    if not isinstance(model, nn.Module):
        raise InputError(f"{source.name} returned a {type(model).__name__}: it must return a torch.nn.Module")
    if source.weights is not None:
        fill(model, read_state(Path(source.weights)), _misfit(source))
    how = preprocessing or (known_preprocessing(model) if said is None else as_preprocessing(said))
    if how is None:
        raise InputError(
            f"{source.name} does not say what preprocessing its model wants: {REMEDY}; or set PREPROCESSING in {path}"
        )
    return Loaded(model.float().eval(), how, channels=channels_of(model))


def _run_file(path: Path) -> Any:
    spec = importlib.util.spec_from_file_location(f"antiphase_user_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses and pickles of its classes look it up
    beside = str(path.resolve().parent)
    sys.path.insert(0, beside)  # what lies beside it can be imported, as if it were run
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        raise InputError(f"{path} cannot be run: {_first_line(error)}") from error
    finally:
        sys.path.remove(beside)
    return module


def _first_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__


# ------------------------------------------------------------------------------------------------- downloads


@contextmanager
def _download(source: Source, own: bool, what: str = "its weights") -> Iterator[None]:
    """What a library raises when it cannot fetch something, as one sentence with what to do."""
    local = Path(source.name).is_dir()
    offline = own and not local and is_offline()
    try:
        with _hub_offline(offline):
            yield
    except InputError:
        raise
    except Exception as error:  # each library raises others
        remedy = (
            "give a file of them by --weights, or --no-weights for a dry run with random ones"
            if own
            else "give the folder of a model that was saved here"
        )
        why = "the hub cannot be reached from here" if offline else _first_line(error)
        raise InputError(f"{source.spec}: {what} cannot be had ({why}): {remedy}") from error


@contextmanager
def _hub_offline(offline: bool) -> Iterator[None]:
    """Inside, the client of the hub takes what it has already and does not try for half a minute."""
    from huggingface_hub import constants

    before = constants.HF_HUB_OFFLINE
    constants.HF_HUB_OFFLINE = before or offline
    try:
        yield
    finally:
        constants.HF_HUB_OFFLINE = before


# ------------------------------------------------------------------------------------------------- what a model is


def describe(
    classifier: nn.Module, title: str, how: Preprocessing, side: int, channels: int = 3, **known: Any
) -> ForeignConfig:
    """What can be found out by calling a classifier on two images: classes, attention layers, heads, width, branches."""
    shape = (PROBE, channels, side, side)
    pixels = torch.from_numpy(runtime.uniform((0, "probe"), torch.arange(PROBE).numpy(), shape[1:])).float()
    device = next((p.device for p in classifier.parameters()), torch.device("cpu"))
    with runtime.at_rest(classifier):
        logits = called(classifier, pixels.to(device))
        if not isinstance(logits, Tensor) or logits.ndim != 2 or len(logits) != PROBE:
            what = f"shape {tuple(logits.shape)}" if isinstance(logits, Tensor) else f"a {type(logits).__name__}"
            raise InputError(f"{title} returned {what} for {PROBE} images: expected ({PROBE}, classes) logits")
        if bool(logits.isnan().any()):
            raise InputError(
                f"{title} returned NaN for images of random pixels: its weights or its preprocessing are wrong"
            )
        inside = _attention(classifier, pixels.to(device), logits)
    classes = known.pop("classes", logits.shape[1])
    known.setdefault("parameters", sum(p.numel() for p in classifier.parameters()))
    return ForeignConfig(title=title, preprocessing=how, channels=channels, classes=classes, **known, **inside)


def called(classifier: nn.Module, pixels: Tensor) -> Any:
    """What a classifier returns; what it raises instead is refused in one sentence."""
    try:
        return classifier(pixels)
    except InputError:
        raise
    except Exception as error:
        raise InputError(
            f"the model cannot be called on {len(pixels)} images of shape {tuple(pixels.shape[1:])}: {_first_line(error)}"
        ) from error


def _attention(classifier: nn.Module, pixels: Tensor, logits: Tensor) -> dict[str, Any]:
    """Depth, heads, width and branches of the attention layers; or why they cannot be looked into."""
    try:
        layers = attention_layers(classifier)
        with outputs(layers) as after:
            called(classifier, pixels)
        with explicit(classifier) as record:
            again = called(classifier, pixels)
    except InputError as refusal:
        return {"no_lens": str(refusal)}
    apart = float((again - logits).abs().max() / logits.abs().max().clamp_min(1e-30))
    if not apart <= 1e-3:
        return {"no_lens": f"the maps that are read do not give the model's own logits (they differ by {apart:.1e})"}
    first = next(iter(record))
    branches = list(record.values())
    return {
        "depth": len(record),
        "heads": branches[0].signal.shape[1],
        "width": after[first].shape[-1],
        "is_differential": any(b.noise is not None for b in branches),
        "lambda_varies": any(b.noise is not None and b.lam.numel() > 1 for b in branches),
    }


def hold_against_library(loaded: Loaded, classifier: nn.Module, images: Tensor) -> Any:
    """The agreement of the seam with the library's own transform on these images; None where it brings none."""
    if loaded.transform is None:
        return None
    seam = classifier.visual if isinstance(classifier, ZeroShot) else classifier
    assert isinstance(seam, Preprocessed)

    def logits(prepared: Tensor) -> Tensor:
        if isinstance(classifier, ZeroShot):
            features = nn.functional.normalize(seam.model(prepared), dim=-1)
            return features @ classifier.classes.T
        out: Tensor = seam.model(prepared)
        return out

    return compare_with(loaded.transform, seam, logits, images)
