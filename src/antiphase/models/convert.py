"""Make a run folder of a published checkpoint: safetensors and a config, read like any other run."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from antiphase import files, runtime
from antiphase.config import InputError, checked_arguments, to_plain
from antiphase.models.checkpoint_formats import read_clip
from antiphase.models.config import Differential
from antiphase.models.hub import is_offline
from antiphase.models.run import Run, save_checkpoint

HUB_NAME = re.compile(r"[\w.-]+/[\w.-]+")  # owner/name
HUB_FILE = "checkpoint_best.pt"  # what the DiffCLIP authors call it


@checked_arguments(heads=1, text_heads=1)
def convert(
    source: str | Path,
    out: Path | str,
    *,
    heads: int | None = None,
    text_heads: int | None = None,
    lambda_init: Differential | None = None,
) -> Run:
    """Write the checkpoint as a run into `out`. Doing so again changes nothing; a folder that holds anything else is refused."""
    path, out = local_file(str(source)), Path(out)
    config, tensors = read_clip(path, heads=heads, text_heads=text_heads, differential=lambda_init or Differential())
    differential = config.vision.is_differential or config.text.is_differential
    if lambda_init is not None and not differential:
        raise InputError(f"--lambda-init has no use: {source} is a {config.title}, all softmax")
    about = {
        "format": 1,
        "title": config.title,
        "model": to_plain(config),
        "training": {},  # unknown
        "data": {},
        "source": {"file": path.name, "sha256": files.sha256(path)},
        "assumed": ["lambda_init = 0.8"] if differential and lambda_init is None else [],
        "environment": runtime.environment(),
    }
    _check_folder(out, about)  # before the lock, which would be a file in a folder that is not ours
    with files.held(out, whole=True):
        _check_folder(out, about)
        files.write_json(out / "run.json", about)
        save_checkpoint(out, {"weights": tensors}, {"complete": True}, tag="converted")
    return Run(out)


def local_file(source: str) -> Path:
    """The checkpoint file: `source` itself, or downloaded from the Hugging Face hub by its name there."""
    path = Path(source)
    if path.is_file():
        return path
    if path.exists() or not HUB_NAME.fullmatch(source) or path.suffix in (".pt", ".pth", ".bin", ".safetensors"):
        raise InputError(f"{source} is not a checkpoint file, nor a name on the Hugging Face hub (owner/name)")
    from huggingface_hub import hf_hub_download
    from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError

    try:
        return Path(hf_hub_download(source, HUB_FILE, local_files_only=is_offline()))
    except LocalEntryNotFoundError:
        why = "it cannot be reached from here"
    except (HfHubHTTPError, OSError, ValueError) as error:
        why = str(error).strip().split("\n")[0].rstrip(".")
    raise InputError(
        f"{source} is no file here, and {HUB_FILE} could not be fetched under that name from the Hugging Face hub: {why}"
    )


def _check_folder(out: Path, about: dict[str, Any]) -> None:
    """Refuse a folder that is neither empty nor this very conversion."""
    if (out / "run.json").exists():
        existing = files.read_json(out / "run.json", "model")
        if any(existing.get(key) != about[key] for key in ("model", "source")):
            raise InputError(f"{out} holds another run: choose another folder")
    elif out.exists() and any(p for p in out.iterdir() if not p.name.startswith(".")):
        raise InputError(f"{out} is not empty and not a run: choose another folder")
