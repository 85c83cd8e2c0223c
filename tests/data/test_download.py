"""A data set is fetched for a user who is online."""

import shutil
from pathlib import Path

import pytest

from antiphase.config import InputError
from antiphase.data import load


def test_download_fetches_checks_and_unpacks(tmp_path, data_root, monkeypatch):
    """A real server on this machine and a real archive in Tiny ImageNet's layout."""
    import functools
    import hashlib
    import http.server
    import threading

    from antiphase.data import download

    source = tmp_path / "source" / "tiny-imagenet-200"
    ignore = shutil.ignore_patterns("train")
    shutil.copytree(data_root / "tiny-imagenet-subset", source, ignore=ignore)
    archive = Path(shutil.make_archive(str(tmp_path / "tiny-imagenet-200"), "zip", source.parent))
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=str(tmp_path))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}/{archive.name}"
        monkeypatch.setattr(download, "TINY_IMAGENET", (url, "0" * 32))
        with pytest.raises(InputError, match="could not be downloaded"):
            load("tiny-imagenet", "test", root=tmp_path / "a", download=True)
        monkeypatch.setattr(download, "TINY_IMAGENET", (url, hashlib.md5(archive.read_bytes()).hexdigest()))
        assert len(load("tiny-imagenet", "test", root=tmp_path / "b", download=True)) == 1000
        server.shutdown()
