"""AutoAttack and its parts: what they promise beyond the contract that tests/attacks/test_engine.py holds every attack to."""

import numpy as np
import pytest
import torch

from antiphase.attacks import APGD, FAB, L2, AutoAttack, Linf, Square, engine
from antiphase.attacks.config import Attack
from antiphase.config import InputError
from antiphase.data.imageset import Batch
from tests.attacks.harness import Counted, Returns, assert_same, interrupted, looked_at, run
from tests.attacks.shortened import shortened


@pytest.fixture(scope="module")
def few(digits):
    return digits[1].subset(48).all


@pytest.fixture
def short(monkeypatch):
    """Lists of short attacks: what is tested here is the list."""
    monkeypatch.setattr(AutoAttack, "stages", shortened(apgd=6, targets=3, fab=3, square=30))


# ------------------------------------------------------------------------------------------------- the list of attacks


@pytest.mark.parametrize("version", ["standard", "plus", "paper"])
@pytest.mark.usefixtures("short")
def test_each_stage_attacks_only_what_the_stages_before_did_not_fool(version, victim, few, capsys):
    attack = AutoAttack(within=Linf("8/255"), version=version)
    result = run(victim, few, attack)
    standing = result.correct
    said = capsys.readouterr().err.splitlines()
    assert result.stages == tuple(stage.name for stage in attack.stages)
    for number, stage in enumerate(attack.stages):
        rows = np.flatnonzero(standing.numpy())
        alone = run(victim, Batch(few.pixels[rows], few.labels[rows], few.ids[rows]), stage)
        assert torch.equal(result.broken_by[rows] == number, alone.success)
        standing = standing & (result.broken_by != number)
        left = int(standing.sum())
        assert f"robust accuracy after {stage.name}: {100 * left / 48:.2f} % ({left} of 48)" == said[number]
    assert torch.equal(standing, result.correct & ~result.success)
    assert 0 < left < int(result.correct.sum())
    assert torch.equal(result.success, result.broken_by >= 0)
    with torch.no_grad():
        assert torch.equal(victim(result.adversarial).argmax(dim=1), result.adversarial_prediction)


@pytest.mark.usefixtures("short")
def test_images_wrong_from_the_start_are_attacked_only_away_from_the_predicted_label(victim, few, capsys):
    true, predicted = (
        run(victim, few, AutoAttack(within=Linf("24/255"), label=label)) for label in ("true", "predicted")
    )
    wrong = ~true.correct
    assert wrong.any()
    assert not true.success[wrong].any()
    assert true.backwards[wrong].sum() == 0
    assert predicted.success[wrong].any()
    assert "predictions unchanged after Square" in capsys.readouterr().err


@pytest.mark.usefixtures("short")
def test_an_interrupted_autoattack_goes_on_in_the_middle_of_a_stage(victim, few, tmp_path):
    """Interrupted in each stage in turn; the adversarial examples of earlier stages are kept, nothing is attacked twice."""
    attack, options = AutoAttack(within=Linf("8/255")), {"batch_size": 16}
    whole = Counted(victim)
    expected = run(whole, few, attack, **options)
    calls, journal = 10**9 - whole.calls, tmp_path / "part.journal"
    for share in (0.2, 0.25, 0.3):
        interrupted(victim, few, attack, journal, int(share * calls), **options)
    assert len(list(tmp_path.glob("part.journal.*"))) > 1
    rest = Counted(victim)
    resumed = run(rest, few, attack, journal=journal, **options)
    assert_same(resumed, expected)
    assert torch.equal(resumed.broken_by, expected.broken_by)
    assert rest.images < 0.8 * whole.images


@pytest.mark.usefixtures("short")
def test_autoattack_does_not_depend_on_batch_or_order(victim, few):
    attack, order = AutoAttack(within=L2(0.4)), np.random.default_rng(0).permutation(48)
    result, small = (run(victim, few, attack, batch_size=size) for size in (64, 7))
    shuffled = run(victim, Batch(few.pixels[order], few.labels[order], few.ids[order]), attack)
    for other, rows in ((small, slice(None)), (shuffled, order)):
        assert torch.equal(result.broken_by[rows], other.broken_by)
        assert torch.equal(result.adversarial_prediction[rows], other.adversarial_prediction)


def test_a_zero_budget_fools_nothing(victim, few):
    result = run(victim, few, AutoAttack(within=Linf(0)))
    assert not result.success.any()
    assert result.backwards.sum() == 0
    assert result.broken_by.tolist() == [-1] * len(few.labels)
    assert len(result.stages) == 4


@pytest.mark.usefixtures("short")
def test_a_sweep_from_a_zero_budget_says_which_stage_fooled(victim, few):
    attacks = [AutoAttack(within=Linf(eps)) for eps in (0, "16/255")]
    zero, large = engine.sweep(victim, few.pixels, few.labels, attacks, ids=few.ids)
    assert zero.stages == large.stages
    assert torch.equal(large.broken_by >= 0, large.success & large.correct)
    assert large.success.any()


@pytest.mark.usefixtures("short")
def test_larger_budgets_of_a_sweep_keep_the_examples_that_smaller_ones_fooled(victim, few):
    small, large = engine.sweep(
        victim, few.pixels, few.labels, [AutoAttack(within=Linf(f"{e}/255")) for e in (6, 16)], ids=few.ids
    )
    assert torch.equal(large.broken_by[small.success], small.broken_by[small.success])
    assert (large.success | ~small.success).all()
    assert large.success.sum() > small.success.sum() > 0


