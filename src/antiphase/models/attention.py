"""Attention maps, lambda and the differential layer: the only file that knows lambda.

B batch, N tokens, D width, h differential heads, d = D / 2h
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, Self

import torch
import torch.nn.functional as F
from timm.layers import Attention as TimmAttention
from timm.layers import DiffAttention as TimmDiffAttention
from timm.layers.attention import maybe_add_mask, resolve_self_attn_mask
from torch import Tensor, nn

from antiphase.config import InputError
from antiphase.models.config import (
    Attention,
    BoundedDifferential,
    Differential,
    DifferentialV2,
    Dint,
    GroupedDifferential,
    LowRankDifferential,
)

if TYPE_CHECKING:
    from antiphase.models.foreign_layers import AttentionParts


@dataclass(frozen=True)
class Heads:
    """One call of an attention layer, as its adapter describes it (`models/adapters.py`); all else follows from this."""

    q: Tensor  # (B, h, N, d); of a differential layer (B, h, 2, N, d): first the signal's, then the noise's
    k: Tensor  # the same for the M tokens that are looked at
    v: Tensor  # (B, h, M, e)
    norm: Callable[[Tensor], Tensor]  # from the mixed values (B, h, N, e) to what is projected, the same shape
    project: Callable[[Tensor], Any]  # from there to what the layer returns
    lam: Tensor | None = None  # lambda, broadcasts to (B, h, N, 1); None: a softmax layer, one map per head
    mask: Tensor | None = None  # added to the scores, or False where nothing may be seen
    is_causal: bool = False
    weights: tuple[Tensor, Tensor] | None = (
        None  # Wq, Wk: (h, d, D) or (h, 2, d, D), where q and k are linear in the input
    )
    gate: tuple[Tensor, Tensor] | None = (
        None  # dlambda_i / dx_i = slope (B, h, N) times direction (h, D), where lambda of
    )
    # a token is a function of one product with that token's input
    integral: bool = False  # lambda times the mean of A1's rows is added to every row (DINT)

    @property
    def at_first_token(self) -> Heads:
        """The same call, looked at for the first token alone: one query, and the keys and values of all."""
        lam = self.lam if self.lam is None or self.lam.dim() != 4 else self.lam[:, :, :1]
        gate = None if self.gate is None else (self.gate[0][..., :1], self.gate[1])
        return replace(self, q=self.q[..., :1, :], lam=lam, gate=gate)


@dataclass(frozen=True)
class Branches:
    """What an attention layer looks at: its maps, their weight, the values they mix and what becomes of them."""

    signal: Tensor  # A1, or the only map of a softmax layer: (B, h, N, M)
    noise: Tensor | None  # A2: (B, h, N, M); None for a softmax layer
    lam: Tensor  # broadcasts to (B, h, N, 1), (1, 1, 1, 1) for a learned scalar; 0 for a softmax layer
    heads: Heads

    @property
    def added(self) -> Tensor | None:
        """What DINT adds to every row of A1 - lambda A2, lambda times the mean of A1's rows: (B, h, N or 1, M)"""
        return self.lam * self.signal.mean(dim=-2, keepdim=True) if self.heads.integral else None

    @property
    def values(self) -> Tensor:
        """V: (B, h, M, e)"""
        return self.heads.v

    @property
    def scalar_lambda(self) -> float:
        """Lambda as one number; its mean where it differs between images, heads or tokens."""
        return float(self.lam) if self.lam.numel() == 1 else float(self.lam.mean())

    @property
    def combined(self) -> Tensor:
        """A1 - lambda A2 (and what DINT adds to it): the map that is applied to the values."""
        if self.noise is None:
            return self.signal
        difference, added = self.signal - self.lam * self.noise, self.added
        return difference if added is None else difference + added

    @property
    def mixed(self) -> Tensor:
        """(A1 - lambda A2) V, before the norm: (B, h, N, e)"""
        return self.combined @ self.values

    @property
    def normed(self) -> Tensor:
        """After norm and gain, before the projection: (B, h, N, e)"""
        return self.heads.norm(self.mixed)

    @property
    def output(self) -> Any:
        """What the layer returns, by the explicit path."""
        return self.heads.project(self.normed)


