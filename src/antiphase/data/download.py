"""Fetching a public data set for a user who is online. Archives are checked against their published digests."""

from __future__ import annotations

from pathlib import Path

from antiphase.config import InputError

TINY_IMAGENET = ("http://cs231n.stanford.edu/tiny-imagenet-200.zip", "90528d7ca1a48142e341f4ef8d21d0de")


def fetch(name: str, base: Path) -> Path:
    """Download and unpack `name` below `base`; returns its folder. An archive is checked before it is unpacked."""
    from torchvision import datasets
    from torchvision.datasets.utils import download_and_extract_archive

    base.mkdir(parents=True, exist_ok=True)
    try:
        if name == "tiny-imagenet":
            url, md5 = TINY_IMAGENET
            download_and_extract_archive(url, str(base), md5=md5)
            return base / "tiny-imagenet-200"
        reader = datasets.CIFAR10 if name == "cifar10" else datasets.CIFAR100
        reader(root=str(base), download=True)
        return base / str(reader.base_folder)
    except (OSError, RuntimeError) as error:
        raise InputError(
            f"{name} could not be downloaded to {base} ({error}); fetch it by hand and use --data-root"
        ) from None
