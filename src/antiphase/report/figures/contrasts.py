"""The contrasts of a verdict as a row of intervals about zero: SVG text in the colours of the page."""

from __future__ import annotations

from html import escape

from antiphase.measures.stats import Contrast, Verdict
from antiphase.report.numbers import scaled
from antiphase.report.sentences import contrast_words

WIDTH, ROW, AXIS = 320, 22, 24  # of a drawing, a line and the axis beneath them
PAD = 14


def forest(verdict: Verdict) -> str:
    """One drawing per unit; nothing where there is nothing to draw."""
    units = dict.fromkeys(c.unit for c in verdict.contrasts if c.value is not None)
    return "".join(
        _one([c for c in verdict.contrasts if c.unit == unit and c.value is not None], unit) for unit in units
    )


def _one(contrasts: list[Contrast], unit: str) -> str:
    ends = [scaled(end, unit) for c in contrasts for end in (c.value or 0.0, *(c.interval or ()))]
    reach = max(max(map(abs, ends)), 1e-9) * 1.05
    scale = (WIDTH / 2 - PAD) / reach
    height = ROW * len(contrasts) + AXIS

    def at(value: float) -> float:  # in the unit of the axis
        return float(round(WIDTH / 2 + scale * value, 1))

    lines = [f'<line class="zero" x1="{at(0)}" x2="{at(0)}" y1="2" y2="{height - AXIS + 4}"/>']
    for i, contrast in enumerate(contrasts):
        y = ROW * i + ROW / 2 + 2
        if contrast.interval is not None:
            low, high = (scaled(end, unit) for end in contrast.interval)
            lines.append(f'<line class="range" x1="{at(low)}" x2="{at(high)}" y1="{y}" y2="{y}"/>')
        lines.append(f'<circle cx="{at(scaled(contrast.value or 0.0, unit))}" cy="{y}" r="4.5"/>')
    for value, x, anchor in ((-reach / 1.05, PAD, "start"), (0.0, at(0), "middle"), (reach / 1.05, WIDTH - PAD, "end")):
        tick = f"{value:+.2g}" if value else f"0 {unit}".strip()
        lines.append(f'<text x="{x}" y="{height - 5}" text-anchor="{anchor}">{escape(tick)}</text>')
    label = escape("; ".join(contrast_words(c) for c in contrasts), quote=True)
    box = f'viewBox="0 0 {WIDTH} {height}"'
    names = "".join(f"<li>{escape(contrast_words(c))}</li>" for c in contrasts)
    drawing = f'<svg class="forest" role="img" aria-label="{label}" {box}>{"".join(lines)}</svg>'
    return f'<div class="forests">{drawing}<ol class="contrasts">{names}</ol></div>'
