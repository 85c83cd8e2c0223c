"""What the documentation and the comments cite is there."""

import re

from tests.conftest import ROOT

METHOD = (ROOT / "docs/method.md").read_text()
SECTIONS = set(re.findall(r"^#{2,3} (\d(?:\.\d)?)\b", METHOD, re.M))
CITED = re.compile(r"docs/method\.md,?\s+(\d(?:\.\d)?(?:(?:,| and| to) \d\.\d)*)")
TEXTS = [
    path
    for folder, ending in (("src", "py"), ("tests", "py"), ("benchmarks", "py"), ("docs", "md"), (".", "md"))
    for path in (ROOT.glob("*.md") if folder == "." else (ROOT / folder).rglob(f"*.{ending}"))
    if path.name != "test_docs.py"
]
UNCHECKED = ("log.md", "CHANGELOG.md")  # they speak of what was


def test_every_section_of_the_method_that_is_cited_exists():
    cited = [
        (path.name, number)
        for path in TEXTS
        for some in CITED.findall(path.read_text())
        for number in re.findall(r"\d(?:\.\d)?", some)
    ]
    assert cited
    assert not [f"{name} cites docs/method.md {number}" for name, number in cited if number not in SECTIONS]


def test_no_comment_cites_a_page_that_readers_do_not_have():
    hidden = re.compile(r"\bM[1-7]\.\d\b|of the methods\b")
    assert not [path.name for path in TEXTS if hidden.search(path.read_text())]


def test_every_anchor_of_the_method_is_the_number_of_its_heading():
    anchored = re.findall(r'<a id="s([\d.]+)"></a>\n#{2,3} (\d(?:\.\d)?)\b', METHOD)
    assert len(anchored) == METHOD.count("<a id=")
    assert all(anchor == number for anchor, number in anchored)
    pages = [path for path in TEXTS if path.suffix == ".md"]
    linked = [n for path in pages for n in re.findall(r"\((?:[\w./]*method\.md)?#s([\d.]+)\)", path.read_text())]
    assert set(linked) <= {anchor for anchor, _ in anchored}


def test_every_file_that_a_page_names_exists():
    """Files of the package by their place in it (`models/attention.py`), others by their place in the repository."""
    named = re.compile(r"\b((?:tests|benchmarks|results|docs)/[\w/-]+\.\w+)\b|`((?:\w+/)+\w+\.py)`")
    lost = []
    for page in [*ROOT.glob("docs/*.md"), *ROOT.glob("*.md")]:
        if page.name in UNCHECKED:
            continue
        for path in map("".join, named.findall(page.read_text())):
            invented = "NAME" in path  # a file that is to be added
            if not invented and not any((root / path).exists() for root in (ROOT, ROOT / "src/antiphase")):
                lost.append(f"{page.name}: {path}")
    assert not lost
