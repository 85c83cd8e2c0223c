"""python docs/screenshot.py PAGE PNG: what a browser shows of a page, at the size of the picture in README.md."""

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path


def main(page: str, png: str) -> None:
    browser = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if browser is None:
        sys.exit("screenshot: no Chromium on this machine")
    flags = "--headless --no-sandbox --disable-gpu --no-first-run --disable-background-networking --hide-scrollbars"
    with tempfile.TemporaryDirectory() as profile:
        argv = [browser, *flags.split(), f"--user-data-dir={profile}", "--window-size=1100,1260", f"--screenshot={png}"]
        subprocess.run([*argv, Path(page).resolve().as_uri()], check=True, capture_output=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
