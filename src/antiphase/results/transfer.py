"""Images made for one run and shown to others; the attack, its images and each judgement are kept in the folder of the source."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from antiphase import files
from antiphase.attacks.compiled import Compile
from antiphase.attacks.config import Attack
from antiphase.attacks.question import AttackAnswer, Protocol
from antiphase.config import InputError, to_plain
from antiphase.data.imageset import ImageSet
from antiphase.measures.transfer import MEANING, judged, matrix
from antiphase.models.run import Run, check_classes
from antiphase.models.weights import read_safetensors
from antiphase.results.attack import attack_answers
from antiphase.results.questions import TransferQuestion
from antiphase.store import Content, Entry


def transfers(
    run: Run,
    targets: Sequence[Run],
    images: ImageSet,
    attacks: Sequence[Attack],
    *,
    protocol: Protocol = "fast",
    seed: int = 0,
    eight_bit: bool = False,
    compile: Compile = "auto",
    device: torch.device | str = "cpu",
) -> list[Entry]:
    """One answer per budget (smallest first) and target. The adversarial images are kept beside the attack, as by `--save`."""
    for target in targets:
        check_classes(target, images)
    shared: dict[str, Any] = {"protocol": protocol, "seed": seed, "eight_bit": eight_bit}
    answers = attack_answers(run, images, attacks, save=True, compile=compile, device=device, **shared)
    entries = []
    for number, answer in enumerate(answers):
        made_by = answers[: number + 1] if protocol == "fast" else [answer]  # a fooled image is not attacked again
        for target in targets:
            question = TransferQuestion(
                attack=sorted(attacks, key=lambda a: a.within.eps)[number],
                after=tuple(before.content["attack"] for before in made_by[:-1]),
                target_words=tuple(sorted(to_plain(target.words_for(images)).items())),
                **shared,
            )

            def compute(
                _: Path,
                target: Run = target,
                made_by: list[AttackAnswer] = made_by,
                question: TransferQuestion = question,
            ) -> Content:
                return _compute(run, target, images, made_by, question, device)

            entries.append(run.answer_on(question, images, compute, base=target))
    return entries


def _compute(
    run: Run,
    target: Run,
    images: ImageSet,
    made_by: list[AttackAnswer],
    question: TransferQuestion,
    device: torch.device | str,
) -> Content:
    adversarial = _saved(run, images, made_by, question.eight_bit)
    answer = made_by[-1]
    result = judged(target.classifier_for(images, device), images, adversarial, answer.fooled, device=device)
    return {
        "target": {"run": target.name, "model": target.config.title, "weights": target.weights_digest},
        "attack": answer.content["attack"],
        "eps": answer.content["eps"],
        "protocol": question.protocol,
        "meaning": MEANING,
        "rates": result.rates(),
        "source_rates": answer.content["rates"],
        "images": {
            "id": images.ids.tolist(),
            "label": images.labels.tolist(),
            "clean": result.clean.tolist(),
            "shown": result.shown.tolist(),
            "changed": result.changed.tolist(),
            "fooled_source": result.fooled_source.tolist(),
        },
    }


def _kept(folder: Path, eight_bit: bool) -> Iterator[tuple[int, Tensor]]:
    """The ids of the images that an attack kept, and their pixels."""
    if eight_bit:
        for png in sorted((folder / "png").glob("*.png")):
            array = np.asarray(Image.open(png)).astype(np.float32) / 255
            yield int(png.stem), torch.from_numpy(array[None] if array.ndim == 2 else array.transpose(2, 0, 1))
        return
    for part in sorted(folder.glob("part-*.safetensors")):
        tensors = read_safetensors(part)
        yield from zip(tensors["ids"].tolist(), tensors["adversarial"])


def _saved(run: Run, images: ImageSet, made_by: list[AttackAnswer], eight_bit: bool) -> Tensor:
    """The adversarial images that were kept, in the order of the images; clean where the attack found none."""
    pixels = images.all.pixels.clone()
    row = {int(i): n for n, i in enumerate(images.ids)}
    there: set[int] = set()
    for answer in made_by:
        assert answer.entry is not None
        folder = answer.entry.path.with_suffix("")
        with files.of_another_shape(folder):
            for number, image in _kept(folder, eight_bit):
                pixels[row[number]] = image
                there.add(number)
    lost = int(made_by[-1].fooled.sum()) - len(there)
    if lost:
        where = made_by[-1].entry
        assert where is not None
        raise InputError(
            f"{lost} of the adversarial images of {run.folder} that were kept in {where.path.with_suffix('')} are gone: delete "
            f"{where.path} too, and they are made again"
        )
    return pixels


def transfer_matrix(
    runs: Sequence[Run], images: ImageSet, attack: Attack, *, seed: int = 0, device: torch.device | str = "cpu"
) -> dict[str, Any]:
    """Every run attacked, and what was made for it shown to every run: rows are sources, columns targets."""
    rows = [
        [entry.content["rates"] for entry in transfers(source, runs, images, [attack], seed=seed, device=device)]
        for source in runs
    ]
    return matrix([run.name for run in runs], len(images), attack, rows)
