"""Trained runs side by side as a page, from the results stored in their folders. No torch: only files are read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from antiphase.attacks.question import AttackAnswer
from antiphase.config import Budget, InputError
from antiphase.console import all_visible, visible
from antiphase.measures.attack_rates import rates_of_answer
from antiphase.measures.certificates import CertificateAnswer
from antiphase.measures.stats import Unit
from antiphase.models.run_json import read_about, read_log
from antiphase.paper.study import Label, TableRow, Tick
from antiphase.report.figures.models import (
    AttackedModel,
    CertifiedModel,
    MeasuredModel,
    certified_figure,
    cosine_figure,
    sensitivity_figure,
    success_figure,
)
from antiphase.report.lens_data import images_and_budgets
from antiphase.report.numbers import attack_name, attack_text, threat_text
from antiphase.report.page_parts import Column, Figure, Model, Page, Section, Slot, Table, Value, study_table
from antiphase.report.pages.cards import accuracy, command, needs_data
from antiphase.report.sentences import out_of_reach
from antiphase.store import entries_in, lies_at, read_entry

Row = dict[str, Any]
READINGS = ("robust_accuracy", "asr_change", "asr_correct")
TARGET_READINGS = ("target_reached", "target_reached_correct")


@dataclass(frozen=True)
class RunResults:
    """One run and every stored result that could be read; of the others, why not."""

    name: str
    folder: Path
    about: Row
    attacks: list[Row]
    measures: list[Row]
    looks: list[Row]
    evals: list[Row]
    certificates: list[Row]
    smoothed_attacks: list[Row]
    errors: list[str] = field(default_factory=list)


def runs_page(folders: Sequence[Path]) -> Page:
    """A card for each run, the lens, and every attack, certificate, measure and evaluation that the folders hold."""
    names = [visible(folder.resolve().name) for folder in folders]
    runs = [
        _read(name if names.count(name) == 1 else visible(str(folder)), folder) for name, folder in zip(names, folders)
    ]
    runs.sort(key=lambda run: str(run.about.get("title", "")).startswith("Diff"))  # softmax first, as on every page
    data = ["--data NAME"] if any(needs_data(run.about) for run in runs) else []
    looks = _looks(runs)
    return Page(
        title=", ".join(run.name for run in runs) if len(runs) < 5 else f"{len(runs)} runs",
        lede="What is stored about these runs. Whether two of them differ is not tested here: antiphase compare does that.",
        findings=tuple(f"A stored result could not be read: {error}" for run in runs for error in run.errors),
        models=tuple(_card(run) for run in runs),
        looks=looks,
        no_lens=None if looks else Slot(study="lens", command=command("look", [run.folder for run in runs], *data)),
        sections=(_attacks(runs), _certificates(runs), _measures(runs), _evals(runs)),
        made=tuple(("run", f"{run.name}: {run.folder}") for run in runs),
        source=" ".join(str(run.folder) for run in runs),
    )


def _read(name: str, folder: Path) -> RunResults:
    about = all_visible(read_about(folder))
    run = RunResults(name, folder, about, [], [], [], [], [], [])
    needs = {
        "attacks": ("attacks", ("rates", "eps", "data")),
        "measures": ("measures", ("rows", "data", "seed")),
        "looks": ("looks", ("packed", "eps", "data")),
        "evals": ("evals", ("rows", "data", "seed")),
        "certificates": ("certificates", ("images", "average_radius", "sigma", "data", "seed")),
        "smoothed_attacks": ("certificates", ("images", "attack", "sigma", "data", "seed")),
    }
    for kind, (subfolder, keys) in needs.items():
        cells: list[tuple[float, str, Row]] = []
        for path in entries_in(folder / subfolder):
            try:
                content = read_entry(path, bare=True).content
            except InputError as error:
                if str(error) not in run.errors:
                    run.errors.append(str(error))
                continue
            content = all_visible(content)
            if all(key in content for key in keys):  # measures also has answers without rows: of the theory audit
                cell = _with_rates_of_target(content) if kind == "attacks" else content
                cells.append((lies_at(path).stat().st_mtime, path.name, cell))
        getattr(run, kind).extend(cell for *_, cell in sorted(cells, key=lambda c: c[:2]))
    return run


def _with_rates_of_target(cell: Row) -> Row:
    """An attack with a target may have been stored with the rates of one without."""
    answer = AttackAnswer(cell)
    return cell | {"rates": rates_of_answer(answer)} if answer.has_target else cell


def _looks(runs: list[RunResults]) -> tuple[tuple[str, Row], ...]:
    """One per run: of those that most of the runs share, the latest."""
    shared = Counter(question for run in runs for question in {images_and_budgets(cell) for cell in run.looks})
    return tuple(
        (run.name, max(enumerate(run.looks), key=lambda look: (shared[images_and_budgets(look[1])], look[0]))[1])
        for run in runs
        if run.looks
    )


def _card(run: RunResults) -> Model:
    about = run.about
    log = read_log(run.folder)
    facts = [("data", Value(str((about["data"] or {}).get("name", "none: converted"))))]
    accuracies = {
        "train_accuracy": (f"train accuracy, last of {len(log)} epochs", "train"),
        "test_accuracy": ("test accuracy", "test"),
        "zero_shot_accuracy": (f"zero-shot test accuracy, after {len(log)} epochs", "test"),
    }
    last = log[-1] if log else {}
    for key, (words, split) in accuracies.items():
        if key in last:
            facts.append((words, accuracy(last[key], (about["data"] or {}).get(split, {}).get("images"))))
    stored = run.attacks, run.measures, run.looks, run.evals, run.certificates
    facts.append(("stored results", Value(str(sum(map(len, stored))))))
    return Model(name=run.name, title=str(about.get("title", "")), facts=tuple(facts))


# ------------------------------------------------------------------------------------------------- sections
def _attacks(runs: list[RunResults]) -> Section:
    """One figure and one table for each attack on the same images, whatever its budget."""
    groups: dict[str, list[tuple[int, Row]]] = {}
    for place, run in enumerate(runs):
        for cell in run.attacks:
            groups.setdefault(_question(cell), []).append((place, cell))
    parts: list[Table | Figure | Slot] = []
    for number, (question, cells) in enumerate(sorted(groups.items()), start=1):
        first = cells[0][1]
        every = [
            AttackedModel(run.name, i, sorted((c for p, c in cells if p == i), key=lambda c: float(c["eps"] or 0)))
            for i, run in enumerate(runs)
        ]
        attacked = [model for model in every if model.cells]
        data = first["data"]
        within = (first["attack"].get("within") or {}).get("kind", "")
        title = f"{attack_text(first['attack'])} on {data['n']} {data['name']} {data['split']} images"
        if len({cell["eps"] for _, cell in cells}) > 1:
            parts.append(success_figure(f"attack-{number}-success", title, attacked, question, within))
        parts.append(study_table(f"attack-{number}", title, _lines(attacked), note=question))
    slots = _slots("attack", runs, "--eps 4/255,8/255")
    return Section(name="attacks", title="Under attack", short="Attack", parts=tuple(parts) or slots)


def _slots(verb: str, runs: list[RunResults], *options: str) -> tuple[Slot, ...]:
    """A command for each run, for these take one."""
    return tuple(
        Slot(study=verb, command=command(verb, [run.folder], *options, *["--data NAME"] * needs_data(run.about)))
        for run in runs
    )


def _question(cell: Row) -> str:
    """The attack, its settings and images, apart from the budget, in words."""
    attack = {k: v for k, v in cell["attack"].items() if k not in ("within", "kind") and v is not None}
    settings = ", ".join(f"{key} {value}" for key, value in attack.items() if isinstance(value, str | int | float))
    return (
        f"{attack_name(cell['attack'])} within {threat_text(cell['attack'])}: {settings}; protocol {cell['protocol']}, "
        f"{_conditions(cell)}"
    )


def _conditions(cell: Row) -> str:
    """What two cells must share to be held side by side, whatever they are about."""
    worded = f", prompts {cell['prompts']}" if "prompts" in cell else ""
    return f"seed {cell['seed']}{worded}, images {cell['data']['fingerprint']}"


def _lines(models: list[AttackedModel]) -> list[Row]:
    """As lines of a study, without a number of the paper's to hold them against."""
    return [asdict(line) for model in models for cell in model.cells for line in _lines_of(model.name, cell)]


