"""A trained run under attack, part by part, so that memory stays flat; an interrupted evaluation goes on, example by example."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor, nn

from antiphase import files, processes
from antiphase.attacks import engine
from antiphase.attacks.compiled import Compile, compiling_pays, forwards_at_most
from antiphase.attacks.config import Attack, MinimalL2, MinimumNorm
from antiphase.attacks.engine import AttackResult
from antiphase.attacks.quantize import to_bytes
from antiphase.attacks.question import AttackAnswer, AttackQuestion, SweepProtocol, neighbours, sweep_order
from antiphase.attacks.red_flags import order_flags, unfound_flags
from antiphase.config import InputError, to_plain
from antiphase.data.imageset import ImageSet
from antiphase.measures.attack_rates import rates_of_answer
from antiphase.measures.distances import distances_of
from antiphase.models.run import Run
from antiphase.store import Content, Store
from antiphase.tensors import write_tensors

PART = 256  # images held in memory; a part in work keeps a journal of those it is done with


def attack_answers(
    run: Run,
    images: ImageSet,
    attacks: Sequence[Attack],
    *,
    protocol: SweepProtocol = "paper",
    seed: int = 0,
    save: bool = False,
    eight_bit: bool = False,
    compile: Compile = "auto",
    device: torch.device | str = "cpu",
    name: str | None = None,
) -> list[AttackAnswer]:
    """One answer per budget, smallest first. Under `fast` a budget attacks only what the smaller ones left standing, under
    `bisect` only what is open between two others (attacks/question.py).

    An attack without a budget has one answer, with `eps` None and distances beside the rates.
    `compile` is no part of the question: `auto` weighs the whole evaluation, and the answer records what was done.
    `name`: what the lines of its progress call the run, where its own name could be that of another one.
    """
    model: list[nn.Module] = []  # loaded when the first part has to be computed
    attacks = engine.by_budget(attacks)
    by_budget: dict[int, AttackAnswer] = {}
    for budget, after in sweep_order(len(attacks), protocol):
        known = Known(*(None if number is None else by_budget[number] for number in neighbours(budget, after)))
        shared: dict[str, Any] = {"protocol": protocol, "seed": seed, "save": save, "eight_bit": eight_bit}
        earlier = tuple(by_budget[number].content["attack"] for number in after)
        question = AttackQuestion(attack=attacks[budget], after=earlier, **shared)

        def compute(folder: Path, question: AttackQuestion = question, known: Known = known) -> Content:
            if not model:
                model.append(run.classifier_for(images, device))
            chosen = _decided(compile, model[0], images, attacks)
            label = name or run.name
            if not isinstance(question.attack, MinimalL2):  # whose lines say themselves what it seeks
                label += f" {question.attack.within}"
            return _compute(model[0], images, question, known, folder, label, chosen)

        entry = run.answer_on(question, images, compute)
        by_budget[budget] = _with_rates_of_target(AttackAnswer(entry.content, entry), question.attack)
    answers = [by_budget[budget] for budget in range(len(attacks))]
    flags = order_flags([float(answer.changed.mean()) for answer in answers])
    return [answer.with_flags(more) for answer, more in zip(answers, flags)]


class Known(NamedTuple):
    """What is known of the images from the next smaller and the next larger budget that were tried."""

    smaller: AttackAnswer | None = None  # whom it fooled is fooled by a larger budget too
    larger: AttackAnswer | None = None  # whom it did not fool no smaller budget fools

    def to_attack(self, images: int) -> NDArray[np.bool_]:
        """(n,): the images that are left to attack"""
        fallen = np.zeros(images, bool) if self.smaller is None else self.smaller.fooled
        return ~fallen if self.larger is None else ~fallen & self.larger.fooled

    def column(self, name: str, images: int) -> list[Any]:
        """A column of every image before any of them is attacked."""
        if name in ("forwards", "backwards") or (self.smaller is None and self.larger is None):
            return [0] * images
        if self.smaller is not None:
            return list(self.smaller.content["images"][name])
        if name in ("distance", "broken_by"):
            return [0.0 if name == "distance" else -1] * images
        assert self.larger is not None
        return list(self.larger.content["images"]["clean" if name == "adversarial" else name])


def _decided(compile: Compile, model: nn.Module, images: ImageSet, attacks: Sequence[Attack]) -> Compile:
    """One decision for all budgets and parts: what is compiled serves them all. An attack in stages decides for each."""
    if compile != "auto" or any(attack.stages != (attack,) for attack in attacks):
        return compile
    first = images.take(np.arange(1)).all.pixels.to(_device(model))
    forwards = sum(forwards_at_most(attack, len(images)) for attack in attacks)
    return "always" if compiling_pays(model, first, forwards) else "never"


def _compute(
    model: nn.Module,
    images: ImageSet,
    question: AttackQuestion,
    known: Known,
    folder: Path,
    label: str,
    compile: Compile,
) -> Content:
    """Part by part, each kept until the whole is; several processes have parts of their own."""
    attack, world = question.attack, processes.current()
    rows, store = np.flatnonzero(known.to_attack(len(images))), Store(folder)
    shares = [rows[places] for places in world.shares(len(rows))]

    def parts_of(rows: NDArray[np.int64]) -> list[Content]:
        parts = []
        for number, start in enumerate(range(0, len(rows), PART)):
            key = f"{_prefix(world)}{number:05d}"
            part = store.kept(key) or store.put(
                key, _part(model, images.take(rows[start : start + PART]), question, store.path(key), label, compile)
            )
            for journal in folder.glob(f"{_journal(store.path(key)).name}*"):  # an attack of several keeps one for each
                journal.unlink()
            parts.append(part.content)
        return parts

    parts = [part for own in world.each(lambda: parts_of(shares[world.rank])) for part in own]
    per_image = _merge(known, np.concatenate(shares), len(images), parts, attack, question.protocol)
    content: Content = {
        "attack": to_plain(attack),
        "eps": None if isinstance(attack, MinimumNorm) else float(attack.within.eps),
        "protocol": question.protocol,
        "images": {"id": images.ids.tolist(), **per_image},
    }
    answer = AttackAnswer(content)
    strength = world.once(lambda: _strength(model, images, question))
    flags = {flag for part in parts for flag in part["flags"]} | set(strength)
    content |= {
        "rates": rates_of_answer(answer),
        "flags": sorted(flags),
        "forwards_per_image": float(np.mean(per_image["forwards"])),
        "backwards_per_image": float(np.mean(per_image["backwards"])),
        "compiled": any(part["compiled"] for part in parts),
    }
    if names := _names(attack):
        content["stages"] = {name: per_image["broken_by"].count(number) for number, name in enumerate(names)}
    if isinstance(attack, MinimumNorm):
        content |= _distances(attack, answer)
    if question.save:
        content["saved"] = {"folder": folder.name, "images": sum(part["saved"] for part in parts)}
    if world.is_main and folder.exists() and not question.save:
        shutil.rmtree(folder)
    return content


def _prefix(world: processes.World) -> str:
    """Of the keys of this process's parts: those of another number of processes hold other images."""
    return "part-" if world.size == 1 else f"part-{world.rank}of{world.size}-"


