"""A small DiffCLIP and the task of learning digits from captions."""

from antiphase.models.clip_config import VARIANTS, CLIPConfig, TextConfig, VisionConfig
from antiphase.training import ContrastiveConfig
from antiphase.training.clip_task import ContrastiveTask

BYTES = TextConfig(width=32, heads=4, depth=1, context=32, vocabulary=259, tokenizer="bytes")
SOFTMAX_CLIP = CLIPConfig(vision=VisionConfig(image=8, patch=2, width=32, heads=4, depth=1), text=BYTES, joint=32)
SMALL_CLIP = SOFTMAX_CLIP.with_attention(*VARIANTS["DiffCLIP"])
TEMPLATES = ("the digit {}", "a handwritten {}", "{}, written by hand")
SHORT_CLIP_TRAINING = ContrastiveConfig(epochs=2, batch_size=64, augment="crop-flip", lr=2e-3)


def digits_task(pairs, digits, config=SHORT_CLIP_TRAINING, model=SMALL_CLIP) -> ContrastiveTask:
    return ContrastiveTask(model, config, pairs, digits[1], TEMPLATES)