def _lines_of(name: str, cell: Row) -> list[TableRow]:
    """Rates at a budget; of an attack without one, how far the nearest adversarial images are."""
    if cell["eps"] is None:
        distances = cell["distances"]["correct"]
        success = "the target was reached" if AttackAnswer(cell).has_target else "an adversarial image was found"
        share, median = distances["found"], distances["median"]
        near = "median of the smallest L2, of correct images"
        return [
            _line(Label(name), f"{success}, of correct images", share, share["n"], "%"),
            _line(Label(name), near, median, share["hits"], ""),
        ]
    label = Label(name, Tick.eps(Budget(cell["eps"])))
    rates = cell["rates"]
    readings: tuple[str, ...] = TARGET_READINGS if AttackAnswer(cell).has_target else READINGS
    return [_line(label, reading, rates[reading], rates[reading]["n"], "%") for reading in readings]


def _line(label: Label, reading: str, estimate: Row, n: int, unit: Unit) -> TableRow:
    interval = None if estimate["interval"] is None else (estimate["interval"][0], estimate["interval"][1])
    return TableRow.about(label, reading, value=estimate["value"], interval=interval, n=n, seeds=1, unit=unit)


def _certificates(runs: list[RunResults]) -> Section:
    """Certified accuracy against the radius: one figure and one table for each noise and choice of draws."""
    groups: dict[str, list[CertifiedModel]] = {}
    for place, run in enumerate(runs):
        for cell in run.certificates:
            groups.setdefault(_smoothing(cell), []).append(CertifiedModel(run.name, place, CertificateAnswer(cell)))
    parts: list[Table | Figure | Slot] = []
    for number, (question, models) in enumerate(sorted(groups.items()), start=1):
        first = models[0].answer.content
        data, title = first["data"], f"Certified accuracy of models smoothed at sigma {first['sigma']:g}"
        parts.append(certified_figure(f"certified-{number}", title, models, question))
        lines = [
            asdict(
                _line(
                    Label(model.name, Tick.at("L2 radius", rate["radius"])), "certified accuracy", rate, data["n"], "%"
                )
            )
            for model in models
            for rate in model.answer.content["rates"]
            if model.answer.can_reach(rate["radius"])
        ]
        parts.append(study_table(f"certified-{number}-table", title, lines, note=question + _beyond(models[0].answer)))
        parts += [table for model in models if (table := _sandwich(runs[model.place], model, number)) is not None]
    note = "Of the smoothed model, which is another function than the model itself (docs/certify.md)."
    slots = _slots("certify", runs)
    return Section(name="certified", title="Certified", note=note if parts else "", parts=tuple(parts) or slots)


