"""A CLIP as a classifier: scaled cosines to the mean prompt."""

import re
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F

from antiphase.attacks import PGD, Linf
from antiphase.attacks.engine import run as attack
from antiphase.config import InputError
from antiphase.models import Differential
from antiphase.models.attention import lambdas
from antiphase.models.clip import CLIP
from antiphase.models.clip_config import TextConfig
from antiphase.models.prompts import templates
from antiphase.models.taps import taps
from antiphase.models.tokenizer import tokenize
from antiphase.models.zero_shot import OPENAI_MEAN, OPENAI_STD, zero_shot
from tests.models.small_models import TINY


@pytest.mark.parametrize(
    ("make", "named"),
    [
        (lambda _: templates("poems"), "'poems' are not known"),
        (lambda file: templates(file("")), "holds no template"),
        (lambda file: templates(file("a photo")), "'a photo' has no {} where the class goes: write it as in 'a photo of a {}'"),
        (lambda _: zero_shot(CLIP(TINY), ["cat"], "a photo"), "the template 'a photo' has no {}"),
        (lambda _: zero_shot(CLIP(TINY), ["cat"], ["a {}", "a photo"]), "the template 'a photo' has no {}"),
        (lambda _: zero_shot(CLIP(TINY), ["cat"], []), "there is no template"),
        (lambda file: templates(file(b"\xff\xfe")), "is not a text file"),
        (lambda _: tokenize(["a cat", "  "]), "a text is empty"),
        (lambda _: zero_shot(CLIP(TINY), ["cat", ""], ("{}",)), "class 1 has no name"),
        (lambda _: zero_shot(CLIP(replace(TINY, text=TextConfig(width=16, depth=1, heads=2, vocabulary=9))), ["cat"], ("{}",)),
         "knows 9 tokens"),
    ],
)  # fmt: skip
def test_unusable_prompts_and_class_names_are_refused_in_one_sentence(tmp_path, make, named):
    def file(content):
        (tmp_path / "prompts.txt").write_bytes(content if isinstance(content, bytes) else content.encode())
        return str(tmp_path / "prompts.txt")

    with pytest.raises(InputError, match=re.escape(named)):
        make(file)


def test_a_zero_shot_logit_is_a_scaled_cosine_to_the_mean_prompt():
    clip = CLIP(TINY.with_attention(Differential())).eval()
    pixels, names = torch.rand(2, 3, 16, 16), ["cat", "dog", "aquarium fish"]
    model = zero_shot(clip, names, ("a photo of {}", "a {}"))
    with torch.no_grad():
        columns = []
        for name in names:
            each = F.normalize(clip.encode_text(tokenize([f"a photo of {name}", f"a {name}"])), dim=-1)
            columns.append(F.normalize(each.mean(dim=0), dim=-1))
        image = F.normalize(clip.encode_image(pixels), dim=-1)
        expected = clip.logit_scale.exp() * image @ torch.stack(columns).T
        assert torch.allclose(model(pixels), expected, atol=1e-5)


def test_a_string_is_one_template():
    clip = CLIP(TINY).eval()
    one, listed = (zero_shot(clip, ["cat", "dog"], given).classes for given in ("a photo of a {}", ["a photo of a {}"]))
    assert torch.equal(one, listed)
    assert not torch.equal(one[0], one[1])


def test_half_precision_weights_are_attacked_in_float32():
    model = zero_shot(CLIP(TINY).to(torch.bfloat16).eval(), ["cat", "dog"], ("{}",))
    assert {p.dtype for p in [*model.parameters(), model.classes]} == {torch.float32}
    assert model(torch.rand(1, 3, 16, 16)).dtype == torch.float32


def test_a_model_of_open_clip_is_a_classifier_too():
    import open_clip

    torch.manual_seed(0)
    vision = {"image_size": 16, "patch_size": 8, "width": 32, "layers": 2, "head_width": 16}
    theirs = open_clip.CLIP(16, vision, {"width": 16, "layers": 1, "heads": 2}).eval()
    names, pixels = ["cat", "dog", "ship"], torch.rand(2, 3, 16, 16)
    model = zero_shot(theirs, names, ("a photo of {}",), tokenizer=open_clip.SimpleTokenizer())
    with torch.no_grad():
        mean, std = (torch.tensor(v).view(3, 1, 1) for v in (OPENAI_MEAN, OPENAI_STD))
        image = theirs.encode_image((pixels - mean) / std, normalize=True)
        text = theirs.encode_text(open_clip.SimpleTokenizer()([f"a photo of {n}" for n in names]), normalize=True)
        assert torch.allclose(model(pixels), theirs.logit_scale.exp() * image @ text.T, atol=1e-5)
        with taps(model) as record:
            model(pixels)
    assert list(record) == [f"visual.model.transformer.resblocks.{i}.attn" for i in (0, 1)]
    result = attack(model, pixels, torch.tensor([0, 1]), PGD(within=Linf("8/255"), steps=2, loss="cosine"))
    assert (result.adversarial - pixels).abs().max() <= 8 / 255 + 1e-6


def test_taps_of_a_zero_shot_classifier_are_those_of_the_vision_tower():
    model = zero_shot(CLIP(TINY.with_attention(Differential())).eval(), ["cat", "dog"], ("{}",))
    assert list(lambdas(model)) == ["visual.model.vit.blocks.0.attn", "visual.model.vit.blocks.1.attn"]
    with taps(model) as record:
        model(torch.rand(1, 3, 16, 16))
    assert list(record) == list(lambdas(model))
