"""antiphase train"""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import tyro

from antiphase.cli.flags import DataFlags
from antiphase.config import InputError, check_fields, overlaid, read_yaml
from antiphase.files import require_folder
from antiphase.models import attention_syntax
from antiphase.models.config import ViTConfig
from antiphase.models.run_json import check_about
from antiphase.scales import SCALES, ScaleName
from antiphase.training import penalty_syntax
from antiphase.training.config import TrainConfig

EXAMPLES = """\
  antiphase train --out runs/vit
  antiphase train --out runs/diffvit --attention differential --epochs 30
  antiphase train --out runs/c10 --scale cpu --attention differential:lambda_init=0.5,out_scale=fixed
  antiphase train --out runs/v2 --attention differential-v2
  antiphase train --out runs/calm --attention differential --penalty noise-change:weight=0.3
  antiphase train --out runs/mixed --depth 2 --attention softmax differential
  antiphase train --out runs/from-file --config run.yaml --tensorboard
  antiphase train --out runs/robust --config runs/vit/run.json --start-from runs/vit --adv-eps 8/255
  antiphase train --out runs/again --config runs/c10/run.json --scale cpu --seed 1
  torchrun --nproc-per-node 2 -m antiphase train --out runs/shared --attention differential"""
NOTES = f"""

--attention KIND[:KEY=VALUE,...], as in differential:lambda_init=0.5,out_scale=fixed:
{attention_syntax.explained()}

--penalty TERM[:KEY=VALUE,...], as in noise-change:weight=0.3 (docs/method.md 8.3):
{penalty_syntax.explained()}"""
ABOUT_A_RUN = {"format", "title", "scale", "data", "environment", "digest"}  # the other sections of a run.json


@dataclass(frozen=True, kw_only=True)
class Command:
    out: Path  # folder of the run; if it holds the beginning of this very run, training goes on from there
    scale: ScaleName = "smoke"  # sizes of everything below, where a flag does not say otherwise
    config: Path | None = None  # YAML with sections model and training, or a run.json; flags override it
    images: DataFlags = DataFlags()
    train_images: int | None = None  # at most so many, a class-balanced subset; None: all
    model: ViTConfig = ViTConfig()
    training: TrainConfig = TrainConfig()
    device: str = "auto"  # auto, cpu, cuda, cuda:1, mps
    tensorboard: bool = False  # write the log for TensorBoard too, into tensorboard/ of the run (extra: tensorboard)
    json: bool = False  # print the result as JSON on stdout

    @classmethod
    def defaults(cls, scale: ScaleName) -> Command:
        s = SCALES[scale]
        return cls(
            out=tyro.MISSING,
            scale=scale,
            images=DataFlags(data=s.data),
            train_images=s.train_images,
            model=ViTConfig(patch=s.patch, width=s.width, heads=s.heads, depth=s.depths[0]),
            training=TrainConfig(epochs=s.epochs),
        )

    def with_file(self, path: Path) -> Command:
        """These defaults with what the file says laid over them."""
        plain = read_yaml(path)
        if unknown := set(map(str, plain)) - {"model", "training"} - ABOUT_A_RUN:
            raise InputError(f"{path} has a section {min(unknown)!r}: it takes model and training")
        check_about(plain, path)
        model = overlaid(self.model, plain.get("model", {}), f"{path.name}: model")
        training = overlaid(self.training, plain.get("training", {}), f"{path.name}: training")
        new = replace(self, config=path, model=model, training=training)
        if not plain.get("data"):
            return new
        images = replace(self.images, data=None).of_run(plain)  # a run.json: the same data too
        return replace(new, images=images, train_images=plain["data"]["train"]["images"])

    def __post_init__(self) -> None:
        check_fields(self, train_images=1)


def run(command: Command) -> dict[str, Any]:
    require_folder(command.out)
    from antiphase.training.tensorboard import check_installed, tensorboard_log

    if command.tensorboard:
        check_installed()
    from antiphase.processes import is_main_process
    from antiphase.runtime import pick_device
    from antiphase.training.loop import train
    from antiphase.training.run_folder import use_threads_of_run

    use_threads_of_run(command.out, command.model, command.training)
    device = pick_device(command.device)
    train_set = command.images.load("train").at_most(command.train_images, command.training.seed)
    test_set = command.images.load("test")
    settings: dict[str, Any] = {"device": device, "scale": command.scale}
    with tensorboard_log(command.out) if command.tensorboard and is_main_process() else nullcontext() as on_epoch:
        run = train(command.model, command.training, train_set, test_set, command.out, on_epoch=on_epoch, **settings)
    return {"run": str(run.folder), "title": run.config.title, "weights_sha256": run.weights_digest, "log": run.log}


def show(result: dict[str, Any]) -> None:
    last = result["log"][-1]
    lam = ", ".join(f"{value:.3f}" for value in last["lambda"].values())
    print(
        f"{result['title']} in {result['run']}: {last['epoch']} epochs, loss {last['loss']:.4f}, train accuracy "
        f"{100 * last['train_accuracy']:.1f} %, test accuracy {100 * last['test_accuracy']:.1f} %"
        + (f", lambda {lam}" if lam else "")
    )
