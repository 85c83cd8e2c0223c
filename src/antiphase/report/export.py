"""A ledger for other tools: all rows as CSV and parquet, tables as Markdown and LaTeX, a leaderboard entry for each model."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyarrow import parquet

from antiphase import files
from antiphase.config import Budget
from antiphase.report.numbers import COLUMNS, columns_of, worth_noting

Row = dict[str, Any]
LATEX = str.maketrans({"%": r"\%", "_": r"\_", "&": r"\&", "#": r"\#", "<": "$<$", ">": "$>$", "λ": r"$\lambda$"})


def write_export(out: Path, rows: Sequence[Row], tables: Sequence[Row], verdicts: Sequence[Row]) -> list[str]:
    """The files written."""
    flat = [flattened(row) for row in rows]
    names = list(dict.fromkeys(name for row in flat for name in row))
    written = {
        "rows.csv": _csv(names, flat),
        "tables.md": "\n".join(markdown(table) for table in tables) + "\n" + _verdict_table(verdicts),
        "tables.tex": "\n".join(latex(table) for table in tables),
    }
    for name, text in written.items():
        files.write_text(out / name, text)
    columns = pa.table({name: _column([row.get(name) for row in flat]) for name in names})
    files.write_whole(out / "rows.parquet", lambda temporary: parquet.write_table(columns, temporary))
    files.write_json(out / "leaderboard.json", leaderboard(rows))
    files.write_json(out / "verdicts.json", list(verdicts))
    drawn = {f"fig1-{row['key']}": row["answer"] for row in rows if row["kind"] == "Looked"}
    if drawn:
        from antiphase.report.figures.figure1 import illustration
        from antiphase.report.figures.render import write_figures

        write_figures(out, {name: partial(illustration, look) for name, look in drawn.items()})
    every = (*written, "rows.parquet", "leaderboard.json", "verdicts.json", *(f"{name}.png" for name in drawn))
    return [str(out / name) for name in every]


# ------------------------------------------------------------------------------------------------- rows
def flattened(row: Row) -> Row:
    """One line a cell: everything that is a single value, by its path; what is a list stays in the ledger."""
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


# ------------------------------------------------------------------------------------------------- tables
def markdown(table: Row) -> str:
    lines = [f"### {table['title']}", "", f"Scale {table['scale']}.", "", _md(COLUMNS), _md(["---"] * len(COLUMNS))]
    lines += [_md(columns_of(line)) for line in table["lines"]]
    notes = [f"- {row['label']}, {row['reading']}: {row['note']}" for row in table["lines"] if worth_noting(row)]
    return "\n".join([*lines, "", *notes, ""])


def _md(texts: Iterable[str]) -> str:
    return f"| {' | '.join(text.replace('|', '/') for text in texts)} |"


def latex(table: Row) -> str:
    """A `tabular` with its caption."""
    body = [" & ".join(text.translate(LATEX) for text in texts) + r" \\" for texts in map(columns_of, table["lines"])]
    head = " & ".join(COLUMNS) + r" \\ \hline"
    caption = f"{table['title']} (scale {table['scale']})".translate(LATEX)
    opening = [r"\begin{table}", rf"\caption{{{caption}}}", rf"\begin{{tabular}}{{l{'r' * (len(COLUMNS) - 1)}}}"]
    return "\n".join([*opening, head, *body, r"\end{tabular}", r"\end{table}", ""])


def _verdict_table(verdicts: Sequence[Row]) -> str:
    head = ("claim", "says", "verdict", "why", "reading")
    rows = [(v["claim"], v["statement"], v["verdict"], v["why"], v["reading"] or "-") for v in verdicts]
    return "\n".join(["### Claims", "", _md(head), _md(["---"] * len(head)), *map(_md, rows), ""])


# ------------------------------------------------------------------------------------------------- leaderboard
def leaderboard(rows: Sequence[Row]) -> list[Row]:
    """Every attacked model in the shape of a RobustBench entry; `autoattack_acc` only where that very attack was run."""
    found, titles = [], {row["key"]: row["title"] for row in rows}
    for row in rows:
        if row["kind"] != "Attacked" or row["answer"]["eps"] is None:
            continue
        attack, rates = row["config"]["attack"], row["answer"]["rates"]
        whole = attack["kind"] == "AutoAttack" and (attack["steps"], attack["targets"]) == (100, 9)
        name, model = str(titles.get(row["needs"][0], row["title"])), row["config"]["of"]["model"]
        robust = f"{100 * rates['robust_accuracy']['value']:.2f}"
        found.append(
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
                "attack": attack["kind"],
                "images": rates["clean_accuracy"]["n"],
                "flags": row["answer"]["flags"],
            }
        )
    return found
