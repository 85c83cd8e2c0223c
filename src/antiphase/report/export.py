"""Results as files for other tools: what an attack or a measure wrote down, and a whole ledger.

An attack: attacks.json, images.jsonl, a figure. Measures: measures.json, the raw rows of each measure, a figure of each.
A ledger: all rows as CSV and parquet; the tables of the paper as matrices in Markdown, LaTeX and HTML and its figures as PDF
and PNG; every line of every study; verdicts; a leaderboard entry for each attacked model.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyarrow import parquet

from antiphase import files
from antiphase.attacks.question import AttackQuestion
from antiphase.config import Budget
from antiphase.console import say
from antiphase.report import paper_tables
from antiphase.report.numbers import COLUMNS, attack_text, columns_of, worth_noting
from antiphase.report.page_parts import Table, columns_of_lines
from antiphase.report.paper_tables import as_latex, paper_table
from antiphase.results.questions import BranchPictureQuestion

Row = dict[str, Any]
LINE_COLUMNS = ("study", "label", "reading", "value", "interval", "unit", "n", "seeds", "reference", "text", "note")


# ------------------------------------------------------------------------------------------------- an attack
def write_attacks(result: Row, folder: Path) -> None:
    """The result without its per-image columns as JSON, one line per image and budget, and the figure of success."""
    from antiphase.report.figures.attack import draw_attacks
    from antiphase.report.figures.render import write_figures

    cells = [{k: v for k, v in cell.items() if k != "images"} for cell in result["cells"]]
    shown = [{k: v for k, v in cell.items() if k != "images"} for cell in result.get("transfer", [])]
    files.write_json(
        folder / "attacks.json", {**result, "cells": cells, **({"transfer": shown} if shown else {})}, sealed=False
    )
    files.write_lines(folder / "images.jsonl", (row for cell in result["cells"] for row in _images(cell)), sealed=False)
    write_figures(folder, draw_attacks(result))
    say(f"rows and figures: {folder}")


def _images(cell: Row) -> Iterator[Row]:
    columns = {name: values for name, values in cell["images"].items() if name != "changed_in_run"}
    restarts = zip(*cell["images"]["changed_in_run"])
    for *values, changed in zip(*columns.values(), restarts):
        yield {"run": cell["run"], "eps": cell["eps"], **dict(zip(columns, values)), "changed_in_run": list(changed)}


# ------------------------------------------------------------------------------------------------- measures
def write_measures(result: Row, folder: Path, form: str) -> None:
    """The result without its rows as JSON, the rows of each measure as a table (parquet or jsonl), and a figure of each."""
    from antiphase.report.figures.measures import draw_measures
    from antiphase.report.figures.render import write_figures

    plain = {name: _without_rows(value) for name, value in result.items()}
    files.write_text(folder / "measures.json", json.dumps(plain, indent=2, allow_nan=False) + "\n")
    for name, columns in raw_rows(result).items():
        path = folder / f"{name}.{form}"
        if form == "parquet":
            _write_parquet(path, pa.table(columns))
        else:
            names = list(columns)
            files.write_lines(path, (dict(zip(names, values)) for values in zip(*columns.values())), sealed=False)
    write_figures(folder, draw_measures(result))
    say(f"rows and figures: {folder}")


def _without_rows(value: Any) -> Any:
    return [{k: v for k, v in cell.items() if k != "rows"} for cell in value] if isinstance(value, list) else value


def raw_rows(result: Row) -> dict[str, dict[str, list[Any]]]:
    """The raw rows of each measure over all its cells, as columns; None where a cell has no such column."""
    tables = {}
    for measure, value in result.items():
        cells = [cell for cell in value if "rows" in cell] if isinstance(value, list) else []
        names = list(dict.fromkeys(name for cell in cells for name in (*_labels(cell), *cell["rows"])))
        columns: dict[str, list[Any]] = {name: [] for name in names}
        for cell in cells:
            labels, n = _labels(cell), len(cell["rows"]["image"])
            for name in names:
                columns[name] += cell["rows"].get(name, [labels.get(name)] * n)
        if cells:
            tables[measure] = columns
    return tables


def _labels(cell: Row) -> Row:
    """What tells the rows of one cell from those of another."""
    return {name: cell[name] for name in ("run", "estimator", "reading", "seed") if name in cell}


def _write_parquet(path: Path, table: Any) -> None:
    files.write_whole(path, lambda temporary: parquet.write_table(table, temporary))


# ------------------------------------------------------------------------------------------------- a ledger
def write_export(out: Path, rows: Sequence[Row], tables: Sequence[Row], verdicts: Sequence[Row]) -> list[str]:
    """The files written: every row, every line, the tables and figures of the paper, every verdict, a leaderboard."""
    flat = [flattened(row) for row in rows]
    names = _names(flat)
    matrices = {table["name"]: paper_table(table["name"], table["title"], table["lines"]) for table in tables}
    texts = {
        "rows.csv": _csv(names, flat),
        "lines.csv": _lines_csv(tables),
        "tables.md": "\n".join(_text(table, matrices, paper_tables.markdown, markdown) for table in tables)
        + f"\n{_verdict_table(verdicts)}",
        "tables.tex": "\n".join(_text(table, matrices, paper_tables.latex, latex) for table in tables),
    }
    for name, text in texts.items():
        files.write_text(out / name, text)
    write_rows(out, rows)
    files.write_json(out / "leaderboard.json", leaderboard(rows), sealed=False)
    files.write_json(out / "verdicts.json", list(verdicts), sealed=False)
    pictures = [row for row in rows if row["kind"] == BranchPictureQuestion.kind]
    written = [*texts, "rows.parquet", "leaderboard.json", "verdicts.json", *_write_pictures(out, pictures)]
    written += [*_write_matrices(out, matrices), *_write_paper_figures(out, tables)]
    return [str(out / name) for name in written]


def write_rows(out: Path, rows: Sequence[Row]) -> Path:
    """rows.parquet: one line per cell, with its config, its answer's single values and what it was computed with."""
    flat, path = [flattened(row) for row in rows], out / "rows.parquet"
    _write_parquet(path, pa.table({name: _column([row.get(name) for row in flat]) for name in _names(flat)}))
    return path


