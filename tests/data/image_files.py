"""Single images as files in memory."""

import io

from PIL import Image


def png(value: int, side: int = 32) -> bytes:
    buffer = io.BytesIO()
    Image.new("RGB", (side, side), (value, 0, 255)).save(buffer, format="PNG")
    return buffer.getvalue()
