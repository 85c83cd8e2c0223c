"""antiphase attack"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import tyro

from antiphase.attacks import (
    APGD,
    CW,
    DDN,
    FAB,
    FMN,
    L2,
    PGD,
    AutoAttack,
    Linf,
    MinimalL2,
    Patch,
    Square,
    ThreatModel,
    fgsm,
)
from antiphase.attacks.config import Attack, Label, Version
from antiphase.attacks.question import AttackQuestion, SweepProtocol
from antiphase.cli.flags import OfRuns, TestImages
from antiphase.config import Budget, InputError, check_fields
from antiphase.files import require_folder, require_run
from antiphase.results.questions import budgets
from antiphase.scales import SCALES, ScaleName

if TYPE_CHECKING:
    from antiphase.data.imageset import ImageSet

EXAMPLES = """\
  antiphase attack runs/diffvit --eps 4/255,8/255
  antiphase attack runs/diffvit --norm l2 --eps 0.5,1 --restarts 3 --protocol paper
  antiphase attack runs/diffvit --norm patch --eps 1 --width 4 --steps 50 --place attention
  antiphase attack runs/diffvit --attack fgsm --eps 8/255 --label predicted
  antiphase attack runs/diffvit --attack autoattack --eps 8/255 --images 64
  antiphase attack runs/diffvit --attack minimal-l2 --images 64 --out runs/diffvit-l2
  antiphase attack runs/diffvit --attack cw --searches 5 --steps 100 --confidence 1 --save
  antiphase attack runs/diffvit --eps 4/255 --on runs/vit
  antiphase attack runs/c10 --scale cpu --eps 1/255,2/255 --save --eight-bit --json"""
TAKES = "one run"
Kind = Literal["pgd", "fgsm", "apgd", "fab", "square", "autoattack", "cw", "ddn", "fmn", "minimal-l2"]
Loss = Literal["ce", "margin", "dlr", "cosine", "dlr-targeted"]
Make = Callable[..., Attack]
AIM = ("label", "target")
RECIPES: dict[str, tuple[Make, tuple[str, ...]]] = {  # how an attack with a budget is made, and the flags that it has
    "pgd": (PGD, ("steps", "step_size", "restarts", "loss", *AIM)),
    "fgsm": (fgsm, ("loss", "label")),
    "apgd": (APGD, ("steps", "restarts", "targets", "loss", "label")),
    "fab": (FAB, ("steps", "restarts", "targets", "label")),
    "square": (Square, ("restarts", "queries", "label")),
    "autoattack": (AutoAttack, ("version", "label")),
}


def _minimal_l2(*, steps: int | None = None, searches: int | None = None, **aim: Any) -> MinimalL2:
    each: dict[str, Any] = {} if steps is None else {"steps": steps}
    cw = CW(**each if searches is None else {**each, "searches": searches})
    return MinimalL2(fmn=FMN(**each), ddn=DDN(**each), cw=cw, **aim)


MINIMAL: dict[str, tuple[Make, tuple[str, ...]]] = {  # the same for minimum-norm attacks
    "cw": (CW, ("searches", "steps", "confidence", "lr", "initial_c", *AIM)),
    "ddn": (DDN, ("steps", "gamma", "initial_eps", *AIM)),
    "fmn": (FMN, ("steps", "gamma", *AIM)),
    "minimal-l2": (_minimal_l2, ("searches", "steps", *AIM)),
}
KNOBS = dict.fromkeys(name for _, known in (RECIPES | MINIMAL).values() for name in known)


@dataclass(frozen=True, kw_only=True)
class Command(OfRuns):
    run: tyro.conf.Positional[Path]  # folder of a trained run
    eps: tuple[Budget, ...] | None = None  # budgets, separated by commas: 4/255,8/255; by --scale when not given
    norm: Literal["linf", "l2", "patch"] | None = None  # where the perturbation may live; linf when not given
    width: int = 4  # of a patch, in pixels
    place: str = "random"  # of a patch: random, attention (where the model attends most), or TOP,LEFT in pixels
    attack: Kind = "pgd"  # autoattack is a list of others; cw, ddn, fmn and minimal-l2 have no budget: smallest L2
    version: Version | None = None  # of autoattack: which list (standard); rand is for randomised models
    steps: int | None = None  # of pgd (by --scale), apgd, fab, ddn, fmn (100), cw (200 a search), all in minimal-l2
    step_size: float | None = None  # of pgd, pixel units; 2.5 eps / steps when not given
    restarts: int | None = None  # independent random starts; of pgd by --scale when not given, else 1
    queries: int | None = None  # of square (5000)
    targets: int | None = None  # of fab and of the loss dlr-targeted (9): so many likely classes are tried side by side
    loss: Loss | None = None  # what pgd, fgsm and apgd drive up (ce)
    searches: int | None = None  # of cw, also in minimal-l2: values of c that are tried (9)
    confidence: float | None = None  # of cw (0): kappa, the margin in logits by which the new class must lead
    lr: float | None = None  # of cw (0.01): Adam's step in tanh space
    initial_c: float | None = None  # of cw (0.001): the first c
    gamma: float | None = None  # of ddn and fmn (0.05): relative change of the norm in a step
    initial_eps: float | None = None  # of ddn (1): the norm to begin with
    label: Label | None = None  # the class to leave (true; of cw, ddn, fmn, minimal-l2 predicted)
    target: Literal["least-likely", "random"] | int | None = None  # the class to reach, of pgd, cw, ...; None: any
    protocol: SweepProtocol = "fast"  # paper: everything in full; fast: not what fell already; bisect: nor what stood
    on: tuple[Path, ...] = ()  # other runs on which these adversarial images are tried too (transfer); keeps the images
    save: bool = False  # keep the adversarial images in the folder of the run
    eight_bit: bool = False  # pixels on the grid of 255ths; with --save as PNG files, verified after reading them again
    compile: Literal["auto", "never", "always"] = "auto"  # torch.compile; auto: where the run is long enough to pay off
    seed: int = 0  # of the subset and of everything drawn
    out: Path | None = None  # folder for the result, its rows and a figure; none when not given

    @classmethod
    def defaults(cls, scale: ScaleName) -> Command:
        return cls(run=tyro.MISSING, scale=scale, source=TestImages.at(scale))

    def __post_init__(self) -> None:
        check_fields(self, seed=0)
        self.attacks()  # refuses what an attack would refuse
        if self.on and self.protocol == "bisect":
            raise InputError("--protocol bisect leaves images out that --on would show: use --protocol fast")

    def within(self, eps: Budget) -> ThreatModel:
        if self.norm == "patch":
            return Patch(eps=eps, width=self.width, place=_place(self.place))
        return L2(eps) if self.norm == "l2" else Linf(eps)

    def attacks(self) -> list[Attack]:
        """One attack per budget, or one without a budget; a flag that the attack does not have is refused."""
        make, known = (RECIPES | MINIMAL)[self.attack]
        settings = {name: getattr(self, name) for name in KNOBS if getattr(self, name) is not None}
        for name in settings:
            if name not in known:
                raise InputError(f"--{name.replace('_', '-')} is not for {self.attack}: leave it out")
        if self.attack in MINIMAL:
            self._check_no_budget()
            return [make(**settings)]
        if self.attack == "fgsm" and self.norm not in (None, "linf"):
            raise InputError("fgsm is untargeted and within linf: use --attack pgd for anything else")
        scale = SCALES[self.scale]
        by_scale = {"steps": scale.pgd_steps, "restarts": scale.pgd_restarts} if self.attack == "pgd" else {}
        eps = tuple(map(Budget, scale.eps)) if self.eps is None else self.eps
        return [make(within=self.within(one), **by_scale | settings) for one in budgets(eps)]

    def _check_no_budget(self) -> None:
        """Refuse what only makes sense with one."""
        why = f"{self.attack} seeks the smallest L2, whatever it is"
        wrong = {
            "--eps": self.eps is not None,
            f"--norm {self.norm}": self.norm not in (None, "l2"),
            f"--protocol {self.protocol}": self.protocol != "fast",
            "--eight-bit": self.eight_bit,
        }
        for flag, used in wrong.items():
            if used:
                raise InputError(f"{flag} is not for {self.attack}: {why}; leave it out")


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


def run(command: Command, images: ImageSet | None = None) -> dict[str, Any]:
    folder = require_run(command.run)
    others = [require_run(other) for other in command.on]
    if command.out is not None:
        require_folder(command.out)
    from antiphase.models.run import Run
    from antiphase.processes import is_main_process
    from antiphase.results.attack import attack_answers
    from antiphase.runtime import pick_device

    run, device = Run(folder, command.source.prompts), pick_device(command.device)
    images = images or command.source.choose(run.about, command.seed)
    names = ("protocol", "seed", "save", "eight_bit", "compile")
    shared: dict[str, Any] = {name: getattr(command, name) for name in names}
    shared["save"] |= bool(others)  # they are shown the images as they were kept
    answers = attack_answers(run, images, command.attacks(), device=device, **shared)
    result: dict[str, Any] = {"run": str(folder), "scale": command.scale, "eight_bit": command.eight_bit}
    result["cells"] = [answer.content for answer in answers]
    if shared["save"]:
        result["saved_in"] = [_place_of_images(cell, folder, command.eight_bit) for cell in result["cells"]]
    targets = [Run(other, command.source.prompts) for other in others]
    if by_prompts := {str(each.folder): each.classes_by for each in (run, *targets) if each.by_prompts}:
        result["classes_by"] = by_prompts
    if others:
        from antiphase.results.transfer import transfers

        settings = {name: shared[name] for name in ("protocol", "seed", "eight_bit", "compile")}
        shown = transfers(run, targets, images, command.attacks(), device=device, **settings)
        result["transfer"] = [entry.content for entry in shown]
    if command.out is not None and is_main_process():
        from antiphase.report.export import write_attacks

        write_attacks(result, command.out)
    return result


def _place_of_images(cell: dict[str, Any], run: Path, eight_bit: bool) -> str | None:
    """The files in which the adversarial images of an answer were kept; None if there was none to keep."""
    if not cell["saved"]["images"]:
        return None
    folder = run / AttackQuestion.folder / cell["saved"]["folder"]
    return str(folder / "png" / "*.png" if eight_bit else folder / "*.safetensors")


def show(result: dict[str, Any]) -> None:
    from antiphase.report.terminal.attack import show_attacks

    show_attacks(result)
