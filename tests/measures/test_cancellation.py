"""Cancellation, propagation and correlation against hand-computable cases, full SVDs and each other."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.stats import spearmanr
from timm.layers import Attention, DiffAttention
from torch import nn

from antiphase import Run, load
from antiphase.config import InputError
from antiphase.data.imageset import Batch
from antiphase.measures.branch_pairs import BranchPair
from antiphase.measures.cancellation import Cancellation, cancellation, over_layers
from antiphase.measures.common_mode import common_mode
from antiphase.measures.correlation import MEANING, correlation, likeness, movement, subtraction
from antiphase.measures.perturbations import CORRUPTIONS, EQUAL_SIZE, PERTURBATIONS, perturbed
from antiphase.measures.power_iteration import sigma_max
from antiphase.measures.residual_stream import block_sigma, propagation
from antiphase.measures.stats import mean_interval, paired, spearman
from antiphase.models import Differential, Softmax, ViTConfig
from antiphase.models.taps import explicit, taps
from antiphase.models.vit import build
from tests.models.encoder import Encoder

EPS = 8 / 255
DOUBLE = torch.float64
BOTH = [(0, "pseudo"), (1, "branches")]  # of the pair: which run, how its maps are coupled


def of(d1, d2, lam=0.8, perturbation="sign", layer="a"):
    """A Cancellation of given changes, (n, h, entries) each."""
    d1, d2 = (np.asarray(d, dtype=np.float64) for d in (d1, d2))
    sizes = np.ones(len(d1))
    moments = ((d1 * d1).sum(-1), (d2 * d2).sum(-1), (d1 * d2).sum(-1))
    return Cancellation(layer, perturbation, EPS, "maps", "branches", lam, *moments, sizes, sizes)


def deep(attention=None, depth=3):
    attention = attention or (Softmax(), Differential(), Differential())
    config = ViTConfig(patch=2, width=32, heads=4, depth=depth, attention=attention)
    return build(config, shape=(1, 8, 8), classes=10, seed=1).eval()


# ------------------------------------------------------------------------------------------------- perturbations


@pytest.mark.parametrize("name", PERTURBATIONS)
def test_a_perturbation_has_the_size_it_says(name, pair, digits):
    model, batch = pair[1].classifier(), digits[1].subset(6).all
    done = perturbed(model, batch, name, EPS)
    assert done.pixels.shape == batch.pixels.shape
    assert done.pixels.min() >= 0
    assert done.pixels.max() <= 1
    assert (done.l2 > 0).all()
    if name in EQUAL_SIZE and name != "gaussian":
        assert (done.linf <= EPS + 1e-7).all()
    free = perturbed(model, batch, name, EPS, clip=False)
    if name in ("sign", "gaussian"):
        assert free.l2 == pytest.approx(EPS * 8, rel=1e-5)  # sqrt(64 pixels)
    if PERTURBATIONS[name].kind != "noise":
        assert torch.equal(free.pixels, done.pixels)


def test_scrambled_noise_is_exactly_as_large_as_the_attack_in_every_pixel(pair, digits):
    model, batch = pair[1].classifier(), digits[1].subset(6).all
    attack, noise = (perturbed(model, batch, name, EPS) for name in ("pgd", "scrambled"))
    a, b = attack.pixels - batch.pixels, noise.pixels - batch.pixels
    assert torch.allclose(a.abs(), b.abs(), atol=1e-7)
    assert noise.l2 == pytest.approx(attack.l2, rel=1e-5)
    inside = (batch.pixels > EPS) & (batch.pixels < 1 - EPS) & (a.abs() > 1e-6)
    flipped = ((a - b).abs() > 1e-6)[inside].float().mean()
    assert 0.4 < flipped < 0.6


def test_a_perturbation_belongs_to_the_image_and_not_to_the_batch(pair, digits):
    model, few = pair[1].classifier().double(), digits[1].subset(6)
    batch = Batch(few.all.pixels.double(), few.all.labels, few.ids)
    last = Batch(batch.pixels[5:], batch.labels[5:], batch.ids[5:])
    for name in PERTURBATIONS:
        whole, alone = (perturbed(model, b, name, EPS).pixels[-1] for b in (batch, last))
        assert torch.allclose(whole, alone, atol=1e-12), name
    assert not torch.equal(perturbed(model, last, "sign", EPS, 0).pixels, perturbed(model, last, "sign", EPS, 1).pixels)


def test_an_attack_goes_on_to_the_end_for_images_that_are_fooled(pair, digits):
    """PGD raises the loss at least as far as FGSM on the mean, and leaves the model as it was."""
    model, batch = pair[1].classifier(), digits[1].subset(24).all
    model.train()
    losses = {
        name: nn.functional.cross_entropy(model.eval()(perturbed(model.train(), batch, name, EPS).pixels), batch.labels)
        for name in ("sign", "fgsm", "pgd")
    }
    assert losses["pgd"] > losses["fgsm"] > losses["sign"]
    assert all(p.requires_grad for p in model.parameters())


# ------------------------------------------------------------------------------------------------- singular values


def test_sigma_max_is_within_one_percent_of_the_full_svd(pair, digits):
    model, x = pair[1].classifier().double(), digits[1].subset(4).all.pixels.double()
    found = sigma_max(model, x)
    full = torch.stack([torch.autograd.functional.jacobian(model, x[i : i + 1]).reshape(10, -1) for i in range(4)])
    true = torch.linalg.svdvals(full)[:, 0]
    assert (found.value <= true * (1 + 1e-12)).all()
    assert (found.value >= 0.99 * true).all()
    assert found.converged.all()
    along = (full @ found.direction.flatten(1)[..., None]).flatten(1).norm(dim=1)
    assert torch.allclose(along, true, rtol=1e-2)


def test_sigma_max_of_a_linear_map_and_of_nothing():
    torch.manual_seed(0)
    weight = torch.randn(7, 12, dtype=DOUBLE)
    x = torch.randn(3, 12, dtype=DOUBLE)
    found = sigma_max(lambda t: t @ weight.T, x, iterations=500, tolerance=1e-12)
    assert torch.allclose(found.value, torch.linalg.svdvals(weight)[0].expand(3), rtol=1e-8)
    assert torch.equal(sigma_max(lambda t: 0 * t, x).value, torch.zeros(3, dtype=DOUBLE))
    with pytest.raises(InputError, match="at least 1"):
        sigma_max(lambda t: t, x, iterations=0)
    with pytest.raises(InputError, match="not finite"):
        sigma_max(lambda t: t * torch.nan, x)


def test_each_example_stops_on_its_own():
    """An easy example takes few iterations, a hard one all; alone or together they give the same number."""
    easy, hard = torch.diag(torch.tensor([9.0, 1, 1, 1])), torch.diag(torch.tensor([1.0, 0.99, 0.98, 0.97]))
    weights, x, ids = torch.stack([easy, hard]).double(), torch.zeros(2, 4, dtype=DOUBLE), np.array([3, 8])
    found = sigma_max(lambda t: torch.einsum("bij,bj->bi", weights, t), x, 40, 1e-4, ids=ids)
    assert found.iterations[0] < found.iterations[1]
    for i in range(2):
        alone = sigma_max(lambda t, i=i: t @ weights[i].T, x[:1], 40, 1e-4, ids=ids[i : i + 1])
        assert alone.value[0].item() == pytest.approx(found.value[i].item(), rel=1e-12)
        assert alone.iterations[0] == found.iterations[i]


# ------------------------------------------------------------------------------------------------- cancellation


def test_equal_changes_cancel_completely_and_opposite_ones_not_at_all():
    d = np.random.default_rng(0).normal(size=(4, 2, 9))
    equal = of(d, d, lam=1.0)
    assert (equal.alpha == 0).all()
    assert np.isinf(equal.cmrr).all()
    told = equal.summary()
    assert told["cmrr_median"] is None
    assert told["cmrr_infinite"] == 8
    assert told["cancels"]["value"] == 1
    assert all(row["residue"] == 0 and row["cmrr"] is None for row in equal.rows(np.arange(4)))
    json.dumps(told, allow_nan=False)
    opposite = of(d, -d, lam=0.7)
    assert opposite.alpha == pytest.approx(1, abs=1e-15)
    assert opposite.cmrr == pytest.approx((1 + 0.49) / 1.7**2)
    assert of(d, -d, lam=-1.0).alpha == pytest.approx(0, abs=1e-15)  # minus a negative lambda: opposite changes cancel


def test_alpha_and_cmrr_are_what_kappa_and_the_angle_make_of_them():
    """alpha_tri = s / (1 + kappa), CMRR = 1 / (1 - 2 kappa c / (1 + kappa^2)), to 1e-10 in float64."""
    rng = np.random.default_rng(0)
    d1, d2, lam = rng.normal(size=(50, 3, 20)), rng.normal(size=(50, 3, 20)) * 2, 0.6
    found = of(d1, d2, lam)
    norm = np.linalg.norm
    direct = norm(d1 - lam * d2, axis=-1) / (norm(d1, axis=-1) + lam * norm(d2, axis=-1))
    kappa, c = lam * norm(d2, axis=-1) / norm(d1, axis=-1), found.cos
    assert np.abs(found.alpha - direct).max() < 1e-10
    assert np.abs(found.alpha - np.sqrt(1 + kappa**2 - 2 * kappa * c) / (1 + kappa)).max() < 1e-10
    assert np.abs(found.cmrr * (1 - 2 * kappa * c / (1 + kappa**2)) - 1).max() < 1e-10
    assert np.abs(found.reference - np.sqrt(1 + kappa**2) / (1 + kappa)).max() < 1e-10
    assert ((found.alpha < found.reference) == (c > 0)).all()
    one = of([[[1.0, 0]]], [[[0, 1.0]]], lam=0.8)
    assert one.alpha[0, 0] == one.reference[0, 0] == pytest.approx(0.7115, abs=1e-4)


def test_a_branch_that_does_not_move_is_counted_and_left_out():
    d = np.random.default_rng(0).normal(size=(5, 2, 9))
    still = d.copy()
    still[0, 0] = 0
    told = of(d, still).summary()
    assert told["dead"] == 1
    assert told["cancels"]["n"] == 9
    assert of(d, still).alpha[0, 0] == 1  # nothing to cancel with
    nothing = of(0 * d, 0 * d)
    assert np.isnan(nothing.alpha).all()
    assert nothing.summary()["alpha"] is None
    assert nothing.rows(np.arange(5))[0]["alpha"] is None


@pytest.mark.parametrize(("which", "coupling"), BOTH)
def test_changes_of_a_real_model_come_from_its_own_maps(which, coupling, pair, digits):
    """n1, n2 and ip of every level against maps that are read and mixed by hand."""
    model, few = pair[which].classifier(), digits[1].subset(5)
    found = {c.quantity: c for c in cancellation(model, few, perturbations=("sign",), coupling=coupling)}
    assert set(found) == {"maps", "values", "held"}
    there = perturbed(model, few.all, "sign", EPS)
    reads = []
    for pixels in (few.all.pixels, there.pixels):
        with torch.no_grad(), taps(model) as record:
            model(pixels)
        (maps,) = record.values()
        a, v = maps.signal.double(), maps.values.double()
        if coupling == "pseudo":
            reads.append((a[:, 0::2], a[:, 1::2], torch.cat([v[:, 0::2], v[:, 1::2]], dim=-1)))
        else:
            reads.append((a, maps.noise.double(), v))
    (a, b, v), (c, d, w) = reads
    changes = {"maps": (c - a, d - b), "values": (c @ w - a @ v, d @ w - b @ v), "held": ((c - a) @ v, (d - b) @ v)}
    for level, (one, two) in changes.items():
        assert found[level].ip == pytest.approx((one * two).flatten(2).sum(-1).numpy(), rel=1e-3, abs=1e-7)
        assert found[level].n1 == pytest.approx((one * one).flatten(2).sum(-1).numpy(), rel=1e-3)
        assert found[level].l2 == pytest.approx(there.l2)
        rows = found[level].rows(few.ids)
        assert len(rows) == 5 * found[level].n1.shape[1]
        json.dumps([rows, found[level].summary()], allow_nan=False)


def test_cancellation_and_propagation_do_not_depend_on_the_batch(pair, digits):
    model, few = pair[1].classifier(), digits[1].subset(7)
    for measure, field in ((cancellation, "ip"), (propagation, "change"), (propagation, "without")):
        whole, parts = (measure(model, few, perturbations=("sign", "blur"), batch_size=size) for size in (64, 3))
        assert len(whole) == len(parts)
        for a, b in zip(whole, parts):
            assert getattr(a, field) == pytest.approx(getattr(b, field), rel=1e-3, abs=1e-6)
    assert block_sigma(model, few, batch_size=3) == pytest.approx(block_sigma(model, few), rel=1e-3)


def test_layers_are_ranked_by_lambda_where_there_are_three():
    rng = np.random.default_rng(0)
    d = rng.normal(size=(6, 1, 9))
    layers = [of(d, d + k * rng.normal(size=d.shape), lam=0.9 - k / 10, layer=str(k)) for k in range(5)]
    (row,) = over_layers(layers)
    assert row["lambda_alpha"] == {"rho": pytest.approx(-1), "p": pytest.approx(2 / 120), "n": 5}
    assert over_layers(layers[:2])[0]["lambda_alpha"] is None
    x, y = rng.normal(size=(2, 30))
    ours, theirs = spearman(x, y), spearmanr(x, y)
    assert ours["rho"] == pytest.approx(theirs.statistic)
    assert ours["p"] == pytest.approx(theirs.pvalue, abs=0.02)


# ------------------------------------------------------------------------------------------------- X1


def test_the_verdict_on_common_mode_follows_the_data():
    """Noise that moves both alike, an attack that moves them apart; then both alike; then neither."""
    rng = np.random.default_rng(0)
    d, other = rng.normal(size=(2, 40, 2, 30))
    alike, apart, orthogonal = of(d, d + other / 2), of(d, -d + other / 2), of(d, other)

    def verdicts(noise, attack):
        named = [Cancellation(**{**vars(c), "perturbation": p}) for c, p in ((noise, "sign"), (attack, "pgd"))]
        return {row["statistic"]: row for row in common_mode(named)}

    assert verdicts(alike, apart)["cos"]["verdict"] == "noise common-mode, attack opposed"
    assert verdicts(alike, apart)["log_cmrr"]["verdict"] == "noise cancelled, attack amplified"
    for row in verdicts(alike, apart).values():
        assert row["difference"]["interval"][0] > 0
        assert row["p"] < 1e-6
        assert (row["above"], row["below"], row["matched"]) == (40, 0, True)
        json.dumps(row, allow_nan=False)
    assert verdicts(apart, alike)["cos"]["verdict"] == "noise opposed, attack common-mode"
    assert verdicts(alike, alike)["cos"]["verdict"] == "both common-mode, no difference shown"
    assert verdicts(apart, apart)["log_cmrr"]["verdict"] == "both amplified, no difference shown"
    assert verdicts(alike, of(d, d + other / 4))["cos"]["verdict"] == "both common-mode, the attack more so"
    assert verdicts(orthogonal, apart)["cos"]["verdict"] == "noise undecided, attack opposed"
    smaller = Cancellation(**{**vars(apart), "perturbation": "pgd", "eps": 1 / 255})
    assert common_mode([alike, smaller]) == []  # of another size: nothing to compare
    with pytest.raises(InputError, match="noise is compared with attacks"):
        common_mode([alike])


def test_a_paired_difference_by_hand():
    first, second = np.array([1.0, 2, 3, np.nan]), np.array([0.0, 0, 0, 5])
    found = paired(first, second)
    assert found["difference"]["value"] == 2
    assert found["difference"]["n"] == 3
    assert found["difference"]["interval"] == pytest.approx([2 - 4.302653 / 3**0.5, 2 + 4.302653 / 3**0.5])
    assert (found["above"], found["below"], found["p_sign"]) == (3, 0, 0.25)
    assert mean_interval(np.array([np.nan])) == {"value": None, "interval": None, "n": 0}
    assert paired(first, first)["p_wilcoxon"] == 1


@pytest.mark.usefixtures("data_root")
def test_noise_and_attacks_on_a_real_cifar_pair():
    """On these weights neither is common-mode: both move the maps of a differential layer apart, attacks further."""
    few = load("cifar10", "test").subset(24)
    model = Run(Path(__file__).parents[2] / "results/pair/DiffViT").classifier()
    found = cancellation(model, few, perturbations=("sign", "fgsm"), quantities=("maps",))
    row = common_mode(found)[0]
    assert row["matched"]
    assert row["verdict"] == "both opposed, noise less so"


# ------------------------------------------------------------------------------------------------- propagation


class Linear(nn.Module):
    """x + attention(x) with queries and keys of zero: maps are uniform, so the block is linear."""

    def __init__(self):
        super().__init__()
        self.attn = Attention(16, num_heads=2, qkv_bias=True)
        with torch.no_grad():
            self.attn.qkv.weight[:32] = 0
            self.attn.qkv.weight[32:] *= 5

    def forward(self, x):
        return x + self.attn(x)


class LinearModel(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.blocks = nn.Sequential(Linear(), Linear())
        self.head = nn.Linear(16, 10)

    def forward(self, pixels):
        return self.head(self.blocks(pixels.reshape(len(pixels), 4, 16)).mean(dim=1))


def test_a_linear_block_never_exceeds_its_largest_gain_and_reaches_it_along_the_top_singular_vector(digits):
    model, few = LinearModel().eval(), digits[1].subset(4)
    sigma = block_sigma(model, few, iterations=500, tolerance=1e-6)
    x = torch.zeros(4, 16)
    for k in (0, 1):
        full = torch.autograd.functional.jacobian(lambda t, k=k: model.blocks[k](t[None])[0], x).reshape(64, 64)
        assert sigma[:, k] == pytest.approx(float(torch.linalg.svdvals(full)[0]), rel=1e-4)
    for found in propagation(model, few, sigma=sigma):
        assert (found.slack <= 1 + 1e-4).all()
        assert np.isnan(found.counterfactual).all()  # nothing to subtract
    before = few.all.pixels.reshape(4, 4, 16)
    with explicit(model):
        top = sigma_max(model.blocks[0], before, 500, 1e-6)
    gain = (model.blocks[0](before + top.direction) - model.blocks[0](before)).flatten(1).norm(dim=1).detach()
    assert gain.numpy() / sigma[:, 0] == pytest.approx(1, rel=1e-4)


def test_blocks_side_by_side_are_no_single_stream(digits):
    class Parallel(LinearModel):
        def forward(self, pixels):
            x = pixels.reshape(len(pixels), 4, 16)
            return self.head((self.blocks[0](x) + self.blocks[1](x)).mean(dim=1))

    with pytest.raises(InputError, match="no single stream"):
        propagation(Parallel().eval(), digits[1].subset(2))


def test_the_product_of_the_gains_telescopes(digits):
    model, few = deep(), digits[1].subset(5)
    for found in propagation(model, few, perturbations=("uniform", "pgd")):
        assert found.change.shape == (5, 4)
        assert found.gains.prod(axis=1) == pytest.approx(found.change[:, -1] / found.change[:, 0], rel=1e-12)
        assert found.mean_gain**3 == pytest.approx(found.gains.prod(axis=1), rel=1e-12)
        assert np.isnan(found.without[:, 0]).all()  # the softmax layer
        assert np.isfinite(found.without[:, 1:]).all()
        assert np.isnan(found.slack).all()  # sigma was not given
        rows = found.rows(few.ids)
        assert [row["depth"] for row in rows[:4]] == [0, 1, 2, 3]
        assert rows[0]["gain"] is None
        json.dumps([rows, found.summary()], allow_nan=False)


def test_the_stream_begins_after_the_patch_embedding_and_its_gain_may_be_below_one(digits):
    model, few = deep(), digits[1].subset(5)
    (found,) = propagation(model, few, perturbations=("sign",))
    there = perturbed(model, few.all, "sign", EPS).pixels
    with torch.no_grad():
        vit = model.model
        embedded = [vit._pos_embed(vit.patch_embed((x - model.mean) / model.std)) for x in (few.all.pixels, there)]
    assert found.change[:, 0] == pytest.approx((embedded[1] - embedded[0]).flatten(1).norm(dim=1).numpy(), rel=1e-4)
    for factor, attenuates in ((0.5, True), (2.0, False)):
        geometric = factor ** np.arange(4)[None] * np.ones((5, 1))
        told = type(found)(**{**vars(found), "change": geometric}).summary()
        assert told["mean_gain"]["value"] == pytest.approx(factor)
        assert told["attenuates"] is attenuates


def test_the_counterfactual_sets_lambda_to_zero_in_one_block_only(digits):
    """Where lambda is 0 already the factor is 1; elsewhere it is what a model without the subtraction in that block gives."""
    few = digits[1].subset(4)
    model = deep((Differential(), Differential()), depth=2)
    (found,) = propagation(model, few, perturbations=("sign",))
    assert (np.abs(found.counterfactual - 1) > 1e-4).any()
    block = model.model.blocks[0]
    attention = block.attn
    attention.learned, before = False, attention.lambda_init
    attention.lambda_init = 0.0  # the gain is a field of its own and stays
    (without,) = propagation(model, few, perturbations=("sign",))
    assert found.without[:, 0] == pytest.approx(without.change[:, 1], rel=1e-4)
    assert found.counterfactual[:, 0] == pytest.approx(found.change[:, 1] / without.change[:, 1], rel=1e-4)
    assert without.counterfactual[:, 0] == pytest.approx(1, abs=1e-6)
    assert before != 0


def test_measuring_leaves_no_trace(pair, digits):
    model, few = pair[1].classifier(), digits[1].subset(2)
    hooks = ("_forward_hooks", "_forward_pre_hooks")
    look = lambda: {n: (set(vars(m)), [len(vars(m)[h]) for h in hooks]) for n, m in model.named_modules()}  # noqa: E731
    before, grads = look(), [p.requires_grad for p in model.parameters()]
    model.train()
    weight = model.model.blocks[0].attn.qkv.weight
    for measure in (cancellation, propagation, block_sigma, correlation):
        measure(model, few)
        with torch.no_grad():
            kept = weight[0, 0].clone()
            weight[0, 0] = torch.nan
            with pytest.raises(InputError):
                measure(model, few)
            weight[0, 0] = kept
        assert look() == before
        assert model.training
        assert [p.requires_grad for p in model.parameters()] == grads


# ------------------------------------------------------------------------------------------------- correlation

ALL = torch.ones(1, 1, 1, 4, dtype=torch.bool)


def row(*weights):
    return torch.tensor(weights, dtype=DOUBLE).reshape(1, 1, 1, -1)


def test_likeness_of_rows_by_hand():
    same = likeness(row(0.4, 0.3, 0.2, 0.1), row(0.4, 0.3, 0.2, 0.1), ALL, top=2)
    assert {name: float(v) for name, v in same.items()} == pytest.approx(
        {"pearson": 1, "cosine": 1, "divergence": 0, "overlap": 1, "chance": 0.5}
    )
    reverse = likeness(row(0.4, 0.3, 0.2, 0.1), row(0.1, 0.2, 0.3, 0.4), ALL, top=2)
    assert float(reverse["pearson"]) == pytest.approx(-1)
    assert float(reverse["cosine"]) == pytest.approx(0.2 / 0.3)
    assert float(reverse["overlap"]) == 0
    disjoint = likeness(row(0.5, 0.5, 0, 0), row(0, 0, 0.5, 0.5), ALL, top=3)
    assert float(disjoint["divergence"]) == pytest.approx(1)
    assert float(disjoint["cosine"]) == 0
    uniform = likeness(row(0.25, 0.25, 0.25, 0.25), row(0.4, 0.3, 0.2, 0.1), ALL, top=2)
    assert uniform["pearson"].isnan()  # a constant row has no correlation


def test_subtraction_and_movement_of_rows_by_hand():
    found = subtraction(BranchPair(row(0.5, 0.5, 0, 0), row(0.25, 0.25, 0.25, 0.25), torch.tensor(0.8)), ALL)
    assert {name: float(v) for name, v in found.items()} == pytest.approx(
        {
            "negative_share": 0.5,
            "negative_mass": 0.4,  # .3 .3 -.2 -.2
            "entropy_first": 1,
            "entropy_second": 2,
            "entropy_combined": -(2 * 0.3 * np.log2(0.3) + 2 * 0.2 * np.log2(0.2)),
        }
    )
    gone = subtraction(BranchPair(row(0.4, 0.3, 0.2, 0.1), row(0.4, 0.3, 0.2, 0.1), torch.ones(())), ALL)
    assert gone["entropy_combined"].isnan()  # nothing is left
    assert gone["negative_mass"].isnan()
    moved = movement(row(0.1, -0.1, 0, 0), row(-0.2, 0.2, 0, 0), ALL)
    assert [float(v) for v in moved.values()] == pytest.approx([-1, -1])
    assert movement(row(0, 0, 0, 0), row(0.1, -0.1, 0, 0), ALL)["change_cosine"].isnan()


def test_short_rows_of_a_causal_map_are_left_out():
    seen = torch.ones(6, 6, dtype=torch.bool).tril()[None, None]
    torch.manual_seed(0)
    a, b = (torch.randn(1, 1, 6, 6, dtype=DOUBLE).masked_fill(~seen, -torch.inf).softmax(-1) for _ in range(2))
    found = likeness(a, b, seen, top=2)
    by_hand = [np.corrcoef(a[0, 0, i, : i + 1], b[0, 0, i, : i + 1])[0, 1] for i in (3, 4, 5)]
    assert float(found["pearson"]) == pytest.approx(np.mean(by_hand))
    assert float(found["chance"]) == pytest.approx(np.mean([2 / 4, 2 / 5, 2 / 6]))
    shortest = likeness(a[:, :, :3], b[:, :, :3], seen[:, :, :3], top=2)
    assert all(v.isnan().all() for v in shortest.values())


class Causal(nn.Module):
    """A differential layer that may only look back, as text towers do."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.attn = DiffAttention(16, num_heads=2, depth=1)
        self.head = nn.Linear(16, 10)

    def forward(self, pixels):
        return self.head(self.attn(pixels.reshape(len(pixels), -1, 16), is_causal=True).mean(dim=1))