def _names(attack: Attack) -> tuple[str, ...]:
    """Of the attacks that this one is made of; none if it is one."""
    if isinstance(attack, MinimalL2):
        return tuple(part.name for part in attack.parts.values())
    return () if attack.stages == (attack,) else tuple(stage.name for stage in attack.stages)


def _with_rates_of_target(answer: AttackAnswer, attack: Attack) -> AttackAnswer:
    """Of an attack with a target: what follows from its images, in place of rates that an earlier version may have stored."""
    if not answer.has_target:
        return answer
    content = answer.content | {"rates": rates_of_answer(answer)}
    return replace(answer, content=content | (_distances(attack, answer) if isinstance(attack, MinimumNorm) else {}))


def _distances(attack: MinimumNorm, answer: AttackAnswer) -> Content:
    """How far the nearest adversarial images are; of the best of several attacks, also what each found alone."""
    content, images, fooled = answer.content, answer.content["images"], answer.fooled
    attackable, correct = answer.attackable, answer.correct[answer.attackable]
    sizes = np.where(fooled, images["distance"], np.nan)
    hopeful = attack.target is None and attack.label == "predicted"  # any image can be driven out of its class
    more: Content = {"distances": distances_of(sizes[attackable], correct)}
    if hopeful:
        more["flags"] = sorted([*content["flags"], *unfound_flags(int((~fooled).sum()), len(fooled))])
    if isinstance(attack, MinimalL2):
        more["alone"] = {
            name: {
                "distances": distances_of(np.array(images[f"distance_{name}"], dtype=float)[attackable], correct),
                **{f"{cost}_per_image": float(np.mean(images[f"{cost}_{name}"])) for cost in ("forwards", "backwards")},
            }
            for name in content["stages"]
        }
    return more


def _strength(model: nn.Module, images: ImageSet, question: AttackQuestion) -> list[str]:
    few = images.take(np.arange(min(32, len(images)))).all
    return engine.strength_flags(model, few.pixels, few.labels, question.attack, seed=question.seed)


