"""Numbers with known answers, and two independent routes to the same number."""

import numpy as np
import pytest
import torch
from scipy.stats import binomtest

from antiphase.attacks.engine import AttackResult
from antiphase.config import InputError
from antiphase.measures.jacobians_forward import branch_alignment
from antiphase.measures.lipschitz import l_sample
from antiphase.measures.stats import holm, mcnemar, rate, wilson
from antiphase.measures.success import success_rates
from antiphase.models.taps import explicit, taps


@pytest.fixture(scope="module")
def three(digits):
    return digits[1].subset(3)


@pytest.fixture(scope="module")
def jacobians(pair, three):
    """Exact J1, J2 and the Jacobian of A1 - lambda A2, each by reverse mode: (n, h, N*N, pixels)."""
    model = pair[1].classifier().double()

    def maps(x):
        with taps(model) as record:
            model(x)
            (b,) = record.values()
            return b.signal, b.noise, b.combined

    found = []
    with explicit(model):
        for x in three.all.pixels.double():
            jac = torch.autograd.functional.jacobian(maps, x[None])
            found.append([j[0].flatten(3).flatten(1, 2) for j in jac])
    return [torch.stack(j) for j in zip(*found)]


def test_probed_branch_gradients_agree_with_the_exact_ones(pair, three, jacobians):
    """E1 within three standard errors of the full Jacobian, for every image and head."""
    (layer,) = branch_alignment(pair[1].classifier(), three, probes=256)
    j1, j2, _ = jacobians
    exact_ip, exact_n1 = (j1 * j2).sum((-1, -2)).numpy(), (j1**2).sum((-1, -2)).numpy()
    exact_cos = exact_ip / np.sqrt(exact_n1 * (j2**2).sum((-1, -2)).numpy())
    assert (np.abs(layer.cos - exact_cos) < 3 * layer.cos_se).all()
    se = layer.n1.std(axis=-1, ddof=1) / 256**0.5
    assert (np.abs(layer.n1.mean(-1) - exact_n1) < 4 * se).all()


def test_lemma_1_is_an_identity_in_the_frobenius_norm(pair, jacobians):
    """||J_DA||^2 = ||J1||^2 + lambda^2 ||J2||^2 - 2 lambda <J1, J2>, with J_DA computed on its own."""
    j1, j2, j_da = jacobians
    lam = pair[1].classifier().double().model.blocks[0].attn._compute_lambda().item()
    left = (j_da**2).sum((-1, -2))
    right = (j1**2 + lam**2 * j2**2 - 2 * lam * j1 * j2).sum((-1, -2))
    assert torch.allclose(left, right, rtol=1e-7)


def test_amplification_is_the_square_root_of_theorem_1(pair, three):
    (layer,) = branch_alignment(pair[1].classifier(), three, probes=8)
    rho = np.sqrt(layer.n2.mean(-1) / layer.n1.mean(-1))
    by_hand = np.sqrt(1 + (layer.lam * rho) ** 2 - 2 * layer.lam * rho * layer.cos)
    assert layer.amplification == pytest.approx(by_hand, rel=1e-6)


def test_sampled_lipschitz_is_below_the_operator_norm_and_near_the_frobenius_average(pair, three, jacobians):
    """For tiny random steps the root mean square ratio is ||J||_F / sqrt(pixels); no ratio exceeds sigma_max."""
    (layer,) = l_sample(pair[1].classifier().double(), _double(three), draws=400, eps=1e-6)
    stacked = jacobians[2].flatten(1, 2)  # all heads of the layer: (n, h*N*N, pixels)
    top = torch.linalg.matrix_norm(stacked, ord=2).numpy()
    assert (layer.ratios.max(axis=1) <= top * (1 + 1e-4)).all()
    average = (stacked**2).sum((-1, -2)).sqrt().numpy() / stacked.shape[-1] ** 0.5
    assert (layer.ratios**2).mean(axis=1) ** 0.5 == pytest.approx(average, rel=0.05)


class _Doubled:
    def __init__(self, source):
        self.source, self.shape = source, source.shape

    def read(self, rows):
        return self.source.read(rows).double()


def _double(images):
    from dataclasses import replace

    return replace(images, source=_Doubled(images.source))


def test_measures_do_not_depend_on_the_batch(pair, digits):
    few, model = digits[1].subset(10), pair[1].classifier()
    (a,), (b,) = (l_sample(model, few, draws=3, batch_size=size) for size in (10, 3))
    assert np.allclose(a.ratios, b.ratios, rtol=1e-4)
    (c,), (d,) = (branch_alignment(model, few, probes=3, batch_size=size) for size in (10, 4))
    assert np.allclose(c.ip, d.ip, rtol=1e-3, atol=1e-6)


def test_a_model_with_one_branch_has_no_alignment(pair, digits):
    with pytest.raises(InputError, match="two branches"):
        branch_alignment(pair[0].classifier(), digits[1].subset(4), probes=4)


