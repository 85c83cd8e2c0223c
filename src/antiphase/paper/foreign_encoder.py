"""C2: an image encoder that is no CLIP's, with softmax or differential attention, trained on pairs, evaluated and attacked.

A convolutional stem, torch's own encoder layers and the mean over tokens, as in ALIGN and BLIP there are other encoders than
DiffCLIP's; `differentiate` replaces its attention, carrying the weights over, so that the twins begin alike.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from antiphase.attacks import PGD, engine
from antiphase.data.imageset import ImageSet
from antiphase.data.pairs import PairSet
from antiphase.measures.attack_rates import rates_of
from antiphase.models.classifier import Normalized
from antiphase.models.clip import CLIP
from antiphase.models.clip_config import CLIPConfig
from antiphase.models.config import Differential
from antiphase.models.differentiate import differentiate
from antiphase.models.run import load_weights, read_tensors
from antiphase.models.zero_shot import zero_shot
from antiphase.paper.questions import OtherEncoder
from antiphase.runtime import seeded
from antiphase.store import Content
from antiphase.training.clip_task import ContrastiveTask
from antiphase.training.loop import train_task


class Mixed(nn.Module):
    """Pixels to one embedding: convolutions, torch's encoder layers, the mean over places."""

    def __init__(self, config: CLIPConfig) -> None:
        super().__init__()
        v = config.vision
        side = v.image // v.patch
        self.stem = nn.Sequential(nn.Conv2d(3, v.width, v.patch, v.patch), nn.GELU(), nn.Conv2d(v.width, v.width, 1))
        self.place = nn.Parameter(torch.randn(1, side * side, v.width) * 0.02)
        layer = nn.TransformerEncoderLayer(
            v.width,
            v.heads,
            int(v.mlp_ratio * v.width),
            dropout=0.0,
            activation="gelu",
            batch_first=True,
            norm_first=True,
        )
        self.blocks = nn.TransformerEncoder(layer, v.depth, enable_nested_tensor=False)
        self.norm = nn.LayerNorm(v.width)
        self.projection = nn.Linear(v.width, config.joint, bias=False)

    def forward(self, pixels: Tensor) -> Tensor:
        tokens = self.stem(pixels.expand(-1, 3, -1, -1)).flatten(2).mT + self.place  # (B, N, D)
        embedding: Tensor = self.projection(self.norm(self.blocks(tokens)).mean(dim=1))
        return embedding


@dataclass(frozen=True)
class OtherEncoderTask(ContrastiveTask):
    """What a CLIP learns, with the other encoder in place of its vision tower."""

    differential: bool = False

    def model(self) -> nn.Module:
        clip = CLIP(self.model_config, self.config.seed)
        with seeded(self.config.seed, "foreign"):
            encoder: nn.Module = Mixed(self.model_config)
        if self.differential:
            encoder, _ = differentiate(encoder, Differential(), seed=self.config.seed)
        clip.visual = Normalized(encoder, self.model_config.mean, self.model_config.std)
        return clip

    def data(self) -> dict[str, Any]:
        return {**super().data(), "encoder": "torch layers, differential" if self.differential else "torch layers"}


def train_and_attack(
    cell: OtherEncoder,
    train_set: PairSet,
    test_set: ImageSet | PairSet,
    words: tuple[str, ...],
    tested_on: ImageSet,
    folder: Path,
    *,
    device: torch.device | str = "cpu",
    scale: str | None = None,
) -> Content:
    """Trained to the end (or from where it stands), tested by its classes in words, and attacked."""
    task = OtherEncoderTask(cell.model, cell.training, train_set, test_set, words, differential=cell.differential)
    run = train_task(task, folder, device=device, scale=scale)
    clip = task.model()
    load_weights(clip, read_tensors(run.folder, "weights"), str(run.folder))
    assert isinstance(clip, CLIP)
    model = zero_shot(clip.to(device).eval(), tested_on.class_names, words)
    return {
        "parameters": sum(p.numel() for p in clip.parameters()),
        "weights_sha256": run.weights_digest,
        "test_accuracy": run.log[-1].get("zero_shot_accuracy"),
        "data_of": run.about["data"],
        "log": [{k: v for k, v in row.items() if k != "seconds"} for row in run.log],
        "attacks": [_attack(model, tested_on, attack, cell.title) for attack in cell.attacks],
    }


def _attack(model: nn.Module, images: ImageSet, attack: PGD, title: str) -> Content:
    batch, label = images.all, f"{title} {attack.within}"
    result = engine.run(model, batch.pixels, batch.labels, attack, ids=batch.ids, protocol="paper", label=label)
    changed = result.changed_in_restart.numpy()
    per_image = {
        "id": batch.ids.tolist(),
        "label": batch.labels.tolist(),
        "clean": result.clean_prediction.tolist(),
        "changed_in_run": changed.astype(int).tolist(),
    }
    rates = rates_of(result.correct.numpy(), changed)
    return {"eps": float(attack.within.eps), "rates": rates, "images": per_image, "flags": list(result.flags)}
