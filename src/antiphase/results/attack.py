"""A trained run under attack, part by part, so that memory stays flat; an interrupted evaluation goes on, example by example."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from safetensors.torch import save_file
from torch import Tensor, nn

from antiphase import files
from antiphase.attacks import engine
from antiphase.attacks.compiled import Compile, compiling_pays, forwards_at_most
from antiphase.attacks.config import Attack, MinimalL2, MinimumNorm
from antiphase.attacks.engine import AttackResult, Protocol
from antiphase.attacks.quantize import to_bytes
from antiphase.attacks.red_flags import order_flags, unfound_flags
from antiphase.config import InputError, to_plain
from antiphase.data.imageset import ImageSet
from antiphase.measures.distances import distances_of
from antiphase.measures.success import rates_of
from antiphase.models.run import Cell, Run, cell

PART = 256  # images held in memory; a part in work keeps a journal of those it is done with


def attack_cells(
    run: Run,
    images: ImageSet,
    attacks: Sequence[Attack],
    *,
    protocol: Protocol = "paper",
    seed: int = 0,
    save: bool = False,
    eight_bit: bool = False,
    compile: Compile = "auto",
    device: torch.device | str = "cpu",
) -> list[Cell]:
    """One cell a budget, smallest first. Under `fast` a budget attacks only what the smaller ones left standing.

    An attack without a budget has a cell too, with `eps` None and distances beside the rates.
    `compile` is no part of the question: `auto` weighs the whole evaluation, and the cell records what was done.
    """
    model: list[nn.Module] = []  # loaded when the first part has to be computed
    found: list[Cell] = []
    for attack in sorted(attacks, key=lambda a: a.within.eps):
        before = found[-1] if found and protocol == "fast" else None
        question = {
            "attack": attack,
            "protocol": protocol,
            "after": [c["attack"] for c in found] if before else [],
            "seed": seed,
            "save": save,
            "eight_bit": eight_bit,
        }

        def compute(folder: Path, attack: Attack = attack, before: Cell | None = before) -> Cell:
            if not model:
                model.append(run.classifier_for(images, device))
            label = f"{run.name} {attack.within}"
            settings = {"seed": seed, "protocol": protocol, "eight_bit": eight_bit, "label": label}
            settings["compile"] = _decided(compile, model[0], images, attacks)
            return _compute(model[0], images, attack, before, folder, save, settings)

        found.append(cell(run, "attacks", images, question, compute))
    flags = order_flags([c["rates"]["asr_change"]["value"] for c in found])
    return [c | {"flags": [*c["flags"], *flag]} for c, flag in zip(found, flags)]


def _decided(compile: Compile, model: nn.Module, images: ImageSet, attacks: Sequence[Attack]) -> Compile:
    """One decision for all budgets and parts: what is compiled serves them all. An attack in stages decides for each."""
    if compile != "auto" or any(attack.stages != (attack,) for attack in attacks):
        return compile
    first = images.take(np.arange(1)).all.pixels.to(next(model.parameters()).device)
    forwards = sum(forwards_at_most(attack, len(images)) for attack in attacks)
    return "always" if compiling_pays(model, first, forwards) else "never"


def _compute(
    model: nn.Module,
    images: ImageSet,
    attack: Attack,
    before: Cell | None,
    folder: Path,
    save: bool,
    settings: dict[str, Any],
) -> Cell:
    standing = np.ones(len(images), bool) if before is None else ~changed(before)
    rows = np.flatnonzero(standing)
    parts = []
    for number, start in enumerate(range(0, len(rows), PART)):
        path = folder / f"part-{number:05d}.json"
        if not path.exists():
            files.write_json(path, _part(model, images.take(rows[start : start + PART]), attack, path, save, settings))
        for kept in folder.glob(f"{_journal(path).name}*"):  # an attack of several keeps one for each
            kept.unlink()
        parts.append(files.read_json(path, "label", "flags"))
    per_image = _merge(before, standing, parts, attack, settings["protocol"])
    answer: Cell = {
        "attack": to_plain(attack),
        "eps": None if isinstance(attack, MinimumNorm) else float(attack.within.eps),
        "protocol": settings["protocol"],
        "rates": rates_of(
            np.equal(per_image["clean"], per_image["label"]), np.array(per_image["changed_in_run"], dtype=bool)
        ),
        "images": {"id": images.ids.tolist(), **per_image},
        "flags": sorted(
            {flag for part in parts for flag in part["flags"]} | set(_strength(model, images, attack, settings))
        ),
        "forwards_per_image": float(np.mean(per_image["forwards"])),
        "backwards_per_image": float(np.mean(per_image["backwards"])),
        "compiled": any(part["compiled"] for part in parts),
    }
    if names := _names(attack):
        answer["stages"] = {name: per_image["broken_by"].count(number) for number, name in enumerate(names)}
    if isinstance(attack, MinimumNorm):
        answer |= _distances(attack, answer)
    if save:
        answer["saved"] = {"folder": folder.name, "images": sum(part["saved"] for part in parts)}
    elif folder.exists():
        shutil.rmtree(folder)
    return answer


def _names(attack: Attack) -> tuple[str, ...]:
    """Of the attacks that this one is made of; none if it is one."""
    if isinstance(attack, MinimalL2):
        return tuple(part.name for part in attack.parts.values())
    return () if attack.stages == (attack,) else tuple(stage.name for stage in attack.stages)


def _distances(attack: MinimumNorm, answer: Cell) -> Cell:
    """How far the nearest adversarial images are; of the best of several attacks, also what each found alone."""
    images, correct = answer["images"], right(answer)
    won = changed(answer)
    found = np.where(won, images["distance"], np.nan)
    hopeful = attack.target is None and attack.label == "predicted"  # any image can be driven out of its class
    more: Cell = {"distances": distances_of(found, correct)}
    if hopeful:
        more["flags"] = sorted([*answer["flags"], *unfound_flags(int((~won).sum()), len(won))])
    if isinstance(attack, MinimalL2):
        more["alone"] = {
            name: {
                "distances": distances_of(np.array(images[f"distance_{name}"], dtype=float), correct),
                **{f"{cost}_per_image": float(np.mean(images[f"{cost}_{name}"])) for cost in ("forwards", "backwards")},
            }
            for name in answer["stages"]
        }
    return more


def _strength(model: nn.Module, images: ImageSet, attack: Attack, settings: dict[str, Any]) -> list[str]:
    few = images.take(np.arange(min(32, len(images)))).all
    return engine.strength_flags(model, few.pixels, few.labels, attack, seed=settings["seed"])


def _part(model: nn.Module, images: ImageSet, attack: Attack, path: Path, save: bool, settings: dict[str, Any]) -> Cell:
    batch = images.all
    shared = {"ids": batch.ids, "journal": _journal(path), **settings}
    result = engine.run(model, batch.pixels, batch.labels, attack, **shared)
    if save:
        won = result.success
        if settings["eight_bit"]:
            _save_png(model, result.adversarial[won], result.adversarial_prediction[won], batch.ids[won.numpy()], path)
        else:
            tensors = {"adversarial": result.adversarial[won], "ids": torch.from_numpy(batch.ids)[won]}
            files.write_whole(path.with_suffix(".safetensors"), lambda temporary: save_file(tensors, temporary))
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
        "saved": int(result.success.sum()) if save else 0,
    }


def _alone(name: str, result: AttackResult) -> Iterator[tuple[str, list[Any]]]:
    """The columns of one of several attacks; None where it found nothing."""
    yield f"distance_{name}", [d if won else None for d, won in zip(result.distance.tolist(), result.success.tolist())]
    yield f"forwards_{name}", result.forwards.tolist()
    yield f"backwards_{name}", result.backwards.tolist()


def _journal(path: Path) -> Path:
    """Beside the file of a part that is not whole yet: the examples it is done with."""
    return path.with_suffix(".journal")


def _save_png(model: nn.Module, pixels: Tensor, predictions: Tensor, ids: NDArray[np.int64], path: Path) -> None:
    """One PNG an image, read again and put to the model again: what is on disk is adversarial."""
    device = next(model.parameters()).device
    for image, prediction, number in zip(to_bytes(pixels), predictions, ids.tolist()):
        png = path.parent / "png" / f"{number}.png"
        array = image[0].numpy() if len(image) == 1 else image.permute(1, 2, 0).numpy()

        def write(temporary: Path, array: Any = array) -> None:
            Image.fromarray(array).save(temporary, format="PNG")

        files.write_whole(png, write)
        again = torch.from_numpy(np.asarray(Image.open(png)).copy())
        again = (again[None] if again.ndim == 2 else again.permute(2, 0, 1)).to(torch.float32).div(255)
        with torch.no_grad():
            seen = int(model(again[None].to(device)).argmax())
        if seen != int(prediction):
            raise InputError(
                f"{png} is classified differently after reading it again: the disk or the decoder is at fault"
            )


def _merge(
    before: Cell | None, standing: NDArray[np.bool_], parts: list[Cell], attack: Attack, protocol: str
) -> dict[str, Any]:
    """Per-image columns over all images: what a smaller budget broke, and what the parts found on the rest."""
    restarts = attack.restarts if protocol == "paper" else 1
    columns: dict[str, Any] = {}
    names = ["label", "clean", "adversarial", "distance", "forwards", "backwards"]
    names += ["broken_by"] if _names(attack) else []
    if isinstance(attack, MinimalL2):
        names += [f"{column}_{name}" for name in _names(attack) for column in ("distance", "forwards", "backwards")]
    for name in names:
        fresh = [value for part in parts for value in part[name]]
        whole = (
            [0] * len(standing) if before is None or name in ("forwards", "backwards") else list(before["images"][name])
        )
        for row, value in zip(np.flatnonzero(standing), fresh):
            whole[row] = value
        columns[name] = whole
    matrix = np.zeros((restarts, len(standing)), dtype=int)
    if before is not None:
        matrix[:] = before["images"]["changed_in_run"]
    if parts:
        matrix[:, standing] = np.concatenate(
            [np.array(part["changed_in_run"]).reshape(restarts, -1) for part in parts], axis=1
        )
    columns["changed_in_run"] = matrix.tolist()
    return columns


def changed(found: Cell) -> NDArray[np.bool_]:
    """(n,): at least one run changed the prediction"""
    flags: NDArray[np.bool_] = np.logical_or.reduce(np.array(found["images"]["changed_in_run"], dtype=bool))
    return flags


def right(found: Cell) -> NDArray[np.bool_]:
    """(n,): classified correctly before the attack"""
    flags: NDArray[np.bool_] = np.equal(found["images"]["clean"], found["images"]["label"])
    return flags
