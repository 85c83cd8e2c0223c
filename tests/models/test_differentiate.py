"""Differential attention in models of other libraries: timm, open_clip, torch's encoder, Hugging Face."""

import copy
import dataclasses
import json

import open_clip
import pytest
import torch
from timm.layers import Attention as TimmAttention
from timm.models.vision_transformer import VisionTransformer
from torch import nn

import antiphase as ap
from antiphase.config import InputError
from antiphase.measures.jacobians_forward import branch_alignment
from antiphase.models import foreign_layers
from antiphase.models.adapters import check, read
from antiphase.models.attention import DifferentialAttention, lambdas
from antiphase.models.classifier import Normalized
from antiphase.models.fast_path import fast_path
from antiphase.models.foreign_layers import DifferentialMultihead
from antiphase.models.taps import attention_layers, explicit, taps
from tests.conftest import ROOT
from tests.doc_blocks import blocks
from tests.models import foreign_models as foreign
from tests.models.foreign_models import CASES, HEADS, IDS, PADDED, WIDTH

BARE = ap.Differential(lambda_init=0.0, learned=False, head_norm="none", out_scale="none")
HUGGING = [
    "BLIP vision",
    "ALIGN text",
    "BERT",
    "BERT eager",
    "RoBERTa",
    "CLIP text",
    "CLIP vision",
    "SigLIP vision",
    "ViT",
]


@pytest.fixture(scope="module")
def cases():
    """Each model is built once; nobody changes it, since `differentiate` works on a copy."""
    built = {}

    def case(name: str) -> foreign.Foreign:
        if name not in built:
            torch.manual_seed(0)
            built[name] = CASES[name]()
            built[name].model.eval()
            randomise(built[name].model)
        return built[name]

    return case


def randomise(model):
    """Small models begin with tiny weights and no biases: their maps would be uniform."""
    with torch.no_grad():
        for p in model.parameters():
            p.add_(torch.randn_like(p) * 0.3)


def watched(model, layer, run, given):
    """What one layer was given and returned: (B, N, D) each."""
    kept = []

    def hook(module, args, kwargs, out):
        x = args[0] if args else kwargs["hidden_states"]
        out = out[0] if isinstance(out, tuple) else out
        kept.extend((x, out) if getattr(module, "batch_first", True) else (x.transpose(0, 1), out.transpose(0, 1)))

    handle = model.get_submodule(layer).register_forward_hook(hook, with_kwargs=True)
    with torch.no_grad():
        run(model, given)
    handle.remove()
    return kept[:2]


