"""Zero-shot accuracy is that of the classifier that is attacked."""

from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F

from antiphase.data import load
from antiphase.evals.features import Encoder
from antiphase.evals.zero_shot import zero_shot_rows
from antiphase.measures.success import accuracy
from antiphase.rates import wilson
from tests.evals.small_models import by_name


def test_zero_shot_from_kept_features_is_the_classifier_that_is_attacked(clip, data_root):
    images = load("cifar10", "test", root=data_root, image_size=16).subset(80)
    encoder = Encoder(clip, keep=False)
    rows = zero_shot_rows(
        encoder.embeddings(images),
        clip.class_embeddings(encoder.clip, images),
        torch.from_numpy(images.labels),
        "images",
    )
    assert rows[0].value == pytest.approx(accuracy(clip.classifier_for(images), images))
    assert rows[0].interval == pytest.approx(wilson(rows[0].value, 80))
    assert by_name(rows)["zero-shot, per class"].value == pytest.approx(rows[0].value)  # the subset is balanced


def test_many_templates_are_averaged_and_normalised_again(clip, data_root, tmp_path):
    images = load("cifar10", "test", root=data_root, image_size=16)
    (tmp_path / "two.txt").write_text("a photo of {}\nnothing but {}\n")
    both = replace(clip, prompts=str(tmp_path / "two.txt")).class_embeddings(clip.model(), images)
    model = clip.model()
    with torch.no_grad():
        texts = [
            F.normalize(
                model.encode_text(model.tokenize([template.replace("{}", name) for name in images.class_names])), dim=-1
            )
            for template in ("a photo of {}", "nothing but {}")
        ]
    assert torch.allclose(both, F.normalize((texts[0] + texts[1]) / 2, dim=-1), atol=1e-6)


def test_top_five_accuracy_is_that_computed_by_hand():
    classes = torch.eye(7)
    images = torch.tensor([[1, 0.9, 0.8, 0.7, 0.6, 0.5, 0.4]]).repeat(3, 1)
    rows = by_name(zero_shot_rows(images, classes, torch.tensor([0, 4, 5]), "images"))
    assert rows["zero-shot"].value == pytest.approx(1 / 3)
    assert rows["zero-shot, top 5"].value == pytest.approx(2 / 3)
