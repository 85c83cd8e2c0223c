"""Rows in, one self-contained HTML page out. Never runs a model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from antiphase import files
from antiphase.config import Budget
from antiphase.report import figures
from antiphase.report.findings import findings, interval_of, percent


def write_report(comparison: dict[str, Any], out: Path) -> Path:
    """`out/index.html`: one file, no scripts, no network, opens anywhere."""
    environment = Environment(loader=PackageLoader("antiphase.report"), autoescape=True, undefined=StrictUndefined)
    environment.filters.update(percent=percent, range=interval_of, budget=lambda eps: str(Budget(eps)))
    names = [side["name"] for side in comparison["models"]]
    html = environment.get_template("comparison.html").render(
        c=comparison,
        names=names,
        findings=findings(comparison),
        colours=figures.COLOURS,
        asr=Markup(figures.asr_curves(comparison)),
        sensitivity=Markup(figures.sensitivity(comparison)),
        maps=Markup(figures.maps(comparison["pictures"], names)) if comparison["pictures"] else None,
    )
    page = out / "index.html"
    files.write_text(page, html)
    return page
