"""A classifier that is none of ours."""

import torch
from torch import nn


class Encoder(nn.Module):
    """torch's own encoder: nn.MultiheadAttention, blocks called with masks and flags, a fast path around both."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        layer = nn.TransformerEncoderLayer(16, 4, 32, batch_first=True, norm_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(16, 10)

    def forward(self, pixels):
        return self.head(self.encoder(pixels.reshape(len(pixels), 4, 16)).mean(dim=1))
