"""Randomised smoothing: what is certified is true, and depends on the image alone."""

import numpy as np
import pytest
import torch
from scipy.stats import beta, binom, norm
from torch import nn

import antiphase as ap
from antiphase.attacks import DDN
from antiphase.config import InputError
from antiphase.measures.certificates import (
    ABSTAINS,
    CertificateAnswer,
    certified_radius,
    draws_needed,
    largest_radius,
    leads,
    lower_bound,
)
from antiphase.measures.questions import SmoothedAttackQuestion
from antiphase.measures.smoothing import Smoothed, attack_smoothed, certificates, stream, votes

SHAPE = (1, 4, 4)


class Plane(nn.Module):
    """Two classes apart by a plane w.x = b: smoothed by any noise it is the same model, so every radius is known exactly."""

    def __init__(self) -> None:
        super().__init__()
        w = torch.from_numpy(np.random.default_rng(0).standard_normal(16)).float()
        self.register_buffer("w", w / w.norm())
        self.register_buffer("b", 0.5 * self.w.sum())

    def height(self, pixels):
        return pixels.flatten(1) @ self.w - self.b

    def forward(self, pixels):
        height = self.height(pixels)
        return torch.stack([-height, height], dim=1)


@pytest.fixture(scope="module")
def plane():
    """With images on both sides of it, and their true classes and radii."""
    model = Plane().eval()
    x = torch.rand(24, *SHAPE, generator=torch.Generator().manual_seed(1))
    height = model.height(x)
    return model, ap.ImageSet.of_tensors(x, (height > 0).long(), ["below", "above"]), height.abs().double().numpy()


# ------------------------------------------------------------------------------------------------- bounds


def test_the_bound_is_the_probability_at_which_so_many_hits_are_as_rare_as_alpha():
    """By the binomial distribution itself and by the quantile of the beta distribution, neither of which the code calls."""
    for hits, draws, alpha in ((60, 100, 0.001), (999, 1000, 0.01), (3, 10, 0.05), (1, 1, 0.4)):
        bound = lower_bound(hits, draws, alpha)
        assert binom.sf(hits - 1, draws, bound) == pytest.approx(alpha, rel=1e-6)
        assert bound == pytest.approx(beta.ppf(alpha, hits, draws - hits + 1), rel=1e-9)


def test_the_bound_at_its_edges_no_hit_and_nothing_but_hits():
    assert lower_bound(0, 100, 0.001) == 0.0
    assert lower_bound(100, 100, 0.001) == pytest.approx(0.001 ** (1 / 100), rel=1e-12)
    assert 0 < lower_bound(1, 1_000_000, 0.001) < 1e-6


def test_the_radius_is_sigma_times_the_normal_quantile_of_the_bound():
    for hits, draws, sigma in ((900, 1000, 0.25), (100, 100, 0.5), (700, 1000, 0.12)):
        expected = sigma * norm.ppf(beta.ppf(0.001, hits, draws - hits + 1))
        assert certified_radius(hits, draws, sigma, 0.001) == pytest.approx(expected, rel=1e-9)


def test_where_the_bound_does_not_exceed_one_half_nothing_is_certified():
    assert certified_radius(50, 100, 0.25, 0.001) is None
    assert certified_radius(60, 100, 0.25, 0.001) is None  # above one half, but not for certain
    assert certified_radius(0, 100, 0.25, 0.001) is None


def test_a_lead_is_certain_only_by_the_binomial_test():
    assert leads(100, 0, 0.001)
    assert not leads(55, 45, 0.001)
    assert not leads(0, 0, 0.001)
    assert leads(11, 0, 0.001)  # 2 * 2 ** -11 is below alpha
    assert not leads(10, 0, 0.001)  # 2 * 2 ** -10 is not


# ------------------------------------------------------------------------------------------------- certificates


