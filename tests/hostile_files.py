"""Files that nobody should be harmed by: `CASES`, a mapping of a name to a function that writes hostile files and says how to
call the command line on them.

    for name, make in CASES.items():
        argv = make(folder)        # `folder` is empty; everything hostile is written below it
        # antiphase *argv  must end with exit code 2 and one line on stderr, within seconds,
        # and if "out" is among the words, `folder / "out"` must not exist afterwards

Names are `command: what is hostile`. The files are made from the checkpoint fixtures and from a small run on digits, so no data
set is needed. `QUICK` lists the cases that the default suite runs; `run_of_digits`, `altered_run` and `VALUES` serve other tests.
"""

from __future__ import annotations

import json
import os
import pickle
import socket
import struct
import tarfile
import zipfile
from collections.abc import Callable, Iterable
from functools import partial
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from safetensors.torch import load_file, save_file
from torch import Tensor

from antiphase import files
from antiphase.config import to_plain
from antiphase.models.config import ViTConfig
from antiphase.models.run import save_checkpoint
from antiphase.models.vit import build
from antiphase.models.weights import read_state

Make = Callable[[Path], list[str]]
FIXTURES = Path(__file__).parent / "fixtures"
CASES: dict[str, Make] = {}
DEEP = 100_000  # brackets
DIGITS = "9" * 5_000  # more than int() takes
VALUES: dict[str, Any] = {  # what a file may hold where anything else is expected
    "null": None,
    "true": True,
    "a string": "x",
    "an empty string": "",
    "a list": [],
    "a nested list": [[1, [2]], {}],
    "a mapping": {},
    "a mapping of another kind": {"kind": "Nothing"},
    "minus one": -1,
    "a fraction": 0.5,
    "a huge number": 10**30,
    "a number beyond floats": 10**400,
    "infinity": float("inf"),
    "not a number": float("nan"),
    "a terminal escape": "\x1b[31m\u202ered\n",
    "a lone surrogate": "\ud800",
}


def case(name: str, make: Make | None = None) -> Any:
    """Enter a case; as a decorator, the function below it."""
    if make is None:
        return partial(case, name)
    assert name not in CASES, name
    CASES[name] = make
    return make


# ------------------------------------------------------------------------------------------------- convert: files


def _file(content: bytes, suffix: str = ".pt") -> Callable[[Path], Path]:
    def write(folder: Path) -> Path:
        path = folder / f"checkpoint{suffix}"
        path.write_bytes(content)
        return path

    return write


def _convert(content: bytes, suffix: str = ".pt") -> Make:
    return lambda folder: ["convert", str(_file(content, suffix)(folder)), str(folder / "out")]


def _pickled(value: Any) -> bytes:
    return pickle.dumps(value, protocol=2)


def _saved(value: Any, **how: Any) -> bytes:
    file = BytesIO()
    torch.save(value, file, **how)
    return file.getvalue()


def _safetensors(header: Any, data: bytes = b"", length: int | None = None) -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text) if length is None else length) + text + data


def _entry(dtype: str, shape: Iterable[int], ends: Iterable[int]) -> dict[str, Any]:
    return {"dtype": dtype, "shape": list(shape), "data_offsets": list(ends)}


def _compressed(content: bytes) -> bytes:
    """The same archive, deflated: a few bytes that become many."""
    file = BytesIO()
    with zipfile.ZipFile(BytesIO(content)) as old, zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as new:
        for name in old.namelist():
            new.writestr(name, old.read(name))
    return file.getvalue()


_TEXTS = {
    "of nothing": b"",
    "of one byte": b"a",
    "of one zero byte": b"\0",
    "of one full stop": b".",
    "of text": b"this is no checkpoint\n",
    "of a long text": b"weights " * 4_000,
    "of HTML": b"<!doctype html><html><title>404</title></html>",
    "of Git LFS": b"version https://git-lfs.github.com/spec/v1\noid sha256:0000\nsize 12345\n",
    "of JSON": b'{"state_dict": {}}',
    "of noise": bytes(np.random.default_rng(0).integers(0, 256, 4096, dtype=np.uint8)),
    "of zeros": bytes(4096),
    "of a zip without anything": b"PK\x05\x06" + bytes(18),
    "of the beginning of a zip": b"PK\x03\x04" + bytes(26),
    "of a pickled list": _pickled([1, 2, 3]),
    "of a pickled None": _pickled(None),
    "of a pickled number": _pickled(10**400),
    "of a pickle that stops": _pickled({"a": 1})[:-3],
    "of a pickle that pops nothing": b"\x80\x020.",
    "of a pickle that builds": b"\x80\x02}}b.",
    "of a pickle that calls": b"cos\nsystem\n(S'true'\ntR.",
    "of a pickle of marks": b"\x80\x02" + b"(" * 5_000 + b".",
    "of a pickle with a far memo": b"\x80\x02}r\xff\xff\xff\xff.",
}
for _what, _content in _TEXTS.items():
    for _suffix in (".pt", ".safetensors"):
        case(f"convert: a {_suffix} file {_what}", _convert(_content, _suffix))
