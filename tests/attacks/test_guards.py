"""Models on which an attack would fail for another reason than robustness are refused, each with what to do."""

from copy import deepcopy

import pytest
import torch
from torch import nn

from antiphase.attacks import PGD, AutoAttack, Linf, Square, engine
from antiphase.config import InputError
from antiphase.models.classifier import as_classifier
from tests.attacks.harness import Counted, Returns, looked_at, run

STRONG = PGD(within=Linf("24/255"), steps=10)


@pytest.fixture
def unguarded(monkeypatch) -> None:
    """The engine as it was before: it takes any model."""
    monkeypatch.setattr(engine, "check_inputs", lambda *_, **__: None)
    monkeypatch.setattr(engine, "check_model", lambda *_, **__: None)
    monkeypatch.setattr(engine, "check_untouched", lambda *_: None)


class InPlace(nn.Module):
    """Normalises its images in place, as many a model does."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, x):
        with torch.no_grad():
            x.sub_(0.5).div_(0.5)
        return self.model.model(x)


class Half(nn.Module):
    """Computes in bfloat16 and returns float32, so that nothing shows from outside but its weights."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, x):
        return self.model(x.bfloat16())


def share(result) -> float:
    return float(result.success.double().mean())


def test_half_precision_pixels_would_make_a_model_look_robust(victim, few, unguarded):  # noqa: ARG001
    cast = Returns(lambda x: victim(x.float()))
    assert share(run(cast, few, STRONG)) > 0.8
    for narrow in (few.pixels.bfloat16(), few.pixels.half()):  # rounding leaves the ball, so what fools does not count
        assert share(run(cast, few._replace(pixels=narrow), STRONG)) < 0.1


def test_a_model_that_changes_its_images_in_place_would_look_robust(victim, few, unguarded):  # noqa: ARG001
    assert share(run(victim, few, STRONG)) > 0.8
    assert share(run(InPlace(victim), few, STRONG)) == 0


@pytest.mark.parametrize(
    ("model", "named"),
    [
        (lambda v: InPlace(v), "in place"),
        (lambda v: Half(deepcopy(v).bfloat16()), r"bfloat16.*call \.float\(\)"),
        (lambda v: Returns(lambda x: v(x).half()), "float16 logits"),
        (lambda v: Returns(lambda x: v(x).bfloat16()), "bfloat16 logits"),
        (lambda v: Returns(lambda x: v(x) - v(x).mean(dim=0)), "images beside it"),
        (lambda v: Returns(lambda x: v(0.3 * x / x.mean())), "images beside it"),
        (lambda v: Returns(lambda x: v(x) if len(x) < 5 else v(x.sub_(0.25))), "in place"),  # but not four images
        (lambda v: Returns(lambda x: v(x) - (len(x) > 4) * v(x).mean(dim=0)), "images beside it"),
        (lambda v: Returns(lambda x: v(x.detach())), "no gradient, without which"),
        (lambda v: Returns(torch.no_grad()(lambda x: v(x))), "no gradient, without which"),
        (lambda v: Returns(lambda x: v(torch.from_numpy(x.numpy()))), "no gradient"),
        (lambda v: Returns(lambda x: (v(x), None)), r"returned a tuple.*as_classifier"),
        (lambda v: Returns(lambda x: {"logits": v(x)}), r"returned a dict.*as_classifier"),
        (lambda v: Returns(lambda x: v(x).sum()), "expected"),
        (lambda v: Returns(lambda x: v(x[:, :, ::2])), "cannot be called"),
        (lambda v: nn.Sequential(v, nn.Dropout(0.5)).train(), "train mode"),
    ],
)
def test_what_would_be_false_robustness_is_refused_with_the_remedy(model, named, victim, few):
    for attack in (STRONG, AutoAttack(within=Linf("8/255"), steps=2, queries=2)):
        with pytest.raises(InputError, match=named) as refused:
            run(model(victim), few, attack)
        assert "\n" not in str(refused.value)


def test_batch_norm_in_train_mode_shows_behind_a_function(victim, few):
    hidden = nn.Sequential(nn.BatchNorm2d(1), victim).train()
    with pytest.raises(InputError, match="images beside it"):
        run(Returns(lambda x: hidden(x)), few, STRONG)  # a function hides its modules
    one = few._replace(pixels=few.pixels[:1], labels=few.labels[:1], ids=few.ids[:1])
    with pytest.raises(InputError, match="images beside it"):
        run(Returns(lambda x: hidden(x)), one, STRONG)


def test_as_classifier_is_the_remedy_for_a_model_that_changes_its_images(victim, few):
    plain = Returns(lambda x: victim(x - 0.1 + 0.1 * x.detach().mean(dim=(1, 2, 3), keepdim=True)))
    assert share(run(plain, few, STRONG)) > 0.8

    class Own(nn.Module):
        def forward(self, x):
            x.sub_(0.1 - 0.1 * x.detach().mean(dim=(1, 2, 3), keepdim=True))
            return victim(x)

    with pytest.raises(InputError, match="in place"):
        run(Own(), few, STRONG)
    assert torch.equal(run(as_classifier(Own(), "none"), few, STRONG).success, run(plain, few, STRONG).success)


def test_half_precision_pixels_are_refused(victim, few):
    with pytest.raises(InputError, match=r"images are torch.bfloat16.*\.float\(\)"):
        run(victim, few._replace(pixels=few.pixels.bfloat16()), STRONG)


def test_square_needs_no_gradient(victim, few):
    blind = Returns(torch.no_grad()(lambda x: victim(x)))
    assert share(run(blind, few, Square(within=Linf("48/255"), queries=50))) > 0


def test_a_randomised_model_is_flagged_and_not_taken_for_one_that_looks_at_neighbours(victim, few):
    noisy = Returns(lambda x: victim(x + 0.05 * torch.randn_like(x)))
    assert any("asked twice" in flag for flag in run(noisy, few, STRONG).flags)


def test_the_guards_cost_a_few_images_once(victim, few):
    counted = Counted(victim)
    result = run(counted, few, STRONG)
    assert counted.images - int(result.forwards.sum()) == looked_at(STRONG) == 12
    results = engine.sweep(
        counted, few.pixels, few.labels, [PGD(within=Linf(f"{e}/255"), steps=2, restarts=1) for e in (1, 2, 4)]
    )
    assert counted.images - int(result.forwards.sum()) - sum(int(r.forwards.sum()) for r in results) == 2 * looked_at(
        STRONG
    )
