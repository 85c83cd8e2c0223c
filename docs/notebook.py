"""Runs a notebook and keeps what its cells show: python docs/notebook.py docs/tutorial.ipynb. Also turns it into a page.

Cells run in order in one process, as in Jupyter, which need not be installed: what a cell prints is kept, and the value of its
last line, as a picture if it has one.
"""

from __future__ import annotations

import ast
import base64
import contextlib
import io
import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

Notebook = dict[str, Any]


def read(path: Path) -> Notebook:
    return json.loads(path.read_text(encoding="utf-8"))


def write(path: Path, notebook: Notebook) -> None:
    path.write_text(json.dumps(notebook, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def executed(notebook: Notebook) -> Notebook:
    """The notebook with the outputs of a fresh run in the current folder."""
    names: dict[str, Any] = {"__name__": "__main__"}
    cells, count = [], 0
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            count += 1
            cell = cell | {"execution_count": count, "outputs": _outputs("".join(cell["source"]), names, count)}
        cells.append(cell)
    return notebook | {"cells": cells}


def _outputs(source: str, names: dict[str, Any], count: int) -> list[dict[str, Any]]:
    tree = ast.parse(source)
    last = ast.Expression(tree.body.pop().value) if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(tree, f"<cell {count}>", "exec"), names)
        value = eval(compile(last, f"<cell {count}>", "eval"), names) if last else None
    outputs: list[dict[str, Any]] = []
    if printed.getvalue():
        text = printed.getvalue().splitlines(keepends=True)
        outputs.append({"output_type": "stream", "name": "stdout", "text": text})
    if value is not None:
        shown: dict[str, Any] = {"text/plain": [repr(value)]}
        if hasattr(value, "_repr_png_"):
            shown = {"image/png": base64.b64encode(value._repr_png_()).decode(), "text/plain": ["<a picture>"]}
        result = {"output_type": "execute_result", "execution_count": count, "metadata": {}, "data": shown}
        outputs.append(result)
    return outputs


def as_markdown(notebook: Notebook, name: str) -> str:
    """The cells and what they showed when they were last run."""
    parts = []
    for cell in notebook["cells"]:
        source = "".join(cell["source"])
        parts.append(source if cell["cell_type"] == "markdown" else f"```python\n{source}\n```")
        for output in cell.get("outputs", ()):
            data = output.get("data", {"text/plain": output.get("text", [])})
            if "image/png" in data:
                picture = "".join(data["image/png"]).replace("\n", "")
                parts.append(f'<img alt="what the cell above shows" src="data:image/png;base64,{picture}">')
            else:
                parts.append(f"```{{.text .output}}\n{''.join(data['text/plain']).rstrip()}\n```")
    parts.append(f'<a href="{name}" download>The notebook of this page</a>')
    return "\n\n".join(parts) + "\n"


if __name__ == "__main__":
    path = Path(sys.argv[1]).resolve()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)  # what the cells write does not stay
        write(path, executed(read(path)))