@pytest.mark.parametrize("call", [lambda m, x: l_sample(m, x, draws=0), lambda m, x: branch_alignment(m, x, probes=1)])
def test_too_few_draws_are_refused(call, pair, three):
    with pytest.raises(InputError, match=r"draws=0|probes=1"):
        call(pair[1].classifier(), three)


# ------------------------------------------------------------------------------------------------- rates


def _result(labels, clean, changed):
    labels, clean, changed = torch.tensor(labels), torch.tensor(clean), torch.tensor(changed, dtype=torch.bool)
    zero, won = torch.zeros_like(labels), changed.any(0)
    pixels = torch.zeros(len(labels), 1, 1, 1)
    return AttackResult(pixels, labels, clean, torch.where(won, 9, clean), won, changed, zero.double(), zero, zero)


def test_each_rate_has_the_denominator_its_name_says():
    rates = success_rates(_result([0, 0, 0, 0], [0, 0, 0, 1], [[1, 0, 0, 1], [0, 0, 0, 1]]))
    assert {k: (v["hits"], v["n"]) for k, v in rates.items()} == {
        "clean_accuracy": (3, 4),
        "robust_accuracy": (2, 4),
        "asr_change": (3, 8),
        "asr_correct": (1, 6),
        "asr_union": (2, 4),
    }


def test_an_empty_denominator_is_undefined_not_zero():
    rates = success_rates(_result([0, 0], [1, 1], [[1, 0]]))
    assert rates["asr_correct"] == {"value": None, "interval": None, "hits": 0, "n": 0}


@pytest.mark.parametrize(("hits", "n"), [(0, 10), (3, 10), (10, 10), (57, 100), (1, 1)])
def test_wilson_is_scipys(hits, n):
    theirs = binomtest(hits, n).proportion_ci(method="wilson")
    assert wilson(hits / n, n) == pytest.approx((theirs.low, theirs.high), abs=1e-12)


def width(r):
    return r.interval[1] - r.interval[0]


def test_trials_that_stand_or_fall_together_count_once():
    images = np.arange(100) < 30
    together = rate(np.repeat(images[:, None], 5, axis=1))
    assert (together.hits, together.n) == (150, 500)
    assert together.interval == pytest.approx(rate(images).interval, abs=5e-3)
    assert width(rate(np.random.default_rng(0).random((100, 5)) < 0.3)) <= width(together)


def test_clustered_intervals_cover_what_they_say():
    """Heads of one image agree for the most part; 95 % intervals of the rate should hold the truth about as often."""
    rng = np.random.default_rng(1)
    hit = 0
    for _ in range(400):
        p = rng.beta(0.6, 1.4, size=(60, 1))  # mean 0.3, strongly clustered
        low, high = rate(rng.random((60, 4)) < p).interval
        hit += low <= 0.3 <= high
    assert hit / 400 >= 0.94  # wider than need be, where heads agree less: never more trials than images are claimed


def test_a_rate_counts_only_what_is_selected():
    flags, where = np.array([[1, 1], [0, 1]], bool), np.array([[1, 0], [1, 1]], bool)
    assert (rate(flags, where=where).hits, rate(flags, where=where).n) == (2, 3)
    assert rate(flags, where=np.zeros((2, 2), bool)).plain()["value"] is None


def test_mcnemar_looks_only_at_the_images_that_differ():
    first, second = np.array([1, 1, 1, 1, 1, 1, 0, 1], bool), np.array([1, 0, 0, 0, 0, 0, 0, 1], bool)
    expected = {"first": 7, "second": 2, "only_first": 5, "only_second": 0, "n": 8, "p": pytest.approx(2 / 32)}
    assert mcnemar(first, second) == expected
    assert mcnemar(first, first)["p"] == 1


def test_a_dead_branch_is_counted_not_averaged(pair, three):
    model = pair[1].classifier()
    with torch.no_grad():  # the queries of A2 of head 1 vanish: its map is uniform and never moves
        width = model.model.blocks[0].attn.qkv.in_features
        model.model.blocks[0].attn.qkv.weight[3 * width // 4 : width] = 0
        model.model.blocks[0].attn.qkv.bias[3 * width // 4 : width] = 0
    (layer,) = branch_alignment(model, three, probes=4)
    summary = layer.summary()
    assert summary["dead"] == 3
    assert summary["amplifying"]["n"] == 3
    assert all(np.isfinite(summary[key]) for key in ("cos", "kappa", "amplification", "energy", "angle"))


def test_amplification_is_energy_times_angle(pair, three):
    (layer,) = branch_alignment(pair[1].classifier(), three, probes=8)
    energy = np.sqrt(1 + layer.kappa**2)
    angle = np.sqrt(1 - 2 * layer.kappa * layer.cos / (1 + layer.kappa**2))
    assert layer.amplification == pytest.approx(energy * angle)


def test_holm_is_the_textbook_example():
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
