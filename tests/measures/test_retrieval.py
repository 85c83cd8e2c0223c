"""Ranks of retrieval, by hand."""

import pytest
import torch

from antiphase.measures.retrieval import image_ranks, recall, text_ranks


def test_ranks_by_hand():
    """Three images, five captions; the second text is nearer to a foreign image."""
    images = torch.eye(3)
    captions = torch.tensor([[1.0, 0, 0], [0.1, 0.9, 0], [0, 1, 0], [0, 0, 1], [0.6, 0.7, 0.2]])
    owner = torch.tensor([0, 0, 1, 2, 2])
    assert image_ranks(images, captions, owner).tolist() == [0, 1, 0, 0, 2]
    assert text_ranks(images, captions, owner).tolist() == [0, 0, 0]
    assert recall(torch.tensor([0, 1, 0, 0, 2]), 1) == pytest.approx(0.6)
    assert text_ranks(torch.ones(2, 3), torch.ones(2, 3), torch.arange(2)).tolist() == [1, 1]  # a tie is no hit
