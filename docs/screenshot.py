"""python docs/screenshot.py PAGE PNG: the first screen of a comparison's page as a browser shows it, for README.md."""

import shutil
import sys
from pathlib import Path

from playwright.sync_api import sync_playwright


def main(page: str, png: str) -> None:
    browser = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if browser is None:
        sys.exit("screenshot: no Chromium on this machine")
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=browser, args=["--no-sandbox"])
        seen = chromium.new_page(viewport={"width": 1280, "height": 900}, color_scheme="light", device_scale_factor=1.5)
        seen.goto(Path(page).resolve().as_uri())
        cards = seen.locator(".key-numbers").bounding_box()
        seen.screenshot(path=png, clip={"x": 40, "y": 0, "width": 1200, "height": cards["y"] + cards["height"] + 24})
        chromium.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
