"""V2, grouped, bounded, low-rank differential attention and DINT against transcriptions of their equations, head by head."""

import math

import pytest
import torch

from antiphase.config import InputError
from antiphase.models import Differential, Schedule, ViTConfig
from antiphase.models.adapters import check, read
from antiphase.models.attention import (
    BoundedDifferentialAttention,
    DifferentialAttention,
    DifferentialAttentionV2,
    DintAttention,
    GroupedDifferentialAttention,
    LowRankDifferentialAttention,
    has_first_token,
    lambdas,
)
from antiphase.models.clip import CLIP
from antiphase.models.clip_config import CLIPConfig, TextConfig, VisionConfig
from antiphase.models.config import (
    BoundedDifferential,
    DifferentialV2,
    Dint,
    GroupedDifferential,
    LowRankDifferential,
    Softmax,
)
from antiphase.models.fast_path import fast_path
from antiphase.models.taps import taps
from antiphase.models.vit import build

DOUBLE, WIDTH, TOKENS = torch.float64, 24, 5
OPTIONS = {"lambda_init": 0.8, "learned": True, "head_norm": True, "gain": 0.2}


@pytest.fixture
def x():
    return torch.randn(1, TOKENS, WIDTH, dtype=DOUBLE, generator=torch.Generator().manual_seed(1))


def softmax_map(q, k):
    return torch.softmax(q @ k.T / math.sqrt(q.shape[-1]), dim=-1)


def sharp(layer):
    """Weights large enough for maps that are far from uniform."""
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.mul_(3)
    return layer.double().eval()


def rms(head, weight, eps=1e-5):
    return head / torch.sqrt(head.pow(2).mean(dim=-1, keepdim=True) + eps) * weight


def test_v2_is_its_equations(x):
    """lambda_i = sigmoid(W x_i) of each head, one K and one V for both maps, no norm, no gain."""
    torch.manual_seed(0)
    heads, d = 3, WIDTH // 3
    layer = sharp(DifferentialAttentionV2(WIDTH, heads))
    q, k, v = (x[0] @ w.T + b for w, b in zip(layer.qkv.weight.chunk(3), layer.qkv.bias.chunk(3)))
    second = x[0] @ layer.noise_q.weight.T + layer.noise_q.bias
    columns = []
    for i in range(heads):
        own = slice(i * d, (i + 1) * d)
        lam = 1 / (1 + torch.exp(-(x[0] @ layer.lambda_proj.weight[i])))
        a1, a2 = softmax_map(q[:, own], k[:, own]), softmax_map(second[:, own], k[:, own])
        columns.append(a1 @ v[:, own] - lam[:, None] * (a2 @ v[:, own]))
    expected = torch.cat(columns, dim=-1) @ layer.proj.weight.T + layer.proj.bias
    assert torch.allclose(layer(x)[0], expected, atol=1e-12)
    assert layer.lam(x).shape == (1, heads, TOKENS, 1)


