"""A ledger of studies as a page: verdicts, then what was run in the order of the paper, then commands for the rest."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from antiphase.config import InputError
from antiphase.files import Damaged
from antiphase.measures.stats import Contrast, Verdict
from antiphase.paper.catalog import studies
from antiphase.paper.claims import verdicts
from antiphase.paper.grid import Grid
from antiphase.paper.ledger import Ledger
from antiphase.paper.ledger_index import Summary
from antiphase.paper.questions import Ask
from antiphase.paper.study import MODELS, Answers, Study
from antiphase.paper.titles import data_name
from antiphase.report.figures.figure1 import figure1
from antiphase.report.figures.own_studies import OF_STUDY
from antiphase.report.figures.paper_figures import FIGURES, PLACES, PaperFigure, paper_figure
from antiphase.report.figures.study import study_figure
from antiphase.report.page_parts import Commands, Figure, Model, Page, Section, Slot, Table, study_table
from antiphase.report.pages.cards import command
from antiphase.report.paper_tables import SUBJECTS, paper_table
from antiphase.report.sentences import headline
from antiphase.report.words import label_words
from antiphase.results.questions import BranchPictureQuestion
from antiphase.scales import SCALES, ScaleName
from antiphase.store import read_entry

Row = dict[str, Any]
Missing = tuple[str, str]  # what was not run, and the command that runs it
IN_THE_PAPER = ("fig1", "fig2", "table1", "fig3", "fig4", "fig5", "table2", "table3", "fig6")  # its order


def ledger_page(
    folder: Path,
    scale: ScaleName | None = None,
    data: str | None = None,
    begin: Callable[[Figure], None] = lambda _: None,
) -> Page:
    """Every claim with its verdict, the lens, a section per study that was run, and a line per study that was not. `begin` is
    called with each figure as soon as it is known."""
    ledger = Ledger(folder)
    rows = ledger.summaries()
    chosen: ScaleName = scale or _scale_of(rows)
    grid, answers = Grid.at(chosen, data), Answers(ledger)
    mine = [row for row in rows if row.scale == chosen]
    finished, made = len(mine), _made(mine)
    damage = [row.damage for row in rows if row.damage is not None]
    pair = [grid.vit(0).key, grid.diffvit(0).key]
    looks = _looks(folder, sorted(mine, key=lambda row: row.key not in pair))
    no_lens = (
        []
        if looks
        else [("The lens: attention maps of images, clean and attacked", _look_command(folder, pair, chosen))]
    )
    del rows, mine  # of a large ledger some 100 MB, which its answers can have now
    sections, missing = _sections(grid, answers, folder, begin)
    decided = _decided(grid, answers)
    return Page(
        title="Differential attention under attack",
        lede=f"The papers' claims, tables and figures beside our own runs: {data_name(grid.data)}, scale {chosen}, "
        f"{finished:,} finished cells.",
        headline=_headline(grid, decided),
        findings=tuple(f"A row cannot be read: {sentence}" for sentence in damage),
        verdicts=decided,
        models=tuple(Model(name=name, title="") for name in MODELS[:2]),
        places=PLACES,
        looks=looks,
        sections=(*sections, *_not_run([*missing, *no_lens])),
        made=made,
        source=str(folder),
    )


def _scale_of(rows: list[Summary]) -> ScaleName:
    """The scale with most rows; an empty ledger is shown at the scale of a laptop."""
    counts = Counter(row.scale for row in rows if row.scale in SCALES)
    return counts.most_common(1)[0][0] if counts else "cpu"


# ------------------------------------------------------------------------------------------------- verdicts
def _decided(grid: Grid, answers: Answers) -> tuple[Verdict, ...]:
    if grid.s.accuracy_floor is None:  # a scale for tests
        return ()
    try:
        return tuple(verdict_of(row) for row in verdicts(list(studies().values()), grid, answers))
    except Damaged:
        return ()  # the row is named among the findings


def verdict_of(row: Row) -> Verdict:
    """A row of paper/claims.py as a verdict whose contrasts are those of the reading that decides."""
    deciding = [c for c in row["contrasts"] if c["reading"] == row["reading"] and c["value"] is not None]
    contrasts = tuple(_contrast_of(contrast) for contrast in deciding)
    return Verdict(
        outcome=row["verdict"],
        why=label_words(row["why"]),
        claim=row["claim"],
        statement=label_words(row["statement"]),
        contrasts=contrasts,
        power=row["power"],
    )


def _contrast_of(row: Row) -> Contrast:
    return Contrast(
        name=label_words(row["name"]),
        value=row["value"],
        interval=None if row["interval"] is None else (row["interval"][0], row["interval"][1]),
        unit=row["unit"],
        n=row["n"],
        seeds=row["seeds"],
        correct=row["right"],
        surrogate=row["surrogate"],
        needs=row["shown_only"] or "",
    )


def _headline(grid: Grid, decided: tuple[Verdict, ...]) -> str:
    if grid.s.accuracy_floor is None:
        return f"No verdicts: the {grid.scale} scale is for tests. The numbers below show that everything runs, and no more."
    return headline(decided)


# ------------------------------------------------------------------------------------------------- studies
@dataclass(frozen=True, kw_only=True)
class Shown:
    """What the ledger has of one study."""

    study: Study
    title: str
    command: str  # that does the rest
    lines: list[Row]
    failed: list[str]
    cells: int
    done: int
    damaged: str = ""

    @property
    def empty(self) -> bool:
        return (
            not self.failed
            and not self.damaged
            and all(line["value"] is None and not line["text"] for line in self.lines)
        )

    @property
    def heading(self) -> str:
        return _capital(label_words(self.title))

    @property
    def rest(self) -> Table | Slot:
        """All its lines, for readers who ask for them; or what is wrong with a row that they need."""
        name = self.study.name
        if self.damaged:
            return Slot(study=self.heading, command=self.command, why=self.damaged)
        title = f"{self.heading}: all lines"
        table = study_table(name, title, self.lines, failed=self.failed, folded=True)
        if self.done == self.cells:
            return table
        return replace(table, note=f"{self.done} of {self.cells} cells are there. The rest:", command=self.command)

    @property
    def missing(self) -> Missing:
        """One line of the list of what was not run."""
        return self.heading + (f" ({self.done} of {self.cells} cells)" if self.done else ""), self.command


def _sections(
    grid: Grid, answers: Answers, folder: Path, begin: Callable[[Figure], None]
) -> tuple[list[Section], list[Missing]]:
    """A section for each table and figure of the paper that was run, in its order, then for each other study; what was not."""
    listed = studies()
    figures = {figure.name: figure for figure in FIGURES}
    inside = {name for figure in FIGURES for name in figure.studies}
    others = [name for name in listed if name not in inside and name not in IN_THE_PAPER]
    sections: list[Section] = []
    missing: list[Missing] = []
    for name in (*IN_THE_PAPER, *others):
        names = figures[name].studies if name in figures else (name,)
        of = [_shown(listed[study], grid, answers, folder) for study in names]
        there = [one for one in of if not one.empty]
        section = _figure_section(figures[name], there) if name in figures else _section(of[0], grid, answers)
        for figure in [] if section is None else section.figures:
            begin(figure)
        sections += [] if section is None else [section]
        missing += [one.missing for one in of if section is None or one.empty]
    return sections, missing


def _not_run(missing: list[Missing]) -> list[Section]:
    if not missing:
        return []
    return [
        Section(
            name="not-run",
            title="Not run yet",
            note="Each is filled by its command.",
            parts=(Commands(lines=tuple(missing)),),
        )
    ]


def _shown(study: Study, grid: Grid, answers: Answers, folder: Path) -> Shown:
    fill = command("study run", [study.name], f"--scale {grid.scale} --ledger {shlex.quote(str(folder))}")
    cells = study.cells(grid)
    done = sum(answers.ledger.has(cell) for cell in cells)
    failures = [(cell.title, answers.ledger.failure(cell)) for cell in cells]
    lines: list[Row] = []
    damaged = ""
    try:
        lines = [asdict(row) for row in study.table(grid, answers)]
    except Damaged as error:
        damaged = str(error)
    return Shown(
        study=study,
        title=study.titled(grid),
        command=fill,
        lines=lines,
        failed=[f"{title}: {failure['error']}" for title, failure in failures if failure is not None],
        cells=len(cells),
        done=done,
        damaged=damaged,
    )


def _figure_section(figure: PaperFigure, there: list[Shown]) -> Section | None:
    """The whole figure of the paper as far as its studies were run, and their lines; none where there is nothing to draw."""
    drawn = paper_figure(figure, {one.study.name: one.lines for one in there})
    if drawn is None and not any(one.failed or one.damaged for one in there):
        return None
    caption = _capital("; ".join(_panel(figure, one) + one.heading.partition(": ")[2] for one in there if one.lines))
    best = [] if drawn is None else [replace(drawn, title="", note=f"{caption}. {drawn.note}")]
    note = label_words(" ".join(one.study.question for one in there))
    parts = (*best, *(one.rest for one in there))
    short = figure.title.partition(":")[0]
    return Section(name=f"study-{figure.name}", title=figure.title, note=note, parts=parts, short=short)


def _capital(words: str) -> str:
    """With a capital letter where it begins with a word, and not with λ."""
    return words[:1].upper() + words[1:] if words[:1].isascii() else words


def _panel(figure: PaperFigure, of: Shown) -> str:
    """The letter of a study that is one panel of a figure: fig2c is (c)."""
    letter = of.study.name.removeprefix(figure.name)
    return f"({letter}) " if len(letter) == 1 else ""


def _section(of: Shown, grid: Grid, answers: Answers) -> Section | None:
    if of.empty:
        return None
    study = of.study
    best = paper_table(study.name, of.heading, of.lines) or _figure(study, grid, answers, of.lines)
    title = SUBJECTS.get(study.name, of.heading)
    return Section(
        name=f"study-{study.name}",
        title=title,
        note=label_words(study.question),
        parts=(*([] if best is None else [best]), of.rest),
        short=title.partition(":")[0],
    )


def _figure(study: Study, grid: Grid, answers: Answers, lines: list[Row]) -> Figure | None:
    """Pictures where the study looked at one image, a figure of its own where it has one, else its numbers."""
    for cell in study.cells(grid):
        if isinstance(cell, Ask) and isinstance(cell.question, BranchPictureQuestion) and answers.ledger.has(cell):
            return figure1(f"{study.name}-figure", answers(cell))
    if study.name in OF_STUDY:
        return OF_STUDY[study.name](f"{study.name}-figure", lines)
    return study_figure(f"{study.name}-figure", lines, PLACES)


def _looks(folder: Path, rows: list[Summary]) -> tuple[tuple[str, Row], ...]:
    """The latest look of each trained model that somebody has shown images to."""
    looks = []
    for row in rows:
        kept = sorted((folder / "runs" / row.key / "looks").glob("*.json"), key=lambda p: p.stat().st_mtime)
        if kept:
            try:
                looks.append((row.title, read_entry(kept[-1], bare=True).content))
            except InputError:
                continue  # a look is no row of the ledger: it is made again by the command that the slot names
    return tuple(looks)


def _look_command(folder: Path, keys: list[str], scale: ScaleName) -> str:
    return command("look", [folder / "runs" / key for key in keys], f"--scale {scale}")


def _made(rows: list[Summary]) -> tuple[tuple[str, str], ...]:
    costs = [row.provenance for row in rows if row.provenance]
    if not costs:
        return ()
    newest = max(costs, key=lambda cost: str(cost["began"]))
    data = sorted({f"{name} {digest}" for cost in costs for name, digest in dict(cost["data"]).items()})
    hours = sum(cost["seconds"] for cost in costs) / 3600
    return (
        ("cells", f"{len(rows)}, {hours:.2f} hours"),
        ("last begun", str(newest["began"])),
        *(("data", entry) for entry in data[:8]),
        *((name, str(version)) for name, version in newest["environment"]["versions"].items()),
        ("machine", str(newest["machine"]["platform"])),
    )
