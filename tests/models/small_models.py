"""Sizes and configs of small models that several tests use."""

from antiphase.models import Differential, Schedule
from antiphase.models.clip_config import CLIPConfig, TextConfig, VisionConfig

CIFAR = {"shape": (3, 32, 32), "classes": 10}
NOT_IN_TENSORS = {  # what each fixture needs to be told
    "diffclip": {},
    "clip": {"heads": 4, "text_heads": 4},
    "diffclip_vision_only": {"text_heads": 4},
    "diffclip_dynamic": {"differential": Differential(lambda_init=Schedule())},
}
TINY = CLIPConfig(  # with the real vocabulary
    vision=VisionConfig(image=16, patch=8, width=32, depth=2, heads=4),
    text=TextConfig(width=16, depth=1, heads=2),
    joint=16,
)


def parameters(model):
    """How many there are."""
    return sum(p.numel() for p in model.parameters())