_HEADERS = {
    "whose header is longer than it": _safetensors({}, length=2**40),
    "whose header is deep": _safetensors(b"[" * DEEP + b"]" * DEEP),
    "whose header has a huge number": _safetensors(
        b'{"a":{"dtype":"F32","shape":[%s],"data_offsets":[0,4]}}' % DIGITS.encode()
    ),
    "whose header is a list": _safetensors([1]),
    "with a shape beyond it": _safetensors({"a": _entry("F32", [2**40], [0, 2**42])}),
    "with an overflowing shape": _safetensors({"a": _entry("F32", [2**62, 2**62], [0, 4])}, bytes(4)),
    "with crossing offsets": _safetensors({"a": _entry("F32", [1], [4, 0])}, bytes(4)),
    "of an unknown type": _safetensors({"a": _entry("F99", [1], [0, 4])}, bytes(4)),
    "without tensors": _safetensors({}),
    "of one other tensor": _safetensors({"a": _entry("F32", [1], [0, 4])}, bytes(4)),
}
for _what, _content in _HEADERS.items():
    case(f"convert: safetensors {_what}", _convert(_content, ".safetensors"))
_LOADED = {
    "a list": [1],
    "a number": 3,
    "a tensor": torch.ones(3),
    "no tensors": {"state_dict": {}},
    "a state that is a list": {"state_dict": [torch.ones(1)]},
    "numbers by name": {"state_dict": {"visual.blocks.0.attn.qkv.weight": 3}},
    "tensors by number": {1: torch.ones(1), 2: torch.ones(1)},
    "names with a terminal escape": {"\x1b[2Jvisual.blocks.0.\n": torch.ones(1)},
}
for _what, _value in _LOADED.items():
    case(f"convert: a checkpoint of {_what}", _convert(_saved(_value)))


# ------------------------------------------------------------------------------------------------- convert: tensors


def state() -> dict[str, Tensor]:
    """The weights of a real, small DiffCLIP, under the names of its authors."""
    return dict(read_state(FIXTURES / "diffclip.pt"))


def _converting(change: Callable[[dict[str, Tensor]], Any], *, safetensors: bool = False, **how: Any) -> Make:
    def make(folder: Path) -> list[str]:
        tensors = state()
        tensors = change(tensors) or tensors
        path = folder / ("checkpoint.safetensors" if safetensors else "checkpoint.pt")
        if safetensors:
            save_file(tensors, path)
        else:
            torch.save({"state_dict": tensors}, path, **how)
        return ["convert", str(path), str(folder / "out")]

    return make


def _set(name: str, value: Callable[[Tensor], Tensor]) -> Callable[[dict[str, Tensor]], None]:
    def change(tensors: dict[str, Tensor]) -> None:
        tensors[name] = value(tensors[name])

    return change


def _filled(value: float) -> Callable[[Tensor], Tensor]:
    """The tensor with one of its values replaced."""

    def change(tensor: Tensor) -> Tensor:
        tensor = tensor.clone()
        tensor.view(-1)[-1] = value
        return tensor

    return change


_TENSORS: dict[str, Callable[[Tensor], Tensor]] = {
    "empty": lambda t: t[:0],
    "empty in every dimension": lambda t: t.new_empty([0] * t.dim()),
    "without dimensions": lambda t: t.new_ones(()),
    "expanded": lambda t: t.new_ones(1).expand(t.shape),
    "expanded to a million": lambda t: t.new_ones(1).expand(*([1] * (t.dim() - 1)), 10**6),
    "overlapping": lambda t: t.new_ones(t.numel() + t.dim()).as_strided(t.shape, [1] * t.dim()),
    "meta": lambda t: t.to("meta"),
    "sparse": lambda t: t.to_sparse(),
    "complex": lambda t: t.to(torch.complex64),
    "of integers": lambda t: t.long(),
    "of bytes": lambda t: t.to(torch.uint8),
    "of booleans": lambda t: t > 0,
    "quantized": lambda t: torch.quantize_per_tensor(t, 0.1, 0, torch.qint8),
    "with NaN": _filled(float("nan")),
    "with inf": _filled(float("inf")),
    "with -inf": _filled(float("-inf")),
    "transposed": lambda t: t[..., :-1].contiguous(),
    "of another rank": lambda t: t[None],
}
_PLACES = {
    "the patch embedding": "visual.patch_embed.proj.weight",
    "the image positions": "visual.pos_embed",
    "the word embedding": "token_embedding.weight",
    "the text positions": "positional_embedding",
    "a vision layer": "visual.blocks.0.attn.q_proj.weight",
    "a head norm": "visual.blocks.0.attn.diff_norm.weight",
    "a last layer": "visual.blocks.2.mlp.fc1.bias",
}
for _where, _name in _PLACES.items():
    for _what, _change in _TENSORS.items():
        if _what == "quantized" and _where != "a vision layer":
            continue  # one is enough: torch warns of it
        if _what == "overlapping" and _where in ("a head norm", "a last layer"):
            continue  # a vector cannot
        case(f"convert: {_where} {_what}", _converting(_set(_name, _change)))
