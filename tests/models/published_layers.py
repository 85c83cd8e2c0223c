"""Small layers with the parts of published differential attentions, written from their equations, one head after the other.

The layers of microsoft/unilm (V1 and V2) and of the DiffCLIP authors cannot be installed; names and layout are theirs.
"""

import math

import torch
from torch import nn


def turned(vectors, rel_pos):
    """Each pair (x_2m, x_2m+1) of the vector of token n is turned by its angle. vectors: (N, d), cos and sin: (N, d / 2)"""
    out = vectors.clone()
    for m in range(vectors.shape[-1] // 2):
        cos, sin = (table[:, m] for table in rel_pos)
        a, b = vectors[:, 2 * m], vectors[:, 2 * m + 1]
        out[:, 2 * m], out[:, 2 * m + 1] = a * cos - b * sin, a * sin + b * cos
    return out


def angles(tokens, d):
    """cos and sin of rotary positions: (N, d / 2) each"""
    angle = torch.arange(tokens)[:, None] * 10_000 ** (-torch.arange(d // 2) / (d // 2))
    return angle.cos().double(), angle.sin().double()


def map_of(q, k, mask):
    return torch.softmax(q @ k.T / math.sqrt(q.shape[-1]) + mask, dim=-1)


def causal(tokens):
    return torch.full((tokens, tokens), -math.inf, dtype=torch.float64).triu(1)


class RMSNorm(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.rand(width) + 0.5)

    def forward(self, x):
        return x / torch.sqrt(x.pow(2).mean(dim=-1, keepdim=True) + 1e-5) * self.weight


class Lambda(nn.Module):
    """The four vectors of V1's lambda."""

    def __init__(self, d, lambda_init):
        super().__init__()
        self.lambda_init = lambda_init
        for name in ("lambda_q1", "lambda_k1", "lambda_q2", "lambda_k2"):
            setattr(self, name, nn.Parameter(torch.randn(d) * 0.3))

    def lam(self):
        return (self.lambda_q1 @ self.lambda_k1).exp() - (self.lambda_q2 @ self.lambda_k2).exp() + self.lambda_init


class UnilmV1(Lambda):
    """Head i has maps 2i and 2i+1; causal unless a mask is given. With fewer key heads map m looks at keys m // group, as theirs
    does (each key map is repeated in place), and head i has the values i // group."""

    def __init__(self, width, heads, groups, lambda_init=0.4):
        d = width // heads // 2
        super().__init__(d, lambda_init)
        self.num_heads, self.num_kv_heads, self.head_dim = heads, groups, d
        self.q_proj = nn.Linear(width, 2 * heads * d, bias=False)
        self.k_proj = nn.Linear(width, 2 * groups * d, bias=False)
        self.v_proj = nn.Linear(width, 2 * groups * d, bias=False)
        self.out_proj = nn.Linear(2 * heads * d, width, bias=False)
        self.subln = RMSNorm(2 * d)

    def forward(self, x, rel_pos, attn_mask=None):
        return torch.stack([self.one(image, rel_pos, attn_mask) for image in x])

    def one(self, x, rel_pos, attn_mask):
        d, q, k, v = self.head_dim, self.q_proj(x), self.k_proj(x), self.v_proj(x)
        mask = causal(len(x)) if attn_mask is None else attn_mask
        columns = []
        per_group = self.num_heads // self.num_kv_heads
        for i in range(self.num_heads):
            j = i // per_group
            a1, a2 = (self.map(q, k, 2 * i + b, (2 * i + b) // per_group, rel_pos, mask) for b in (0, 1))
            mixed = (a1 - self.lam() * a2) @ v[:, 2 * j * d : 2 * (j + 1) * d]
            columns.append((1 - self.lambda_init) * self.subln(mixed))
        return self.out_proj(torch.cat(columns, dim=-1))

    def map(self, q, k, m, of_key, rel_pos, mask):
        d = self.head_dim
        return map_of(turned(q[:, m * d :][:, :d], rel_pos), turned(k[:, of_key * d :][:, :d], rel_pos), mask)


class UnilmV2(nn.Module):
    """Queries 2i and 2i+1 of head i look at the keys and values of one group; lambda = sigmoid(W x); causal."""

    def __init__(self, width, heads, groups, d):
        super().__init__()
        self.use_diff_v2, self.num_heads, self.num_kv_heads, self.head_dim = True, heads, groups, d
        self.q_proj = nn.Linear(width, 2 * heads * d, bias=False)
        self.k_proj = nn.Linear(width, groups * d, bias=False)
        self.v_proj = nn.Linear(width, groups * d, bias=False)
        self.o_proj = nn.Linear(heads * d, width, bias=False)
        self.lambda_proj = nn.Linear(width, heads, bias=False)

    def forward(self, x, rel_pos):
        return torch.stack([self.one(image, rel_pos) for image in x])

    def one(self, x, rel_pos):
        d, q, k, v = self.head_dim, self.q_proj(x), self.k_proj(x), self.v_proj(x)
        lam, per_group = torch.sigmoid(self.lambda_proj(x)), 2 * self.num_heads // self.num_kv_heads
        outputs = []
        for j in range(2 * self.num_heads):
            own = slice(j // per_group * d, (j // per_group + 1) * d)
            a = map_of(turned(q[:, j * d : (j + 1) * d], rel_pos), turned(k[:, own], rel_pos), causal(len(x)))
            outputs.append(a @ v[:, own])
        heads = [outputs[2 * i] - lam[:, i : i + 1] * outputs[2 * i + 1] for i in range(self.num_heads)]
        return self.o_proj(torch.cat(heads, dim=-1))


class DiffCLIPAttention(Lambda):
    """`num_heads` is the number of maps; no positions, biases, a norm called diff_norm."""

    def __init__(self, width, maps, lambda_init=0.8):
        d = width // maps
        super().__init__(d, lambda_init)
        self.num_heads, self.head_dim = maps, d
        self.q_proj, self.k_proj, self.v_proj, self.out_proj = (nn.Linear(width, width) for _ in range(4))
        self.diff_norm = RMSNorm(2 * d)

    def forward(self, x, attn_mask=None):
        return torch.stack([self.one(image, 0.0 if attn_mask is None else attn_mask) for image in x])

    def one(self, x, mask):
        d, q, k, v = self.head_dim, self.q_proj(x), self.k_proj(x), self.v_proj(x)
        columns = []
        for i in range(self.num_heads // 2):
            a1, a2 = (map_of(q[:, (2 * i + b) * d :][:, :d], k[:, (2 * i + b) * d :][:, :d], mask) for b in (0, 1))
            mixed = (a1 - self.lam() * a2) @ v[:, 2 * i * d : 2 * (i + 1) * d]
            columns.append((1 - self.lambda_init) * self.diff_norm(mixed))
        return self.out_proj(torch.cat(columns, dim=-1))