def _part(
    model: nn.Module, images: ImageSet, question: AttackQuestion, path: Path, label: str, compile: Compile
) -> Content:
    batch = images.all
    settings: dict[str, Any] = {name: getattr(question, name) for name in ("seed", "eight_bit")}
    settings |= {"protocol": "paper" if question.protocol == "paper" else "fast"}
    settings |= {"ids": batch.ids, "journal": _journal(path), "label": label, "compile": compile}
    result = engine.run(model, batch.pixels, batch.labels, question.attack, **settings)
    if question.save:
        fooled = result.success
        if question.eight_bit:
            pixels, predictions = result.pixels[fooled], result.adversarial_prediction[fooled]
            _save_png(model, pixels, predictions, batch.ids[fooled.numpy()], path)
        else:
            tensors = {"adversarial": result.pixels[fooled], "ids": torch.from_numpy(batch.ids)[fooled]}
            write_tensors(path.with_suffix(".safetensors"), tensors)
    return {
        "label": result.labels.tolist(),
        "clean": result.clean_prediction.tolist(),
        "adversarial": result.adversarial_prediction.tolist(),
        "changed_in_run": result.changed_in_restart.int().tolist(),
        "distance": result.distance.tolist(),
        "forwards": result.forwards.tolist(),
        "backwards": result.backwards.tolist(),
        **({} if result.broken_by is None else {"broken_by": result.broken_by.tolist()}),
        **{key: column for name, alone in zip(result.stages, result.alone) for key, column in _alone(name, alone)},
        "flags": list(result.flags),
        "compiled": result.compiled,
        "saved": int(result.success.sum()) if question.save else 0,
    }


def _alone(name: str, result: AttackResult) -> Iterator[tuple[str, list[Any]]]:
    """The columns of one of several attacks; None where it found nothing."""
    sizes = zip(result.distance.tolist(), result.success.tolist())
    yield f"distance_{name}", [size if fooled else None for size, fooled in sizes]
    yield f"forwards_{name}", result.forwards.tolist()
    yield f"backwards_{name}", result.backwards.tolist()


def _journal(path: Path) -> Path:
    """Beside the file of a part that is not whole yet: the examples it is done with."""
    return path.with_suffix(".journal")


def _device(model: nn.Module) -> torch.device:
    """Where a model is; one without parameters of its own is taken to be on the CPU."""
    return next((parameter.device for parameter in model.parameters()), torch.device("cpu"))


def _save_png(model: nn.Module, pixels: Tensor, predictions: Tensor, ids: NDArray[np.int64], path: Path) -> None:
    """One PNG per image, read again and put to the model again: what is on disk is adversarial."""
    device = _device(model)
    for image, prediction, number in zip(to_bytes(pixels), predictions, ids.tolist()):
        png = path.parent / "png" / f"{number}.png"
        array = image[0].numpy() if len(image) == 1 else image.permute(1, 2, 0).numpy()

        def write(temporary: Path, array: Any = array) -> None:
            Image.fromarray(array).save(temporary, format="PNG")

        files.write_whole(png, write)
        again = torch.from_numpy(np.asarray(Image.open(png)).copy())
        again = (again[None] if again.ndim == 2 else again.permute(2, 0, 1)).to(torch.float32).div(255)
        with torch.no_grad():
            predicted = int(model(again[None].to(device)).argmax())
        if predicted != int(prediction):
            raise InputError(
                f"{png} is classified differently after reading it again: the disk or the decoder is at fault"
            )


def _merge(
    known: Known,
    rows: NDArray[np.int64],
    images: int,
    parts: list[Content],
    attack: Attack,
    protocol: str,
) -> dict[str, Any]:
    """Per-image columns over all images: what is known from other budgets, and what the parts found on the rest, `rows`."""
    restarts = attack.restarts if protocol == "paper" else 1
    columns: dict[str, Any] = {}
    names = ["label", "clean", "adversarial", "distance", "forwards", "backwards"]
    names += ["broken_by"] if _names(attack) else []
    if isinstance(attack, MinimalL2):
        names += [f"{column}_{name}" for name in _names(attack) for column in ("distance", "forwards", "backwards")]
    for name in names:
        fresh = [value for part in parts for value in part[name]]
        whole = known.column(name, images)
        for row, value in zip(rows, fresh):
            whole[row] = value
        columns[name] = whole
    matrix = np.zeros((restarts, images), dtype=int)
    if known.smaller is not None:
        matrix[:] = known.smaller.changed
    if parts:
        matrix[:, rows] = np.concatenate(
            [np.array(part["changed_in_run"]).reshape(restarts, -1) for part in parts], axis=1
        )
    columns["changed_in_run"] = matrix.tolist()
    return columns