for _what in ("empty", "complex", "of integers", "of booleans", "with NaN", "with inf"):
    case(
        f"convert: safetensors with the patch embedding {_what}",
        _converting(_set("visual.patch_embed.proj.weight", _TENSORS[_what]), safetensors=True),
    )


def _added(name: str) -> Callable[[dict[str, Tensor]], None]:
    return lambda tensors: tensors.update({name: torch.ones(1)})


for _number in ("99999999", DIGITS, "007", "5", "3 ", "-1", "\u0663", "\u00b2", "1e9"):
    for _prefix in ("visual.blocks", "transformer.resblocks"):
        _short = _number if len(_number) < 99 else "of 5,000 digits"
        case(f"convert: one more block {_short!r} in {_prefix}", _converting(_added(f"{_prefix}.{_number}.attn.extra")))


def _without(prefix: str) -> Callable[[dict[str, Tensor]], dict[str, Tensor]]:
    return lambda tensors: {k: v for k, v in tensors.items() if not k.startswith(prefix)}


for _gone in (
    "visual.blocks.0.",
    "visual.blocks.1.",
    "visual.blocks.",
    "transformer.resblocks.0.",
    "logit_scale",
    "visual.",
):
    case(f"convert: without {_gone}*", _converting(_without(_gone)))


@case("convert: a thousand names of one tensor")
def _(folder: Path) -> list[str]:
    one, tensors = torch.ones(64, 64), state()
    tensors.update({f"visual.blocks.{i}.attn.q_proj.weight": one for i in range(3, 1003)})
    return _converting(lambda _: tensors)(folder)


@case("convert: a deflated archive")
def _(folder: Path) -> list[str]:
    tensors = state()
    tensors["token_embedding.weight"] = torch.zeros(200_000, tensors["token_embedding.weight"].shape[1])
    return _convert(_compressed(_saved({"state_dict": tensors})))(folder)


@case("convert: one NaN in the older container")
def _(folder: Path) -> list[str]:
    change = _set("visual.pos_embed", _filled(float("nan")))
    return _converting(change, _use_new_zipfile_serialization=False)(folder)


@case("convert: a FIFO")
def _(folder: Path) -> list[str]:
    os.mkfifo(folder / "checkpoint.pt")
    return ["convert", str(folder / "checkpoint.pt"), str(folder / "out")]


@case("convert: a device")
def _(folder: Path) -> list[str]:
    return ["convert", "/dev/zero", str(folder / "out")]


@case("convert: a name with a terminal escape")
def _(folder: Path) -> list[str]:
    path = folder / "check\x1b[31m\npoint\u202e.pt"
    path.write_bytes(b"x")
    return ["convert", str(path), str(folder / "out")]


for _what, _value in {"a list": [], "a number": 3, "null": None, "a string": "run"}.items():

    @case(f"convert: an output folder whose run.json is {_what}")
    def _(folder: Path, value: Any = _value) -> list[str]:
        (folder / "old").mkdir()
        (folder / "old" / "run.json").write_text(json.dumps(value))
        return ["convert", str(FIXTURES / "diffclip.pt"), str(folder / "old")]


# ------------------------------------------------------------------------------------------------- runs


def run_of_digits(folder: Path) -> Path:
    """A small ViT for digits that was never trained, as a finished run."""
    run, config = folder / "run", ViTConfig(patch=4, width=8, heads=2)
    names = [str(i) for i in range(10)]
    about = {
        "format": 1,
        "title": config.title,
        "scale": "smoke",
        "model": to_plain(config),
        "training": {"kind": "TrainConfig", "epochs": 1, "seed": 0},
        "data": {
            "name": "digits",
            "origin": "digits",
            "shape": [1, 8, 8],
            "class_names": names,
            "train": {"images": 1437, "fingerprint": "0" * 16},
            "test": {"images": 360, "fingerprint": "0" * 16},
        },
        "environment": {"python": "3.11", "versions": {"torch": "2"}, "threads": 1, "processes": 1},
    }
    run.mkdir(parents=True)
    row = {"epoch": 1, "loss": 2.3, "train_accuracy": 0.1, "test_accuracy": 0.1, "lambda": {}, "seconds": 1.0}
    model = build(config, shape=(1, 8, 8), classes=10)
    (run / "run.json").write_text(
        json.dumps(about)
    )  # without digests, as an earlier version wrote it: anybody can make one
    (run / "log.jsonl").write_text(json.dumps(row) + "\n")
    save_checkpoint(run, {"weights": model.state_dict()}, {"epoch": 1, "step": 0, "complete": True}, tag="1.0")
    (run / "checkpoint.json").write_text(json.dumps(files.read_json(run / "checkpoint.json")))
    return run


