"""A ViT of the VNN-COMP 2023 verification competition, and which test images a verifier proved robust: an outside truth."""

import json
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from antiphase.models.classifier import Normalized

# B batch, N tokens, D width


class NormOverWidth(nn.Module):
    """BatchNorm of every width of every token: (B, N, D) -> (B, N, D)."""

    def __init__(self, width: int):
        super().__init__()
        self.norm = nn.BatchNorm1d(width)

    def forward(self, x: Tensor) -> Tensor:
        return self.norm(x.mT).mT


class Block(nn.Module):
    def __init__(self, width: int, heads: int, hidden: int):
        super().__init__()
        self.n1, self.n2 = NormOverWidth(width), NormOverWidth(width)
        self.attn = nn.MultiheadAttention(width, heads, batch_first=True)
        self.f1, self.f2 = nn.Linear(width, hidden), nn.Linear(hidden, width)

    def forward(self, x: Tensor) -> Tensor:
        seen = self.n1(x)
        x = self.attn(seen, seen, seen, need_weights=False)[0] + x
        return self.f2(self.f1(self.n2(x)).relu()) + x


class VerifiedViT(nn.Module):
    """Patches and a class token, positions added, blocks with BatchNorm, the mean over all tokens, a linear head."""

    def __init__(self, image: int, patch: int, width: int, depth: int, heads: int, hidden: int, classes: int):
        super().__init__()
        self.proj = nn.Conv2d(3, width, patch, stride=patch)
        self.cls = nn.Parameter(torch.zeros(width))
        self.pos = nn.Parameter(torch.zeros((image // patch) ** 2 + 1, width))
        self.blocks = nn.Sequential(*(Block(width, heads, hidden) for _ in range(depth)))
        self.bn, self.head = nn.BatchNorm1d(width), nn.Linear(width, classes)

    def forward(self, x: Tensor) -> Tensor:
        patches = self.proj(x).flatten(2).mT  # (B, N - 1, D)
        tokens = torch.cat([self.cls.expand(len(x), 1, -1), patches], dim=1) + self.pos
        return self.head(self.bn(self.blocks(tokens).mean(dim=1)))


@dataclass(frozen=True)
class OutsideTruth:
    """What is known of the model from others, and the model."""

    classifier: nn.Module  # pixels in [0,1] -> logits
    accuracy: float  # on the 10,000 test images of CIFAR-10
    logits: Tensor  # of test images 0 to 7: (8, 10)
    proven: list[int]  # test images that a verifier proved robust at 1/255
    undecided: list[int]  # the others of the competition: neither proven nor broken


def outside_truth(folder: Path) -> OutsideTruth:
    about = json.loads((folder / "pgd_2_3_16.json").read_text())
    weights, config = load_file(folder / "pgd_2_3_16.safetensors"), about["config"]
    sizes = {name: config[name] for name in ("image", "patch", "width", "depth", "heads")}
    vit = VerifiedViT(**sizes, hidden=config["mlp_hidden"], classes=len(weights["head.bias"]))
    missing, unexpected = vit.load_state_dict(weights, strict=False)
    assert not unexpected
    assert all(name.endswith("num_batches_tracked") for name in missing)  # a counter that nothing reads
    return OutsideTruth(
        Normalized(vit, config["mean"], config["std"]).eval(),
        about["test_accuracy"],
        torch.tensor(about["logits_of_test_images_0_to_7"]),
        about["certified"],
        about["undecided"],
    )
