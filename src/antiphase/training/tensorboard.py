"""A run's log for TensorBoard, by tensorboardX (extra `tensorboard`): every number of log.jsonl as a curve over epochs.

log.jsonl stays the one log. What is written here is read from it, and can be made again from it at any time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from antiphase import files
from antiphase.config import InputError

FOLDER = "tensorboard"  # in the folder of the run


def check_installed() -> None:
    """Refuse in a sentence where tensorboardX is missing, before anything is trained."""
    try:
        import tensorboardX  # noqa: F401
    except ImportError:
        raise InputError("--tensorboard needs tensorboardX: pip install 'antiphase[tensorboard]'") from None


@contextmanager
def tensorboard_log(run: Path | str) -> Iterator[Callable[[Mapping[str, Any]], None]]:
    """Give what is yielded to `train(..., on_epoch=...)`: after each epoch, what the log has more is written for TensorBoard.

    The curves of a run that was resumed begin at its first epoch, and those of a finished run are written as well: earlier
    event files in the folder are replaced.
    """
    check_installed()
    from tensorboardX import SummaryWriter

    folder, written = Path(run) / FOLDER, 0
    writers: list[Any] = []  # one, once there is something to write

    def write(_: Mapping[str, Any] | None = None) -> None:
        nonlocal written
        rows = [row for row in files.read_lines(Path(run) / "log.jsonl") if row["epoch"] > written]
        if rows and not writers:
            for stale in folder.glob("events.out.tfevents.*"):
                stale.unlink()
            writers.append(SummaryWriter(str(folder)))
        for row in rows:
            for name, value in scalars(row):
                writers[0].add_scalar(name, value, row["epoch"])
            written = row["epoch"]
        for writer in writers:
            writer.flush()

    try:
        yield write
        write()  # of a run that was finished before
    finally:
        for writer in writers:
            writer.close()


def scalars(row: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, float]]:
    """The numbers of a record by name; those of a mapping in it as mapping/name: ("lambda/blocks.0.attn", 0.8)"""
    for name, value in row.items():
        if isinstance(value, Mapping):
            yield from scalars(value, f"{prefix}{name}/")
        elif isinstance(value, int | float) and not isinstance(value, bool) and (prefix or name != "epoch"):
            yield prefix + name, float(value)
