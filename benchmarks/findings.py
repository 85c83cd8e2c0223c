"""python -m benchmarks.findings: every number of the replication that a page quotes, written from the rows of its ledger.

A page says what it wants in a comment, and what stands between that and `<!-- end -->` is written here. A scale is named, or
narrowed to its first seeds (`paper/1`):

    <!-- finding fig2a cpu: DiffViT - ViT, cifar10, eps 1/255 @ asr_correct -->+15.7 points [+12.0, +19.5]<!-- end -->

finding     a line of a study by its label and reading: the value with its interval; `value`: without
matrix      a table of the paper: `matrix table1 cpu`
table       lines of a study side by side; `columns` and `rows` below it: LABEL @ READING = HEADING, with {} for the row
claims      the verdicts at a scale: `claims cpu`, or of some: `claims cpu: K1 K2`
outcomes    one row per claim, by the largest of these scales that decides it: `outcomes paper desk cpu`, or of some: `...: K`;
            below the table those that no scale decides yet
computing   what the rows of a scale took: `computing cpu`
minutes     what each study took whose cells are all there, beside its estimate: `minutes cpu`
figure      a figure of the paper for README.md, its picture and data in docs/figures: `figure fig2 cpu`

`--check` writes nothing and fails where a page says something else than the rows. Otherwise the rows are published too:
rows.parquet beside the ledger, and for each scale that decides a claim the page of `antiphase report`, with every table and
figure as files.
"""

from __future__ import annotations

import argparse
import os
import re
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from antiphase import files
from antiphase.api import report
from antiphase.config import InputError
from antiphase.console import duration
from antiphase.paper.catalog import studies
from antiphase.paper.claims import CLAIMS, verdicts
from antiphase.paper.grid import Grid
from antiphase.paper.ledger import Ledger
from antiphase.paper.questions import Train
from antiphase.paper.study import Answers, Prediction
from antiphase.report.export import write_rows
from antiphase.report.figures.paper_figures import FIGURES as PAPER_FIGURES
from antiphase.report.figures.paper_figures import paper_figure
from antiphase.report.figures.render import write_figure
from antiphase.report.numbers import interval_text, value_text
from antiphase.report.page_parts import Figure
from antiphase.report.paper_tables import markdown, paper_table
from antiphase.scales import SCALES, Scale
from benchmarks.replication import LEDGER

ROOT = Path(__file__).parents[1]
PAGES = ("README.md", "docs/*.md", "results/paper-pair/README.md", "results/replication/*.md")
FIGURES = ROOT / "docs" / "figures"
WANTED = re.compile(
    r"<!-- (finding|value|matrix|table|claims|outcomes|computing|minutes|figure) (.*?)\s?-->(.*?)<!-- end -->",
    re.DOTALL,
)
NOT_YET = "not computed yet"
LONGEST = 260  # letters of a reason in a column
UNDECIDED = ("not tested here", "no verdict")
Line = dict[str, Any]


@dataclass
class Source:
    """The lines and verdicts of a ledger, each study and scale read once."""

    ledger: Ledger
    tables: dict[tuple[str, str], list[Line]] = field(default_factory=dict)
    judged: dict[str, list[Line]] = field(default_factory=dict)

    @cached_property
    def answers(self) -> Answers:
        return Answers(self.ledger)

    def lines(self, study: str, scale: str) -> list[Line]:
        if (study, scale) not in self.tables:
            table = studies()[study].table(_grid(scale), self.answers)
            self.tables[study, scale] = [asdict(row) for row in table]
        return self.tables[study, scale]

    def line(self, study: str, scale: str, label: str, reading: str) -> Line:
        lines = self.lines(study, scale)
        found = [line for line in lines if (line["label"], line["reading"]) == (label, reading)]
        if len(found) != 1:
            there = sorted({line["label"] for line in lines})
            raise InputError(f"{study} at {scale} has {len(found)} lines {label!r} @ {reading!r}; labels: {there}")
        return found[0]

    def verdicts(self, scale: str) -> list[Line]:
        if scale not in self.judged:
            self.judged[scale] = verdicts(studies().values(), _grid(scale), self.answers)
        return self.judged[scale]

    def kinds(self, scale: str) -> dict[str, tuple[bool, bool]]:
        """Of each claim, whether it is about models of more than one layer, and whether only given weights can decide it."""
        listed: dict[str, list[Prediction]] = {claim: [] for claim in CLAIMS}
        for study in studies().values():
            for prediction in study.predictions(_grid(scale)):
                listed[prediction.claim].append(prediction)
        return {
            claim: (
                any(isinstance(cell, Train) and cell.model.depth > 1 for p in of for cell in p.cells),
                all(p.planned.surrogate for p in of),
            )
            for claim, of in listed.items()
        }


