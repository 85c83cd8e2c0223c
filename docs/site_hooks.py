"""What `make site` does besides mkdocs: pages from outside docs/, links between all of them, and the notebook as a page.

A file of the repository has one address on the site: `docs/x.md` is `x.md`, README.md is `overview.md` (docs/index.md is the
start page), and any other page keeps its path. Links are written for a reader of the repository and are translated here. A link
to a file that is no page of the site (code, a folder) becomes its text; a link to nothing is left as it is, and the strict build
fails on it.
"""

from __future__ import annotations

import posixpath
import re
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import notebook  # docs/notebook.py: mkdocs finds what lies beside a hook
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[1]
LEDGERS = ("replication", "paper-pair", "pair", "clip-pair")
FINDINGS = tuple(f"results/replication/{name}.md" for name in ("FINDINGS", "BEYOND"))
RESULTS = ("results/README.md", *(f"results/{name}/README.md" for name in LEDGERS))
REPORTS = ROOT / "results" / "replication" / "report"  # pages of the ledger, one per scale: on the site as they are
OUTSIDE = ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", *FINDINGS, *RESULTS)
LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^)\s#:]+)(#[^)\s]*)?\)")
FILE_NAME = re.compile(r"[\w./-]+\.(?:md|ipynb)( [\d.]+)?")  # method.md, docs/method.md, method.md 2.8
FENCED = re.compile(r"(^```.*?^```$)", re.M | re.S)
CODE_SPAN = re.compile(r"`[^`\n]+`")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds the pages from outside docs/, the replication's reports, and a page for every notebook, which stays beside it."""
    for path in OUTSIDE:
        files.append(File.generated(config, address(path), abs_src_path=str(ROOT / path)))
    for path in sorted(REPORTS.rglob("*.*")):
        if path.suffix != ".md":  # mkdocs would make a page of the site of it
            files.append(File(str(path.relative_to(ROOT)), str(ROOT), config.site_dir, use_directory_urls=False))
    for path in sorted((ROOT / "docs").glob("*.ipynb")):
        page = notebook.as_markdown(notebook.read(path), name=path.name)
        files.append(File.generated(config, address(f"docs/{path.name}"), content=page))
    return files


def on_post_build(config: MkDocsConfig) -> None:
    """The reports' tables in Markdown, as they are, beside the pages that offer them."""
    for path in REPORTS.rglob("*.md"):
        shutil.copyfile(path, Path(config.site_dir) / path.relative_to(ROOT))


def on_page_markdown(markdown: str, page: Page, files: Files, **_: Any) -> str:
    """Links of the repository as links of the site, and pipes in tables as Python-Markdown reads them."""
    here = page.file.src_uri
    titles = {file.src_uri: (file.page.title if file.page else None) for file in files}
    return outside_code(markdown, lambda text: pipes(links(text, here, titles)))


def outside_code(markdown: str, change: Callable[[str], str]) -> str:
    """The page with everything changed but its code blocks."""
    parts = FENCED.split(markdown)
    parts[::2] = map(change, parts[::2])
    return "".join(parts)


def address(path: str) -> str:
    """Where a file of the repository is on the site."""
    if path == "README.md":
        return "overview.md"
    return re.sub(r"^docs/", "", re.sub(r"\.ipynb$", ".md", path))


def links(text: str, here: str, titles: Mapping[str, str | None]) -> str:
    """The text of the page at `here` with its links translated; one whose words are a file's name gets the page's title."""
    folder = posixpath.dirname(next((path for path in OUTSIDE if address(path) == here), f"docs/{here}"))

    def translated(link: re.Match[str]) -> str:
        image, words, target, anchor = link.groups(default="")
        path = posixpath.normpath(posixpath.join(folder, target))
        if (there := address(path)) in titles:
            if (name := FILE_NAME.fullmatch(words)) and (title := titles[there]):
                words = title + (name.group(1) or "")
            return f"{image}[{words}]({posixpath.relpath(there, posixpath.dirname(here) or '.')}{anchor})"
        return words if (ROOT / path).exists() else link.group()

    return LINK.sub(translated, text)


def pipes(text: str) -> str:
    r"""Code in tables: GitHub wants `\|` there, while Python-Markdown shows the backslash and takes a bare pipe."""
    return "\n".join(
        CODE_SPAN.sub(lambda code: code.group().replace(r"\|", "|"), line) if line.startswith("|") else line
        for line in text.split("\n")
    )