@pytest.mark.usefixtures("short")
def test_an_example_that_survives_autoattack_comes_back_clean(victim, few):
    result = run(victim, few, AutoAttack(within=L2(0.4)))
    left = ~result.success
    assert left.any()
    assert torch.equal(result.adversarial[left], few.pixels[left])
    assert torch.equal(result.adversarial_prediction[left], result.clean_prediction[left])
    assert (result.distance[left] == 0).all()


# ------------------------------------------------------------------------------------------------- refusals and red flags


@pytest.mark.parametrize(
    ("classes", "attack", "named"),
    [
        (2, APGD(within=Linf(0.1), loss="dlr"), "at least 3 classes, this model has 2: use"),
        (3, APGD(within=Linf(0.1), loss="dlr-targeted"), "at least 4 classes, this model has 3: use"),
        (3, AutoAttack(within=Linf(0.1)), "at least 4 classes, this model has 3: use"),
    ],
)
def test_dlr_with_too_few_classes_is_refused_with_the_remedy(classes, attack, named, victim, few):
    model = Counted(Returns(lambda x: victim(x)[:, :classes]))
    with pytest.raises(InputError, match=named):
        run(model, few._replace(labels=few.labels % classes), attack)
    assert model.images == looked_at(attack) + 96  # predicted clean, twice in the first batch, and not attacked


@pytest.mark.usefixtures("short")
def test_one_lucky_draw_of_a_randomised_model_is_no_success(victim, few):
    """A model that names a random class one time in four cannot be fooled at a tiny budget, though one forward may say so."""
    noise = torch.Generator().manual_seed(0)

    def unsteady(x):
        off = (torch.rand(len(x), 1, generator=noise) < 0.25) * 40.0
        return victim(x) + off * torch.nn.functional.one_hot(torch.randint(10, (len(x),), generator=noise), 10)

    once = run(Returns(unsteady), few, APGD(within=Linf(1e-6), steps=6))
    often = run(Returns(unsteady), few, AutoAttack(within=Linf(1e-6), version="rand"))
    assert once.success.float().mean() > 0.1
    assert not often.success.any()
    assert torch.equal(often.clean_prediction, victim(few.pixels).argmax(dim=1))
    assert (run(Returns(unsteady), few, AutoAttack(within=Linf("48/255"), version="rand")).success.float().mean()) > 0.5


@pytest.mark.usefixtures("short")
def test_masked_gradients_are_flagged_by_the_success_of_square(victim, few):
    masked = Returns(lambda x: victim(x.detach()) + 0 * x.flatten(1).sum(1, keepdim=True))
    flags = run(masked, few, AutoAttack(within=Linf("48/255"))).flags
    assert any("Square broke" in flag for flag in flags), flags
    assert any(flag.startswith("APGD-CE: the gradient was exactly zero") for flag in flags), flags


@pytest.mark.usefixtures("short")
def test_autoattack_flags_success_that_exists_only_in_float32(victim, few):
    """In float64 this model rounds to the grid of the clean images, 16ths, which undoes any perturbation of 7/255."""

    def rounding(x):
        return victim(x if x.dtype == torch.float32 else ((x * 16).round() / 16).float())

    result = run(Returns(rounding), few, AutoAttack(within=Linf("7/255")))
    assert result.success.any()
    seen = min(8, int(result.success.sum()))
    assert f"in float64 the model is not fooled by {seen} of {seen} images that fool it in float32" in result.flags


def test_fab_that_fools_many_that_apgd_did_not_raises_a_flag(victim, few, monkeypatch):
    monkeypatch.setattr(AutoAttack, "stages", shortened(apgd=1, targets=1, fab=20, square=1))
    result = run(victim, few, AutoAttack(within=Linf("20/255")))
    by_fab = int((result.broken_by == result.stages.index("FAB-T")).sum())
    assert by_fab > 2
    assert any(flag.startswith(f"FAB broke {by_fab} of 48 images that APGD did not") for flag in result.flags), (
        result.flags
    )


# ------------------------------------------------------------------------------------------------- known failures of peers


PARTS: dict[str, Attack] = {
    "apgd-ce": APGD(within=Linf("16/255"), steps=12),
    "apgd-dlr": APGD(within=Linf("16/255"), steps=12, loss="dlr"),
    "apgd-t": APGD(within=Linf("16/255"), steps=12, loss="dlr-targeted", targets=3),
    "fab": FAB(within=Linf("16/255"), steps=6),
    "fab-t l2": FAB(within=L2(0.8), steps=6, targets=3),
    "square": Square(within=Linf("32/255"), queries=60),
    "square l2": Square(within=L2(0.6), queries=60),
}


@pytest.mark.parametrize("name", PARTS)
def test_logits_that_are_all_negative_change_nothing(name, victim, few):
    """Where the label itself is masked by zero and not by minus infinity, negative logits hide the runner-up."""
    shifted = Returns(lambda x: victim(x) - 64)  # a power of two: what is rounded away is small
    assert shifted(few.pixels).max() < 0
    plain, negative = (run(model, few, PARTS[name]) for model in (victim, shifted))
    assert int((plain.success != negative.success).sum()) <= 1
    assert negative.success.sum() > 4


@pytest.mark.parametrize("name", PARTS)
def test_images_of_nothing_but_black_and_white_can_be_fooled(name, victim, few):
    """Half of every ball about such an image lies outside [0,1]."""
    stark = few._replace(pixels=(few.pixels > 0.5).float())
    result = run(victim, stark, PARTS[name])
    assert result.success.sum() > 4
    assert 0 <= result.adversarial.min() <= result.adversarial.max() <= 1
    assert torch.equal(victim(result.adversarial).argmax(dim=1), result.adversarial_prediction)