def _grid(scale: Any) -> Grid:
    """Of a scale by its name, or of its first seeds only: `paper/1`."""
    name, _, seeds = scale.partition("/")
    return Grid.at(name, seeds=int(seeds) if seeds else None)


# ------------------------------------------------------------------------------------------------- what a page may want


def value(source: Source, wanted: str) -> str:
    return _value(_line(source, wanted))


def finding(source: Source, wanted: str) -> str:
    line = _line(source, wanted)
    shown = interval_text(line["interval"], line["unit"])
    return _value(line) if line["value"] is None or shown == "-" else f"{_value(line)} {shown}"


def _line(source: Source, wanted: str) -> Line:
    place, _, asked = wanted.partition(":")
    label, _, reading = asked.rpartition("@")
    study, scale = place.split()
    return source.line(study, scale, label.strip(), reading.strip())


def _value(line: Line) -> str:
    if line["value"] is None:
        return line["text"] or NOT_YET
    return value_text(line["value"], line["unit"])


def matrix(source: Source, wanted: str) -> str:
    study, scale = wanted.split()
    grid = _grid(scale)
    table = paper_table(study, studies()[study].titled(grid), source.lines(study, scale))
    return f"\n{NOT_YET}\n" if table is None else f"\n{markdown(table)}"


def table(source: Source, wanted: str) -> str:
    """Without the unit in every cell: percent, or points where the heading says so."""
    place, *rest = wanted.splitlines()
    study, scale = place.split()
    named = dict(line.split(":", 1) for line in rest if line.strip())
    columns = [_headed(entry) for entry in named["columns"].split("|")]
    body = []
    for row, heading in (_headed(entry) for entry in named["rows"].split("|")):
        asked = (template.replace("{}", row).rpartition("@") for template, _ in columns)
        lines = [source.line(study, scale, label.strip(), reading.strip()) for label, _, reading in asked]
        body.append([heading, *map(_cell, lines)])
    return "\n" + _rows([["", *(heading for _, heading in columns)], ["---"] * (len(columns) + 1), *body])


def _headed(entry: str) -> tuple[str, str]:
    what, _, heading = entry.partition("=")
    return what.strip(), (heading or what).strip()


def _cell(line: Line) -> str:
    if line["value"] is None:
        return _value(line)
    number = _value(line).removesuffix(" %").removesuffix(" points")
    shown = interval_text(line["interval"], line["unit"])
    return number if shown == "-" else f"{number} {shown}"


def claims(source: Source, wanted: str) -> str:
    scale, _, only = wanted.partition(":")
    chosen = set(only.split())
    body = [
        [v["claim"], v["statement"], f"**{v['verdict']}**", _short(v["why"]), v["power"] or "-"]
        for v in source.verdicts(scale.strip())
        if not chosen or v["claim"] in chosen
    ]
    head = ["claim", "says", "verdict", "why", "power"]
    return "\n" + _rows([head, ["---"] * len(head), *body])


def _short(why: str) -> str:
    """Of what is missing, the first and how many more."""
    first, *more = why.split("; no row of ")
    return f"{first}, and {len(more)} more" if more else first


def outcomes(source: Source, wanted: str) -> str:
    """Of each claim whose name begins with these letters the verdict, the effect that it rests on, n, seeds, power, why, and what
    its scale has less of than the paper."""
    places, _, letters = wanted.partition(":")
    scales = places.split()
    by_claim = [dict(zip(scales, of)) for of in zip(*(source.verdicts(scale) for scale in scales))]
    chosen = [of for of in by_claim if of[scales[0]]["claim"].startswith(tuple(letters.split()) or "")]
    head = [
        "claim",
        "says",
        "outcome",
        "scale",
        "effect (95 % interval)",
        "n",
        "seeds",
        "power for 5 points",
        "why",
        "less",
    ]
    kinds = source.kinds(scales[-1])
    rows = [_outcome(of, *kinds[of[scales[0]]["claim"]]) for of in chosen]
    missing = defaultdict(list)
    for claim, says, outcome, *_, why, _less_of in rows:
        if outcome == f"**{NOT_YET}**":
            missing[why].append(f"**{claim}** ({says})")
    table = _rows([head, ["---"] * len(head), *(row for row in rows if row[2] != f"**{NOT_YET}**")])
    return "\n" + table + "".join(f"\n{NOT_YET.capitalize()}, {why}: {'; '.join(of)}.\n" for why, of in missing.items())


