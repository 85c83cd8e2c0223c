"""Shards of image-caption pairs, as img2dataset writes them."""

import io
import tarfile

from PIL import Image


def picture(number: int, kind: str = "JPEG", side: int = 12) -> bytes:
    """A grey image whose brightness says which it is."""
    out = io.BytesIO()
    Image.new("RGB", (side, side), (number * 10 % 256,) * 3).save(out, kind)
    return out.getvalue()


def write_shard(path, samples) -> None:
    """samples: (key, {suffix: bytes})"""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, "w") as tar:
        for key, members in samples:
            for suffix, content in members.items():
                info = tarfile.TarInfo(f"{key}.{suffix}")
                info.size = len(content)
                tar.addfile(info, io.BytesIO(content))


def sample(number: int, **members) -> tuple[str, dict[str, bytes]]:
    whole = {"jpg": picture(number), "txt": f"picture number {number}".encode(), **members}
    return f"{number:05d}", {suffix: content for suffix, content in whole.items() if content is not None}
