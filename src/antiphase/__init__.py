"""antiphase: what the subtraction in differential attention costs in robustness, and what it buys.

    import antiphase as ap

The names below are stable: they keep their meaning until a release says otherwise. Everything else is ours to move. They are
imported when first used, so `import antiphase` is light; docs/api.md has their arguments.
"""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from antiphase.api import (
        accuracy,
        attack,
        attack_run,
        audit,
        branch_alignment,
        certificates,
        certify,
        compare,
        evaluate,
        l_sample,
        look,
        measure,
        report,
        study,
        sweep,
        theory,
        transfer,
    )
    from antiphase.attacks import APGD, CW, DDN, FAB, FMN, L2, PGD, AutoAttack, Linf, MinimalL2, Patch, Square, fgsm
    from antiphase.data import load
    from antiphase.data.corruptions import corrupted
    from antiphase.data.imageset import ImageSet
    from antiphase.data.pair_catalog import load_pairs
    from antiphase.data.pairs import of_classes
    from antiphase.measures.distances import distances
    from antiphase.measures.interventions import interventions
    from antiphase.measures.questions import CertificateQuestion
    from antiphase.measures.success import success_rates
    from antiphase.models import (
        BoundedDifferential,
        Differential,
        DifferentialV2,
        Dint,
        GroupedDifferential,
        LowRankDifferential,
        Schedule,
        Softmax,
        ViTConfig,
    )
    from antiphase.models.classifier import as_classifier
    from antiphase.models.clip_config import CLIPConfig
    from antiphase.models.convert import convert
    from antiphase.models.differentiate import differentiate
    from antiphase.models.interventions import intervene
    from antiphase.models.run import Run
    from antiphase.models.taps import taps
    from antiphase.models.vit import build
    from antiphase.models.zero_shot import zero_shot
    from antiphase.models.zoo import zoo
    from antiphase.training import ContrastiveConfig, Penalty, TrainConfig
    from antiphase.training.clip_task import train_clip
    from antiphase.training.loop import train


class Name(NamedTuple):
    """A public name: where it is defined, and an example that runs after those before it."""

    home: str  # module, or module:name where it is called otherwise there
    example: str
    runs: bool = True  # by itself; else it needs data, a checkpoint or a trained CLIP