def _outcome(by_scale: dict[str, Line], deep: bool, outside: bool) -> list[str]:
    """By the largest scale that decides the claim, or none of it at which contrasts were measured that can decide; parts that a
    larger scale decides stand beside it."""
    measured = [name for name, v in by_scale.items() if v["verdict"] not in UNDECIDED]
    whole = next((name for name in measured if _deciding(by_scale[name])), measured[0] if measured else None)
    partly = [name for name, v in by_scale.items() if name != whole and _decided_parts(v)]
    larger = [name for name in partly if whole is None or list(by_scale).index(name) < list(by_scale).index(whole)]
    scale = whole or next(iter(larger), None)
    verdict = by_scale[scale or next(iter(by_scale))]
    parts = {} if whole else _decided_parts(verdict)
    words = (
        [f"**{verdict['verdict']}**"] if whole else [f"**{_listed(parts)}; the rest is not tested**"] if parts else []
    )
    words += [f"at `{name}`: {_listed(_decided_parts(by_scale[name]))}" for name in larger if name != scale]
    shown = [c for c in verdict["contrasts"] if c["reading"] == verdict["reading"] and c["value"] is not None]
    there = [c for c in shown if whole or c["part"] in parts] if scale else []
    deciding = [c for c in there if not c["shown_only"]]
    effect = _effect(deciding or there)
    if there and not deciding:
        effect[0] += ", shown only"
    return [
        verdict["claim"],
        verdict["statement"],
        "; ".join(words) or f"**{NOT_YET}**",
        scale or "-",
        *effect,
        _why(verdict["why"])
        if scale
        else "since it needs a published pair of CLIPs"
        if outside
        else "since rows are missing",
        _less(scale, deep) if scale else "-",
    ]


def _deciding(verdict: Line) -> list[Line]:
    """The contrasts of its first reading that may decide it."""
    of = [c for c in verdict["contrasts"] if c["reading"] == verdict["reading"] and not c["shown_only"]]
    return [c for c in of if c["value"] is not None]


def _decided_parts(verdict: Line) -> dict[str, str]:
    return {part: of["verdict"] for part, of in verdict["parts"].items() if of["verdict"] not in UNDECIDED}


def _listed(parts: dict[str, str]) -> str:
    return "; ".join(f"{part}: {outcome}" for part, outcome in parts.items())


REDUCED: dict[str, Callable[[Scale], object]] = {
    "images": lambda s: s.train_images,
    "width": lambda s: s.width,
    "epochs": lambda s: s.epochs,
    "depths": lambda s: s.depths,
    "test images": lambda s: s.eval_images,
}


def _less(scale: str, deep: bool) -> str:
    """What this scale has less of than the paper; results/replication/FINDINGS.md says what each could change."""
    here, there = (SCALES[name] for name in (scale, "paper"))  # type: ignore[index]
    listed = [name for name, of in REDUCED.items() if of(here) != of(there)]
    return ", ".join(name for name in listed if deep or name != "depths") or "nothing"


def _why(why: str) -> str:
    """Short enough for a column: of a long list its beginning, and all that follows it."""
    words = _short(why)
    if len(words) <= LONGEST:
        return words
    before, bracket, rest = words.partition("(")
    inside, closing, after = rest.rpartition(")") if bracket else (words, "", "")
    room = max(LONGEST - len(words) + len(inside), 60)
    listed = inside[:room].rpartition("; ")[0] or inside[:room]
    return f"{before if bracket else ''}{bracket}{listed}; and more{closing}{after}"


def _effect(contrasts: list[Line]) -> list[str]:
    """Smallest and largest value with their intervals, images, seeds, power."""
    if not contrasts:
        return ["-"] * 4
    by_size = sorted(contrasts, key=lambda c: float(c["value"]))
    ends = by_size if len(by_size) == 1 else [by_size[0], by_size[-1]]
    effect = " to ".join(f"{value_text(c['value'], c['unit'])} {interval_text(c['interval'], c['unit'])}" for c in ends)
    powers = sorted(c["power"] for c in contrasts if c["power"] is not None)
    power = " to ".join(f"{p:.2f}" for p in dict.fromkeys([*powers[:1], *powers[-1:]])) or "-"
    many = f" in {len(by_size)} contrasts" if len(by_size) > 1 else ""
    return [effect + many, *(_range([c[name] for c in contrasts]) for name in ("n", "seeds")), power]


def _range(values: list[int]) -> str:
    return str(min(values)) if min(values) == max(values) else f"{min(values)} to {max(values)}"


