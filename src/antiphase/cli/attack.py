"""antiphase attack"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import tyro

from antiphase.attacks import APGD, FAB, L2, PGD, AutoAttack, Linf, Patch, Square, Within, fgsm
from antiphase.attacks.config import Attack, Version
from antiphase.cli.flags import OfRuns, TestImages
from antiphase.config import Budget, InputError, check_fields
from antiphase.files import require_run
from antiphase.scales import SCALES, ScaleName
from antiphase.studies.config import budgets

EXAMPLES = """\
  antiphase attack runs/diffvit --eps 4/255,8/255
  antiphase attack runs/diffvit --norm l2 --eps 0.5,1 --runs 3 --protocol paper
  antiphase attack runs/diffvit --norm patch --eps 1 --width 4 --steps 50 --place attention
  antiphase attack runs/diffvit --attack fgsm --eps 8/255 --label predicted
  antiphase attack runs/diffvit --attack autoattack --eps 8/255 --images 64
  antiphase attack runs/c10 --scale cpu --eps 1/255,2/255 --save --eight-bit --json"""


@dataclass(frozen=True, kw_only=True)
class Command(OfRuns):
    run: tyro.conf.Positional[Path]  # folder of a trained run
    eps: tuple[Budget, ...] = ()  # budgets, separated by commas: 4/255,8/255
    norm: Literal["linf", "l2", "patch"] = "linf"  # where the perturbation may live
    width: int = 4  # of a patch, in pixels
    place: str = "random"  # of a patch: random, attention (where the model attends most), or TOP,LEFT in pixels
    attack: Literal["pgd", "fgsm", "apgd", "fab", "square", "autoattack"] = "pgd"  # which; autoattack is a list of them
    version: Version = "standard"  # of autoattack: which list; rand is for randomised models
    steps: int | None = None  # of pgd (by --scale when not given), apgd and fab (100)
    step_size: float | None = None  # of pgd, pixel units; 2.5 eps / steps when not given
    runs: int | None = None  # independent random starts; of pgd by --scale when not given, else 1
    queries: int = 5000  # of square
    targets: int | None = None  # of fab and of the loss dlr-targeted (9): so many likely classes are tried side by side
    loss: Literal["ce", "margin", "dlr", "cosine", "dlr-targeted"] = "ce"  # what pgd, fgsm and apgd drive up
    label: Literal["true", "predicted"] = "true"  # the class an untargeted attack drives away from
    target: Literal["least-likely", "random"] | int | None = None  # the class that pgd is to reach; None: any other
    protocol: Literal["fast", "paper"] = "fast"  # paper: every budget and run on its own; fast: only what still stands
    save: bool = False  # keep the adversarial images in the folder of the run
    eight_bit: bool = False  # pixels on the grid of 255ths; with --save as PNG files, verified after reading them again
    compile: Literal["auto", "never", "always"] = "auto"  # torch.compile; auto: where the evaluation repays it
    seed: int = 0  # of the subset and of everything drawn

    @classmethod
    def defaults(cls, scale: ScaleName) -> Command:
        s, images = SCALES[scale], TestImages.at(scale)
        eps = tuple(map(Budget, s.eps))
        return cls(run=tyro.MISSING, eps=eps, scale=scale, source=images)

    def __post_init__(self) -> None:
        check_fields(self, seed=0)
        self.attacks()  # refuses what an attack would refuse

    def within(self, eps: Budget) -> Within:
        if self.norm == "patch":
            return Patch(eps=eps, width=self.width, place=_place(self.place))
        return L2(eps) if self.norm == "l2" else Linf(eps)

    def attacks(self) -> list[Attack]:
        """One a budget, with those flags that this attack knows; one that it does not know is refused."""
        if self.attack == "fgsm" and self.norm != "linf":
            raise InputError("fgsm is untargeted and within linf: use --attack pgd for anything else")
        make, known, defaults = self._recipe()
        given: dict[str, Any] = {
            name: getattr(self, name) for name in ("steps", "step_size", "runs", "targets", "target")
        }
        for name, value in given.items():
            if value is not None and name not in known:
                raise InputError(f"--{name.replace('_', '-')} is not for {self.attack}: leave it out")
        options = {**defaults, **{k: v for k, v in given.items() if v is not None}, "label": self.label}
        return [make(within=self.within(eps), **options) for eps in budgets(self.eps)]

    def _recipe(self) -> tuple[Callable[..., Attack], tuple[str, ...], dict[str, Any]]:
        """What makes the attack, the flags without a default that it knows, and what it takes beside them."""
        scale = SCALES[self.scale]
        by_scale: dict[str, Any] = {"steps": scale.pgd_steps, "runs": scale.pgd_runs, "loss": self.loss}
        recipes: dict[str, tuple[Callable[..., Attack], tuple[str, ...], dict[str, Any]]] = {
            "pgd": (PGD, ("steps", "step_size", "runs", "target"), by_scale),
            "fgsm": (fgsm, (), {"loss": self.loss}),
            "apgd": (APGD, ("steps", "runs", "targets"), {"loss": self.loss}),
            "fab": (FAB, ("steps", "runs", "targets"), {}),
            "square": (Square, ("runs",), {"queries": self.queries}),
            "autoattack": (AutoAttack, (), {"version": self.version}),
        }
        return recipes[self.attack]


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