def _names(flat: Sequence[Row]) -> list[str]:
    return list(dict.fromkeys(name for row in flat for name in row))


def _text(
    table: Row, matrices: Mapping[str, Table | None], of_matrix: Callable[[Table], str], of_lines: Callable[[Row], str]
) -> str:
    """A table of the paper as a matrix, the table of another study line by line."""
    matrix = matrices[table["name"]]
    return of_lines(table) if matrix is None else of_matrix(matrix)


def _lines_csv(tables: Sequence[Row]) -> str:
    """Every line of every study, unrounded and under the keys of its readings."""
    lines = [{**line, "study": table["name"]} for table in tables for line in table["lines"]]
    columns = columns_of_lines(lines, LINE_COLUMNS)
    return _csv(list(columns), [dict(zip(columns, values)) for values in zip(*columns.values())])


def _write_matrices(out: Path, matrices: Mapping[str, Table | None]) -> list[str]:
    """table1.md, table1.tex, table1.html and so on; the names of the files."""
    from antiphase.report.page import write_matrix

    there = {name: matrix for name, matrix in matrices.items() if matrix is not None}
    return [file for name, matrix in there.items() for file in write_matrix(replace(matrix, name=name), out)]


def _write_paper_figures(out: Path, tables: Sequence[Row]) -> list[str]:
    """fig2.pdf, fig2.png, fig2.csv and so on, and figures of our own studies, as far as they have numbers; names of the files."""
    from antiphase.report.figures.own_studies import OF_STUDY
    from antiphase.report.figures.paper_figures import FIGURES, paper_figure
    from antiphase.report.figures.render import FORMS, write_figure

    lines, names = {table["name"]: table["lines"] for table in tables}, []
    drawn = {figure.name: paper_figure(figure, lines) for figure in FIGURES}
    drawn |= {name: draw(name, lines[name]) for name, draw in OF_STUDY.items() if name in lines}
    for name, figure in drawn.items():
        if figure is not None:
            write_figure(replace(figure, name=name), out)
            names += [f"{name}.{form}" for form in (*FORMS, "csv")]
    return names


def _write_pictures(out: Path, rows: Sequence[Row]) -> list[str]:
    """Figure 1 of each row, and the names of its files."""
    if not rows:
        return []
    from antiphase.report.figures.figure1 import figure1
    from antiphase.report.figures.render import FORMS, write_figure

    names = [f"fig1-{row['key']}" for row in rows]
    for name, row in zip(names, rows):
        write_figure(figure1(name, row["answer"]), out)
    return [f"{name}.{form}" for name in names for form in (*FORMS, "csv")]


