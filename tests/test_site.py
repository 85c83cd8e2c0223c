"""The site that `make site` makes: no warning, no dead link, nothing from elsewhere, and the words that the repository has."""

import importlib.util
import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
from markdown_it import MarkdownIt

from antiphase.paper.claims import CLAIMS
from tests.conftest import ROOT

pytest.importorskip("mkdocs")
LOADED = {
    "script": "src",
    "link": "href",
    "img": "src",
    "iframe": "src",
    "source": "src",
    "video": "src",
    "object": "data",
}
NOT_LOADED = {"canonical", "prev", "next"}  # kinds of <link> that a browser does not fetch


class Parsed(HTMLParser):
    """What a page loads, where it links to, its anchors, and the words of its article."""

    def __init__(self, html: str, *, whole: bool = False):
        super().__init__()
        self.loads: list[str] = []
        self.links: list[str] = []
        self.anchors = {""}
        self._words: list[str] = []
        self._in_article, self._hidden = whole, None
        self.feed(html)

    @property
    def words(self) -> str:
        return re.sub(r"\s+", "", "".join(self._words))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        self.anchors |= {values[name] for name in ("id", "name") if values.get(name)}
        if values.get(LOADED.get(tag, "")) and values.get("rel") not in NOT_LOADED:
            self.loads.append(values[LOADED[tag]])
        if tag == "a" and values.get("href"):
            self.links.append(values["href"])
        if tag == "article":
            self._in_article = True
        if tag in ("script", "style", "button") or (tag == "a" and values.get("class") == "headerlink"):
            self._hidden = tag

    def handle_endtag(self, tag: str) -> None:
        if tag == "article":
            self._in_article = False
        if tag == self._hidden:
            self._hidden = None

    def handle_data(self, data: str) -> None:
        if self._in_article and self._hidden is None:
            self._words.append(data)


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """What `make site` makes."""
    folder = tmp_path_factory.mktemp("site")
    done = build("mkdocs.yml", folder)
    assert done.returncode == 0, done.stderr
    assert {line.partition(" ")[0] for line in (done.stderr + done.stdout).splitlines()} == {"INFO"}, done.stderr
    return folder


@pytest.fixture(scope="module")
def site(folder) -> dict[str, Parsed]:
    """Its pages by their addresses, and its other files, which have neither links nor anchors."""
    files = {str(path.relative_to(folder)): path for path in folder.rglob("*") if path.is_file()}
    return {name: Parsed(path.read_text() if path.suffix == ".html" else "") for name, path in files.items()}


def build(config: Path | str, folder: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "mkdocs", "build", "--config-file", config, "--site-dir", folder]
    environment = os.environ | {"NO_MKDOCS_2_WARNING": "1"}  # as in the Makefile; --quiet would count no warnings
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300)


def test_every_link_and_anchor_of_the_site_leads_somewhere(site):
    dead = []
    for name, page in site.items():
        for link in page.links:
            parts = urlsplit(link)
            if parts.scheme or name == "404.html":  # its links are absolute, for it may be shown anywhere
                continue
            there = os.path.normpath(Path(name).parent / unquote(parts.path)) if parts.path else name
            if there not in site or unquote(parts.fragment) not in site[there].anchors:
                dead.append(f"{name}: {link}")
    assert not dead
    assert sum(len(page.links) for page in site.values()) > 1000


def test_no_page_loads_anything_from_elsewhere(site):
    loads = {url for page in site.values() for url in page.loads}
    assert "site.css" in loads
    assert not [url for url in loads if urlsplit(url).scheme not in ("", "data") or urlsplit(url).netloc]


def test_no_style_sheet_loads_anything_from_elsewhere(folder):
    sheets = list(folder.rglob("*.css"))
    assert sheets
    for sheet in sheets:
        assert not re.findall(r"(?:url\(|@import)\s*[\"']?(?:https?:)?//[^)\s]*", sheet.read_text()), sheet.name


