"""The models that are attacked in benchmarks, by name: small committed ones, and everybody's.

Everybody's are trained for two epochs on 10,000 images of CIFAR-10 (the mean-pooled one on 4,000, the large one on 512), once,
and kept in runs/bench: an untrained model falls at once, and its times mean nothing.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from timm.models.vision_transformer import VisionTransformer
from torch import nn

from antiphase import console, files, runtime
from antiphase.data import load
from antiphase.models.run import Run
from antiphase.training import TrainConfig
from antiphase.training.loop import Learner
from antiphase.training.tasks import CrossEntropy

ROOT = Path(__file__).parents[1]
PAIR, KEPT = ROOT / "results" / "pair", ROOT / "runs" / "bench"
TINY = {"img_size": 32, "patch_size": 4, "embed_dim": 192, "depth": 12, "num_heads": 3, "num_classes": 10}


def committed(run: str) -> nn.Module:
    return Run(PAIR / run).classifier()


def resnet() -> nn.Module:
    """The ResNet-18 of pyautoattack's examples, trained by its authors: pixels in [0,1], CIFAR-10."""
    import pyautoattack

    folder = Path(pyautoattack.__file__).parent / "examples"
    spec = importlib.util.spec_from_file_location("resnet", folder / "resnet.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    model: nn.Module = module.ResNet18()
    model.load_state_dict(torch.load(folder / "model_test.pt", map_location="cpu", weights_only=True))
    return model


class Enlarged(nn.Module):
    """A model of photographs that is shown small images, enlarged to its size."""

    def __init__(self, model: nn.Module, side: int) -> None:
        super().__init__()
        self.model, self.side = model, side

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = self.model(nn.functional.interpolate(x, size=self.side, mode="bilinear"))
        return logits


def vit_small() -> nn.Module:
    """timm's ViT-S/16 at 224 pixels."""
    return Enlarged(VisionTransformer(embed_dim=384, depth=12, num_heads=6, num_classes=10), 224)


def trained(name: str, make: Callable[[], nn.Module], images: int = 10_000, epochs: int = 2) -> nn.Module:
    """As it was kept, or trained now."""
    with runtime.seeded(0, "bench", name):
        model = make()
    path = KEPT / f"{name}.safetensors"
    if not path.exists():
        _train(name, model, images, epochs)
        files.write_whole(path, partial(save_file, model.state_dict()))
    model.load_state_dict(load_file(path))
    return model


def _train(name: str, model: nn.Module, images: int, epochs: int) -> None:
    learner, data = Learner(model.train(), TrainConfig(), CrossEntropy()), load("cifar10", "train").subset(images)
    with console.progress(f"training {name}", total=images * epochs) as advance:
        for epoch in range(epochs):
            order = runtime.uniform((0, "bench", epoch), data.ids, (1,))[:, 0].argsort()
            for start in range(0, images, 64):
                rows = order[start : start + 64]
                loss, _ = learner.update(data.batch(rows), lr=5e-4)
                advance(len(rows), f"loss {loss:.2f}")


MODELS: dict[str, Callable[[], nn.Module]] = {
    "diffvit": partial(committed, "DiffViT"),
    "diffvit-depth-4": partial(committed, "DiffViT-depth4"),
    "vit-tiny": partial(trained, "vit-tiny", lambda: VisionTransformer(**TINY)),
    "vit-tiny-mean": partial(trained, "vit-tiny-mean", lambda: VisionTransformer(**TINY, global_pool="avg"), 4_000),
    "resnet": resnet,
    "vit-small-224": partial(trained, "vit-small-224", vit_small, 512),
}
WORDS = {
    "diffvit": "the committed depth-1 DiffViT",
    "diffvit-depth-4": "a depth-4 DiffViT",
    "vit-tiny": "timm's ViT-Tiny (depth 12, class token)",
    "vit-tiny-mean": "timm's ViT-Tiny with mean pooling",
    "resnet": "pyautoattack's ResNet-18",
    "vit-small-224": "timm's ViT-S/16 at 224 pixels",
}


@cache
def bench_model(name: str) -> nn.Module:
    return MODELS[name]().eval()