def leaves(value: Any, path: tuple[str | int, ...] = ()) -> Iterable[tuple[str | int, ...]]:
    """The place of every value, and of every mapping and list that holds values."""
    yield path
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, part in inner:
        yield from leaves(part, (*path, key))


def replaced(value: Any, path: tuple[str | int, ...], new: Any) -> Any:
    """The same with another value at one place."""
    if not path:
        return new
    first, *rest = path
    copy: Any = dict(value) if isinstance(value, dict) else list(value)
    copy[first] = replaced(value[first], tuple(rest), new)
    return copy


def altered_run(run: Path, text: str | bytes, *, name: str = "run.json") -> Path:
    """The run with another run.json (or another of its files), for which its checkpoint vouches."""
    (run / name).write_bytes(text if isinstance(text, bytes) else text.encode("utf-8", "surrogatepass"))
    if name == "run.json":
        checkpoint = json.loads((run / "checkpoint.json").read_text())
        checkpoint["run"] = files.sha256(run / "run.json")
        (run / "checkpoint.json").write_text(json.dumps(checkpoint))
    return run


ATTACK = ("--images", "2", "--eps", "1/255", "--steps", "1", "--restarts", "1", "--device", "cpu")
ON_RUN: dict[str, Callable[[Path, Path], list[str]]] = {
    "attack": lambda run, _: ["attack", str(run), *ATTACK],
    "report": lambda run, out: ["report", str(run), "--out", str(out)],
    "measure": lambda run, _: ["measure", str(run), "--images", "2", "--draws", "1", "--device", "cpu"],
    "eval": lambda run, _: ["eval", str(run), "--tasks", "probe", "--images", "2", "--device", "cpu"],
    "look": lambda run, _: ["look", str(run), "--images", "2", "--device", "cpu"],
    "compare": lambda run, out: [
        "compare",
        str(run),
        str(run_of_digits(run.parent / "twin")),
        "--out",
        str(out),
        *ATTACK[:-2],
    ],
    "certify": lambda run, _: [
        "certify",
        str(run),
        "--images",
        "2",
        "--samples",
        "20",
        "--sigma",
        "0.25",
        "--device",
        "cpu",
    ],
    "theory": lambda run, _: ["theory", str(run), "--base", str(run_of_digits(run.parent / "base")), "--images", "2"],
    "audit": lambda run, out: ["audit", str(run), "--quick", "--images", "2", "--out", str(out), "--device", "cpu"],
    "train": lambda run, out: ["train", "--config", str(run / "run.json"), "--out", str(out), "--device", "cpu"],
}


def _on_run(verb: str, text: Callable[[Any], str | bytes], name: str = "run.json") -> Make:
    def make(folder: Path) -> list[str]:
        run = run_of_digits(folder)
        old = (run / name).read_text()
        altered_run(run, text(json.loads(old.splitlines()[0] if name == "log.jsonl" else old)), name=name)
        return ON_RUN[verb](run, folder / "out")

    return make


def _at(path: tuple[str | int, ...], new: Any) -> Callable[[Any], str]:
    return lambda value: json.dumps(replaced(value, path, new))


_DOCUMENTS: dict[str, str | bytes] = {
    "nothing": "",
    "one byte": "{",
    "a list": "[]",
    "null": "null",
    "a number": "3",
    "a string": '"run"',
    "an empty mapping": "{}",
    "deep lists": "[" * DEEP + "]" * DEEP,
    "deep mappings": '{"a":' * DEEP + "1" + "}" * DEEP,
    "a number of 5,000 digits": f'{{"model": {DIGITS}}}',
    "bytes that are no text": b"\xff\xfe{}",
    "NaN": '{"model": NaN}',
    "a zero byte": b'{"model"\x00: 1}',
}
for _verb in ("attack", "report", "measure", "eval", "look", "compare", "certify", "audit", "train"):
    for _what, _text in _DOCUMENTS.items():
        case(f"{_verb}: run.json is {_what}", _on_run(_verb, lambda _, text=_text: text))
_FIELDS: dict[tuple[str | int, ...], tuple[Any, ...]] = {
    ("model",): (None, [], 3, "ViT", {}, {"kind": []}, {"kind": "Nothing"}, {"kind": "ForeignConfig"}),
    ("model", "width"): (None, "8", 8.5, True, [], 0, -8, 10**9, 10**30, 7),
    ("model", "depth"): (None, "1", True, 0, 10**7, 10**18, 2),
    ("model", "heads"): (None, 0, -2, 3, 10**9, [2]),
    ("model", "patch"): (None, 0, 3, 10**9, "4"),
    ("model", "mlp_ratio"): (None, 0, -1, 1e9, 1e308, "x", []),
    ("model", "attention"): (
        None,
        "softmax",
        [],
        [None],
        [{}],
        [{"kind": "Nothing"}],
        {"kind": "Softmax"},
        [{"kind": "Softmax"}] * 99,
    ),
    ("model", "mean"): (None, "x", [], ["x"], [0.5, 0.5]),
    ("model", "std"): (0, -1, None, [0.0], 10**400),
    ("model", "init"): (None, "random", []),
    ("data",): (None, [], "digits", 3),
    ("data", "shape"): (
        None,
        [],
        [1],
        [1, 8],
        ["1", "8", "8"],
        [1, 8, 10**9],
        [1, -8, -8],
        [1, 8, 8, 8],
        {},
        "188",
        [True, 8, 8],
    ),
    ("data", "class_names"): (None, 3, "0123456789", [0, 1, 2], ["0"] * 10**5, {}, [None] * 10, ["\ud800"] * 10),
    ("training",): (None, [], "x", 3),
    ("environment",): (None, [], "x", 3),
    ("title",): (None, [], 3),
}
for _path, _news in _FIELDS.items():
    for _new in _news:
        _shown = repr(_new) if len(repr(_new)) < 40 else f"{repr(_new)[:30]}..."
        case(f"attack: {'.'.join(map(str, _path))} is {_shown}", _on_run("attack", _at(_path, _new)))
