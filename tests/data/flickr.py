"""Flickr's layout, with images whose brightness says which they are."""

import torch

from tests.data.shards import picture

LINES = [f"{i}.jpg#{j}\tcaption {j} of {i}" for i in range(4) for j in range(2)]


def flickr(folder, lines: list[str], lists: dict[str, list[str]] | None = None, images: int = 4):
    (folder / "Flicker8k_Dataset").mkdir(parents=True)
    for i in range(images):
        (folder / "Flicker8k_Dataset" / f"{i}.jpg").write_bytes(picture(i))
    (folder / "Flickr8k.token.txt").write_text("\n".join(lines) + "\n")
    for name, names in (lists or {}).items():
        (folder / f"Flickr_8k.{name}Images.txt").write_text("\n".join(names) + "\n")
    return folder


def brightness(pixels: torch.Tensor) -> list[int]:
    return [round(float(p.mean()) * 255) for p in pixels]
