"""What `antiphase study` prints: the studies there are, our numbers beside the paper's, and what became of the claims."""

from __future__ import annotations

from collections.abc import Callable
from textwrap import wrap
from typing import Any

from antiphase.console import duration, stdout
from antiphase.paper.verdict_rule import LEVEL, POWER
from antiphase.report.numbers import columns_of, worth_noting
from antiphase.report.terminal.tables import table
from antiphase.report.words import label_words, reading_words

Row = dict[str, Any]
COLOURS = {"supported": "green", "partly supported": "green", "not supported": "red", "inconclusive": "yellow"}


def _print(text: str, style: str = "", hang: int = 2) -> None:
    """Lines no longer than the terminal is wide, broken between words; what is left of one is set in by `hang` more. A word that
    is longer, such as a path, stays whole."""
    for line in text.split("\n"):
        inset = " " * (len(line) - len(line.lstrip()) + hang)
        parts = wrap(line, stdout.width, subsequent_indent=inset, break_long_words=False, break_on_hyphens=False)
        stdout.print("\n".join(parts), style=style, markup=False, soft_wrap=True)


def show_table(study: Row) -> None:
    """One table for each reading, the paper's number beside ours."""
    _print(f"{study['title']} (scale {study['scale']})", "bold", hang=0)
    lines = study["lines"]
    if all(line["value"] is None and not line.get("text") for line in lines):
        _print(f"nothing of this table is there yet: it has {len(lines)} lines, and none of their cells is finished")
        return
    groups: dict[tuple[str, ...], list[Row]] = {}
    for line in lines:
        groups.setdefault((line["reading"], *columns_of(line)[-2:]), []).append(line)
    for (reading, n, seeds), grouped in groups.items():
        sizes = [f"n = {n}"] * (n != "-") + [f"{seeds} seed{'s' * (seeds != '1')}"] * (seeds != "-")
        _print(reading_words(reading) + f" ({', '.join(sizes)})" * bool(sizes), hang=0)
        rows = [(label_words(label), *numbers) for label, *numbers in (columns_of(line)[:4] for line in grouped)]
        table("", ("", "reference", "ours", "95 % interval"), rows, words=(0, 2))
    for line in lines:
        if worth_noting(line):
            _print(f"- {label_words(line['label'])}, {reading_words(line['reading'])}: {line['note']}")


def show_list(result: Row) -> None:
    for study in result["studies"]:
        cost = f"about {duration(60 * study['minutes'])} at cpu"
        claims = ", ".join(study["claims"]) or "no claim of its own"
        pair = "; takes --clip and --diffclip" if study["clip"] else ""
        _print(study["name"], "bold")
        _print(f"  {study['question']}\n  {claims}; {cost}{pair}")


def show_study(result: Row) -> None:
    for study in result["studies"]:
        show_list({"studies": [study]})
        _print(f"  {len(study['cells'])} cells at this scale:")
        for cell in study["cells"]:
            _print(f"    {cell['key']}  {cell['title']}", hang=14)
        for contrast in study["contrasts"]:
            _print(f"  {contrast['claim']} says above 0: {contrast['name']} ({contrast['reading']})")
        for plan in study["plans"]:
            _print(f"  {plan_words(plan)}")
        _print(f"  all cells of this study, none of them done: about {duration(study['seconds'])}")
        show_table(study)


def plan_words(plan: Row) -> str:
    """Whether a claim can be decided at this scale, and what that rests on."""
    seeds = " to ".join(str(s) for s in dict.fromkeys((plan["seeds"][0], plan["seeds"][-1])))
    gives = f"the scale gives {'one pair' if plan['of_pair'] else f'{seeds} seeds'} and {plan['images']:,} images that count"
    stand_in = "small models stand in for the published ones (give those with --clip and --diffclip)"
    if plan["surrogates"] == plan["contrasts"]:
        return f"{plan['claim']}: cannot be decided, since {stand_in}"
    if plan["power"] is None:
        least = f"the smallest possible p is {plan['least_p']:.2g}"
        can = (
            f"; {least}"
            if plan["informative"]
            else f" and cannot be decided at this scale: {least}, {LEVEL:g} is asked"
        )
        return f"{plan['claim']}: tested by permutation{can}; {gives}"
    power = " to ".join(dict.fromkeys(f"{p:.2f}" for p in plan["power"]))
    can = f"{plan['informative']} of {plan['contrasts']} contrasts can decide it"
    if not plan["informative"]:
        can = "cannot be decided at this scale"
    if plan["surrogates"]:
        can += f" (in {plan['surrogates']} of them {stand_in})"
    many = "more than 50" if plan["seeds_needed"] is None else plan["seeds_needed"]
    needs = "" if plan["of_pair"] else f"; a single contrast needs {many} seeds with so many images"
    if plan["pair_needs"] is not None:
        needs += f"; {_pair_needs(plan['pair_needs'])}"
    power = f"power {power} for a gap of 5 points"
    if plan["at_margin"] is not None:
        margin, lower = plan["at_margin"]
        power += f" and {lower:.2f} for the {100 * margin:.0f} points that some contrasts are about"
    return f"{plan['claim']}: {can}: {gives}, {power}{needs}"


