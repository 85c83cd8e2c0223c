"""The contrasts of a verdict as intervals about zero, one below the other: SVG text in the colours of the page."""

from __future__ import annotations

from html import escape

from antiphase.measures.stats import Contrast, Verdict
from antiphase.report.numbers import scaled
from antiphase.report.sentences import contrast_words, number_words
from antiphase.report.words import told_apart

WIDTH, ROW, AXIS = 320, 20, 18  # of a drawing, a line and the axis beneath them
PAD = 14


def forest(verdict: Verdict) -> str:
    """One list per unit; nothing where there is nothing to draw."""
    units = dict.fromkeys(c.unit for c in verdict.contrasts if c.value is not None)
    return "".join(
        _one([c for c in verdict.contrasts if c.unit == unit and c.value is not None], unit) for unit in units
    )


def _one(contrasts: list[Contrast], unit: str) -> str:
    """Each contrast as a line: its interval about zero, its number, and what it is about. One that is only shown is hollow."""
    ends = [scaled(end, unit) for c in contrasts for end in (c.value or 0.0, *(c.interval or ()))]
    reach = max(max(map(abs, ends)), 1e-9) * 1.05
    scale = (WIDTH / 2 - PAD) / reach

    def at(value: float) -> float:  # in the unit of the axis
        return float(round(WIDTH / 2 + scale * value, 1))

    zero = f'<line class="zero" x1="{at(0)}" x2="{at(0)}" y1="0" y2="{ROW}"/>'
    common, names = told_apart([contrast.name.split(", ") for contrast in contrasts])
    lines = []
    for contrast, name in zip(contrasts, names):
        marks = f'<circle cx="{at(scaled(contrast.value or 0.0, unit))}" cy="{ROW / 2}" r="4.5"/>'
        if contrast.interval is not None:
            low, high = (at(scaled(end, unit)) for end in contrast.interval)
            marks = f'<line class="range" x1="{low}" x2="{high}" y1="{ROW / 2}" y2="{ROW / 2}"/>{marks}'
        label = escape(contrast_words(contrast), quote=True)
        drawn = "forest hollow" if contrast.needs else "forest"
        drawing = (
            f'<svg class="{drawn}" role="img" aria-label="{label}" viewBox="0 0 {WIDTH} {ROW}">{zero}{marks}</svg>'
        )
        about = escape(name) + (f" <small>n\u00a0=\u00a0{contrast.n:,}</small>" if contrast.n else "")
        about += (
            f' <small title="{escape(contrast.needs, quote=True)}">shown, decides nothing</small>'
            if contrast.needs
            else ""
        )
        lines.append(
            f'<li>{drawing}<span class="number">{escape(number_words(contrast))}</span><span>{about}</span></li>'
        )
    texts = ""
    for value, x, anchor in ((-reach / 1.05, PAD, "start"), (0.0, at(0), "middle"), (reach / 1.05, WIDTH - PAD, "end")):
        tick = f"{value:+.2g}" if value else f"0 {unit}".strip()
        texts += f'<text x="{x}" y="{AXIS - 4}" text-anchor="{anchor}">{escape(tick)}</text>'
    axis = f'<li aria-hidden="true"><svg class="forest" viewBox="0 0 {WIDTH} {AXIS}">{texts}</svg></li>'
    heading = f'<p class="about">{escape(", ".join(common))}</p>' if common else ""
    return f'{heading}<ol class="contrasts">{"".join(lines)}{axis}</ol>'