for _new in (None, 3, [], {}, True):
    case(f"attack: data.origin is {_new!r}", _on_run("attack", _at(("data", "origin"), _new)))
_CHECKPOINT: dict[tuple[str | int, ...], tuple[Any, ...]] = {
    (): (None, [], 3, "x", {}),
    ("run",): (None, [], 3, "x"),
    ("tensors",): (None, [], 3, "x", {}),
    ("tensors", "weights"): (None, [], 3, "x", {}),
    ("tensors", "weights", "file"): (
        None,
        [],
        3,
        "",
        ".",
        "../../etc/passwd",
        "no.safetensors",
        "\x1b[31m",
        "x" * 5000,
        "a\0b",
    ),
    ("tensors", "weights", "sha256"): (None, [], 3, "x"),
    ("progress",): (None, [], 3, "x", {}),
    ("progress", "complete"): (None, "yes", 3, [], False),
}
for _path, _news in _CHECKPOINT.items():
    for _new in _news:
        _shown = repr(_new) if len(repr(_new)) < 40 else f"{repr(_new)[:30]}..."
        case(
            f"attack: {'.'.join(('checkpoint.json', *map(str, _path)))} is {_shown}",
            _on_run("attack", _at(_path, _new), "checkpoint.json"),
        )
for _verb in ("report", "compare"):
    for _path in ((), ("epoch",), ("train_accuracy",), ("test_accuracy",)):
        for _new in (None, [], "x", True) if _path else (None, [], "x", 3):
            case(
                f"{_verb}: {'.'.join(('log.jsonl', *map(str, _path)))} is {_new!r}",
                _on_run(_verb, _at(_path, _new), "log.jsonl"),
            )
    case(f"{_verb}: log.jsonl is deep", _on_run(_verb, lambda _: "[" * DEEP + "]" * DEEP + "\n", "log.jsonl"))


def _on_weights(verb: str, change: Callable[[dict[str, Tensor]], Any]) -> Make:
    def make(folder: Path) -> list[str]:
        run = run_of_digits(folder)
        tensors = load_file(run / "weights-1.0.safetensors")
        tensors = change(tensors) or tensors
        save_checkpoint(run, {"weights": tensors}, {"epoch": 1, "complete": True}, tag="1.0")
        return ON_RUN[verb](run, folder / "out")

    return make


_FIRST = "model.patch_embed.proj.weight"
for _what in (
    "empty",
    "complex",
    "of integers",
    "of booleans",
    "with NaN",
    "with inf",
    "of another rank",
    "transposed",
):
    for _verb in ("attack", "measure"):
        case(f"{_verb}: weights whose patch embedding is {_what}", _on_weights(_verb, _set(_FIRST, _TENSORS[_what])))
case("attack: weights without a tensor", _on_weights("attack", _without(_FIRST)))
case("attack: weights with one more tensor", _on_weights("attack", _added("model.blocks.99999999.x")))


@case("attack: checkpoint.json is a FIFO")
def _(folder: Path) -> list[str]:
    run = run_of_digits(folder)
    (run / "checkpoint.json").unlink()
    os.mkfifo(run / "checkpoint.json")
    return ON_RUN["attack"](run, folder)


@case("report: log.jsonl is a FIFO")
def _(folder: Path) -> list[str]:
    run = run_of_digits(folder)
    (run / "log.jsonl").unlink()
    os.mkfifo(run / "log.jsonl")
    return ON_RUN["report"](run, folder / "out")


@case("attack: a folder with a terminal escape and a line in its name")
def _(folder: Path) -> list[str]:
    return ["attack", str(folder / "no\x1b[31m\nrun\u202e")]


@case("train: an output folder whose name is not UTF-8")
def _(folder: Path) -> list[str]:
    return ["train", "--out", os.fsdecode(os.fsencode(folder) + b"/out\xff"), "--epochs", "1"]


@case("attack: a run whose name is not UTF-8")
def _(folder: Path) -> list[str]:
    return ["attack", os.fsdecode(os.fsencode(folder) + b"/run\xff")]