def _beyond(answer: CertificateAnswer) -> str:
    """Of the radii that were to be listed and that its draws cannot certify; nothing where there are none."""
    radii = [rate["radius"] for rate in answer.content["rates"] if not answer.can_reach(rate["radius"])]
    samples, sigma, alpha = (answer.content[name] for name in ("samples", "sigma", "alpha"))
    return f". {out_of_reach(radii, samples, sigma, alpha)}" if radii else ""


def _sandwich(run: RunResults, model: CertifiedModel, number: int) -> Table | None:
    """Per image: what is certified, and how near an attack on the smoothed model came. None where none was attacked."""
    about = ("sigma", "samples", "alpha", "seed")
    own = model.answer.content
    certified = {
        image: (label, radius) for image, label, radius in zip(*(own["images"][of] for of in ("id", "label", "radius")))
    }
    tried = [
        (image, *certified[image], cell["images"]["distance"][place])
        for cell in run.smoothed_attacks
        if all(cell.get(key) == own.get(key) for key in about) and cell["data"]["name"] == own["data"]["name"]
        for place, image in enumerate(cell["images"]["id"])
        if image in certified
    ]
    if not tried:
        return None
    broken = sum(radius is not None and attacked is not None and attacked < radius for *_, radius, attacked in tried)
    return Table(
        name=f"certified-{number}-sandwich-{model.place}",
        title=f"{run.name} at sigma {own['sigma']:g}: certified ≤ true radius ≤ attacked",
        columns=tuple(Column(title=t) for t in ("image", "label", "certified radius", "attacked at")),
        rows=tuple(
            (Value(str(image)), Value(str(label)), _distance(radius), _distance(attacked))
            for image, label, radius, attacked in tried
        ),
        note=f"L2, of the smoothed model; a dash: nothing certified, or no attack confirmed. Attacks broke {broken} of "
        f"{len(tried)} certificates.",
        folded=True,
    )


def _distance(size: float | None) -> Value:
    return Value("-" if size is None else f"{size:.3g}")


def _smoothing(cell: Row) -> str:
    """Noise, draws and images of a certificate, in words."""
    return (
        f"sigma {cell['sigma']:g}, {cell['samples']} draws per image, a chance of at most {cell['alpha']:g} to be wrong; "
        f"{cell['data']['n']} {cell['data']['name']} {cell['data']['split']} images, {_conditions(cell)}"
    )


def _measures(runs: list[RunResults]) -> Section:
    """Sampled sensitivity of the maps and the angle between branches: one figure per question, of each run the latest answer."""
    groups: dict[str, dict[int, MeasuredModel]] = {}
    for place, run in enumerate(runs):
        for cell in run.measures:
            if cell.get("estimator") == "sample" and cell.get("level") == "maps":
                aligned = [m for m in run.measures if m.get("reading") == "R1" and _conditions(m) == _conditions(cell)]
                question = f"{cell['layers'][0]['draws']} draws, {_conditions(cell)}"
                groups.setdefault(question, {})[place] = MeasuredModel(
                    run.name, place, cell, aligned[-1] if aligned else None
                )
    parts: list[Figure] = []
    for number, (question, models) in enumerate(sorted(groups.items()), start=1):
        measured = list(models.values())
        note = f"n = {measured[0].lipschitz['data']['n']} images; {question}."
        parts.append(sensitivity_figure(f"sensitivity-{number}", "Sensitivity of the maps", measured, note))
        cosines = cosine_figure(f"cosines-{number}", "Opposition of the branches", measured, note)
        parts += [cosines] if cosines else []
    return Section(
        name="inside",
        title="Inside the attention",
        short="Inside",
        parts=tuple(parts) or _slots("measure", runs),
        beside=True,
    )


def _evals(runs: list[RunResults]) -> Section:
    """Every number of every stored evaluation, with n and its interval."""
    lines = [
        asdict(_line(Label(run.name, cell["data"]["name"], _conditions(cell)), row["name"], row, row["n"], "%"))
        for run in runs
        for cell in run.evals
        for row in cell["rows"]
    ]
    slots = tuple(Slot(study="eval", command=command("eval", [run.folder], "--on NAME")) for run in runs)
    table = study_table("evaluations", "Stored evaluations", lines)
    return Section(
        name="evaluations", title="What the features are good for", short="Features", parts=(table,) if lines else slots
    )
