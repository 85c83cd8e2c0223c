"""One page from its parts: self-contained HTML, and beside it each figure as PNG and PDF and all data as CSV.

Never runs a model, and asks nothing of the network: styles, script and maps are inside the page.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from antiphase import files
from antiphase.config import InputError
from antiphase.console import all_visible, visible
from antiphase.report import theme
from antiphase.report.figures.contrasts import forest
from antiphase.report.figures.render import FORMS, Drawn, draw, write_data, write_printed
from antiphase.report.lens_data import payload, together
from antiphase.report.page_parts import Commands, Figure, Page, Switch, Table, column_groups
from antiphase.report.paper_tables import latex, markdown
from antiphase.report.sentences import MARKS, is_surrogate, reason, sentence, statement

LINES = "\n\t"  # of the characters that are no print, those that a page may hold
LARGEST = 25_000_000  # bytes of a page that a browser on a small machine still opens
MATRIX_FORMS = {"md": "Markdown", "tex": "LaTeX", "html": "HTML"}
SCRIPTS = ("theme.js", "menu.js")
LENS = ("lens_maps.js", "lens_draw.js", "lens_card.js", "lens.js")


def write_page(page: Page, out: Path, draw: Callable[[Figure], Drawn] = draw) -> Path:
    """`out/index.html`, and `out/data/` with a PNG, a PDF and a CSV of each figure and a CSV of each table."""
    names = [part.name for part in page.parts if isinstance(part, Figure | Table)]
    if len(names) != len(set(names)):
        raise ValueError(f"two parts of the page share a name: {names}")
    figures = {figure.name: draw(figure) for figure in reversed(page.figures)}  # other processes begin with the first
    html = _html(page, figures)
    if (size := len(html.encode())) > LARGEST:
        raise InputError(
            f"the page would take {size / 1e6:.1f} MB, more than {LARGEST / 1e6:.0f}: show fewer images in antiphase look"
        )
    for part in page.parts:
        if isinstance(part, Figure):
            write_printed(part, figures[part.name].files, out / "data")
        elif isinstance(part, Table):
            write_data(part, out / "data")
            if part.starts:
                write_matrix(part, out / "data")
    files.write_text(out / "index.html", html)
    return out / "index.html"


def write_matrix(table: Table, folder: Path) -> list[str]:
    """NAME.md, NAME.tex and NAME.html: one description, written three times; the names of the files."""
    texts = {"md": markdown, "tex": latex, "html": table_document}
    for form in MATRIX_FORMS:
        files.write_text(folder / f"{table.name}.{form}", texts[form](table))
    return [f"{table.name}.{form}" for form in MATRIX_FORMS]


def table_document(table: Table) -> str:
    """One table as an HTML document of its own, to be opened or pasted from."""
    return _environment().get_template("table_document.html").render(table=table, groups=column_groups, places={})


def _environment() -> Environment:
    return Environment(
        loader=PackageLoader("antiphase.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        finalize=lambda value: visible(value, LINES) if type(value) is str else value,  # names come from anybody
    )


def _html(page: Page, figures: Mapping[str, Drawn]) -> str:
    environment = _environment()
    places = page.places or {model.name: i for i, model in enumerate(page.models)}
    looks, elsewhere = together(page.looks)
    panels = {panel: svg for part in page.figures for panel, svg in zip(part.drawn, figures[part.name].panels)}
    environment.tests.update(
        figure=lambda part: isinstance(part, Figure),
        switch=lambda panel: isinstance(panel, Switch),
        table=lambda part: isinstance(part, Table),
        commands=lambda part: isinstance(part, Commands),
        surrogate=is_surrogate,
    )
    environment.filters.update(
        svg=lambda panel: Markup(panels[panel]),
        forest=lambda verdict: Markup(forest(verdict)),
        sentence=sentence,
        statement=statement,
        reason=reason,
    )
    return environment.get_template("page.html").render(
        page=page,
        links=_links(page),
        places=places,
        marks=MARKS,
        forms=FORMS,
        matrix_forms=MATRIX_FORMS,
        groups=column_groups,
        lens=Markup(_json(payload(looks, places))) if looks else None,
        packed=[cell["packed"] for _, cell in looks],
        left_out=looks[0][1]["left_out"] if looks else [],
        elsewhere=elsewhere,
        light=enumerate(theme.MODELS),
        dark=list(enumerate(theme.MODELS_DARK)),
        inks={name: colour for colour, name in theme.THEMED.items() if not name.startswith("m")},
        style=Markup(_asset("page.css")),
        script=Markup("\n".join(_asset(name) for name in (*SCRIPTS, *(LENS if looks else ())))),
    )


def _links(page: Page) -> list[dict[str, Any]]:
    """What the bar leads to: the name of a place, its title, and what it is called where there is room for few letters."""
    told = page.headline or page.findings or page.verdicts
    words = "Verdicts" if page.verdicts else "Findings"
    links = [("findings", words, words)] * bool(told) + [("lens", "The lens", "Lens")] * bool(
        page.looks or page.no_lens
    )
    links += [(section.name, section.title, section.short or section.title) for section in page.sections]
    links.append(("made", "How this was made", "How this was made"))
    return [{"name": name, "title": title, "short": short, "letters": len(short) + 2} for name, title, short in links]


def _json(value: Any) -> str:
    """JSON that no text inside it can end or escape from."""
    text = json.dumps(all_visible(value, LINES), allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _asset(name: str) -> str:
    return (Path(__file__).parent / "templates" / name).read_text(encoding="utf-8")