def attention_maps(q: Tensor, k: Tensor, mask: Tensor | None = None, is_causal: bool = False) -> Tensor:
    """softmax(QK'/sqrt(d)), rows sum to one. q, k: (..., N, d) -> (..., N, N)

    The row of a token that may see nothing is zero, as torch's fused kernel has it.
    """
    scores = (q * q.shape[-1] ** -0.5) @ k.mT
    bias = resolve_self_attn_mask(q.shape[-2], scores, mask, is_causal=is_causal)
    if mask is None or is_causal:
        masked: Tensor = maybe_add_mask(scores, bias)
        return masked.softmax(dim=-1)
    blind = (bias == -torch.inf).all(dim=-1, keepdim=True)
    maps: Tensor = (scores + bias.masked_fill(blind, 0)).softmax(dim=-1)
    return maps.masked_fill(blind, 0)


def for_both(mask: Tensor | None) -> Tensor | None:
    """A mask of (..., N, N) for scores of two maps per head, (B, h, 2, N, N); one of five dimensions is that already."""
    return mask[:, :, None] if mask is not None and mask.dim() == 4 else mask


class DifferentialAttention(TimmDiffAttention):
    """timm's differential attention with lambda learned or fixed, and its norm and gain open to choice.

    DA(X) = gain * norm((A1 - lambda A2) V) W_o,  lambda = exp(lq1.lk1) - exp(lq2.lk2) + lambda_init
    """

    sub_norm: Any
    qkv: Any
    lambda_q1: Any
    lambda_k1: Any
    lambda_q2: Any
    lambda_k2: Any

    def __init__(
        self,
        width: int,
        diff_heads: int,
        *,
        lambda_init: float,
        learned: bool,
        head_norm: bool,
        gain: float,
        bias: bool = True,
    ) -> None:
        super().__init__(width, num_heads=diff_heads, qkv_bias=bias)
        self.lambda_init, self.learned, self.head_norm, self.gain = lambda_init, learned, head_norm, gain
        if not learned:
            self.lambda_q1 = self.lambda_k1 = self.lambda_q2 = self.lambda_k2 = None
        if not head_norm:
            self.sub_norm = nn.Identity()

    @classmethod
    def replacing(cls, softmax: AttentionParts, value: Differential, diff_heads: int, layer: int, depth: int) -> Self:
        """The differential twin of a softmax layer: the same projections, read as two maps per head."""
        shared = {field.name for field in fields(Differential)}
        more: dict[str, Any] = {f.name: getattr(value, f.name) for f in fields(value) if f.name not in shared}
        twin = cls(
            softmax.width,
            diff_heads,
            lambda_init=value.init_at(layer, depth),
            learned=value.learned,
            head_norm=value.head_norm == "rms",
            gain=value.gain_at(layer, depth),
            **more,
        )
        weight = next(softmax.qkv.parameters())
        twin.to(device=weight.device, dtype=weight.dtype)  # what is new; the parts stay as they are
        twin.take(softmax)
        twin.q_norm, twin.k_norm, twin.norm = softmax.q_norm, softmax.k_norm, softmax.norm
        twin.attn_drop, twin.proj_drop = nn.Dropout(softmax.attn_drop), nn.Dropout(softmax.proj_drop)
        return twin

    def take(self, parts: AttentionParts) -> None:
        """Work with the projections of a softmax layer."""
        self.qkv, self.proj = parts.qkv, parts.proj

    def _take_rows(self, parts: AttentionParts, chosen: Tensor) -> None:
        """Copies of these rows of the projections of a softmax layer, for layers with fewer of them."""
        assert isinstance(parts.qkv, nn.Linear)
        with torch.no_grad():
            self.qkv.weight.copy_(parts.qkv.weight[chosen])
            if parts.qkv.bias is not None:
                self.qkv.bias.copy_(parts.qkv.bias[chosen])
        self.proj = parts.proj

    def _compute_lambda(self) -> Tensor:
        if self.learned:
            learned: Tensor = super()._compute_lambda()
            return learned
        return torch.full((), self.lambda_init, device=next(self.qkv.parameters()).device)

    def project(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Queries and keys (B, h, 2, N, d), values (B, h, N, 2d)"""
        return project(self, x)

    @property
    def query_key_weights(self) -> tuple[Tensor, Tensor]:
        """Wq and Wk of every map: (h, 2, d, D) each"""
        wq, wk, _ = self.qkv.weight.chunk(3)
        wq, wk = (w.reshape(self.num_heads, 2, self.head_dim, -1) for w in (wq, wk))
        return wq, wk

    def forward(self, x: Tensor, attn_mask: Tensor | None = None, is_causal: bool = False) -> Tensor:
        q, k, v = self.project(x)
        mix = (
            self.mix_fused if self.fused_attn and x.is_cuda else self.mix_explicit
        )  # on a CPU explicit maps are faster
        return self.finish(mix(q, k, v, attn_mask, is_causal))

    def combined(self, q: Tensor, k: Tensor, mask: Tensor | None, is_causal: bool) -> Tensor:
        """A1 - lambda A2: (B, h, N, N)"""
        signal, noise = self.attn_drop(attention_maps(q, k, for_both(mask), is_causal)).unbind(2)
        combined: Tensor = signal - self._compute_lambda().to(q.dtype) * noise
        return combined

    def mix_explicit(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, is_causal: bool) -> Tensor:
        """(A1 - lambda A2) V by way of the maps: (B, h, N, 2d)"""
        return self.combined(q, k, mask, is_causal) @ v

    def mix_fused(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, is_causal: bool) -> Tensor:
        """The same as A1 V - lambda A2 V, by two calls of a kernel that never holds a map."""
        drop = self.attn_drop.p if self.training else 0.0
        first, second = (
            F.scaled_dot_product_attention(
                q[:, :, i],
                k[:, :, i],
                v,
                attn_mask=mask[:, :, i] if mask is not None and mask.dim() == 5 else mask,
                dropout_p=drop,
                is_causal=is_causal,
            )
            for i in (0, 1)
        )
        return first - self._compute_lambda().to(v.dtype) * second

    def normed(self, mixed: Tensor) -> Tensor:
        """Norm of each head, then the gain: (B, h, N, 2d)"""
        if self.head_norm:  # the gain is folded into the norm's weight: one pass over the data fewer
            weight = (self.sub_norm.weight * self.gain).to(mixed.dtype)  # another one under autocast
            return F.rms_norm(mixed, mixed.shape[-1:], weight, self.sub_norm.eps)
        return mixed * self.gain

    def finish(self, mixed: Tensor) -> Tensor:
        """From the mixed values (B, h, N, 2d) to the layer's output (B, N, D)."""
        out: Tensor = self.proj_drop(self.proj(self.norm(self.normed(mixed).transpose(1, 2).flatten(2))))
        return out


class GroupedDifferentialAttention(DifferentialAttention):
    """Differential attention whose noise maps are shared by several heads (GDA): fewer queries and keys, the rest as it is.

    The rows of `qkv` are queries of the h signal maps, queries of the h / ratio noise maps, their keys in the same order, values.
    """

    def __init__(self, width: int, diff_heads: int, *, ratio: int, bias: bool = True, **options: Any) -> None:
        super().__init__(width, diff_heads, bias=bias, **options)
        self.ratio, self.width = ratio, width
        self.maps_width = (diff_heads + diff_heads // ratio) * self.head_dim  # of all queries, and of all keys
        self.qkv = nn.Linear(width, 2 * self.maps_width + width, bias=bias)

    def take(self, parts: AttentionParts) -> None:
        """The rows that this layer has a place for: of the noise maps' queries and keys those of every `ratio`-th head."""
        heads, d = self.num_heads, self.head_dim
        rows = torch.arange(2 * heads * d).view(heads, 2, d)
        kept = torch.cat([rows[:, 0].flatten(), rows[:: self.ratio, 1].flatten()])
        self._take_rows(parts, torch.cat([kept, 2 * heads * d + kept, torch.arange(4 * heads * d, 6 * heads * d)]))

    def _both(self, rows: Tensor) -> Tensor:
        """Signal and noise maps' parts (maps, ...) -> (h, 2, ...), each noise part repeated for the heads that share it"""
        signal, noise = rows[: self.num_heads], rows[self.num_heads :]
        return torch.stack([signal, noise.repeat_interleave(self.ratio, dim=0)], dim=1)

    def project(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        q, k, v = self.qkv(x).split([self.maps_width, self.maps_width, self.width], dim=-1)
        q, k = (self._both(t.unflatten(-1, (-1, self.head_dim)).movedim(2, 0)).movedim(2, 0) for t in (q, k))
        return self.q_norm(q), self.k_norm(k), v.unflatten(-1, (self.num_heads, -1)).transpose(1, 2)

    @property
    def query_key_weights(self) -> tuple[Tensor, Tensor]:
        rows: Any = self.qkv.weight
        wq, wk, _ = rows.split([self.maps_width, self.maps_width, self.width])
        wq, wk = (self._both(w.unflatten(0, (-1, self.head_dim))) for w in (wq, wk))
        return wq, wk


class BoundedDifferentialAttention(DifferentialAttention):
    """Differential attention with lambda in (0, bound), whatever is learned.

    lambda = bound sigmoid(logit(lambda_init / bound) + lq1.lk1 - lq2.lk2); lq1 = lq2 = 0 at first.
    """

    def __init__(self, width: int, diff_heads: int, *, bound: float, bias: bool = True, **options: Any) -> None:
        super().__init__(width, diff_heads, bias=bias, **options)
        self.bound = bound
        nn.init.zeros_(self.lambda_q1)
        nn.init.zeros_(self.lambda_q2)

    def _compute_lambda(self) -> Tensor:
        q1, k1, q2, k2 = self.lambda_q1, self.lambda_k1, self.lambda_q2, self.lambda_k2
        start = math.log(self.lambda_init / (self.bound - self.lambda_init))
        lam: Tensor = self.bound * (start + q1 @ k1 - q2 @ k2).float().sigmoid()
        return lam


class LowRankDifferentialAttention(DifferentialAttention):
    """Differential attention whose noise map has the signal's queries and keys, plus a difference of low rank.

    Wq2 = Wq1 + Bq Aq and Wk2 = Wk1 + Bk Ak of every head, with the signal's biases. The rows of `qkv` are queries and keys of
    the h signal maps and the values; those of `low` are Aq and Ak, and `high` holds Bq and Bk: (2, h, d, rank).
    """

    def __init__(self, width: int, diff_heads: int, *, rank: int, bias: bool = True, **options: Any) -> None:
        super().__init__(width, diff_heads, bias=bias, **options)
        self.rank, self.width = rank, width
        self.maps_width = diff_heads * self.head_dim  # of all signal queries, and of all signal keys
        self.qkv = nn.Linear(width, 2 * self.maps_width + width, bias=bias)
        self.low = nn.Linear(width, 2 * diff_heads * rank, bias=False)
        self.high = nn.Parameter(torch.zeros(2, diff_heads, self.head_dim, rank))

    def take(self, parts: AttentionParts) -> None:
        """The rows that this layer has a place for: of queries and keys those of the signal maps, every second softmax head's."""
        heads, d = self.num_heads, self.head_dim
        signal = torch.arange(2 * heads * d).view(heads, 2, d)[:, 0].flatten()
        self._take_rows(parts, torch.cat([signal, 2 * heads * d + signal, torch.arange(4 * heads * d, 6 * heads * d)]))

    def project(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        q, k, v = self.qkv(x).split([self.maps_width, self.maps_width, self.width], dim=-1)
        q, k = (t.unflatten(-1, (self.num_heads, -1)).transpose(1, 2) for t in (q, k))  # (B, h, N, d)
        low = self.low(x).unflatten(-1, (2, self.num_heads, self.rank)).permute(2, 0, 3, 1, 4)  # (2, B, h, N, rank)
        q, k = (torch.stack([t, t + part @ high.mT], dim=2) for t, part, high in zip((q, k), low, self.high))
        return self.q_norm(q), self.k_norm(k), v.unflatten(-1, (self.num_heads, -1)).transpose(1, 2)

    @property
    def query_key_weights(self) -> tuple[Tensor, Tensor]:
        rows: Any = self.qkv.weight
        signal = rows[: 2 * self.maps_width].view(2, self.num_heads, self.head_dim, -1)
        noise = signal + self.high @ self.low.weight.view(2, self.num_heads, self.rank, -1)
        wq, wk = torch.stack([signal, noise], dim=2)
        return wq, wk


class DintAttention(DifferentialAttention):
    """Differential attention that adds lambda times the mean row of A1 to every row, so that rows sum to 1 (DINT).

    DINT(X) = gain * norm((A1 - lambda A2 + lambda 1 mean(A1)') V) W_o
    """

    def combined(self, q: Tensor, k: Tensor, mask: Tensor | None, is_causal: bool) -> Tensor:
        """A1 - lambda A2 + lambda 1 mean(A1)': (B, h, N, N)"""
        refuse_mask_of_integral(mask, is_causal)
        signal, noise = self.attn_drop(attention_maps(q, k)).unbind(2)
        combined: Tensor = signal - self._compute_lambda().to(q.dtype) * (noise - signal.mean(dim=-2, keepdim=True))
        return combined

    def mix_fused(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, is_causal: bool) -> Tensor:
        """The mean of A1's rows times V is the mean of the rows of A1 V."""
        refuse_mask_of_integral(mask, is_causal)
        drop = self.attn_drop.p if self.training else 0.0
        first, second = (F.scaled_dot_product_attention(q[:, :, i], k[:, :, i], v, dropout_p=drop) for i in (0, 1))
        return first - self._compute_lambda().to(v.dtype) * (second - first.mean(dim=-2, keepdim=True))


def refuse_mask_of_integral(mask: Tensor | None, is_causal: bool) -> None:
    """The mean over all rows would show a token what its mask hides."""
    if mask is not None or is_causal:
        raise InputError(
            "dint takes the mean over all tokens and so has no mask: use it in a vision tower, not in text"
        )


class DifferentialAttentionV2(nn.Module):
    """Differential Transformer V2: two queries per head, one key and one value, and lambda computed from each token.

    DA(X) = (A1 - lambda A2) V W_o,  lambda = sigmoid(W_lambda x) of every token and head, no norm and no gain.
    `qkv` and `proj` are those of a softmax layer with as many heads, whose queries make A1; `noise_q` makes A2.
    """

    def __init__(self, width: int, heads: int, *, bias: bool = True) -> None:
        super().__init__()
        self.num_heads, self.head_dim = heads, width // heads
        self.qkv = nn.Linear(width, 3 * width, bias=bias)
        self.noise_q = nn.Linear(width, width, bias=bias)
        self.lambda_proj = nn.Linear(width, heads, bias=False)
        self.proj = nn.Linear(width, width)
        self.attn_drop, self.proj_drop = nn.Dropout(0.0), nn.Dropout(0.0)

    def project(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Queries (B, h, 2, N, d), keys (B, h, 1, N, d), values (B, h, N, d)"""
        q, k, v, noise = (
            t.unflatten(-1, (self.num_heads, -1)).transpose(1, 2) for t in (*self.qkv(x).chunk(3, -1), self.noise_q(x))
        )
        return torch.stack([q, noise], dim=2), k[:, :, None], v

    def lam(self, x: Tensor) -> Tensor:
        """sigmoid(W_lambda x): (B, h, N, 1)"""
        lam: Tensor = self.lambda_proj(x).sigmoid().transpose(1, 2)[..., None]
        return lam

    @property
    def query_key_weights(self) -> tuple[Tensor, Tensor]:
        """Wq and Wk of every map: (h, 2, d, D) each; the keys of a head's two maps are the same"""
        wq, wk, _ = (w.reshape(self.num_heads, self.head_dim, -1) for w in self.qkv.weight.chunk(3))
        noise = self.noise_q.weight.reshape(self.num_heads, self.head_dim, -1)
        return torch.stack([wq, noise], dim=1), torch.stack([wk, wk], dim=1)

    def forward(self, x: Tensor, attn_mask: Tensor | None = None, is_causal: bool = False) -> Tensor:
        q, k, v = self.project(x)
        signal, noise = self.attn_drop(attention_maps(q, k, for_both(attn_mask), is_causal)).unbind(2)
        return self.finish((signal - self.lam(x) * noise) @ v)

    def finish(self, mixed: Tensor) -> Tensor:
        """From the mixed values (B, h, N, d) to the layer's output (B, N, D)."""
        out: Tensor = self.proj_drop(self.proj(mixed.transpose(1, 2).flatten(2)))
        return out


def project(module: TimmDiffAttention, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Queries and keys (B, h, 2, N, d), values (B, h, N, 2d); maps 2i and 2i+1 belong to differential head i."""
    batch, tokens, _ = x.shape
    heads, d = module.num_heads, module.head_dim
    q, k, v = module.qkv(x).chunk(3, dim=-1)
    q, k = (t.reshape(batch, tokens, heads, 2, d).permute(0, 2, 3, 1, 4) for t in (q, k))
    return module.q_norm(q), module.k_norm(k), v.reshape(batch, tokens, heads, 2 * d).transpose(1, 2)


def sigmoid_gate(lam: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    """How lambda = sigmoid(W x), (B, h, N, 1), moves with the input of its own token: slope (B, h, N) and direction (h, D)"""
    return (lam * (1 - lam))[..., 0], weight


def branches(heads: Heads) -> Branches:
    """The maps of a call, by the explicit path: the one place where queries and keys become A1, A2 and lambda."""
    maps = attention_maps(heads.q, heads.k, heads.mask, heads.is_causal)
    if heads.lam is None:
        return Branches(maps, None, maps.new_zeros(1, 1, 1, 1), heads)
    if heads.q.dim() != 5:
        raise InputError(
            f"lambda was given for queries of shape {tuple(heads.q.shape)}, one map per head, and two are subtracted, "
            "(B, h, 2, N, d); a layer with one map (DEX) has no second branch: leave lam out"
        )
    signal, noise = maps.unbind(2)
    lam = _broadcast_lambda(heads.lam, signal).to(maps.dtype)
    return Branches(signal, noise, lam, heads)


def differential_twin(
    softmax: AttentionParts, value: Attention, heads: int, layer: int, depth: int
) -> DifferentialAttention | DifferentialAttentionV2:
    """The layer with two maps per head that takes the place of a softmax layer, made of its projections."""
    if isinstance(value, DifferentialV2):
        return _twin_v2(softmax, heads)
    kinds: dict[type[Attention], type[DifferentialAttention]] = {
        Differential: DifferentialAttention,
        GroupedDifferential: GroupedDifferentialAttention,
        BoundedDifferential: BoundedDifferentialAttention,
        LowRankDifferential: LowRankDifferentialAttention,
        Dint: DintAttention,
    }
    assert isinstance(value, Differential)
    return kinds[type(value)].replacing(softmax, value, heads, layer, depth)


def _twin_v2(softmax: AttentionParts, heads: int) -> DifferentialAttentionV2:
    twin = DifferentialAttentionV2(softmax.width, heads)
    weight = next(softmax.qkv.parameters())
    twin.to(device=weight.device, dtype=weight.dtype)
    assert isinstance(softmax.qkv, nn.Linear)
    assert isinstance(softmax.proj, nn.Linear)
    twin.qkv, twin.proj = softmax.qkv, softmax.proj
    twin.attn_drop, twin.proj_drop = nn.Dropout(softmax.attn_drop), nn.Dropout(softmax.proj_drop)
    return twin


def _broadcast_lambda(lam: Tensor, signal: Tensor) -> Tensor:
    """Lambda with the four axes of (B, h, N, 1), each of its own length or 1; other shapes are refused."""
    if lam.dim() == 0:
        return lam.reshape(1, 1, 1, 1)
    rows = (*signal.shape[:3], 1)
    if lam.dim() != 4 or any(size not in (1, whole) for size, whole in zip(lam.shape, rows)):
        raise InputError(f"lambda of shape {tuple(lam.shape)} does not broadcast to {rows} (images, heads, tokens, 1)")
    return lam


_PAIRED = (DifferentialAttention, BoundedDifferentialAttention)  # their projections hold a pair of maps for every head
_BY_MAP = (GroupedDifferentialAttention, LowRankDifferentialAttention, DifferentialAttentionV2)


def has_first_token(module: Any) -> bool:
    """`first_token` knows how to do without the others for this layer; not for DINT, whose mean is over all of them."""
    if type(module) not in (TimmAttention, *_PAIRED, *_BY_MAP):
        return False
    names = ("q_norm", "k_norm", "norm", "proj_drop", "attn_drop")
    plain = [getattr(module, name) for name in names if hasattr(module, name)]
    gate = getattr(module, "gate", None)
    return gate is None and all(isinstance(m, nn.Identity) or getattr(m, "p", None) == 0 for m in plain)


def first_token(module: Any, x: Tensor) -> Tensor:
    """The output of an attention layer at its first token only: (B, N, D) -> (B, 1, D)

    One query needs no keys and no values of its own: q (W_k x) = (q W_k) x and A (x W_v) = (A x) W_v, so both projections
    act on one row per head instead of N. The bias of the keys shifts all scores of the query alike and softmax does not see it.
    """
    if isinstance(module, _BY_MAP):
        return _first_token_by_map(module, x)
    batch, _, width = x.shape
    two = isinstance(module, DifferentialAttention)
    heads, d = module.num_heads, module.head_dim  # a differential head has two maps and values of width 2d
    w_q, w_k, w_v = module.qkv.weight.view(3, width, width)
    b_q, _, b_v = (None, None, None) if module.qkv.bias is None else module.qkv.bias.view(3, width)
    q = F.linear(x[:, 0], w_q, b_q) * d**-0.5  # (B, D)
    looking = q.view(batch, -1, d).transpose(0, 1) @ w_k.view(-1, d, width)  # (maps, B, D)
    maps = (looking.transpose(0, 1) @ x.mT).softmax(dim=-1)  # (B, maps, N)
    if two:
        signal, noise = maps.view(batch, heads, 2, -1).unbind(2)
        maps = signal - module._compute_lambda().to(x.dtype) * noise  # (B, h, N)
    mixed = ((maps @ x).transpose(0, 1) @ w_v.view(heads, -1, width).mT).transpose(0, 1)  # (B, h, e)
    if b_v is not None:
        mixed = mixed + maps.sum(dim=-1, keepdim=True) * b_v.view(heads, -1)
    out: Tensor = module.finish(mixed[:, :, None]) if two else module.proj(mixed.flatten(1)[:, None])
    return out


def _first_token_by_map(module: Any, x: Tensor) -> Tensor:
    """The same for layers whose projections hold no pair of maps for every head: by the weights of each map."""
    q, _, _ = module.project(x[:, :1])  # (B, h, 2, 1, d)
    _, w_k = module.query_key_weights  # (h, 2, d, D)
    width, heads, d = x.shape[-1], module.num_heads, q.shape[-1]
    looking = torch.einsum("bhmd,hmdw->bhmw", q[:, :, :, 0] * d**-0.5, w_k)
    signal, noise = (looking @ x.mT[:, None]).softmax(dim=-1).unbind(2)  # (B, h, N)
    lam = module.lam(x[:, :1])[..., 0] if isinstance(module, DifferentialAttentionV2) else module._compute_lambda()
    maps = signal - lam.to(x.dtype) * noise
    w_v = module.qkv.weight[-width:].view(heads, -1, width)
    mixed = torch.einsum("bhw,hew->bhe", maps @ x, w_v)
    if module.qkv.bias is not None:
        mixed = mixed + maps.sum(dim=-1, keepdim=True) * module.qkv.bias[-width:].view(heads, -1)
    out: Tensor = module.finish(mixed[:, :, None])
    return out


def lambdas(model: nn.Module) -> dict[str, float]:
    """lambda of every differential layer, by the layer's name."""
    with torch.no_grad():
        return {n: m._compute_lambda().item() for n, m in model.named_modules() if isinstance(m, TimmDiffAttention)}


def lambda_parts(module: Any) -> dict[str, float]:
    """lambda = first - second + lambda_init of a differential layer; the two exponentials are 1 where lambda is fixed."""
    with torch.no_grad():
        first = second = 1.0
        if module.lambda_q1 is not None:
            pairs = ((module.lambda_q1, module.lambda_k1), (module.lambda_q2, module.lambda_k2))
            first, second = (float((q * k).sum().float().exp()) for q, k in pairs)
        elif getattr(module, "lambda_a", None) is not None:
            first, second = float(module.lambda_a.exp()), float(module.lambda_b.exp())
        return {
            "lambda": float(module._compute_lambda()),
            "lambda_init": float(module.lambda_init),
            "first": first,
            "second": second,
        }