def flattened(row: Row) -> Row:
    """One line per cell: everything that is a single value, by its path; what is a list stays in the ledger."""
    flat = {name: row[name] for name in ("key", "kind", "title", "scale")}
    for part in ("config", "answer", "provenance"):
        flat |= dict(_leaves(row[part], part))
    return flat


def _leaves(value: Any, path: str) -> Iterable[tuple[str, Any]]:
    if isinstance(value, dict):
        for name, inner in value.items():
            yield from _leaves(inner, f"{path}.{name}")
    elif isinstance(value, list):
        if len(value) == 1:
            yield from _leaves(value[0], path)
        elif len(value) == 2 and all(isinstance(v, int | float) for v in value):  # an interval
            yield from ((f"{path}.{end}", v) for end, v in zip(("low", "high"), value))
    else:
        yield path, value


def _csv(names: Sequence[str], rows: Sequence[Row]) -> str:
    text = io.StringIO()
    writer = csv.DictWriter(text, names, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def _column(values: list[Any]) -> Any:
    """Of one type; where a name stands for numbers here and words there, words."""
    kinds = {type(v) for v in values if v is not None}
    if kinds <= {int, float} and kinds != {int}:
        return pa.array([None if v is None else float(v) for v in values], pa.float64())
    return pa.array(values if len(kinds) <= 1 else [None if v is None else str(v) for v in values])


def markdown(table: Row) -> str:
    """A heading, the table, and below it what its lines note."""
    lines = [f"### {table['title']}", "", f"Scale {table['scale']}.", "", _md(COLUMNS), _md(["---"] * len(COLUMNS))]
    lines += [_md(columns_of(line)) for line in table["lines"]]
    notes = [f"- {row['label']}, {row['reading']}: {row['note']}" for row in table["lines"] if worth_noting(row)]
    return "\n".join([*lines, "", *notes, ""])


def _md(texts: Iterable[str]) -> str:
    return f"| {' | '.join(text.replace('|', '/') for text in texts)} |"


def latex(table: Row) -> str:
    """A `tabular` with its caption and booktabs' rules."""
    body = [" & ".join(map(as_latex, texts)) + r" \\" for texts in map(columns_of, table["lines"])]
    head = " & ".join(COLUMNS) + r" \\"
    caption = as_latex(f"{table['title']} (scale {table['scale']})")
    opening = [r"\begin{table}", rf"\caption{{{caption}}}", rf"\begin{{tabular}}{{l{'r' * (len(COLUMNS) - 1)}}}"]
    rules = [r"\toprule", head, r"\midrule", *body, r"\bottomrule"]
    return "\n".join([*opening, *rules, r"\end{tabular}", r"\end{table}", ""])


def _verdict_table(verdicts: Sequence[Row]) -> str:
    head = ("claim", "says", "verdict", "why", "reading")
    rows = [(v["claim"], v["statement"], v["verdict"], v["why"], v["reading"] or "-") for v in verdicts]
    return "\n".join(["### Claims", "", _md(head), _md(["---"] * len(head)), *map(_md, rows), ""])


def leaderboard(rows: Sequence[Row]) -> list[Row]:
    """Every attacked model in the shape of a RobustBench entry; `autoattack_acc` only where that very attack was run."""
    entries, titles = [], {row["key"]: row["title"] for row in rows}
    for row in rows:
        if row["kind"] != AttackQuestion.kind or row["answer"]["eps"] is None:
            continue
        attack, rates = row["config"]["question"]["attack"], row["answer"]["rates"]
        whole = attack["kind"] == "AutoAttack" and (attack["steps"], attack["targets"]) == (100, 9)
        name, model = str(titles.get(row["needs"][0], row["title"])), row["config"]["of"]["model"]
        robust = f"{100 * rates['robust_accuracy']['value']:.2f}"
        entries.append(
            {
                "link": None,
                "name": name,
                "authors": None,
                "venue": None,
                "additional_data": False,
                "number_forward_passes": "1",
                "dataset": row["config"]["images"]["data"],
                "threat_model": attack["within"]["kind"],
                "architecture": f"{name.split(',')[0]}, depth {model.get('vision', model)['depth']}",
                "eps": str(Budget(row["answer"]["eps"])),
                "clean_acc": f"{100 * rates['clean_accuracy']['value']:.2f}",
                "reported": robust,
                "autoattack_acc": robust if whole and attack["version"] == "standard" else None,
                "attack": attack_text(attack),
                "images": rates["clean_accuracy"]["n"],
                "flags": row["answer"]["flags"],
            }
        )
    return entries