def test_masks_are_respected_from_the_running_model(digits):
    few = digits[1].subset(3)
    assert few.shape == (1, 8, 8)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("antiphase.measures.correlation.SHORTEST", 2)
        looser = correlation(Causal().eval(), few, perturbations=("blur",))
    found = correlation(Causal().eval(), few, perturbations=("blur",))
    assert (found[0].rows_used, looser[0].rows_used) == (1, 3)  # of 4 tokens
    assert found[0].statistics["chance"] == pytest.approx(1)  # 4 tokens, top 5
    assert np.isfinite(found[1].statistics["change_pearson"]).all()


def test_torchs_own_encoder_is_measured_by_all_of_them(digits):
    model, few = Encoder().eval(), digits[1].subset(3)
    assert len(cancellation(model, few, coupling="pseudo")) == 2 * 3 * 3  # layers, perturbations, levels
    assert len(correlation(model, few, coupling="pseudo", perturbations=("blur",))) == 2 * 2
    sigma = block_sigma(model, few)
    (found,) = propagation(model, few, perturbations=("sign",), sigma=sigma)
    assert found.gains.shape == sigma.shape == (3, 2)
    assert (found.slack > 0).all()


@pytest.mark.parametrize(("which", "coupling"), BOTH)
def test_correlation_of_a_real_model(which, coupling, pair, digits):
    model, few = pair[which].classifier(), digits[1].subset(5)
    found = {c.perturbation: c for c in correlation(model, few, coupling=coupling)}
    assert list(found) == ["clean", *CORRUPTIONS]
    (other,) = cancellation(model, few, perturbations=("blur",), coupling=coupling, quantities=("maps",))
    assert found["blur"].statistics["change_cosine"] == pytest.approx(other.cos)  # two routes to one number
    clean = found["clean"]
    assert set(clean.statistics) == set(MEANING)
    assert np.isnan(clean.statistics["change_cosine"]).all()
    assert clean.rows_used == 17
    assert (clean.l2 == 0).all()
    assert (np.diff([found[f"gaussian{s}"].l2.mean() for s in (8, 16, 32)]) > 0).all()
    half = correlation(model, few, coupling=coupling, batch_size=2)
    for a, b in zip(found.values(), half):
        for name in MEANING:
            assert a.statistics[name] == pytest.approx(b.statistics[name], rel=1e-3, abs=1e-4, nan_ok=True)
        json.dumps([a.summary(), a.rows(few.ids)], allow_nan=False)