API: dict[str, dict[str, Name]] = {
    "Data": {
        "load": Name("data", 'test = ap.load("digits", "test")'),
        "ImageSet": Name("data.imageset", "few = ap.ImageSet.of_tensors(*test.subset(8).all[:2])"),
        "corrupted": Name("data.corruptions", 'foggy = ap.corrupted(test.subset(8), "fog", 3)'),
        "load_pairs": Name("data.pair_catalog", 'captions = ap.load_pairs("flickr8k", "test")', runs=False),
        "of_classes": Name("data.pairs", 'pairs = ap.of_classes(test, [[f"a {name}"] for name in test.class_names])'),
    },
    "Models": {
        "Softmax": Name("models", "vit = ap.ViTConfig(patch=2, width=16, heads=2, attention=(ap.Softmax(),))"),
        "Differential": Name("models", "attention = ap.Differential(lambda_init=0.8)"),
        "DifferentialV2": Name(
            "models", "v2 = ap.ViTConfig(patch=2, width=16, heads=2, attention=(ap.DifferentialV2(),))"
        ),
        "GroupedDifferential": Name("models", "grouped = ap.GroupedDifferential(ratio=2, lambda_init=0.8)"),
        "BoundedDifferential": Name("models", "bounded = ap.BoundedDifferential(lambda_init=0.25, bound=0.5)"),
        "LowRankDifferential": Name("models", "low_rank = ap.LowRankDifferential(rank=4)"),
        "Dint": Name("models", "dint = ap.Dint(lambda_init=0.8)"),
        "Schedule": Name("models", "deeper = ap.Differential(lambda_init=ap.Schedule())"),
        "ViTConfig": Name("models", "diffvit = ap.ViTConfig(patch=2, width=16, heads=2, attention=(attention,))"),
        "CLIPConfig": Name(
            "models.clip_config", 'is_clip = isinstance(ap.Run("runs/clip").config, ap.CLIPConfig)', runs=False
        ),
        "build": Name("models.vit", "model = ap.build(diffvit, shape=(1, 8, 8), classes=10)"),
        "taps": Name("models.taps", "with ap.taps(model) as maps:\n    model(test.subset(4).all.pixels)"),
        "intervene": Name(
            "models.interventions",
            'with ap.intervene(model, lam=0):  # or swap=True, or hold="A2", clean=pixels\n'
            "    signal_only = model(test.subset(4).all.pixels)",
        ),
        "differentiate": Name(
            "models.differentiate", "swapped, swap = ap.differentiate(ap.build(vit, shape=(1, 8, 8), classes=10))"
        ),
        "zero_shot": Name(
            "models.zero_shot", 'classifier = ap.zero_shot(clip, test.class_names, ("a photo of {}",))', runs=False
        ),
        "as_classifier": Name(
            "models.classifier", 'mine = ap.as_classifier(lambda x: {"logits": model(x)}, preprocessing="none")'
        ),
        "convert": Name("models.convert", 'ap.convert("checkpoint_best.pt", "runs/diffclip")', runs=False),
        "Run": Name("models.run", 'run_at = ap.Run("runs/vit")  # a folder; nothing is read yet'),
        "zoo": Name(
            "models.zoo", 'trained = ap.zoo("desk-diffvit-d1-s0-matched")  # in a clone; ap.zoo() lists all', runs=False
        ),
    },
    "Training": {
        "Penalty": Name(
            "training", 'penalised = ap.TrainConfig(epochs=2, penalty=ap.Penalty(term="noise-change", weight=0.1))'
        ),
        "TrainConfig": Name("training", "training = ap.TrainConfig(epochs=2)"),
        "ContrastiveConfig": Name("training", "clip_training = ap.ContrastiveConfig(epochs=2)"),
        "train": Name(
            "training.loop",
            'train = ap.load("digits", "train").subset(200)\n'
            'softmax_run, run = (ap.train(m, training, train, test, f"runs/{m.title}") for m in (vit, diffvit))',
        ),
        "train_clip": Name(
            "training.clip_task",
            'clip_run = ap.train_clip(ap.Run("runs/clip").config, clip_training, pairs, test, "runs/clip")',
            runs=False,
        ),
    },
    "Attacks": {
        "Linf": Name("attacks", 'within = ap.Linf("8/255")'),
        "L2": Name("attacks", "ball = ap.L2(0.5)"),
        "Patch": Name("attacks", "patch = ap.Patch(1.0, width=2)"),
        "PGD": Name("attacks", "pgd = ap.PGD(within=within, steps=5, restarts=2)"),
        "fgsm": Name("attacks", "one_step = ap.fgsm(within)"),
        "APGD": Name("attacks", "apgd = ap.APGD(within=within, steps=10)"),
        "FAB": Name("attacks", "fab = ap.FAB(within=within, steps=10)"),
        "Square": Name("attacks", "square = ap.Square(within=within, queries=50)"),
        "AutoAttack": Name("attacks", "judge = ap.AutoAttack(within=within)"),
        "CW": Name("attacks", "cw = ap.CW(searches=2, steps=10)"),
        "DDN": Name("attacks", "ddn = ap.DDN(steps=10)"),
        "FMN": Name("attacks", "fmn = ap.FMN(steps=10)"),
        "MinimalL2": Name("attacks", "smallest = ap.MinimalL2(fmn=fmn, ddn=ddn, cw=cw)"),
        "attack": Name("api", "result = ap.attack(run.classifier(), test.subset(16), pgd)"),
        "sweep": Name("api", "results = ap.sweep(run.classifier(), test.subset(16), [pgd])"),
    },
    "Measures": {
        "transfer": Name("api", "shown = ap.transfer([softmax_run, run], test.subset(8), pgd)"),
        "success_rates": Name("measures.success", 'rate = ap.success_rates(result)["asr_change"]'),
        "distances": Name(
            "measures.distances", "sizes = ap.distances(ap.attack(run.classifier(), test.subset(8), ddn))"
        ),
        "accuracy": Name("api", "share = ap.accuracy(run.classifier(), test)"),
        "branch_alignment": Name("api", "layers = ap.branch_alignment(run.classifier(), test.subset(8), probes=4)"),
        "interventions": Name(
            "measures.interventions",
            'none, signal_only = ap.interventions(run.classifier(), test.subset(8), pgd, names=["lam=0"], draws=2)',
        ),
        "CertificateQuestion": Name("measures.questions", "smoothing = ap.CertificateQuestion(sigma=0.25, samples=20)"),
        "certificates": Name("api", "radii = ap.certificates(run.classifier(), test.subset(4), smoothing)"),
        "l_sample": Name("api", "lipschitz = ap.l_sample(run.classifier(), test.subset(8), draws=4)"),
    },
    "What commands do": {
        "attack_run": Name("api", 'under_attack = ap.attack_run(run, images=test.subset(16), eps=["8/255"])'),
        "measure": Name("api", 'measured = ap.measure(run, images=test.subset(8), measures="alignment", probes=4)'),
        "theory": Name("api", "audit = ap.theory(run, softmax_run, images=test.subset(4), probes=4, draws=2)"),
        "look": Name("api", 'views = ap.look([softmax_run, run], images=test.subset(2), eps=["16/255"], probes=4)'),
        "certify": Name(
            "api", "proven = ap.certify(softmax_run, run, images=test.subset(4), sigma=[0.25], samples=20)"
        ),
        "compare": Name(
            "api", 'both = ap.compare(softmax_run, run, images=test.subset(16), eps=["16/255"], measure_images=8)'
        ),
        "audit": Name("api", "findings = ap.audit(mine, test.subset(16), quick=True)"),
        "evaluate": Name("api", 'probes = ap.evaluate(run, "digits", tasks="few-shot")'),
        "study": Name("api", 'studies = ap.study("list")'),
        "report": Name("api", 'page = ap.report(softmax_run, run, out="page")'),
    },
}
__all__ = [
    "APGD",
    "CW",
    "DDN",
    "FAB",
    "FMN",
    "L2",
    "PGD",
    "AutoAttack",
    "BoundedDifferential",
    "CLIPConfig",
    "CertificateQuestion",
    "ContrastiveConfig",
    "Differential",
    "DifferentialV2",
    "Dint",
    "GroupedDifferential",
    "ImageSet",
    "Linf",
    "LowRankDifferential",
    "MinimalL2",
    "Patch",
    "Penalty",
    "Run",
    "Schedule",
    "Softmax",
    "Square",
    "TrainConfig",
    "ViTConfig",
    "accuracy",
    "as_classifier",
    "attack",
    "attack_run",
    "audit",
    "branch_alignment",
    "build",
    "certificates",
    "certify",
    "compare",
    "convert",
    "corrupted",
    "differentiate",
    "distances",
    "evaluate",
    "fgsm",
    "intervene",
    "interventions",
    "l_sample",
    "load",
    "load_pairs",
    "look",
    "measure",
    "of_classes",
    "report",
    "study",
    "success_rates",
    "sweep",
    "taps",
    "theory",
    "train",
    "train_clip",
    "transfer",
    "zero_shot",
    "zoo",
]
_HOMES = {name: entry.home for group in API.values() for name, entry in group.items()}
__doc__ += "".join(
    f"\n{group}\n" + "".join(f"    {line}\n" for entry in names.values() for line in entry.example.splitlines())
    for group, names in API.items()
)


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'antiphase' has no attribute {name!r}")
    module, _, attribute = _HOMES[name].partition(":")
    return getattr(import_module(f"antiphase.{module}"), attribute or name)


def __dir__() -> list[str]:
    return list(__all__)


class _CallablePackage(ModuleType):
    """`ap.theory(...)` and `ap.report(...)` are functions; once imported, the packages of these names do the same."""

    def __call__(self, *arguments: Any, **flags: Any) -> Any:
        return getattr(import_module("antiphase.api"), self.__name__.rpartition(".")[2])(*arguments, **flags)


def _make_callable(package: str) -> None:
    sys.modules[package].__class__ = _CallablePackage