def test_of_a_plane_no_certified_radius_exceeds_the_true_one_and_many_draws_come_close(plane):
    model, images, true = plane
    few = CertificateAnswer({"images": certificates(model, images, ap.CertificateQuestion(sigma=0.5, samples=100))})
    question = ap.CertificateQuestion(sigma=0.5, samples=50_000)
    many = CertificateAnswer({"images": certificates(model, images, question, batch_size=5_000)})
    for answer in (few, many):
        known = ~answer.abstained
        assert known.sum() >= 5
        assert (answer.predicted[known] == answer.labels[known]).all()
        assert (answer.radius <= true).all()
    near = true < 1.5  # beyond three sigma all draws agree, whatever the distance
    assert (true - many.radius)[near & ~many.abstained].max() < 0.06
    assert (many.radius >= few.radius).all()


def test_a_prediction_as_likely_as_not_is_withheld(plane):
    model, _, _ = plane
    middle = torch.full((1, *SHAPE), 0.5)  # on the plane
    found = certificates(model, (middle, torch.zeros(1).long()), ap.CertificateQuestion(sigma=0.25, samples=200))
    assert found["predicted"] == [None]
    assert found["radius"] == [None]
    answer = CertificateAnswer({"images": found})
    assert answer.predicted.tolist() == [ABSTAINS]
    assert not answer.certified(0).any()


def test_what_is_certified_of_an_image_depends_on_the_image_alone(pair, digits):
    """Not on the batch size, the order, the neighbours, or the state of torch's and NumPy's generators."""
    images, model = digits[1].subset(6), pair[1].classifier()
    question = ap.CertificateQuestion(sigma=0.5, samples=150)
    whole = certificates(model, images, question)
    torch.manual_seed(5)
    np.random.seed(5)  # noqa: NPY002
    for batch_size in (1, 7, 1000):
        assert certificates(model, images, question, batch_size=batch_size) == whole
    backwards = certificates(model, images.take(np.arange(6)[::-1]), question)
    assert {name: column[::-1] for name, column in backwards.items()} == whole
    alone = certificates(model, images.take(np.array([3])), question)
    assert alone == {name: column[3:4] for name, column in whole.items()}
    assert certificates(model, images, ap.CertificateQuestion(sigma=0.5, samples=150, seed=1))["hits"] != whole["hits"]


def test_draws_that_select_and_draws_that_count_are_others():
    select, count = (stream(0, purpose, 7).standard_normal(1000) for purpose in ("select", "estimate"))
    assert abs(np.corrcoef(select, count)[0, 1]) < 0.15
    assert np.array_equal(select, stream(0, "select", 7).standard_normal(1000))


def test_the_model_is_left_as_it_was(pair, digits):
    model = pair[1].classifier()
    model.train()
    certificates(model, digits[1].subset(1), ap.CertificateQuestion(sigma=0.5, samples=20))
    assert model.training
    assert all(parameter.requires_grad for parameter in model.parameters())


def test_certified_accuracy_falls_with_the_radius_and_counts_correct_images_only():
    images = {"label": [0, 1, 2, 3], "predicted": [0, 0, None, 3], "radius": [0.2, 0.9, None, 0.6]}
    answer = CertificateAnswer({"images": images})
    assert [rate["hits"] for rate in answer.curve((0, 0.2, 0.5, 0.7))] == [2, 2, 1, 0]
    summary = answer.summary()
    assert summary["abstained"]["hits"] == 1
    assert summary["average_radius"]["value"] == pytest.approx((0.2 + 0.6) / 4)
    assert summary["average_radius"]["interval"][0] == 0.0


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"sigma": 0.0}, "sigma=0 must be above 0"),
        ({"sigma": -0.25}, "sigma=-0.25"),
        ({"sigma": float("nan")}, "sigma=nan"),
        ({"sigma": 64.0}, "noise of pixels in"),
        ({"alpha": 1.0}, "alpha=1 must be"),
        ({"alpha": 0.0}, "alpha=0 must be"),
        ({"samples": 0}, "samples=0"),
        ({"samples": 5}, "samples=5 can certify nothing"),
        ({"samples": 10**9}, "at most"),
        ({"selection": 0}, "selection=0"),
    ],
)
def test_a_smoothing_that_cannot_be_is_refused(fields, named):
    with pytest.raises(InputError, match=named):
        ap.CertificateQuestion(**fields)


def test_so_few_draws_as_are_needed_at_least_can_certify():
    assert certified_radius(10, 10, 0.25, 0.001) is not None
    ap.CertificateQuestion(samples=10)


