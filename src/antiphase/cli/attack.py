"""antiphase attack"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import tyro

from antiphase.attacks import L2, PGD, Linf, Patch, Within, fgsm
from antiphase.cli.flags import OfRuns, TestImages
from antiphase.config import Budget, InputError, check_fields
from antiphase.files import require_run
from antiphase.scales import SCALES, ScaleName
from antiphase.studies.config import budgets

EXAMPLES = """\
  antiphase attack runs/diffvit --eps 4/255,8/255
  antiphase attack runs/diffvit --norm l2 --eps 0.5,1 --runs 3 --protocol paper
  antiphase attack runs/diffvit --norm patch --eps 1 --width 4 --steps 50 --place attention
  antiphase attack runs/diffvit --method fgsm --eps 8/255 --label predicted
  antiphase attack runs/c10 --scale cpu --eps 1/255,2/255 --save --eight-bit --json"""


@dataclass(frozen=True, kw_only=True)
class Command(OfRuns):
    run: tyro.conf.Positional[Path]  # folder of a trained run
    eps: tuple[Budget, ...] = ()  # budgets, separated by commas: 4/255,8/255
    norm: Literal["linf", "l2", "patch"] = "linf"  # where the perturbation may live
    width: int = 4  # of a patch, in pixels
    place: str = "random"  # of a patch: random, attention (where the model attends most), or TOP,LEFT in pixels
    method: Literal["pgd", "fgsm"] = "pgd"  # many steps from random starts, or one from the image
    steps: int = 20  # of PGD
    step_size: float | None = None  # pixel units; 2.5 eps / steps when not given
    runs: int = 1  # independent random starts
    loss: Literal["ce", "margin", "dlr", "cosine"] = "ce"  # what is driven up
    label: Literal["true", "predicted"] = "true"  # the class an untargeted attack drives away from
    target: Literal["least-likely", "random"] | int | None = None  # the class to reach; None: any other
    protocol: Literal["fast", "paper"] = "fast"  # paper: every budget and run on its own; fast: only what still stands
    save: bool = False  # keep the adversarial images in the folder of the run
    eight_bit: bool = False  # pixels on the grid of 255ths; with --save as PNG files, verified after reading them again
    compile: Literal["auto", "never", "always"] = "auto"  # torch.compile; auto: where the evaluation repays it
    seed: int = 0  # of the subset and of everything drawn

    @classmethod
    def defaults(cls, scale: ScaleName) -> Command:
        s, images = SCALES[scale], TestImages.at(scale)
        eps = tuple(map(Budget, s.eps))
        return cls(run=tyro.MISSING, eps=eps, steps=s.pgd_steps, runs=s.pgd_runs, scale=scale, source=images)

    def __post_init__(self) -> None:
        check_fields(self, seed=0)
        self.attacks()  # refuses what an attack would refuse

    def within(self, eps: Budget) -> Within:
        if self.norm == "patch":
            return Patch(eps=eps, width=self.width, place=_place(self.place))
        return L2(eps) if self.norm == "l2" else Linf(eps)

    def attacks(self) -> list[PGD]:
        sets = [self.within(eps) for eps in budgets(self.eps)]
        if self.method == "fgsm":
            if self.norm != "linf" or self.target is not None:
                raise InputError("fgsm is untargeted and within linf: use --method pgd for anything else")
            return [fgsm(within, loss=self.loss, label=self.label) for within in sets]
        names = ("steps", "step_size", "runs", "loss", "label", "target")
        shared: dict[str, Any] = {name: getattr(self, name) for name in names}
        return [PGD(within=within, **shared) for within in sets]


def _place(word: str) -> Literal["random", "attention"] | tuple[int, int]:
    if word == "random":
        return "random"
    if word == "attention":
        return "attention"
    try:
        top, left = map(int, word.split(","))
    except ValueError:
        raise InputError(f"place {word!r} is not known: it takes random, attention or TOP,LEFT") from None
    return top, left


def run(command: Command) -> dict[str, Any]:
    folder = require_run(command.run)
    from antiphase.models.checkpoint import Run
    from antiphase.runtime import pick_device
    from antiphase.studies.attacked import attack_cells

    run, device = Run(folder, command.source.prompts), pick_device(command.device)
    images = command.source.choose(run.about, command.seed)
    names = ("protocol", "seed", "save", "eight_bit", "compile")
    shared: dict[str, Any] = {name: getattr(command, name) for name in names}
    cells = attack_cells(run, images, command.attacks(), device=device, **shared)
    return {"run": str(folder), "scale": command.scale, "cells": cells}


def show(result: dict[str, Any]) -> None:
    from antiphase.report.tables import show_attacks

    show_attacks(result)
