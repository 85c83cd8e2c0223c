"""What cannot be attacked is refused; what makes a result doubtful is part of it."""

import pytest
import torch

from antiphase.attacks import L2, PGD, Linf, Patch, engine
from antiphase.attacks.red_flags import order_flags, precision_flags, stage_flags
from antiphase.config import InputError
from tests.attacks.harness import Returns, run

# ------------------------------------------------------------------------------------------------- refused before


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"x": lambda x: x * 255}, "expected \\[0,1\\]"),
        ({"x": lambda x: x - 0.5}, "expected \\[0,1\\]"),
        ({"x": lambda x: x * float("nan")}, "nan"),
        ({"x": lambda x: (x * 255).byte()}, "uint8"),
        ({"x": lambda x: x[0]}, "shape"),
        ({"x": lambda x: x[:0], "y": lambda y: y[:0]}, "n at least 1"),
        ({"x": lambda x: x + 1e-3 * (x < 0.9), "attack": PGD(within=Patch(width=2)), "bits": True}, "off it"),
        ({"y": lambda y: y + 10}, "out of range for a model of 10 classes"),
        ({"y": lambda y: y - 1}, "label -1|out of range"),
        ({"y": lambda y: y[:-1]}, "labels have shape"),
        ({"y": lambda y: y.float()}, "float32"),
        ({"attack": PGD(within=L2(9))}, "more than sqrt\\(64\\) = 8"),
        ({"attack": PGD(within=Patch(width=9))}, "a patch of 9 x 9 is larger than an image of 8 x 8: choose a smaller"),
        (
            {"attack": PGD(within=Patch(width=4, place=(6, 0)))},
            "4 x 4 at \\(6, 0\\) leaves an image of 8 x 8: choose another --place",
        ),
        (
            {"attack": PGD(within=Linf(0.1), target=12)},
            "target 12 is out of range for a model of 10 classes: classes are counted from 0 to 9",
        ),
    ],
)
def test_what_cannot_be_attacked_is_refused_by_name(change, named, victim, few):
    keep = lambda value: value  # noqa: E731
    x, y = change.get("x", keep)(few.pixels), change.get("y", keep)(few.labels)
    with pytest.raises(InputError, match=named):
        engine.run(victim, x, y, change.get("attack", PGD(within=Linf(0.1), steps=1)), eight_bit="bits" in change)


def test_a_model_of_one_class_is_refused(few):
    with pytest.raises(InputError, match="two columns 0 and z"):
        run(Returns(lambda x: x.flatten(1).sum(1, keepdim=True)), few, PGD(within=Linf(0.1), steps=1))


def test_a_model_left_in_train_mode_is_refused_only_if_that_matters(victim, few):
    noisy = torch.nn.Sequential(victim, torch.nn.Dropout(0.5)).train()
    with pytest.raises(InputError, match=r"Dropout\) is in train mode"):
        run(noisy, few, PGD(within=Linf(0.1), steps=1))
    normed = torch.nn.Sequential(torch.nn.BatchNorm2d(1), victim)
    with pytest.raises(InputError, match=r"BatchNorm2d\) is in train mode"):
        run(normed.train(), few, PGD(within=Linf(0.1), steps=1))
    frozen = normed.eval()
    run(frozen, few, PGD(within=Linf(0.1), steps=1))
    assert not frozen[0].training


# ------------------------------------------------------------------------------------------------- red flags


@pytest.mark.parametrize(
    ("answer", "named"),
    [
        (lambda v: lambda x: v(x).softmax(dim=1), "probabilities, not logits"),
        (lambda v: lambda x: v(x) + 1e-3 * torch.rand(len(x), 10), "differently when asked twice"),
        (lambda v: lambda x: v((x * 8).round() / 8 + 0 * x), "exactly zero"),
        (lambda v: lambda x: v(x) + (0 * x.flatten(1).sum(1, keepdim=True)).sqrt(), "not a number"),
    ],
)
def test_red_flags_are_part_of_the_result(answer, named, victim, few):
    result = run(Returns(answer(victim)), few, PGD(within=Linf("4/255"), steps=3))
    assert any(named in flag for flag in result.flags), result.flags


def test_a_larger_budget_that_is_not_stronger_is_flagged():
    assert order_flags([0.1, 0.4, 0.3, 0.9]) == [
        [],
        [],
        ["a larger budget was not stronger: success 0.300 after 0.400"],
        [],
    ]


def test_noise_that_beats_the_gradient_is_flagged(victim, few):
    backwards = Returns(lambda x: -victim(x.detach()) + 2 * victim(x.detach()) - 0 * x.flatten(1).sum(1, keepdim=True))
    result = run(backwards, few, PGD(within=Linf("64/255"), steps=3))
    assert any("random starts alone" in flag for flag in result.flags)


@pytest.mark.parametrize("protocol", ["fast", "paper"])
def test_noise_that_fools_an_image_in_one_of_many_restarts_does_not_beat_the_gradient(protocol):
    """A linear model of two pixels: a start fools an image in some 15 % of restarts, PGD in each of them."""
    x = torch.full((60, 1, 1, 2), 0.5)
    model = Returns(lambda t: torch.stack([0.1 + 0 * t[:, 0, 0, 0], (t - 0.5).sum(dim=(1, 2, 3))], dim=1))
    attack = PGD(within=Linf(0.1), steps=5, restarts=10)
    result = engine.run(model, x, torch.zeros(60).long(), attack, protocol=protocol)
    assert result.success.all()
    assert not result.flags


def test_stages_that_fool_more_than_they_should_raise_a_flag():
    assert stage_flags({"APGD-CE": 50, "FAB-T": 1, "Square": 1}, 64) == []
    assert "FAB broke 9 of 64" in stage_flags({"APGD-CE": 30, "FAB-T": 9, "Square": 0}, 64)[0]
    assert "Square broke 2 of 64" in stage_flags({"APGD-CE": 30, "FAB-T": 0, "Square": 2}, 64)[0]


def test_success_that_exists_only_in_float32_raises_a_flag(victim, few):
    clean = victim(few.pixels).argmax(dim=1)
    rounding = Returns(lambda x: victim(x.float()) * (1 if x.dtype == torch.float64 else -1))
    assert "3 of 3 images" in precision_flags(rounding, few.pixels[:3], clean)[0]
    assert precision_flags(victim, few.pixels[:3], (clean + 1) % 10) == []
