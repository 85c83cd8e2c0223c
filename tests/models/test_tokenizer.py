"""Token ids are CLIP's, or the bytes of the text."""

import pytest
import torch

from antiphase.config import InputError
from antiphase.models.clip_config import TextConfig
from antiphase.models.tokenizer import encode, tokenize


def test_bytes_are_tokens_and_the_end_is_the_largest():
    ids = encode("Zoë", by="bytes")
    assert ids == [257, 1 + 0x5A, 1 + 0x6F, 1 + 0xC3, 1 + 0xAB, 258]
    rows = tokenize(["cat", "a much longer text"], context=8, by="bytes")
    assert rows.argmax(dim=1).tolist() == [4, 7]
    assert rows[0].tolist()[5:] == [0, 0, 0]
    with pytest.raises(InputError, match="has 20 tokens, and the model reads 8"):
        tokenize(["a much longer text"], context=8, by="bytes", truncate="never")
    with pytest.raises(InputError, match="259"):
        TextConfig(tokenizer="bytes")


def test_token_ids_are_clips():
    tokens = tokenize(["a photo of a cat", "A  photo of a CAT"])
    assert tokens[0, :8].tolist() == [49406, 320, 1125, 539, 320, 2368, 49407, 0]
    assert torch.equal(tokens[0], tokens[1])
    assert tokens.shape == (2, 77)


def test_a_text_that_is_too_long_keeps_its_end_token_or_loses_it_as_in_slip():
    long = ["cat " * 100]
    assert tokenize(long)[0, -1] == 49407
    slip = tokenize(long, truncate="slip")
    assert slip[0, -1] == 2368
    assert slip.argmax() == 0  # the feature is read at the start: the same for every text that is too long
    assert torch.equal(tokenize(["a cat"]), tokenize(["a cat"], truncate="slip"))