def test_a_model_that_returns_nan_under_noise_is_refused(plane):
    class Broken(nn.Module):
        def forward(self, pixels):
            inside = ((pixels >= 0) & (pixels <= 1)).flatten(1).all(dim=1)
            return torch.where(inside[:, None], 1.0, torch.nan) * pixels.flatten(1)[:, :2]

    with pytest.raises(InputError, match="NaN"):
        ap.certificates(Broken(), plane[1], ap.CertificateQuestion(samples=20))


# ------------------------------------------------------------------------------------------------- the smoothed model attacked


def test_the_stand_in_is_the_logarithm_of_the_mean_probability_over_its_draws(pair, digits):
    model, x = pair[1].classifier(), digits[1].subset(3).all.pixels
    smoothed = Smoothed(model, 0.5, x.shape[1:], draws=5, seed=0)
    by_hand = torch.stack([model(x + noise).softmax(dim=1) for noise in smoothed.noise]).mean(dim=0).log()
    torch.testing.assert_close(smoothed(x), by_hand, rtol=1e-4, atol=1e-4)
    pixels = x.clone().requires_grad_()
    smoothed(pixels)[:, 0].sum().backward()
    assert pixels.grad.abs().sum() > 0


def test_of_a_plane_the_true_radius_lies_between_the_certified_and_the_attacked(plane):
    model, images, true = plane
    found = CertificateAnswer({"images": certificates(model, images, ap.CertificateQuestion(sigma=0.25))})
    certain = np.flatnonzero(~found.abstained)
    question = SmoothedAttackQuestion(
        sigma=0.25, away_from=tuple(found.predicted[certain].tolist()), attack=DDN(steps=50), draws=16, samples=1000
    )
    attacked = attack_smoothed(model, images.take(certain), question)
    assert np.isfinite(attacked.distance).mean() > 0.9
    assert (found.radius[certain] <= true[certain]).all()
    assert (true[certain] <= attacked.distance).all()
    reached = np.isfinite(attacked.distance)
    assert (attacked.predicted[reached] != found.predicted[certain][reached]).all()


def test_an_adversarial_image_of_the_stand_in_that_the_smoothed_model_does_not_confirm_is_no_bound(plane, monkeypatch):
    from antiphase.measures import smoothing

    model, images, _ = plane
    monkeypatch.setattr(smoothing, "leads", lambda *_: False)
    few = images.take(np.arange(4))
    away_from = tuple(few.labels.tolist())
    attacked = attack_smoothed(
        model, few, SmoothedAttackQuestion(sigma=0.25, away_from=away_from, attack=DDN(steps=20), draws=8)
    )
    assert np.isfinite(attacked.found).all()
    assert np.isinf(attacked.distance).all()


def test_of_an_image_on_which_the_stand_in_disagrees_nothing_is_said(plane):
    """The image itself would be the smallest perturbation of the stand-in, at distance 0."""
    model, images, _ = plane
    few = images.take(np.arange(4))
    away_from = tuple((1 - few.labels).tolist())
    attacked = attack_smoothed(
        model, few, SmoothedAttackQuestion(sigma=0.05, away_from=away_from, attack=DDN(steps=20), draws=8)
    )
    assert np.isinf(attacked.found).all()
    assert np.isinf(attacked.distance).all()


def test_votes_are_as_many_as_draws(plane):
    model, images, _ = plane
    assert votes(model, images.all.pixels[0], 0.25, 130, stream(0, "select", 0), batch_size=64).sum() == 130


@pytest.mark.parametrize(("sigma", "alpha", "radius"), [(0.12, 0.001, 0.25), (0.25, 0.01, 0.5), (0.5, 0.001, 1.0)])
def test_a_radius_is_reached_by_the_draws_that_it_needs_and_not_by_one_less(sigma, alpha, radius):
    needed = draws_needed(radius, sigma, alpha)
    assert largest_radius(needed - 1, sigma, alpha) < radius <= largest_radius(needed, sigma, alpha)
    assert certified_radius(needed, needed, sigma, alpha) == largest_radius(needed, sigma, alpha)
