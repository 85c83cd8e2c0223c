"""What a classifier is trained on: splits, and attacked images in adversarial training."""

import numpy as np
import pytest
import torch

from antiphase.config import InputError
from antiphase.models.vit import build
from antiphase.training import TrainConfig
from antiphase.training.loop import train
from antiphase.training.tasks import AdversarialCrossEntropy
from tests.training.small_vit import SHORT, SMALL


def test_splits_are_not_mixed_up(digits, tmp_path):
    with pytest.raises(InputError, match="needs a train and a test split"):
        train(SMALL, SHORT, digits[1], digits[0], tmp_path / "run")


def test_adversarial_training_makes_a_model_harder_to_fool(pair, digits, tmp_path):
    """Fine-tuned from a run at 16/255: more robust there than the run it came from, at the price of clean accuracy or not."""
    from antiphase.attacks import PGD, Linf, engine

    config = TrainConfig(epochs=6, adv_eps="16/255", adv_steps=5, start_from=str(pair[1].folder))
    robust = train(pair[1].config, config, *digits, tmp_path / "robust")
    x, y, ids = digits[1].all
    attack = PGD(within=Linf("16/255"))
    broken = [engine.run(r.classifier(), x, y, attack, ids=ids).success.double().mean() for r in (pair[1], robust)]
    assert broken[1] < broken[0] - 0.1


def test_the_clean_share_of_a_batch_stays_clean(digits):
    from antiphase.attacks import PGD, Linf

    batch, seen = digits[0].batch(np.arange(8)), []
    model = build(SMALL, shape=(1, 8, 8), classes=10)

    class Spy(torch.nn.Module):
        def forward(self, x):
            seen.append(x.detach())
            return model(x)

    AdversarialCrossEntropy(PGD(within=Linf("16/255"), steps=3), clean_share=0.25)(Spy(), batch, epoch=0)
    moved = (seen[-1] != batch.pixels).flatten(1).any(dim=1)
    assert moved.tolist() == [False] * 2 + [True] * 6
    assert (seen[-1] - batch.pixels).abs().max() <= 16 / 255 + 1e-7
    assert len(seen) == 4  # three steps of the attack, one of the training
