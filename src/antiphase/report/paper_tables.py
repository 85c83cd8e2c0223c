"""Tables 1, 2 and 3 as the paper prints them: a matrix, the paper's row above ours, intervals in small print.

A matrix is described once, as a `Table` of page_parts with columns and rows in blocks, from the lines of its study
(paper/study.py). It is written three times: as HTML by the template of pages, as Markdown and as LaTeX here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from antiphase.paper.titles import listed
from antiphase.report.numbers import scaled
from antiphase.report.page_parts import Column, Table, Value, column_groups
from antiphase.report.words import reading_words

Row = Mapping[str, Any]  # a line of a study
Block = list[tuple[str, list[Value]]]  # rows of one subject: whose numbers they are, and the numbers
Layout = tuple[list[Column], dict[str, Block]]  # the columns, and a block for each subject
NOTHING = Value("–")
PAPER = "paper"
LATEX = str.maketrans(
    {"%": r"\%", "_": r"\_", "&": r"\&", "#": r"\#", "<": "$<$", ">": "$>$", "λ": r"$\lambda$", "ε": r"$\varepsilon$"}
    | {"–": "--", "−": "$-$"}
)


def paper_table(name: str, title: str, lines: Sequence[Row]) -> Table | None:
    """The matrix of a study; None where the paper prints none, or no number is there yet."""
    if name not in LAYOUTS or all(line["value"] is None for line in lines):
        return None
    columns, blocks = LAYOUTS[name](lines)
    rows: list[tuple[Value, ...]] = []
    starts = []
    for subject, block in blocks.items():
        there = [(whose, values) for whose, values in block if any(value != NOTHING for value in values)]
        starts += [len(rows)] if there else []
        first = [subject, *[""] * (len(there) - 1)]
        rows += [(Value(stub), Value(whose), *values) for stub, (whose, values) in zip(first, there)]
    stub = (Column(title="what", words=True), Column(title="whose", words=True))
    return Table(
        name=f"{name}-matrix",
        title=title,
        columns=(*stub, *columns),
        rows=tuple(rows),
        starts=tuple(starts),
        note=_note(lines),
    )


# ------------------------------------------------------------------------------------------------- what stands where
def _table1(lines: Sequence[Row]) -> Layout:
    """A column for each lambda_init; accuracy and attack success, and below both with the gain fixed."""
    places = list(dict.fromkeys(line["x"] for line in lines))
    blocks: dict[str, Block] = {}
    for details in dict.fromkeys(tuple(line["details"]) for line in lines):
        mine = [line for line in lines if tuple(line["details"]) == details]
        with_ = "".join(f", {detail}" for detail in details)
        for subject, readings in {"accuracy": ACCURACY, "attack success": SUCCESS, "λ after training": LAMBDA}.items():
            across = {reading: [_line(mine, reading=reading, x=x) for x in places] for reading in readings}
            blocks[subject + with_] = _block(across)
    return [Column(title=f"{x:g}", group="λ_init") for x in places], blocks


def _table2(lines: Sequence[Row]) -> Layout:
    """Columns: accuracy, and attack success by each patch and at each budget. A block for either model and their difference."""
    places = list(dict.fromkeys((line["axis"], line["x"]) for line in lines if line["axis"]))
    words = {"patch": "patch width (pixels)", "eps": "PGD budget ε (/255)"}
    blocks = {}
    for name in ("DiffViT", "ViT", "DiffViT - ViT"):
        mine = [line for line in lines if name in (line["model"], *line["details"])]
        across = {reading: [_line(mine, reading=reading, axis=axis, x=x) for axis, x in places] for reading in SUCCESS}
        blocks[name.replace(" - ", " − ")] = _after_accuracy(mine, across)
    return [*ACCURACY_COLUMNS, *(Column(title=f"{x:g}", group=words[axis]) for axis, x in places)], blocks


def _table3(lines: Sequence[Row]) -> Layout:
    """Columns: accuracy, and attack success at each budget. A block for the vanilla model and for each training."""
    places = list(dict.fromkeys(line["x"] for line in lines if line["axis"] == "attacked at"))
    blocks: dict[str, Block] = {}
    for details in dict.fromkeys(tuple(line["details"]) for line in lines):
        mine = [line for line in lines if tuple(line["details"]) == details]
        across = {
            reading: [_line(mine, reading=reading, axis="attacked at", x=x) for x in places] for reading in SUCCESS
        }
        blocks[", ".join(details)] = _after_accuracy(mine, across)
    return [*ACCURACY_COLUMNS, *(Column(title=f"{x:g}", group="attack success at ε (/255)") for x in places)], blocks


def _after_accuracy(lines: Sequence[Row], readings: Mapping[str, Sequence[Row | None]]) -> Block:
    """Rows of attack success, with accuracy in front of the paper's row and of our first one."""
    test, train = (_line(lines, reading=reading) for reading in ACCURACY)
    (paper, printed), (whose, measured), *rest = _block(readings)
    return [
        (paper, [_printed(test), NOTHING, *printed]),  # the paper says accuracy and means that on test images
        (whose, [_measured(test), _measured(train), *measured]),
        *((other, [NOTHING, NOTHING, *values]) for other, values in rest),
    ]


ACCURACY_COLUMNS = tuple(Column(title=split, group="accuracy") for split in ("test", "train"))
SUBJECTS = {
    "table1": "Table 1: how strongly the second map is subtracted",
    "table2": "Table 2: larger images",
    "table3": "Table 3: adversarial training",
}
LAYOUTS: dict[str, Callable[[Sequence[Row]], Layout]] = {"table1": _table1, "table2": _table2, "table3": _table3}
ACCURACY = ("test_accuracy", "train_accuracy")
SUCCESS = ("asr_change", "asr_correct", "asr_change, on train images")
LAMBDA = ("lambda after training",)
OURS = {
    **{reading: f"ours, {reading_words(reading).removeprefix('attack success, ')}" for reading in SUCCESS},
    **{reading: f"ours, {reading_words(reading).removesuffix(' accuracy')}" for reading in ACCURACY},
    **dict.fromkeys(LAMBDA, "ours"),
}