# ------------------------------------------------------------------------------------------------- refusals


@pytest.mark.parametrize("measure", [cancellation, correlation])
def test_one_branch_where_two_are_needed_is_refused_with_the_remedy(measure, pair, digits):
    few = digits[1].subset(2)
    with pytest.raises(InputError, match=r'two branches.*coupling="pseudo"'):
        measure(pair[0].classifier(), few)
    model = pair[0].classifier().train()
    with pytest.raises(InputError) as kept:  # while the error is alive, too
        measure(model, few)
    assert kept
    assert model.training
    assert torch.is_grad_enabled()
    with pytest.raises(InputError, match=r'softmax layer.*coupling="branches"'):
        measure(pair[1].classifier(), few, coupling="pseudo")


@pytest.mark.parametrize("measure", [cancellation, correlation, propagation, block_sigma])
def test_what_cannot_be_measured_gets_a_sentence(measure, pair, digits):
    few, broken = digits[1].subset(2), pair[1].classifier()
    with pytest.raises(InputError, match="no attention layer"):
        measure(nn.Flatten(), few)
    with torch.no_grad():
        broken.model.blocks[0].attn.qkv.weight[0, 0] = torch.nan
    with pytest.raises(InputError, match="not finite"):
        measure(broken, few)


def test_bad_arguments_get_a_sentence(pair, digits):
    model, few = pair[1].classifier(), digits[1].subset(2)
    for measure in (cancellation, correlation, propagation):
        with pytest.raises(InputError, match="'snow' is not known: it takes uniform"):
            measure(model, few, perturbations=("snow",))
        with pytest.raises(InputError, match="none at all"):
            measure(model, few, perturbations=())
        with pytest.raises(InputError, match="pixel range"):
            measure(model, few, perturbations=("sign",), eps=8)
    with pytest.raises(InputError, match="top=0"):
        correlation(model, few, top=0)
    with pytest.raises(InputError, match="sigma is for"):
        propagation(model, few, sigma=np.ones((3, 1)))
    two = Batch(torch.rand(2, 2, 8, 8), few.all.labels, few.ids)
    with pytest.raises(InputError, match="1 or 3 channels"):
        perturbed(model, two, "jpeg50", EPS)