def computing(source: Source, wanted: str) -> str:
    """Hours of processors by kind of cell, and the threads and versions that they ran with."""
    spent: dict[str, list[float]] = defaultdict(list)
    for row in source.ledger.rows.entries():
        content = getattr(row, "content", {})
        if content.get("scale") == wanted.strip():
            spent[content["provenance"]["group"]].append(content["provenance"]["processor_seconds"])
    body = [[group, str(len(took)), duration(sum(took))] for group, took in sorted(spent.items())]
    everything = [took for of in spent.values() for took in of]
    body.append(["all", str(len(everything)), duration(sum(everything))])
    return "\n" + _rows([["cells", "how many", "processor time"], ["---"] * 3, *body])


def minutes(source: Source, wanted: str) -> str:
    """Minutes of two cores per study on an empty ledger: those estimated before (`study list`), and those that its cells took."""
    grid, body = _grid(wanted.strip()), []
    for name, study in studies().items():
        rows = [source.ledger.row(cell) for cell in study.cells(grid)]
        done = [row for row in rows if row is not None]
        if rows and len(done) == len(rows):
            took = sum(row["provenance"]["processor_seconds"] for row in done) / 60 / 2
            body.append([name, str(len(done)), f"{study.minutes:.0f}", f"{took:.0f}"])
    return "\n" + _rows([["study", "cells", "estimated", "took"], ["---"] * 4, *body])


def figure(source: Source, wanted: str) -> str:
    """A picture, whose alternative text has the numbers at the ends of its curves; `draw` makes its file."""
    name, scale = wanted.split()
    drawn = _figure(source, name, scale)
    return NOT_YET if drawn is None else f"\n\n![{drawn.title}. {drawn.alt}](docs/figures/{drawn.name}.png)\n\n"


def _figure(source: Source, name: str, scale: str) -> Figure | None:
    (asked,) = (figure for figure in PAPER_FIGURES if figure.name == name)
    return paper_figure(asked, {study: source.lines(study, scale) for study in asked.studies})


def draw(source: Source, text: str, folder: Path) -> None:
    """The pictures that a page wants, each with its data."""
    for kind, wanted, _ in WANTED.findall(text):
        if kind == "figure" and (drawn := _figure(source, *wanted.split())):
            write_figure(drawn, folder, forms=("png",))


def _rows(rows: list[list[str]]) -> str:
    return "\n".join(f"| {' | '.join(text.replace('|', '/') for text in row)} |" for row in rows) + "\n"


WRITERS: dict[str, Callable[[Source, str], str]] = {
    "finding": finding,
    "value": value,
    "matrix": matrix,
    "table": table,
    "claims": claims,
    "outcomes": outcomes,
    "computing": computing,
    "minutes": minutes,
    "figure": figure,
}


# ------------------------------------------------------------------------------------------------- pages


def rewritten(text: str, source: Source) -> str:
    """A page with everything that it wants written anew."""

    def write(match: re.Match[str]) -> str:
        kind, wanted, _ = match.groups()
        space = "\n" if "\n" in wanted else " "
        return f"<!-- {kind} {wanted}{space}-->{WRITERS[kind](source, wanted)}<!-- end -->"

    return WANTED.sub(write, text)


def pages() -> Iterator[Path]:
    for pattern in PAGES:
        yield from sorted(path for path in ROOT.glob(pattern) if WANTED.search(path.read_text(encoding="utf-8")))


def drifted(source: Source) -> dict[Path, str]:
    """Pages that say something else than the rows, with what they should say."""
    new = {page: rewritten(page.read_text(encoding="utf-8"), source) for page in pages()}
    return {page: text for page, text in new.items() if text != page.read_text(encoding="utf-8")}


def publish(source: Source) -> Iterator[Path]:
    """Every row in one table, and for each scale at which a claim is decided its page with the tables and figures: the files
    written."""
    ledger = source.ledger
    rows = list(ledger.readable())
    yield write_rows(ledger.folder, rows)
    for scale in sorted({row["scale"] for row in rows}):
        if any(verdict["verdict"] not in UNDECIDED for verdict in source.verdicts(scale)):
            here = Path(
                os.path.relpath(ledger.folder)
            )  # as the commands on the page name it: from the top of any clone
            yield report(here, scale=scale, out=ledger.folder / "report" / scale)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--ledger", type=Path, default=LEDGER)
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 where a page and the rows differ")
    asked = parser.parse_args()
    source = Source(Ledger(asked.ledger))
    changed = drifted(source)
    for page, text in changed.items():
        print(f"{page.relative_to(ROOT)}: {'differs from the rows' if asked.check else 'written'}")
        if not asked.check:
            draw(source, text, FIGURES)
            files.write_text(page, text)
    for path in () if asked.check else publish(source):
        print(f"{path.relative_to(ROOT)}: written")
    raise SystemExit(int(asked.check and bool(changed)))


if __name__ == "__main__":
    main()