def _line(lines: Iterable[Row], **wanted: Any) -> Row | None:
    return next((line for line in lines if all(line[key] == value for key, value in wanted.items())), None)


def _block(readings: Mapping[str, Sequence[Row | None]]) -> Block:
    """The paper's numbers of the first reading, then ours of each."""
    first = next(iter(readings.values()))
    block = [(PAPER, [_printed(line) for line in first])]
    return block + [(OURS[reading], [_measured(line) for line in across]) for reading, across in readings.items()]


def _printed(line: Row | None) -> Value:
    number = None if line is None else line["reference"]
    return Value(_number(number, line["unit"])) if line is not None and isinstance(number, float) else NOTHING


def _measured(line: Row | None) -> Value:
    if line is None or line["value"] is None:
        return NOTHING
    ends = [] if line["interval"] is None else [_number(end, line["unit"]) for end in line["interval"]]
    return Value(_number(line["value"], line["unit"]), small=f"[{', '.join(ends)}]" if ends else "")


def _number(value: float, unit: str) -> str:
    """A share in percent with one decimal, a difference of shares with its sign; what has no unit with three decimals."""
    if unit == "points":
        return f"{scaled(value, unit):+.1f}"
    return f"{scaled(value, unit):.1f}" if unit else f"{value:.3f}"


def _note(lines: Sequence[Row]) -> str:
    """What the numbers are and how many images and seeds they rest on, as the lines state it."""
    there = [line for line in lines if line["value"] is not None]
    clean = [line for line in there if line["reading"] in ACCURACY[:1]]
    attacked = [line for line in there if line["reading"] in SUCCESS]
    counted = [
        f"{what} on {listed(f'{n:,}' for n in sorted({line['n'] for line in of}))} images"
        for what, of in (("test accuracy", clean), ("attacks", attacked))
        if of
    ]
    seeds = sorted({line["seeds"] for line in there if line["seeds"]})
    over = f"means over {listed(seeds)} seed{'s' * (seeds != [1])}"
    printed = any(isinstance(line["reference"], float) for line in lines)
    paper = "" if printed else " The paper's numbers are of another experiment and are left out."
    missing = f" {NOTHING.text}: not measured." if any(line["value"] is None for line in lines) else ""
    points = ", differences in points" * any(line["unit"] == "points" for line in there)
    return f"In percent{points}; 95 % intervals in brackets. Ours: {over}, {', '.join(counted)}.{paper}{missing}"


# ------------------------------------------------------------------------------------------------- as text
def markdown(table: Table) -> str:
    """A heading, the matrix with intervals in small print, and its note."""
    heads, group = [], ""
    for column in table.columns:
        heads.append(f"{column.group}: {column.title}" if column.group not in ("", group) else column.title)
        group = column.group
    rules = [":---" if column.words else "---:" for column in table.columns]
    body = [[f"{v.text} <sub>{v.small}</sub>" if v.small else v.text for v in row] for row in table.rows]
    rows = [f"| {' | '.join(text.replace('|', '/') for text in row)} |" for row in (heads, rules, *body)]
    return "\n".join([f"### {table.title}", "", *rows, "", table.note, ""])


def latex(table: Table) -> str:
    r"""A `table` with booktabs' rules; the preamble needs \usepackage{booktabs}."""
    form = "".join("l" if column.words else "r" for column in table.columns)
    lines = [
        r"\begin{table}",
        r"\centering\small\setlength{\tabcolsep}{4pt}",
        rf"\caption{{{as_latex(_unnumbered(table.title))}}}",
    ]
    lines += [rf"\begin{{tabular}}{{@{{}}{form}@{{}}}}", r"\toprule", *_latex_groups(table)]
    lines += [_latex_row(column.title for column in table.columns)]
    for i, row in enumerate(table.rows):
        lines += [r"\midrule"] if i in table.starts else []
        lines.append(_latex_row(value.text for value in row))
        if any(value.small for value in row):
            lines[-1] += "[-3pt]"
            lines.append(" & ".join(rf"{{\tiny {as_latex(v.small)}}}" if v.small else "" for v in row) + r" \\")
    note = rf"\par\smallskip{{\footnotesize {as_latex(table.note)}}}"
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}", note, r"\end{table}", ""])


def _unnumbered(title: str) -> str:
    """Without the number of the table: LaTeX gives it one."""
    return title.partition(": ")[2] or title


def _latex_groups(table: Table) -> list[str]:
    """Headings over columns, each with a rule of its own."""
    cells, rules, at = [], [], 1
    for group, _, n in column_groups(table):
        cells.append(rf"\multicolumn{{{n}}}{{c}}{{{as_latex(group)}}}" if group else " & " * (n - 1))
        rules += [rf"\cmidrule(lr){{{at}-{at + n - 1}}}"] if group else []
        at += n
    return [" & ".join(cells) + r" \\", " ".join(rules)] if rules else []


def _latex_row(texts: Iterable[str]) -> str:
    return " & ".join(map(as_latex, texts)) + r" \\"


def as_latex(text: str) -> str:
    """Plain text so that LaTeX prints it; lambda_init with its index."""
    return text.translate(LATEX).replace(r"$\lambda$\_init", r"$\lambda_{\mathrm{init}}$")
