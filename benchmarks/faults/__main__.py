"""python -m benchmarks.faults: everything that can go wrong, tried; docs/reliability.md is its table. It goes on where it was.

`--only kills` plays one kind, `--slice 300` random trials for so many seconds (a test of every change), `--seed` chooses them.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import subprocess
import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from itertools import chain
from pathlib import Path

from antiphase import console, files
from antiphase.store import Store, held
from benchmarks.faults import (
    child,
    command_lines,
    corruptions,
    full_disks,
    hostile_files,
    kills,
    kills_of_several,
    misuses,
)
from benchmarks.faults.scene import Scene
from benchmarks.faults.trial import Outcome, Trial

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "reliability.md"
IN_SLICES = 120.0  # seconds that an undisturbed command may take in a slice, which has to end soon
KINDS = {
    "kills": lambda: chain(kills.trials(), kills_of_several.trials()),
    "full disks": full_disks.trials,
    "corruptions": corruptions.trials,
    "hostile files": hostile_files.trials,
    "command lines": command_lines.trials,
    "misuses": misuses.trials,
}
SAID = {
    "kills": "a command is killed up to three times, at random moments and at changes of the file system, and asked again",
    "full disks": "a command on a disk that fills up at ten levels, then again with room",
    "corruptions": "one byte of a stored file is changed, of every kind of file that is kept",
    "hostile files": "checkpoints, archives, tables and folders made to break what reads them",
    "command lines": "random flags and words",
    "misuses": "the Python interface called wrongly",
}


def commit() -> str:
    """Of the code that is tried; with a mark if it was changed since."""
    shown = subprocess.run(
        ["git", "describe", "--always", "--dirty", "--exclude=*"], cwd=ROOT, capture_output=True, text=True
    )
    return shown.stdout.strip() or "unknown"


def play(trial: Trial, scene: Scene) -> Outcome:
    folder, began = scene.folder / "trial", time.monotonic()
    shutil.rmtree(folder, ignore_errors=True)
    try:
        outcome = trial.play(scene, folder)
        return replace(outcome, seconds=round(time.monotonic() - began, 1))
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def all_trials(only: Iterable[str] = ()) -> list[Trial]:
    return [trial for kind, listed in KINDS.items() if not only or kind in only for trial in listed()]


def slice_of(seconds: float, seed: int, folder: Path) -> dict[str, Outcome]:
    """Random trials of every kind for so long; what came of each, by name."""
    child.warm_up()
    scene, listed = Scene(folder, patience=IN_SLICES), all_trials()
    scene.prepare()
    random.Random(seed).shuffle(listed)
    began, outcomes = time.monotonic(), {}
    for trial in listed:
        if time.monotonic() - began > seconds:
            break
        outcomes[f"{trial.kind}: {trial.name}"] = play(trial, scene)
    return outcomes


def whole(only: list[str], folder: Path) -> None:
    """Several processes may play at once, each on a scene of its own: a trial is played by one of them."""
    child.warm_up()
    at = commit()
    scene, store = Scene(folder / at / f"scene-{os.getpid()}"), Store(folder / at / "outcomes")
    scene.prepare()
    listed = all_trials(only)
    random.Random(0).shuffle(listed)  # so that the first part says something of every kind
    for trial in listed:
        key = f"{trial.kind}-{files.digest_of(trial.name)[:16]}".replace(" ", "-")
        with held(folder / at / "locks", key) as mine:
            if not mine or key in store:
                continue
            outcome = play(trial, scene)
            store.put(key, {"kind": trial.kind, "name": trial.name, **vars(outcome)})
        done = len(list(store.folder.glob("*.json")))
        if outcome.verdict != "fine":
            console.say(f"{trial.kind}: {trial.name}: {outcome.verdict}: {outcome.note}")
        elif done % 25 == 0:
            console.say(f"{done} of {len(listed)} trials")
    shutil.rmtree(scene.folder, ignore_errors=True)


def outcomes(at: str, folder: Path) -> list[dict]:
    """Of every trial that was played so far."""
    return [
        entry.content for entry in Store(folder / at / "outcomes").entries() if not isinstance(entry, files.Damaged)
    ]


def write_page(at: str, rows: list[dict]) -> None:
    """The table between the markers of docs/reliability.md: what was played, of what there is."""
    planned = Counter(trial.kind for trial in all_trials())
    verdicts = ("lost", "silent", "traceback", "hang", "debris")
    played = f"{len(rows):,} of {sum(planned.values()):,} trials"
    lines = [f"Commit {at}, {played} with {sum(row['faults'] for row in rows):,} faults.", ""]
    lines += [
        "| fault | what is done | trials | faults | " + " | ".join(verdicts) + " | longest trial |",
        "|---|---|---:|---:|" + "---:|" * (len(verdicts) + 1),
    ]
    for kind in KINDS:
        mine = [row for row in rows if row["kind"] == kind]
        count = Counter(row["verdict"] for row in mine)
        tried = sum(row["faults"] for row in mine)
        share = f"{len(mine)} of {planned[kind]}" if planned[kind] else "left out: takes root"
        longest = f"{max((row['seconds'] for row in mine), default=0.0):.0f} s"
        lines.append(
            f"| {kind} | {SAID[kind]} | {share} | {tried} | "
            + " | ".join(str(count[v]) for v in verdicts)
            + f" | {longest} |"
        )
    bad = [row for row in rows if row["verdict"] != "fine"]
    lines += ["", "No exception." if not bad else "Exceptions:", ""]
    lines += [f"- {row['kind']}, {row['name']}: {row['verdict']}; {row['note']}" for row in bad]
    begin, end = "<!-- faults -->\n", "<!-- end of faults -->"
    text = PAGE.read_text()
    before, after = text.partition(begin)[0], text.partition(end)[2]
    files.write_text(PAGE, before + begin + "\n".join(lines).rstrip() + "\n" + end + after)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", nargs="*", default=[], choices=list(KINDS))
    parser.add_argument("--slice", type=float, help="random trials for so many seconds, and no page")
    parser.add_argument(
        "--page", action="store_true", help="write the page from what was played so far, and play nothing"
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--folder", type=Path, default=ROOT / "runs" / "faults")
    asked = parser.parse_args()
    if asked.slice is None:
        if not asked.page:
            whole(asked.only, asked.folder.resolve())
        write_page(commit(), outcomes(commit(), asked.folder.resolve()))
        return
    for name, outcome in slice_of(asked.slice, asked.seed, asked.folder.resolve() / "slice").items():
        print(f"{outcome.verdict:10} {name}: {outcome.note}")


if __name__ == "__main__":
    main()