def test_the_site_has_the_words_that_the_repository_shows(site):
    """Python-Markdown and CommonMark, which GitHub reads, part company over lists, stars and pipes; these pages avoid that."""
    from mkdocs.config import load_config

    config = load_config(str(ROOT / "mkdocs.yml"))
    (hooks,) = config.hooks.values()
    entries = [entry for section in config.nav for entries in section.values() for entry in entries]
    titles = {path.relative_to(ROOT / "docs").as_posix(): None for path in (ROOT / "docs").rglob("*.*")}
    titles |= {page: title for entry in entries for title, page in entry.items()}
    reader = MarkdownIt("commonmark").enable("table")
    for source in [*(f"docs/{path.name}" for path in (ROOT / "docs").glob("*.md")), *hooks.OUTSIDE]:
        address = hooks.address(source)
        text = (ROOT / source).read_text()
        shown = reader.render(hooks.outside_code(text, lambda part, here=address: hooks.links(part, here, titles)))
        html = re.sub(r"(README)?\.md$", lambda end: "index.html" if end[1] else ".html", address)
        assert site[html].words == Parsed(shown, whole=True).words, source


def test_dead_links_missing_anchors_and_forgotten_pages_fail_the_build(tmp_path):
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs/index.md").write_text("# A\n\n[gone](gone.md) [nowhere](other.md#nowhere)\n")
    (tmp_path / "docs/other.md").write_text("# B\n")
    config = tmp_path / "mkdocs.yml"
    config.write_text(f"INHERIT: {ROOT}/mkdocs.yml\ndocs_dir: docs\nhooks: []\nextra_css: []\nnav: [index.md]\n")
    done = build(config, tmp_path / "site")
    assert done.returncode != 0
    for word in ("gone.md", "#nowhere", "other.md"):
        assert word in done.stderr


def test_the_glossary_has_every_claim_as_the_code_states_it():
    page = (ROOT / "docs/glossary.md").read_text()
    assert not [claim for claim, says in CLAIMS.items() if f"| {claim} | {says} |" not in page]


def test_the_sentences_that_the_questions_quote_are_those_of_the_code():
    """The longest part of each that has no number and no name in it; sentences of the code go over several lines."""
    quoted = re.findall(r'"([^"]+)"', "".join(re.findall(r"^### (.*)$", (ROOT / "docs/faq.md").read_text(), re.M)))
    parts = [max(re.split(r"\.\.\.|[()\d]+", words), key=len).strip(" :,") for words in quoted]
    sources = "".join(path.read_text() for path in (ROOT / "src").rglob("*.py"))
    sentences = re.sub(r'"\s*\n\s*f?"', "", sources)
    assert len(parts) >= 10
    said_by_others = {"Illegal instruction", "inconclusive", "no difference shown"}  # the shell; verdicts
    assert not [part for part in parts if part not in sentences and part not in said_by_others]


@pytest.mark.slow
def test_the_tutorial_runs_and_shows_what_its_page_shows(tmp_path, monkeypatch):
    """Cell by cell, as to what kind of thing is shown: numbers are the machine's."""
    spec = importlib.util.spec_from_file_location("notebook", ROOT / "docs/notebook.py")
    notebook = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(notebook)
    monkeypatch.chdir(tmp_path)
    written = notebook.read(ROOT / "docs/tutorial.ipynb")
    again = notebook.executed(written)

    def form(cells: list[dict]) -> list[list[set[str]]]:
        return [[set(output.get("data", {"text": ""})) for output in cell.get("outputs", ())] for cell in cells]

    assert sum(cell["cell_type"] == "code" for cell in written["cells"]) == 10
    assert form(again["cells"]) == form(written["cells"])
    last = "".join(again["cells"][-2]["outputs"][0]["text"])
    assert "McNemar" in last
    assert (tmp_path / "audits/tutorial/report/index.html").is_file()
