"""Maps of captions, row by row and token by token."""

import numpy as np
import pytest
import torch

from antiphase.config import InputError
from antiphase.measures.caption_correlation import caption_correlation
from antiphase.models import Differential
from antiphase.models.clip import CLIP
from antiphase.models.taps import taps
from antiphase.models.tokenizer import tokenize
from tests.models.small_models import TINY

CAPTIONS = [  # of Flickr8k
    "A child in a pink dress is climbing up a set of stairs in an entry way .",
    "A girl going into a wooden building .",
    "A black dog and a spotted dog are fighting",
    "A little girl covered in paint sits in front of a painted rainbow with her hands in a bowl .",
]


def test_maps_of_captions_are_correlated_row_by_row_and_token_by_token():
    clip = CLIP(TINY.with_attention(Differential())).eval()
    found = {each.perturbation: each for each in caption_correlation(clip, CAPTIONS)}
    assert set(found) == {"short", "long", "short, inserted", "long, inserted"}
    assert {name: len(each.l2) for name, each in found.items()} == dict.fromkeys(found, 2)
    with torch.no_grad(), taps(clip.text) as record:
        clip.encode_text(tokenize([CAPTIONS[1]]))
    a, b = (m[0, :, :10, :10] for m in (record["blocks.0.attn"].signal, record["blocks.0.attn"].noise))
    by_hand = [np.mean([np.corrcoef(a[h, r, : r + 1], b[h, r, : r + 1])[0, 1] for r in range(3, 10)]) for h in (0,)]
    assert found["short"].statistics["pearson"][0] == pytest.approx(by_hand, abs=1e-4)
    assert np.isnan(found["short"].statistics["change_cosine"]).all()  # nothing moved
    assert np.isfinite(found["short, inserted"].statistics["change_cosine"]).all()


def test_tokens_before_an_inserted_word_do_not_move():
    clip = CLIP(TINY.with_attention(Differential())).eval()
    before, after = tokenize(["a dog runs home"]), tokenize(["a dog runs quickly home"])
    with torch.no_grad(), taps(clip.text) as record:
        clip.encode_text(before)
        first = record["blocks.0.attn"].signal
        clip.encode_text(after)
    assert torch.allclose(first[0, :, :4, :4], record["blocks.0.attn"].signal[0, :, :4, :4], atol=1e-6)


@pytest.mark.parametrize(
    ("captions", "named"),
    [
        (["a"], "has 3 tokens"),
        (["cat " * 80], "has 82 tokens"),
        ([""], "a text is empty"),
        ([], "at least one caption"),
    ],
)
def test_captions_that_cannot_be_read_get_one_sentence(captions, named):
    with pytest.raises(InputError, match=named):
        caption_correlation(CLIP(TINY.with_attention(Differential())), captions)