def written_out(x, weights, module, seen):
    """DA(X), head by head and row by row of the paper: maps 2i and 2i+1, values of width 2d, RMS norm, gain, projection."""
    d = WIDTH // HEADS
    (wq, bq), (wk, bk), (wv, bv), (wo, bo) = (weights[part] for part in ("q", "k", "v", "out"))
    q, k, v = x @ wq.T + bq, x @ wk.T + bk, x @ wv.T + bv

    def softmax_map(head):
        rows = slice(head * d, (head + 1) * d)
        scores = module.q_norm(q[..., rows]) @ module.k_norm(k[..., rows]).transpose(1, 2) / d**0.5
        return (scores if seen is None else scores.masked_fill(~seen, -torch.inf)).softmax(-1)

    lam = (module.lambda_q1 @ module.lambda_k1).exp() - (module.lambda_q2 @ module.lambda_k2).exp() + module.lambda_init
    joined = []
    for i in range(HEADS // 2):
        mixed = (softmax_map(2 * i) - lam * softmax_map(2 * i + 1)) @ v[..., 2 * i * d : 2 * (i + 1) * d]
        rms = (mixed.pow(2).mean(-1, keepdim=True) + 1e-5).sqrt()
        joined.append(mixed / rms * module.sub_norm.weight * (1 - module.lambda_init))
    return torch.cat(joined, dim=-1) @ wo.T + bo


@pytest.mark.parametrize("name", CASES)
def test_each_library_computes_the_written_out_formula(name, cases):
    case = cases(name)
    model = copy.deepcopy(case.model).double()
    given = case.given.double() if case.given.is_floating_point() else case.given
    weights = case.weights(model.get_submodule(case.layer))
    differential, _ = ap.differentiate(model, ap.Differential(lambda_init=0.6))
    layer = differential.get_submodule(case.layer)
    x, out = watched(differential, case.layer, case.run, given)
    with torch.no_grad():
        expected = written_out(x, weights, layer, case.seen)
    assert torch.allclose(out, expected, rtol=0, atol=1e-6)
    assert out.abs().max() > 1e-2


@pytest.mark.parametrize("name", CASES)
def test_each_library_computes_what_our_own_layer_computes(name, cases):
    """The layer of models/attention.py, given the same weights, tokens and mask."""
    case = cases(name)
    weights = case.weights(case.model.get_submodule(case.layer))
    differential, _ = ap.differentiate(case.model)
    twin = differential.get_submodule(case.layer)
    ours = DifferentialAttention(WIDTH, HEADS // 2, lambda_init=0.8, learned=True, head_norm=True, gain=1 - 0.8).eval()
    ours.q_norm, ours.k_norm = twin.q_norm, twin.k_norm
    own = {n: p for n, p in twin.state_dict().items() if n.startswith(("lambda", "sub_norm", "q_norm", "k_norm"))}
    joined = {
        f"qkv.{what}": torch.cat([weights[part][i].float() for part in "qkv"])
        for i, what in enumerate(("weight", "bias"))
    }
    out = {f"proj.{what}": weights["out"][i].float() for i, what in enumerate(("weight", "bias"))}
    ours.load_state_dict(own | joined | out)
    x, returned = watched(differential, case.layer, case.run, case.given)
    with torch.no_grad():
        expected = ours(x, attn_mask=None if case.seen is None else case.seen[:, None])
    assert torch.allclose(returned, expected, rtol=0, atol=1e-6)


@pytest.mark.parametrize("name", CASES)
def test_lambda_zero_without_norm_is_softmax_attention_of_the_first_branch(name, cases):
    """Where head 2i+1 looks as head 2i does, A1 - 0 A2 is the softmax layer's map: the library's own output comes out."""
    case = cases(name)
    model, d = copy.deepcopy(case.model), WIDTH // HEADS
    with torch.no_grad():
        for row in ap.differentiate(model)[1].layers:
            weights = case.weights(model.get_submodule(row.name))
            for part in weights["q"] + weights["k"]:
                paired = part.data.view(HEADS // 2, 2, d, -1)
                paired[:, 1] = paired[:, 0]
        differential, _ = ap.differentiate(model, BARE)
        theirs, ours = case.run(model, case.given), case.run(differential, case.given)
    keep = ~PADDED if name in ("ALIGN text", "BERT", "BERT eager", "RoBERTa", "CLIP text") or "padding" in name else ...
    assert torch.allclose(theirs[keep], ours[keep], rtol=0, atol=1e-5 * float(theirs.abs().max()))
    untouched, _ = ap.differentiate(case.model, BARE)
    assert not torch.allclose(case.run(case.model, case.given)[keep], case.run(untouched, case.given)[keep], atol=1e-3)


# ------------------------------------------------------------------------------------------------- masks


@pytest.mark.parametrize("name", [n for n in CASES if "causal" in n or n in ("open_clip text", "CLIP text")])
def test_no_token_attends_to_later_tokens(name, cases):
    case = cases(name)
    model, _ = ap.differentiate(case.model)
    run = case.run
    if name == "open_clip text":  # every token, not the last one's feature alone

        def run(m, ids):
            return m.transformer(m.token_embedding(ids) + m.positional_embedding, attn_mask=m.attn_mask)

    later = case.given.clone()
    later[:, 3:] = torch.randn_like(later[:, 3:]) if later.is_floating_point() else 1
    with torch.no_grad():
        a, b = run(model, case.given), run(model, later)
    assert torch.equal(a[:, :3], b[:, :3])
    assert not torch.allclose(a[:, 3], b[:, 3], atol=1e-3)


@pytest.mark.parametrize(
    "name", [n for n in CASES if "padding" in n or n in ("ALIGN text", "BERT", "BERT eager", "RoBERTa", "CLIP text")]
)
def test_padded_tokens_do_not_change_the_others(name, cases):
    case = cases(name)
    model, _ = ap.differentiate(case.model)
    other = case.given.clone()
    other[PADDED] = torch.randn_like(other[PADDED]) if other.is_floating_point() else 3
    with torch.no_grad():
        a, b = case.run(model, case.given), case.run(model, other)
    assert torch.equal(a[~PADDED], b[~PADDED])
    assert not torch.allclose(a[PADDED], b[PADDED], atol=1e-3)


@pytest.mark.parametrize("name", ["CLIPText", "Bert"])
def test_a_causal_hugging_face_model_is_causal_without_a_mask_too(name):
    """With the sdpa implementation no mask is made: a flag, passed on or kept by the layer, says so."""
    torch.manual_seed(0)
    hf = foreign.transformers()
    config = getattr(hf, f"{name}Config")(**foreign.SMALL, **foreign.TEXT, is_decoder=name == "Bert", bos_token_id=1)
    softmax = getattr(hf, f"{name}Model")(config).eval()
    randomise(softmax)
    model, _ = ap.differentiate(softmax)
    later = IDS.clone()
    later[:, 3:] = 1
    kwargs = {"use_cache": False} if name == "Bert" else {}
    with torch.no_grad():
        for m in (softmax, model):
            a, b = (m(ids, **kwargs).last_hidden_state for ids in (IDS, later))
            assert torch.equal(a[:, :3], b[:, :3])
            assert not torch.allclose(a[:, 3], b[:, 3], atol=1e-3)
    if name == "Bert":
        with pytest.raises(InputError, match="called with past_key_values"):
            model(IDS, use_cache=True)


def test_a_mask_per_head_masks_the_map_made_of_that_head():
    torch.manual_seed(0)
    model, _ = ap.differentiate(nn.ModuleList([nn.MultiheadAttention(WIDTH, HEADS, batch_first=True)]))
    x, mask = torch.randn(2, 5, WIDTH), torch.rand(2 * HEADS, 5, 5) < 0.4
    mask.diagonal(dim1=1, dim2=2).fill_(False)
    maps = read(model[0], x, x, x, attn_mask=mask)
    hidden = mask.view(2, HEADS // 2, 2, 5, 5)
    assert torch.equal(maps.signal == 0, hidden[:, :, 0])
    assert torch.equal(maps.noise == 0, hidden[:, :, 1])
    check(model[0], x, x, x, attn_mask=mask)
    q, k, v = torch.randn(2, 2, 2, 5, 6), torch.randn(2, 2, 2, 5, 6), torch.randn(2, 2, 5, 12)
    added = torch.zeros(hidden.shape).masked_fill(hidden, -torch.inf)
    fused, plain = (mix(q, k, v, added, False) for mix in (model[0].mix_fused, model[0].mix_explicit))
    assert torch.allclose(fused, plain, atol=1e-6)


def test_a_token_whose_keys_are_all_masked_gets_zero_attention_and_finite_gradients():
    """Causal with padding on the left: the first token sees no key at all."""
    torch.manual_seed(0)
    block = nn.TransformerEncoderLayer(WIDTH, HEADS, 32, 0.0, batch_first=True)
    model, _ = ap.differentiate(nn.TransformerEncoder(block, 2, enable_nested_tensor=False))
    x, left = torch.randn(1, 4, WIDTH, requires_grad=True), torch.tensor([[True, False, False, False]])
    out = model(x, mask=torch.ones(4, 4).triu(1).bool(), src_key_padding_mask=left, is_causal=True)
    out[:, 1:].sum().backward()
    assert out.isfinite().all()
    assert x.grad.isfinite().all()
    assert torch.equal(x.grad[:, 0], torch.zeros(1, WIDTH))


def test_returned_attention_weights_are_the_combined_map():
    torch.manual_seed(0)
    model, _ = ap.differentiate(nn.ModuleList([nn.MultiheadAttention(WIDTH, HEADS)]))
    x = torch.randn(5, 2, WIDTH)
    out, weights = model[0](x, x, x, average_attn_weights=False)
    maps = read(model[0], x, x, x)
    assert torch.allclose(weights, maps.combined, atol=1e-6)
    assert torch.allclose(weights.sum(-1), 1 - maps.lam, atol=1e-5)
    assert torch.allclose(model[0](x, x, x)[1], maps.combined.mean(1), atol=1e-6)
    assert torch.equal(model[0](x, x, x, need_weights=False)[0], out)
    assert torch.allclose(maps.output[1], maps.combined.mean(1), atol=1e-6)


@pytest.mark.parametrize("layers", ["all", ["layers.1.self_attn"]])
def test_torchs_fast_path_is_not_taken_around_a_replaced_layer(layers):
    torch.manual_seed(0)
    case = foreign.encoder(True, "padding")
    model, _ = ap.differentiate(case.model.eval(), layers=layers)
    with_gradients = case.run(model, case.given)
    with torch.no_grad():
        assert torch.allclose(case.run(model, case.given), with_gradients, atol=1e-6)
        assert not torch.allclose(case.run(case.model, case.given)[~PADDED], with_gradients[~PADDED], atol=1e-3)
    assert not model.use_nested_tensor
    assert case.model.use_nested_tensor


# ------------------------------------------------------------------------------------------------- training, saving


@pytest.mark.parametrize(
    "name", ["timm", "open_clip text", "encoder (N, B, D) causal padding", "BLIP vision", "ALIGN text"]
)
def test_training_moves_lambda_and_every_weight_of_the_layer(name, cases):
    case = cases(name)
    model, report = ap.differentiate(case.model)
    model.train()
    before = lambdas(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    case.run(model, case.given).pow(2).sum().backward()
    used = [row for row in report.layers if name != "open_clip text" or not row.name.startswith("visual")]
    for row in used:
        for parameter, p in model.get_submodule(row.name).named_parameters():
            assert p.grad is not None, (row.name, parameter)
            assert p.grad.abs().max() > 0, (row.name, parameter)
    optimizer.step()
    assert all(lambdas(model)[row.name] != before[row.name] for row in used)


def test_dropout_of_the_replaced_layer_stays():
    torch.manual_seed(0)
    case = foreign.encoder(True, "", dropout=0.5)
    model, _ = ap.differentiate(case.model.train())
    layer = model.layers[0].self_attn
    assert layer.training
    x = case.given
    assert not torch.equal(layer(x, x, x)[0], layer(x, x, x)[0])
    model.eval()
    assert torch.equal(layer(x, x, x)[0], layer(x, x, x)[0])
    vit = VisionTransformer(16, 8, embed_dim=WIDTH, depth=1, num_heads=HEADS, attn_drop_rate=0.2, proj_drop_rate=0.3)
    attention = ap.differentiate(vit)[0].blocks[0].attn
    assert (attention.attn_drop.p, attention.proj_drop.p) == (0.2, 0.3)


@pytest.mark.parametrize("name", ["timm", "open_clip vision", "encoder", "BLIP vision", "ALIGN text"])
def test_a_state_dict_can_be_saved_and_loaded_again(name, cases):
    case = cases(name)
    first, _ = ap.differentiate(case.model, seed=1)
    second, _ = ap.differentiate(copy.deepcopy(case.model), carry=False, seed=2)
    with torch.no_grad():
        assert not torch.allclose(case.run(first, case.given), case.run(second, case.given), atol=1e-4)
        second.load_state_dict(first.state_dict())
        assert torch.equal(case.run(first, case.given), case.run(second, case.given))
        assert torch.equal(case.run(copy.deepcopy(first), case.given), case.run(first, case.given))


def test_the_model_is_copied_unless_inplace_is_set(cases):
    model = copy.deepcopy(cases("timm").model)
    differential, _ = ap.differentiate(model)
    assert type(model.blocks[0].attn) is TimmAttention
    assert differential.blocks[0].attn.qkv.weight is not model.blocks[0].attn.qkv.weight
    weights = {id(p) for p in model.parameters()}
    same, _ = ap.differentiate(model, inplace=True)
    assert same is model
    assert weights < {id(p) for p in model.parameters()}  # an optimizer that holds them goes on holding them


def test_nothing_is_changed_when_something_is_refused():
    model = nn.ModuleList([nn.MultiheadAttention(12, 2), nn.MultiheadAttention(12, 3)])
    before = list(model)
    with pytest.raises(InputError, match=r"3 heads, which is odd.*leave it out of layers, or set diff_heads"):
        ap.differentiate(model, inplace=True)
    assert list(model) == before


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_dtype_training_mode_and_frozen_weights_are_kept(dtype, cases):
    model = copy.deepcopy(cases("encoder").model).to(dtype).requires_grad_(False)
    differential, report = ap.differentiate(model)
    assert {p.dtype for p in differential.parameters()} == {dtype}
    trained = {n for n, p in differential.named_parameters() if p.requires_grad}
    assert trained == {f"{row.name}.{n}" for row in report.layers for n in row.new}
    assert differential(cases("encoder").given.to(dtype)).dtype == dtype
    assert not differential.layers[0].self_attn.training


def test_new_weights_depend_on_the_seed_and_the_layer_name_only(cases):
    model = cases("open_clip text").model
    one, _ = ap.differentiate(model, seed=3)
    two, _ = ap.differentiate(model, seed=3, layers=["transformer"])
    three, _ = ap.differentiate(model, seed=4, layers=["transformer"])
    a, b, c = (m.transformer.resblocks[1].attn.lambda_q1 for m in (one, two, three))
    assert torch.equal(a, b)
    assert not torch.equal(a, c)
    assert not torch.equal(a, one.transformer.resblocks[0].attn.lambda_q1)


def test_a_layer_in_two_places_stays_one_layer():
    class Twice(nn.Module):
        def __init__(self):
            super().__init__()
            self.first = nn.MultiheadAttention(WIDTH, HEADS, batch_first=True)
            self.second = self.first

        def forward(self, x):
            x = self.first(x, x, x)[0]
            return self.second(x, x, x)[0]

    model, report = ap.differentiate(Twice())
    assert model.first is model.second
    assert isinstance(model.first, DifferentialMultihead)
    assert len(report.layers) == 1
    assert report.parameters_after - report.parameters_before == 4 * 6 + 12


# ------------------------------------------------------------------------------------------------- the report


def test_the_report_says_what_became_of_every_weight(cases):
    _, report = ap.differentiate(cases("encoder").model)
    row = report.layers[0]
    assert row.carried == {
        "qkv.weight": "in_proj_weight",
        "qkv.bias": "in_proj_bias",
        "proj.weight": "out_proj.weight",
        "proj.bias": "out_proj.bias",
    }
    assert row.new == {"lambda_q1": 6, "lambda_k1": 6, "lambda_q2": 6, "lambda_k2": 6, "sub_norm.weight": 12}
    assert set(row.projections.values()) == {"weight carried, bias carried"}
    assert (row.heads, row.diff_heads, row.map_width, row.value_width) == (4, 2, 6, 12)
    assert "2i and 2i+1" in row.mapping
    assert "not what it computed" in str(report)
    assert json.loads(json.dumps(dataclasses.asdict(report)))["parameters_after"] == report.parameters_after

    _, fresh = ap.differentiate(cases("encoder").model, carry=False)
    assert not fresh.layers[0].carried
    assert set(fresh.layers[0].projections.values()) == {"weight new, bias new"}
    assert "begin anew" in str(fresh)
    assert fresh.parameters_after == report.parameters_after


def test_an_output_projection_outside_of_the_layer_is_left_and_reported(cases):
    model, report = ap.differentiate(cases("ALIGN text").model, carry=False)
    row = report.layers[0]
    assert row.projections["q"] == "weight new, bias new"
    assert "encoder.layer.0.attention.output.dense" in row.projections["out"]
    dense, was = (m.get_submodule(row.out_elsewhere) for m in (model, cases("ALIGN text").model))
    assert torch.equal(dense.weight, was.weight)
    _, carried = ap.differentiate(cases("ALIGN text").model)
    assert carried.layers[0].carried["qkv.query.weight"] == "query.weight"
    assert carried.layers[0].projections["v"] == "weight carried, bias carried"


def test_clip_b16_grows_by_what_diffclip_is_larger():
    """docs/clip.md: 9,216 more with both towers differential, 4,608 with the vision tower alone."""
    vision = {"image_size": 224, "patch_size": 16, "width": 768, "layers": 12}
    with torch.device("meta"):
        clip = open_clip.CLIP(512, vision, {"width": 512, "layers": 12, "heads": 8, "context_length": 77})
    for layers, more in (("all", 9_216), (["visual"], 4_608), (lambda name, _: "visual" in name, 4_608)):
        model, report = ap.differentiate(clip, layers=layers)
        assert report.parameters_after - report.parameters_before == more
        assert report.parameters_before == sum(p.numel() for p in clip.parameters())
        assert report.parameters_after == sum(p.numel() for p in model.parameters())
        assert all(p.is_meta for p in model.parameters())  # the device of the layer
    assert len(report.layers) == 12
    assert {row.reason for row in report.left} == {"not asked for"}


def test_a_schedule_counts_the_layers_of_each_stack(cases):
    _, report = ap.differentiate(cases("open_clip text").model, ap.Differential(lambda_init=ap.Schedule()))
    assert [round(row.lambda_init, 3) for row in report.layers] == [0.2, 0.356, 0.2, 0.356]
    listed = ap.Differential(lambda_init=(0.1, 0.7))
    _, report = ap.differentiate(cases("open_clip text").model, listed, layers=["visual.transformer.resblocks.1.attn"])
    assert [(row.name[-6:], row.lambda_init) for row in report.layers] == [("1.attn", 0.7)]
    assert report.layers[0].gain == pytest.approx(0.3)


def test_an_odd_number_of_heads_can_be_regrouped_by_diff_heads():
    torch.manual_seed(0)
    model = nn.ModuleList([nn.MultiheadAttention(24, 3, batch_first=True)])
    differential, report = ap.differentiate(model, diff_heads=2)
    assert "do not pair" in str(report)
    x = torch.randn(2, 5, 24)
    check(differential[0], x, x, x)
    with pytest.raises(InputError, match="attn_mask has 3 masks per example, and this layer 4 maps"):
        differential[0](x, x, x, attn_mask=torch.zeros(6, 5, 5))


# ------------------------------------------------------------------------------------------------- what is refused, what is left


def test_cross_attention_is_left_and_reported_or_refused_by_name():
    decoder = nn.TransformerDecoder(nn.TransformerDecoderLayer(WIDTH, HEADS, 32, 0.0, batch_first=True), 1).eval()
    model, report = ap.differentiate(decoder)
    assert [row.name for row in report.layers] == ["layers.0.self_attn"]
    assert [(row.name, row.reason) for row in report.left] == [
        ("layers.0.multihead_attn", "it is cross-attention, which is not replaced")
    ]
    x, memory = torch.randn(2, 5, WIDTH), torch.randn(2, 3, WIDTH)
    future = x.clone()
    future[:, 3:] = 0
    mask = nn.Transformer.generate_square_subsequent_mask(5)
    a, b = (model(t, memory, tgt_mask=mask, tgt_is_causal=True) for t in (x, future))
    assert torch.equal(a[:, :3], b[:, :3])
    with pytest.raises(
        InputError, match=r"'layers.0.multihead_attn' cannot be made differential: it is cross-attention"
    ):
        ap.differentiate(decoder, layers=["layers.0.multihead_attn"])


def test_pooling_with_learned_queries_is_left():
    vision = {"image_size": 16, "patch_size": 8, "width": WIDTH, "layers": 1, "head_width": 6}
    vision |= {"attentional_pool": True, "attn_pooler_queries": 4, "attn_pooler_heads": 2}
    model, report = ap.differentiate(open_clip.CLIP(12, vision, {"width": WIDTH, "layers": 1, "heads": 2}))
    assert [row.name for row in report.left] == ["visual.attn_pool.attn"]
    assert model.encode_image(torch.rand(1, 3, 16, 16)).isfinite().all()


def test_a_replaced_layer_called_as_cross_attention_is_refused():
    model, _ = ap.differentiate(nn.ModuleList([nn.MultiheadAttention(WIDTH, HEADS, batch_first=True)]))
    x = torch.randn(1, 4, WIDTH)
    with pytest.raises(InputError, match=r"called as cross-attention.*leave this layer out"):
        model[0](x, x + 1, x)


class Mine(nn.Module):
    """A kind of attention that nobody knows."""


Mine.__name__ = "MyAttention"

REFUSED = [
    (lambda: nn.ModuleList([nn.MultiheadAttention(12, 2, kdim=6)]), "kdim or vdim is cross-attention"),
    (lambda: nn.ModuleList([nn.MultiheadAttention(12, 2, add_bias_kv=True)]), "add_bias_kv or add_zero_attn"),
    (lambda: nn.ModuleList([nn.MultiheadAttention(12, 2, add_zero_attn=True)]), "add_bias_kv or add_zero_attn"),
    (lambda: nn.ModuleList([TimmAttention(12, 2, gated=True)]), "gated=True"),
    (lambda: nn.ModuleList([TimmAttention(12, 2, attn_head_dim=4)]), "heads of another width"),
    (lambda: nn.ModuleList([TimmAttention(12, 2, dim_out=6)]), "dim_out"),
    (lambda: nn.ModuleList([Mine()]), "MyAttention is a kind that is not known here"),
    (lambda: nn.MultiheadAttention(12, 2), r"put it into a module, nn.Sequential\(layer\)"),
    (lambda: nn.Linear(3, 3), "no attention layer to replace"),
    (
        lambda: ap.build(ap.ViTConfig(attention=(ap.Differential(),)), shape=(3, 8, 8), classes=2),
        "differential already",
    ),
]


@pytest.mark.parametrize(("model", "sentence"), REFUSED)
def test_what_cannot_be_replaced_is_refused_by_name(model, sentence):
    with pytest.raises(InputError, match=sentence):
        ap.differentiate(model())


@pytest.mark.parametrize(
    ("kwargs", "sentence"),
    [
        ({"layers": ["blocks.0.atn"]}, "no attention layer 'blocks.0.atn' in this model; did you mean 'blocks.0.attn'"),
        ({"layers": lambda *_: False}, "none was found or chosen"),
        ({"layers": []}, "none was found or chosen"),
        ({"diff_heads": 5}, "diff_heads=5 does not fit the width 24 of blocks.0.attn"),
        ({"diff_heads": 0}, "diff_heads=0 does not fit"),
        ({"attention": ap.Differential(lambda_init=(0.1,))}, "lists 1 values for a model of depth 2"),
    ],
)
def test_bad_arguments_are_refused(kwargs, sentence, cases):
    with pytest.raises(InputError, match=sentence):
        ap.differentiate(cases("timm").model, **kwargs)


def test_a_layer_with_query_norm_keeps_half_of_its_heads(cases):
    with pytest.raises(InputError, match="norm for queries of its 4 heads"):
        ap.differentiate(cases("timm qk_norm").model, diff_heads=3)


def test_calls_with_unsupported_arguments_are_refused():
    model, _ = ap.differentiate(nn.ModuleList([nn.MultiheadAttention(WIDTH, HEADS, batch_first=True)]))
    x = torch.randn(4, WIDTH)
    with pytest.raises(InputError, match=r"takes batches.*it was given \(4, 24\)"):
        model[0](x, x, x)
    batch = x[None]
    with pytest.raises(InputError, match="is_causal is a hint only"):
        model[0](batch, batch, batch, is_causal=True)


@pytest.mark.parametrize("name", HUGGING)
def test_output_attentions_is_refused_rather_than_empty(name, cases):
    case = cases(name)
    model, _ = ap.differentiate(case.model)
    with pytest.raises(InputError, match=r"output_attentions is refused: .*antiphase.taps"):
        model(case.given, output_attentions=True)
    model.config._attn_implementation = "eager"
    model.config.output_attentions = True
    with pytest.raises(InputError, match="output_attentions is refused"):
        model(case.given)


def test_unsupported_hugging_face_arguments_are_refused_by_name(cases):
    case = cases("ALIGN text")
    layer = ap.differentiate(case.model)[0].get_submodule(case.layer)
    x = torch.randn(2, 6, WIDTH)
    for name in ("head_mask", "past_key_values", "encoder_hidden_states", "position_embeddings"):
        with pytest.raises(InputError, match=f"called with {name}"):
            layer(x, **{name: torch.ones(4)})
    with pytest.raises(InputError, match=r"not \(B, 1, N, N\).*'eager' or 'sdpa'"):
        layer(x, torch.ones(2, 6))
    model, _ = ap.differentiate(case.model)
    hidden = model(IDS, output_hidden_states=True).hidden_states  # this one is the model's affair, and works
    assert len(hidden) == 3


def test_a_class_that_does_not_compute_what_its_name_says_is_refused(cases):
    model = copy.deepcopy(cases("ALIGN text").model)
    model.encoder.layer[1].attention.self.scaling = 1.0
    with pytest.raises(InputError, match="AlignTextSelfAttention is wrong: its output differs"):
        ap.differentiate(model)


def test_both_towers_of_blip_in_one_model():
    """The text tower's layers, which can be cross-attention too, are left and reported."""
    hf = foreign.transformers()
    small = {**foreign.SMALL, **foreign.IMAGES}
    text = {**foreign.SMALL, **foreign.TEXT, "encoder_hidden_size": WIDTH, "bos_token_id": 1, "sep_token_id": 2}
    model = hf.BlipForConditionalGeneration(hf.BlipConfig(text_config=text, vision_config=small))
    differential, report = ap.differentiate(model)
    assert [row.name for row in report.layers] == [f"vision_model.encoder.layers.{i}.self_attn" for i in (0, 1)]
    assert len(report.left) == 4
    assert {row.kind for row in report.left} == {"transformers BlipTextSelfAttention"}
    differential(torch.rand(1, 3, 16, 16), IDS[:1]).logits.sum().backward()
    assert differential.vision_model.encoder.layers[0].self_attn.lambda_q1.grad.abs().max() > 0


def test_the_examples_of_the_documentation_run(capsys):
    foreign.transformers()
    plain, hugging = blocks("docs/differentiate.md", "python")
    exec(plain, {})
    assert "12 attention layers are differential now" in capsys.readouterr().out
    names = {}
    exec(hugging, names)
    assert "encoder.layer.0.attention.output.dense" in capsys.readouterr().out
    maps = names["record"]["encoder.layer.0.attention.self"]
    assert not maps.noise[..., 3].any()
    assert not maps.signal[..., 3].any()
    assert all(
        f"`{name}`" in (ROOT / "docs/differentiate.md").read_text() for name in foreign_layers.HUGGING_FACE_LAYOUTS
    )


# ------------------------------------------------------------------------------------------------- the lens, attacks


@pytest.mark.parametrize("name", CASES)
def test_taps_record_new_and_old_layers_with_their_masks(name, cases):
    case = cases(name)
    model, _ = ap.differentiate(case.model, layers=[case.layer])  # so some are softmax still
    with torch.no_grad():
        plain = case.run(model, case.given)
        with taps(model) as record:
            near = {"rtol": 0, "atol": 1e-5 * float(plain.abs().max())}  # softmax layers may leave a fast path
            assert torch.allclose(case.run(model, case.given), plain, **near)
        with explicit(model):
            assert torch.allclose(case.run(model, case.given), plain, **near)
    maps = record[case.layer]
    assert maps.noise is not None
    assert sum(m.noise is None for m in record.values()) == (2 if name == "SigLIP vision" else 1)  # its pooling head
    assert list(record) == [n for n in attention_layers(model) if n in record]
    for branch in (maps.signal, maps.noise):
        assert branch.shape[1] == HEADS // 2
        assert torch.allclose(branch.sum(-1), torch.ones(()), atol=1e-5)
        if case.seen is not None:
            hidden = ~case.seen[:, None].expand(branch.shape)
            assert not branch[hidden].any()
            assert branch[~hidden].all()


@pytest.mark.parametrize("name", ["timm", "timm qk_norm"])
def test_a_differentiated_vit_takes_the_fast_path_where_its_logits_are_the_same(name, cases):
    case = cases(name)
    model, _ = ap.differentiate(case.model)
    with torch.no_grad(), fast_path(model):
        assert torch.allclose(model(case.given), ap.differentiate(case.model)[0](case.given), atol=1e-5)
        assert ("forward" in vars(model.blocks[-1])) is (name == "timm")


class Pooled(nn.Module):
    """A BLIP vision tower as a classifier of images of one channel."""

    def __init__(self, tower):
        super().__init__()
        self.tower, self.head = tower, nn.Linear(WIDTH, 10)

    def forward(self, x):
        return self.head(self.tower(x.expand(-1, 3, -1, -1)).pooler_output)


@pytest.fixture(params=["BLIP vision", "open_clip vision", "encoder"])
def classifier(request):
    """Pixels to logits, differential."""
    torch.manual_seed(0)
    if request.param == "BLIP vision":
        hf = foreign.transformers()
        tower = hf.BlipVisionModel(hf.BlipVisionConfig(**foreign.SMALL, image_size=8, patch_size=4))
        randomise(tower)
        return ap.differentiate(Normalized(Pooled(tower), 0.5, 0.5).eval())[0]
    if request.param == "encoder":
        from tests.models.encoder import Encoder

        return ap.differentiate(Encoder().eval())[0]
    vision = {"image_size": 8, "patch_size": 4, "width": WIDTH, "layers": 2, "head_width": 6}
    clip = open_clip.CLIP(12, vision, {"width": WIDTH, "layers": 1, "heads": 2}).eval()
    differential, _ = ap.differentiate(clip)

    class ThreeChannels(nn.Module):
        def __init__(self, inner):
            super().__init__()
            self.inner = inner

        def forward(self, x):
            return self.inner(x.expand(-1, 3, -1, -1))

    names = [f"{i}" for i in range(10)]
    return ThreeChannels(ap.zero_shot(differential, names, ["a {}"], tokenizer=open_clip.SimpleTokenizer()))


def test_a_differentiated_model_is_attacked_and_measured_like_any_other(classifier, digits):
    few = digits[1].subset(6)
    x, _, ids = few.all
    with torch.no_grad():
        y = classifier(x).argmax(-1)
    result = ap.attack(classifier, x, y, ap.PGD(within=ap.Linf("64/255"), steps=10), ids=ids)
    assert (result.adversarial - x).abs().max() <= 64 / 255 + 1e-7
    with torch.no_grad():
        assert torch.equal(classifier(result.adversarial).argmax(-1) != y, result.success)
    assert result.success.any()
    rows = branch_alignment(classifier, few.subset(2), probes=4)
    assert len(rows) == 2
    assert all(abs(row.cos).max() <= 1 for row in rows)
