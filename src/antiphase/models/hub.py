"""Whether the Hugging Face hub can be reached."""

from __future__ import annotations

import socket
from urllib.parse import urlsplit
from urllib.request import getproxies


def is_offline() -> bool:
    """Whether the hub cannot be reached; found out first, since its own client goes on trying for half a minute."""
    from huggingface_hub import constants

    if constants.HF_HUB_OFFLINE or getproxies():
        return bool(constants.HF_HUB_OFFLINE)
    try:
        socket.getaddrinfo(urlsplit(constants.ENDPOINT).hostname, 443)
    except OSError:
        return True
    return False