# ------------------------------------------------------------------------------------------------- comparisons, ledgers


_NEEDED = ("config", "data", "differences", "denominators", "models", "paired", "looks", "environment")
for _what, _text in _DOCUMENTS.items():

    @case(f"report: comparison.json is {_what}")
    def _(folder: Path, text: str | bytes = _text) -> list[str]:
        (folder / "comparison.json").write_bytes(text if isinstance(text, bytes) else text.encode())
        return ["report", str(folder), "--out", str(folder / "out")]


for _what in ("null", "a list", "a mapping", "minus one", "a string", "a nested list", "true"):

    @case(f"report: every entry of comparison.json is {_what}")
    def _(folder: Path, value: Any = VALUES[_what]) -> list[str]:
        (folder / "comparison.json").write_text(json.dumps(dict.fromkeys(("format", *_NEEDED), value)))
        return ["report", str(folder), "--out", str(folder / "out")]


for _verb in (["study", "status", "all"], ["study", "run", "table1", "--dry-run"]):
    for _what in ("deep lists", "a list", "a number", "bytes that are no text", "a number of 5,000 digits"):

        @case(f"study {_verb[1]}: --clip is a run whose run.json is {_what}")
        def _(folder: Path, verb: list[str] = _verb, what: str = _what) -> list[str]:
            run = altered_run(run_of_digits(folder), _DOCUMENTS[what])
            return [*verb, "--ledger", str(folder / "ledger"), "--clip", str(run), "--diffclip", str(run)]


# ------------------------------------------------------------------------------------------------- images


def image_folder(folder: Path) -> Path:
    """Two classes of four grey squares each, split."""
    for split in ("train", "test"):
        for name in ("cat", "dog"):
            (folder / "images" / split / name).mkdir(parents=True)
            for i in range(4):
                Image.new("RGB", (8, 8), (40 * i, 0, 0)).save(folder / "images" / split / name / f"{i}.png")
    return folder / "images"


def _training(folder: Path, change: Callable[[Path], Any]) -> list[str]:
    images = image_folder(folder)
    change(images / "train" / "cat")
    words = [
        "--data",
        str(images),
        "--image-size",
        "8",
        "--patch",
        "4",
        "--width",
        "8",
        "--heads",
        "2",
        "--epochs",
        "1",
    ]
    return ["train", "--out", str(folder / "out"), *words, "--device", "cpu"]


def _bind(path: Path) -> None:
    here = Path.cwd()
    os.chdir(path.parent)  # the address of a socket is short
    try:
        with socket.socket(socket.AF_UNIX) as bound:
            bound.bind(path.name)
    finally:
        os.chdir(here)


_PICTURES: dict[str, Callable[[Path], Any]] = {
    "a FIFO": lambda f: os.mkfifo(f / "9.png"),
    "a socket": lambda f: _bind(f / "9.png"),
    "a device": lambda f: (f / "9.png").symlink_to("/dev/zero"),
    "a terminal": lambda f: (f / "9.png").symlink_to("/dev/tty"),
    "a folder": lambda f: (f / "9.png").mkdir(),
    "a link to nowhere": lambda f: (f / "9.png").symlink_to("nowhere"),
    "a link to itself": lambda f: (f / "9.png").symlink_to("9.png"),
    "nothing": lambda f: (f / "9.png").write_bytes(b""),
    "one byte": lambda f: (f / "9.png").write_bytes(b"\x89"),
    "text": lambda f: (f / "9.png").write_text("no image"),
    "half an image": lambda f: (f / "9.png").write_bytes((f / "0.png").read_bytes()[:40]),
    "a million pixels a side": lambda f: (f / "9.png").write_bytes(_huge_png()),
    "a name with a terminal escape": lambda f: (f / "9\x1b[31m\n\u202e.png").write_text("no image"),
    "a name that is not UTF-8": lambda f: Path(os.fsdecode(os.fsencode(f) + b"/\xff.png")).write_bytes(
        (f / "0.png").read_bytes()
    ),
    "a class whose name is not UTF-8": lambda f: f.rename(os.fsdecode(os.fsencode(f.parent) + b"/\xff")),
}