def test_grouped_attention_is_its_equations(x):
    """Four signal heads and two noise heads: heads 0 and 1 subtract the first noise map, heads 2 and 3 the second."""
    torch.manual_seed(0)
    heads, ratio = 4, 2
    d = WIDTH // heads // 2
    layer = sharp(GroupedDifferentialAttention(WIDTH, heads, ratio=ratio, **OPTIONS))
    assert layer.qkv.out_features == 2 * (4 + 2) * d + WIDTH
    out = x[0] @ layer.qkv.weight.T + layer.qkv.bias
    sizes = [4 * d, 2 * d, 4 * d, 2 * d, WIDTH]
    q1, q2, k1, k2, v = out.split(sizes, dim=-1)
    lam = (layer.lambda_q1 @ layer.lambda_k1).exp() - (layer.lambda_q2 @ layer.lambda_k2).exp() + 0.8
    columns = []
    for i in range(heads):
        s, n = slice(i * d, (i + 1) * d), slice(i // ratio * d, (i // ratio + 1) * d)
        mixed = (softmax_map(q1[:, s], k1[:, s]) - lam * softmax_map(q2[:, n], k2[:, n])) @ v[
            :, 2 * i * d : 2 * (i + 1) * d
        ]
        columns.append(0.2 * rms(mixed, layer.sub_norm.weight))
    expected = torch.cat(columns, dim=-1) @ layer.proj.weight.T + layer.proj.bias
    assert torch.allclose(layer(x)[0], expected, atol=1e-6)  # lambda is a float32
    maps = read(layer, x)
    assert torch.equal(maps.noise[:, 0], maps.noise[:, 1])
    assert not torch.allclose(maps.noise[:, 1], maps.noise[:, 2])


def test_dint_is_its_equations(x):
    """A1 - lambda A2 + lambda M, every row of M the mean over the rows of A1: rows of the map sum to one."""
    torch.manual_seed(0)
    heads, d = 2, WIDTH // 4
    layer = sharp(DintAttention(WIDTH, heads, **OPTIONS))
    q, k, v = (x[0] @ w.T + b for w, b in zip(layer.qkv.weight.chunk(3), layer.qkv.bias.chunk(3)))
    lam = (layer.lambda_q1 @ layer.lambda_k1).exp() - (layer.lambda_q2 @ layer.lambda_k2).exp() + 0.8
    columns = []
    for i in range(heads):
        first, second = slice(2 * i * d, (2 * i + 1) * d), slice((2 * i + 1) * d, (2 * i + 2) * d)
        a1, a2 = (softmax_map(q[:, s], k[:, s]) for s in (first, second))
        mean = torch.ones(TOKENS, 1, dtype=DOUBLE) @ a1.sum(dim=0, keepdim=True) / TOKENS
        columns.append(
            0.2 * rms((a1 - lam * a2 + lam * mean) @ v[:, 2 * i * d : 2 * (i + 1) * d], layer.sub_norm.weight)
        )
    expected = torch.cat(columns, dim=-1) @ layer.proj.weight.T + layer.proj.bias
    assert torch.allclose(layer(x)[0], expected, atol=1e-6)  # lambda is a float32
    assert torch.allclose(read(layer, x).combined.sum(-1), torch.ones((), dtype=DOUBLE), atol=1e-12)
    q, k, v = layer.project(x)
    assert torch.allclose(layer.mix_fused(q, k, v, None, False), layer.mix_explicit(q, k, v, None, False), atol=1e-12)
    with pytest.raises(InputError, match="has no mask"):
        layer(x, is_causal=True)


def test_bounded_lambda_is_its_equation_and_begins_where_it_is_told(x):
    """lambda = bound sigmoid(logit(lambda_init / bound) + lq1.lk1 - lq2.lk2); all else is the differential layer."""
    torch.manual_seed(0)
    options = OPTIONS | {"lambda_init": 0.2}
    layer = BoundedDifferentialAttention(WIDTH, 2, bound=0.5, **options)
    assert float(layer._compute_lambda()) == pytest.approx(0.2)
    sharp(layer)
    for sign in (-1, 1):  # however far its vectors go
        with torch.no_grad():
            layer.lambda_q1.copy_(sign * 100 * layer.lambda_k1)
        assert 0 <= float(layer._compute_lambda()) <= 0.5
    with torch.no_grad():
        layer.lambda_q1.copy_(0.7 * layer.lambda_k2)
        layer.lambda_q2.copy_(0.3 * layer.lambda_k1)
    moved = math.log(0.2 / 0.3) + float(layer.lambda_q1 @ layer.lambda_k1) - float(layer.lambda_q2 @ layer.lambda_k2)
    lam = 0.5 / (1 + math.exp(-moved))
    assert float(layer._compute_lambda()) == pytest.approx(lam, rel=1e-6)
    fixed = DifferentialAttention(WIDTH, 2, **(options | {"learned": False, "lambda_init": lam})).double()
    fixed.load_state_dict(layer.state_dict(), strict=False)
    assert torch.allclose(layer(x), fixed(x), atol=1e-6)  # lambda is a float32


def test_low_rank_attention_is_its_equations(x):
    """Wq2 = Wq1 + Bq Aq and Wk2 = Wk1 + Bk Ak, head by head; biases are the signal's."""
    torch.manual_seed(0)
    heads, rank = 2, 3
    d = WIDTH // heads // 2
    layer = LowRankDifferentialAttention(WIDTH, heads, rank=rank, **OPTIONS)
    maps = read(layer.double(), x)
    assert torch.equal(maps.signal, maps.noise)  # B begins at 0
    with torch.no_grad():
        layer.high.normal_(std=0.5)
    sharp(layer)
    wq, wk, wv = layer.qkv.weight.split([heads * d, heads * d, WIDTH])
    bq, bk, bv = layer.qkv.bias.split([heads * d, heads * d, WIDTH])
    low_q, low_k = layer.low.weight.view(2, heads, rank, WIDTH)
    lam = (layer.lambda_q1 @ layer.lambda_k1).exp() - (layer.lambda_q2 @ layer.lambda_k2).exp() + 0.8
    columns = []
    for i in range(heads):
        s, v = slice(i * d, (i + 1) * d), slice(2 * i * d, 2 * (i + 1) * d)
        a1 = softmax_map(x[0] @ wq[s].T + bq[s], x[0] @ wk[s].T + bk[s])
        wq2, wk2 = wq[s] + layer.high[0, i] @ low_q[i], wk[s] + layer.high[1, i] @ low_k[i]
        assert torch.linalg.matrix_rank(wq2 - wq[s]) == rank
        a2 = softmax_map(x[0] @ wq2.T + bq[s], x[0] @ wk2.T + bk[s])
        columns.append(0.2 * rms((a1 - lam * a2) @ (x[0] @ wv[v].T + bv[v]), layer.sub_norm.weight))
    expected = torch.cat(columns, dim=-1) @ layer.proj.weight.T + layer.proj.bias
    assert torch.allclose(layer(x)[0], expected, atol=1e-6)  # lambda is a float32


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("kind", ["v2", "grouped", "bounded", "low-rank", "dint"])
def test_the_explicit_path_gives_the_layers_own_output(kind, causal, x):
    torch.manual_seed(0)
    layer = {
        "v2": lambda: DifferentialAttentionV2(WIDTH, 3),
        "grouped": lambda: GroupedDifferentialAttention(WIDTH, 4, ratio=4, **OPTIONS),
        "bounded": lambda: BoundedDifferentialAttention(WIDTH, 2, bound=0.9, **OPTIONS),
        "low-rank": lambda: LowRankDifferentialAttention(WIDTH, 2, rank=2, **OPTIONS),
        "dint": lambda: DintAttention(WIDTH, 2, **OPTIONS),
    }[kind]()
    if kind == "dint" and causal:
        return
    check(sharp(layer), x, tolerance=1e-12, is_causal=causal)


def test_a_group_of_one_head_is_differential_attention(x):
    torch.manual_seed(0)
    grouped = GroupedDifferentialAttention(WIDTH, 2, ratio=1, **OPTIONS)
    plain = DifferentialAttention(WIDTH, 2, **OPTIONS)
    d = WIDTH // 4
    rows = torch.arange(4 * d).view(2, 2, d).transpose(0, 1).flatten()  # signal maps first, then noise maps
    order = torch.cat([rows, 4 * d + rows, torch.arange(8 * d, 12 * d)])
    state = plain.state_dict()
    grouped.load_state_dict(state | {"qkv.weight": state["qkv.weight"][order], "qkv.bias": state["qkv.bias"][order]})
    assert torch.allclose(grouped.double()(x), plain.double()(x), atol=1e-12)


def test_the_schedule_of_index_base_minus_one_is_motifs():
    """lambda_init = .8 - .6 exp(-.3 (l - 1)) for l = 0, 1, ..."""
    assert [Schedule(index_base=-1).at(layer) for layer in (0, 1, 2)] == pytest.approx(
        [0.8 - 0.6 * math.exp(0.3), 0.2, 0.8 - 0.6 * math.exp(-0.3)]
    )
    config = ViTConfig(
        patch=4, width=16, heads=4, depth=2, attention=(Differential(lambda_init=Schedule(index_base=-1)),)
    )
    layers = [block.attn for block in build(config, shape=(1, 8, 8), classes=10).model.blocks]
    assert [layer.lambda_init for layer in layers] == pytest.approx([-0.00991528, 0.2])
    assert [layer.gain for layer in layers] == pytest.approx([1.00991528, 0.8])


KINDS = {
    "v2": DifferentialV2(),
    "grouped": GroupedDifferential(ratio=2),
    "bounded": BoundedDifferential(),
    "low-rank": LowRankDifferential(rank=2),
    "dint": Dint(),
}


@pytest.mark.parametrize("kind", KINDS)
def test_the_fast_path_knows_every_layer_but_dint(kind):
    """In float64 the class token's logits agree to 1e-12, with weights for which maps and branches differ."""
    sizes = {"patch": 4, "width": 16, "heads": 4}
    model = build(ViTConfig(**sizes, attention=(KINDS[kind],)), shape=(1, 8, 8), classes=10).double().eval()
    layer = model.model.blocks[0].attn
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    pixels = torch.rand(3, 1, 8, 8, dtype=DOUBLE)
    assert has_first_token(layer) is (kind != "dint")
    whole = model(pixels)
    with fast_path(model):
        assert torch.allclose(model(pixels), whole, atol=1e-12)
    assert all(0 < value < 0.5 for value in lambdas(model).values()) or kind != "bounded"


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("init", ["official", "matched"])
def test_models_are_built_from_their_softmax_twin(kind, init):
    shape = {"shape": (1, 8, 8), "classes": 10, "seed": 3}
    sizes = {"patch": 4, "width": 16, "heads": 4, "depth": 2}
    model = build(ViTConfig(**sizes, attention=(KINDS[kind],), init=init), **shape)
    pixels = torch.rand(3, 1, 8, 8)
    assert model(pixels).shape == (3, 10)
    again = build(ViTConfig(**sizes, attention=(KINDS[kind],), init=init), **shape)
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), again.parameters()))
    with fast_path(model):
        assert torch.allclose(model(pixels), again(pixels), atol=1e-5)
    if init == "matched":
        twin = build(ViTConfig(**sizes, attention=(Softmax(),)), **shape)
        assert torch.equal(model.model.blocks[1].attn.proj.weight, twin.model.blocks[1].attn.proj.weight)
        rows = model.model.blocks[1].attn.qkv.weight[-16:]
        assert torch.equal(rows, twin.model.blocks[1].attn.qkv.weight[-16:])  # the values
    if kind == "v2" and init == "matched":
        assert model.model.blocks[0].attn.num_heads == 4  # as many as the softmax twin, whose map is A1
        with taps(model) as ours, taps(twin) as theirs, torch.no_grad():
            model(pixels), twin(pixels)
        assert torch.allclose(ours["model.blocks.0.attn"].signal, theirs["model.blocks.0.attn"].signal, atol=1e-6)


def test_both_towers_of_a_clip_take_v2_and_the_vision_tower_takes_all():
    text = TextConfig(
        width=16, depth=1, heads=2, context=8, vocabulary=259, tokenizer="bytes", attention=(DifferentialV2(),)
    )
    for kind, value in KINDS.items():
        vision = VisionConfig(width=16, depth=1, heads=4, image=8, patch=4, attention=(value,))
        clip = CLIP(CLIPConfig(vision=vision, text=text, joint=8)).eval()
        tokens = clip.tokenize(["a cat", "a dog"])
        assert clip(torch.rand(3, 3, 8, 8), tokens).shape == (3, 2), kind
    with taps(clip) as record, torch.no_grad():
        clip.encode_text(tokens)
    (maps,) = record.values()
    assert torch.equal(maps.signal.triu(1), torch.zeros_like(maps.signal))  # causal
    assert CLIPConfig(vision=vision, text=text).title == "DiffCLIP (DINT CLIP, DiffCLIP V2)"
