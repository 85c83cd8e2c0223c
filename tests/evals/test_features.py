"""Features are what the head reads, computed once for a model and its data."""

import pytest
import torch

from antiphase.data import load
from antiphase.evals import features as features_module
from antiphase.evals.features import Encoder, class_token


def test_the_feature_is_what_the_head_and_the_projection_read(clip, pair, digits, data_root):
    run, images = pair[1], digits[1].subset(8)
    model = run.classifier()
    with torch.no_grad():
        assert torch.allclose(
            model.model.head(class_token(model, images.all.pixels)), model(images.all.pixels), atol=1e-5
        )
    photographs = load("cifar10", "test", root=data_root, image_size=16).subset(70)
    with torch.no_grad():
        expected = clip.model().encode_image(photographs.all.pixels)
    assert torch.allclose(Encoder(clip, keep=False).embeddings(photographs), expected, atol=1e-5)


def test_features_are_computed_once_for_a_model_and_its_data(digits, pair, tmp_path, monkeypatch):
    monkeypatch.setenv("ANTIPHASE_CACHE", str(tmp_path))
    monkeypatch.setattr(features_module, "FILE_ROWS", 16)
    images, calls = digits[1].subset(40), []
    real = features_module.class_token
    monkeypatch.setattr(features_module, "class_token", lambda *a: calls.append(1) or real(*a))
    Encoder(pair[0], keep=False).class_tokens(images)
    assert not list(tmp_path.rglob("*"))
    first = Encoder(pair[0]).class_tokens(images)
    kept = sorted(tmp_path.rglob("*.safetensors"))
    assert len(kept) == 3
    before = len(calls)
    assert torch.equal(Encoder(pair[0]).class_tokens(images), first)
    assert len(calls) == before
    kept[1].write_bytes(kept[1].read_bytes()[:-1] + b"\x07")  # damaged, then cut off
    assert torch.equal(Encoder(pair[0]).class_tokens(images), first)
    kept[1].write_bytes(kept[1].read_bytes()[:40])
    assert torch.equal(Encoder(pair[0]).class_tokens(images), first)
    assert len(calls) == before + 2
    assert not torch.equal(Encoder(pair[1]).class_tokens(images), first)  # other weights
    assert not torch.equal(Encoder(pair[0]).class_tokens(digits[1].subset(40, seed=1)), first)  # other images


def test_features_of_a_killed_evaluation_are_not_computed_again(digits, pair, tmp_path, monkeypatch):
    monkeypatch.setenv("ANTIPHASE_CACHE", str(tmp_path))
    monkeypatch.setattr(features_module, "FILE_ROWS", 16)
    images, real, calls = digits[1].subset(40), features_module.class_token, []

    def dies(model, pixels):
        calls.append(len(pixels))
        if len(calls) == 2:
            raise KeyboardInterrupt
        return real(model, pixels)

    monkeypatch.setattr(features_module, "class_token", dies)
    with pytest.raises(KeyboardInterrupt):
        Encoder(pair[0]).class_tokens(images)
    found = Encoder(pair[0]).class_tokens(images)
    assert calls == [16, 16, 16, 8]
    assert torch.equal(found, Encoder(pair[0], keep=False).class_tokens(images))
