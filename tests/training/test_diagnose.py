"""The signs that a training fails are named."""

import torch
import torch.nn.functional as F

from antiphase.training.diagnose import embedding_spread, warning_signs


def test_the_signs_of_failure_are_named():
    torch.manual_seed(0)
    healthy = F.normalize(torch.randn(200, 16), dim=-1)
    point = F.normalize(torch.ones(200, 16) + 0.01 * torch.randn(200, 16), dim=-1)
    line = F.normalize(torch.randn(200, 1) * torch.ones(1, 16), dim=-1)
    assert embedding_spread(healthy)[1] > 12
    assert warning_signs({"a": 0.8, "b": 0.03, "c": 1.0}, *embedding_spread(healthy)) == []
    assert "mean cosine" in warning_signs({}, *embedding_spread(point))[0]
    assert "dimensions" in warning_signs({}, *embedding_spread(line))[0]
    found = warning_signs({"low": 0.02, "high": 1.01, "lost": float("nan")}, *embedding_spread(healthy))
    assert [sentence.split()[2] for sentence in found] == ["low", "high", "lost"]