def _pair_needs(needs: Row) -> str:
    """What one pair's most demanding contrast takes, and whether there is as much."""
    points = f"{100 * needs['margin']:.0f} points"
    takes = f"of one pair a margin of {points} needs {needs['images']:,} images (power {POWER:g})"
    if needs["images"] > needs["there"]:
        return f"{takes}, more than the {needs['there']:,} that the data have"
    return takes if needs["given"] >= needs["images"] else f"{takes}, and this scale takes {needs['given']:,}"


def show_run(result: Row) -> None:
    if result["left_out"]:
        ask = "--surrogates runs them, and so does naming them; or give a pair of your own with --clip and --diffclip"
        _print(f"left out, for they train small CLIPs that decide no claim: {', '.join(result['left_out'])} ({ask})")
    if "planned" in result:
        return _show_plan(result)
    for study in result["studies"]:
        show_table(study)
    for cell in result["failed"]:
        _print(f"failed: {cell['title']}: {cell['error']}", "red")
    if result["waiting"]:
        _print(f"{len(result['waiting'])} cells wait for cells that failed or data that are not here", "yellow")
    for name, why in result["absent"].items():
        _print(f"{name}: {why}", "yellow")
    show_verdicts(result)
    return None


def _show_plan(result: Row) -> None:
    for cell in result["planned"]:
        takes = duration(cell["seconds"]) if cell["seconds"] >= 1 else "< 1 s"
        _print(f"{takes:>8}  {cell['title']}", hang=4)
    todo, total = len(result["planned"]), duration(result["seconds"])
    _print(f"{todo} cells to do, about {total} ({result['basis']}); {result['there']} are there", "bold")
    if todo:
        _print("the start of the command, the loading of data and the verdicts come on top: some seconds in all")
    for name, why in result["absent"].items():
        _print(f"{name}: {why}", "yellow")


def show_status(result: Row) -> None:
    _print(f"{result['ledger']} at scale {result['scale']}", "bold")
    widest = max((len(study["name"]) for study in result["studies"]), default=0)
    for study in result["studies"]:
        failed = f", {len(study['failed'])} failed" if study["failed"] else ""
        took = f", {_took(study)}" if study["done"] else ""
        _print(f"  {study['name']:<{widest}} {study['done']} of {study['cells']} cells{took}{failed}", hang=widest + 1)
        for title, error in study["failed"].items():
            _print(f"    failed: {title}: {error}", "red")
    _print(f"  all: {_took(result)}, cells that studies share counted once")
    for sentence in result["damaged"]:
        _print(sentence, "red")


def _took(spent: Row) -> str:
    return f"{duration(spent['seconds'])} ({duration(spent['processor_seconds'])} of processors)"


def show_verdicts(result: Row) -> None:
    if result["verdicts"] and result["scale"] == "smoke":
        _print("No verdicts: the smoke scale is for tests.", "yellow")
        return
    if not result["verdicts"] and result["action"] == "verdicts":
        _print("These studies decide no claim of their own.", "yellow")
    for row in result["verdicts"]:
        style = f"bold {COLOURS.get(row['verdict'], 'dim')}"
        _print(f"{row['claim']}: {row['verdict']} ({row['why']})", style)
        _print(
            f"  {row['statement']}; decided under {row['reading'] or 'nothing yet'} by {', '.join(row['studies']) or '-'}"
        )
        if row["power"]:
            _print(f"  {row['power']}")
        for reading, other in list(row["readings"].items())[1:]:
            _print(f"  under {reading}: {other['verdict']} ({other['why']})")
        if len(row["parts"]) > 1:
            for part, other in row["parts"].items():
                _print(f"  {part}: {other['verdict']} ({other['why']})")


def show_export(result: Row) -> None:
    for path in result["files"]:
        print(path)
    for sentence in result["damaged"]:
        _print(f"left out: {sentence}", "red")


def show_upgrade(result: Row) -> None:
    damaged = f"; {result['damaged']} damaged rows were left" if result["damaged"] else ""
    _print(f"{result['converted']} rows converted, {result['present']} were as they should be{damaged}")


def show_prices(result: Row) -> None:
    """As lines of PROCESSOR_SECONDS, under a comment that says what they are."""
    if result["prices"]:
        heading = f"    # {result['unit']},\n    # on one thread, by kind of cell:"
        stdout.print(heading, markup=False, soft_wrap=True)  # each line stays whole and can be pasted
    for group, price in result["prices"].items():
        _print(f'    "{group}": {price["per_operation"]:.1e},  # {price["cells"]} cells')
    if not result["prices"]:
        _print(f"{result['ledger']} has no cell that ran on one CPU thread: run one with OMP_NUM_THREADS=1", "yellow")


SHOWN: dict[str, Callable[[Row], None]] = {
    "list": show_list,
    "show": show_study,
    "run": show_run,
    "status": show_status,
    "verdicts": show_verdicts,
    "export": show_export,
    "upgrade": show_upgrade,
    "prices": show_prices,
}