def _huge_png() -> bytes:
    import zlib

    body = b"IHDR" + struct.pack(">IIBBBBB", 10**6, 10**6, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + struct.pack(">I", 13) + body + struct.pack(">I", zlib.crc32(body))


for _what, _change in _PICTURES.items():
    case(f"train: among the images is {_what}", partial(_training, change=_change))


# ------------------------------------------------------------------------------------------------- shards


def _shard(folder: Path, members: Callable[[tarfile.TarFile], Any]) -> list[str]:
    (folder / "shards").mkdir()
    with tarfile.open(folder / "shards" / "0.tar", "w") as tar:
        members(tar)
    return _on_shards(folder)


def _on_shards(folder: Path) -> list[str]:
    return ["train-clip", "--pairs", str(folder / "shards"), "--out", str(folder / "out"), "--device", "cpu"]


def _member(tar: tarfile.TarFile, name: str, content: bytes) -> None:
    info = tarfile.TarInfo(name)
    info.size = len(content)
    tar.addfile(info, BytesIO(content))


def sparse_shard(path: Path, name: str, size: int) -> None:
    """A tar with one GNU-sparse member that claims `size` bytes and holds 512."""
    header = bytearray(tarfile.TarInfo(name).tobuf(tarfile.GNU_FORMAT))
    header[124:136] = b"%011o\0" % 512
    header[156:157] = b"S"
    header[386:410] = b"%011o\0" % 0 + b"%011o\0" % 512
    real = bytearray(12)
    real[0] = 0x80
    real[4:] = struct.pack(">Q", size)
    header[483:495] = real
    header[148:156] = b" " * 8
    header[148:156] = b"%06o\0 " % sum(header)
    path.write_bytes(bytes(header) + bytes(512) + bytes(1024))


def long_shard(path: Path, kind: bytes, size: int) -> None:
    """A tar whose first header announces `size` bytes of a long name, in a file with a hole of that size."""
    info = tarfile.TarInfo("././@LongLink")
    info.size, info.type = size, kind
    with path.open("wb") as file:
        file.write(info.tobuf(tarfile.GNU_FORMAT))
        file.truncate(size + 4096)


for _suffix in ("txt", "json", "jpg"):

    @case(f"train-clip: a sparse .{_suffix} of 20 GiB in a shard")
    def _(folder: Path, suffix: str = _suffix) -> list[str]:
        (folder / "shards").mkdir()
        sparse_shard(folder / "shards" / "0.tar", f"000.{suffix}", 20 * 2**30)
        return _on_shards(folder)


for _kind, _what in ((tarfile.GNUTYPE_LONGNAME, "name"), (tarfile.XHDTYPE, "header")):

    @case(f"train-clip: a {_what} of 20 GiB in a shard")
    def _(folder: Path, kind: bytes = _kind) -> list[str]:
        (folder / "shards").mkdir()
        long_shard(folder / "shards" / "0.tar", kind, 20 * 2**30)
        return _on_shards(folder)


for _suffix in ("txt", "json", "jpg"):

    @case(f"train-clip: a real .{_suffix} of 20 GiB in a shard")
    def _(folder: Path, suffix: str = _suffix) -> list[str]:
        (folder / "shards").mkdir()
        info = tarfile.TarInfo(f"000.{suffix}")
        info.size = 20 * 2**30
        with (folder / "shards" / "0.tar").open("wb") as file:
            file.write(info.tobuf(tarfile.GNU_FORMAT))
            file.truncate(info.size + 4096)
        return _on_shards(folder)


_CAPTIONS = {
    "deep": ("json", b"[" * DEEP + b"]" * DEEP),
    "a huge number": ("json", b'{"caption": %s}' % DIGITS.encode()),
    "a list": ("json", b"[]"),
    "nothing": ("txt", b""),
    "zero bytes": ("txt", b" \n\t "),
}
for _what, (_suffix, _content) in _CAPTIONS.items():

    @case(f"train-clip: a caption that is {_what}")
    def _(folder: Path, suffix: str = _suffix, content: bytes = _content) -> list[str]:
        def members(tar: tarfile.TarFile) -> None:
            _member(tar, "000.jpg", b"no image")
            _member(tar, f"000.{suffix}", content)

        return _shard(folder, members)


for _what, _make in {"a FIFO": os.mkfifo, "a socket": _bind, "a folder": Path.mkdir}.items():

    @case(f"train-clip: a shard that is {_what}")
    def _(folder: Path, make: Callable[[Path], Any] = _make) -> list[str]:
        (folder / "shards").mkdir()
        make(folder / "shards" / "0.tar")
        return _on_shards(folder)


@case("train-clip: a caption table that is deep")
def _(folder: Path) -> list[str]:
    (folder / "shards" / "annotations").mkdir(parents=True)
    (folder / "shards" / "annotations" / "captions_train2017.json").write_text(_DOCUMENTS["deep lists"])  # type: ignore[arg-type]
    return _on_shards(folder)


# ------------------------------------------------------------------------------------------------- config files


_BOMB = "a: &a [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{b}: &{b} [{', '.join([f'*{a}'] * 9)}]\n" for a, b in zip("abcdefghijk", "bcdefghijkl")
)
_YAML: dict[str, str | bytes] = {
    "nothing": "",
    "a list": "- model\n",
    "a number": "3",
    "a number as a key": "3: 4\n",
    "null as a key": "null: 4\n",
    "a list as a key": "? [a, b]\n: 4\n",
    "keys of several kinds": "1: a\nb: c\nnull: d\n",
    "keys of several kinds in a section": "model: {1: a, b: c, null: d, true: e}\n",
    "a number as a key of a section": "model: {3: 4}\n",
    "a date as a key": "model: {2020-01-01: 4}\n",
    "an alias bomb": _BOMB + "model: *l\n",
    "an alias bomb in a field": _BOMB.replace("a: &a", "model:\n  width: &a", 1).split("b:")[0]
    + "training: {lr: [*a, *a]}\n",
    "an alias bomb as a value": "model:\n" + "".join(f"  {line}\n" for line in _BOMB.splitlines()),
    "itself": "model: &m\n  attention: *m\n",
    "deep lists": "[" * DEEP,
    "a number of 5,000 digits": f"model: {{width: {DIGITS}}}\n",
    "an impossible date": "model: {width: 2020-99-99}\n",
    "a tag of Python": "model: !!python/object/apply:os.system ['true']\n",
    "bytes that are no text": b"\xff\xfe\x00model",
    "a terminal escape": 'model: "\\e[31m\\n"\n',
    "an unknown section": '"mo\\e[31m\\ndel": {}\n',
    "sections of another kind": "model: [1]\ntraining: x\n",
    "an infinite rate": "training: {lr: .inf}\n",
    "a rate of NaN": "training: {lr: .nan}\n",
    "a depth of a billion": "model: {depth: 1000000000}\n",
    "a width of a billion": "model: {width: 1000000000}\n",
    "a rate beyond floats": f"training: {{lr: 1{'0' * 400}}}\n",
    "a boolean depth": "model: {depth: true}\n",
    "a binary width": "model: {width: !!binary aGk=}\n",
    "a set of epochs": "training: {epochs: !!set {1, 2}}\n",
    "data of another kind": "data: []\nmodel: {}\n",
    "data without a split": "data: {origin: digits, shape: [1, 8, 8]}\nmodel: {}\n",
}
for _what, _text in _YAML.items():
    for _verb in ("train", "train-clip"):

        @case(f"{_verb}: --config holds {_what}")
        def _(folder: Path, text: str | bytes = _text, verb: str = _verb) -> list[str]:
            path = folder / "run.yaml"
            path.write_bytes(text if isinstance(text, bytes) else text.encode())
            return [verb, "--config", str(path), "--out", str(folder / "out"), "--device", "cpu"]


