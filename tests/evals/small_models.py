"""Small models, features and rows that several tests of evaluations use."""

import numpy as np

from antiphase import files, runtime
from antiphase.config import to_plain
from antiphase.evals.probe import LabelledFeatures
from antiphase.models import Differential
from antiphase.models.clip import CLIP
from antiphase.models.clip_config import CLIPConfig, TextConfig, VisionConfig
from antiphase.models.run import Run, save_checkpoint

SMALL = CLIPConfig(  # reads bytes: no vocabulary to load
    vision=VisionConfig(image=16, patch=8, width=32, depth=2, heads=4, attention=(Differential(),)),
    text=TextConfig(width=16, depth=1, heads=2, vocabulary=259, tokenizer="bytes"),
    joint=16,
)


def clip_run(folder, config=SMALL, **data) -> Run:
    learned_from = {"origin": "digits", "train": {"images": 1}, **data} if data else {}
    about = {"title": config.title, "model": to_plain(config), "training": {}, "data": learned_from}
    files.write_json(folder / "run.json", {"format": 1, **about, "environment": runtime.environment()})
    save_checkpoint(folder, {"weights": CLIP(config).state_dict()}, {"complete": True}, tag="fresh")
    return Run(folder)


def clusters(n, classes=4, width=4, noise=1.0, seed=0):
    """Features that a probe can learn from, but not perfectly."""
    draw = np.random.default_rng(seed)
    centres = np.random.default_rng(99).normal(size=(classes, width))
    labels = draw.integers(0, classes, n)
    return LabelledFeatures((centres[labels] + noise * draw.normal(size=(n, width))).astype(np.float32), labels)


def unit(vectors):
    return vectors / np.linalg.norm(vectors, axis=-1, keepdims=True)


def by_name(rows):
    return {row.name: row for row in rows}
