"""python docs/screenshot.py PAGE PNG: the lens of a page as a browser shows it, for README.md."""

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
        seen = chromium.new_page(viewport={"width": 1200, "height": 1500}, color_scheme="light")
        seen.goto(f"{Path(page).resolve().as_uri()}#lens?query=2.3")
        seen.wait_for_selector("#lens-root[data-ready]")
        seen.add_style_tag(content=".bar { visibility: hidden; }")
        top, bottom = (seen.locator(s).bounding_box() for s in ("#lens h2", ".looks"))
        height = bottom["y"] + bottom["height"] - top["y"] + 24
        seen.screenshot(path=png, clip={"x": 24, "y": top["y"] - 16, "width": 1152, "height": height})
        chromium.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