for _verb in ("train", "train-clip"):

    @case(f"{_verb}: --config is a FIFO")
    def _(folder: Path, verb: str = _verb) -> list[str]:
        os.mkfifo(folder / "run.yaml")
        return [verb, "--config", str(folder / "run.yaml"), "--out", str(folder / "out")]


# ------------------------------------------------------------------------------------------------- audit


_FACTORY = "import torch\nfrom torch import nn\nPREPROCESSING = 'none'\n"
_MODEL = "class M(nn.Module):\n    def forward(self, x):\n        {}\n\ndef make():\n    return M().eval()\n"
_MODELS = {
    "that raises": "def make():\n    raise RuntimeError('\\x1b[31mno\\nmodel')\n",
    "that exits": "def make():\n    raise SystemExit(0)\n",
    "that returns nothing": "def make():\n    return None\n",
    "that recurses": "def make():\n    return make()\n",
    "that is no Python": "def make(:\n",
    "with zero bytes": "\0",
    "whose model raises": _MODEL.format("raise ValueError('a\\nb')"),
    "whose model returns NaN": _MODEL.format("return x.flatten(1)[:, :10] * float('nan')"),
}
for _what, _text in _MODELS.items():

    @case(f"audit: a file {_what}")
    def _(folder: Path, text: str = _text) -> list[str]:
        (folder / "model.py").write_text(_FACTORY + text)
        spec = f"{folder / 'model.py'}:make"
        return ["audit", spec, "--data", "digits", "--quick", "--images", "2", "--out", str(folder / "out")]


for _what in (
    "of nothing",
    "of one byte",
    "of text",
    "of a zip without anything",
    "of a pickled list",
    "of a pickle that calls",
):

    @case(f"audit: --weights {_what}")
    def _(folder: Path, content: bytes = _TEXTS[_what]) -> list[str]:
        path = _file(content)(folder)
        words = ["--data", "digits", "--quick", "--images", "2", "--out", str(folder / "out")]
        return ["audit", "timm:vit_tiny_patch16_224", "--weights", str(path), *words]


for _what in ("empty", "with NaN", "complex", "of integers", "meta", "sparse", "expanded"):

    @case(f"audit: --weights with a head {_what}")
    def _(folder: Path, change: Callable[[Tensor], Tensor] = _TENSORS[_what]) -> list[str]:
        (folder / "model.py").write_text(
            _FACTORY + "def make():\n    return nn.Sequential(nn.Flatten(), nn.Linear(64, 10)).eval()\n"
        )
        weights = {"1.weight": change(torch.ones(10, 64)), "1.bias": torch.zeros(10)}
        torch.save(weights, folder / "weights.pt")
        words = ["--data", "digits", "--quick", "--images", "2", "--out", str(folder / "out")]
        return ["audit", f"{folder / 'model.py'}:make", "--weights", str(folder / "weights.pt"), *words]


QUICK = tuple(list(CASES)[::9])  # in the default suite; the rest is slow only in sum
