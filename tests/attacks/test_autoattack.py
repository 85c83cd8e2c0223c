"""AutoAttack and its parts: what each promises beyond the contract that tests/attacks/test_engine.py holds every attack to."""

import numpy as np
import pytest
import torch
from scipy.optimize import linprog

from antiphase.attacks import APGD, FAB, L2, PGD, AutoAttack, Linf, Patch, Square, engine, square
from antiphase.attacks.apgd import checkpoints
from antiphase.attacks.config import Attack
from antiphase.attacks.fab import to_plane
from antiphase.attacks.red_flags import precision_flags, stage_flags
from antiphase.config import InputError
from antiphase.data.imageset import Batch
from tests.attacks.interruptions import Counted, assert_same, interrupted
from tests.attacks.shortened import shortened


@pytest.fixture(scope="module")
def few(digits):
    return digits[1].subset(48).all


@pytest.fixture(scope="module")
def victim(pair):
    return pair[1].classifier()


@pytest.fixture
def short(monkeypatch):
    """What is tested here is the list."""
    monkeypatch.setattr(AutoAttack, "stages", shortened(apgd=6, targets=3, fab=3, square=30))


def run(model, batch, attack, **options):
    return engine.run(model, batch.pixels, batch.labels, attack, ids=batch.ids, **options)


class Returns(torch.nn.Module):
    def __init__(self, answer):
        super().__init__()
        self.answer = answer

    def forward(self, x):
        return self.answer(x)


# ------------------------------------------------------------------------------------------------- the cascade


@pytest.mark.parametrize("version", ["standard", "plus", "paper"])
@pytest.mark.usefixtures("short")
def test_each_stage_sees_only_what_still_stands(version, victim, few, capsys):
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


def test_the_lists_are_those_of_the_authors_code_and_of_the_papers_text():
    names = {
        v: [s.name for s in AutoAttack(within=Linf(0.1), version=v).stages]
        for v in ("standard", "plus", "rand", "paper")
    }
    assert names == {
        "standard": ["APGD-CE", "APGD-T", "FAB-T", "Square"],
        "plus": ["APGD-CE", "APGD-DLR", "FAB", "Square", "APGD-T", "FAB-T"],
        "rand": ["APGD-CE", "APGD-DLR"],
        "paper": ["APGD-CE", "APGD-DLR", "FAB", "Square"],
    }


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
def test_an_interrupted_cascade_goes_on_in_the_middle_of_a_stage(victim, few, tmp_path):
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
def test_a_cascade_does_not_depend_on_batch_or_order(victim, few):
    attack, order = AutoAttack(within=L2(0.4)), np.random.default_rng(0).permutation(48)
    result, small = (run(victim, few, attack, batch_size=size) for size in (64, 7))
    shuffled = run(victim, Batch(few.pixels[order], few.labels[order], few.ids[order]), attack)
    for other, rows in ((small, slice(None)), (shuffled, order)):
        assert torch.equal(result.broken_by[rows], other.broken_by)
        assert torch.equal(result.adversarial_prediction[rows], other.adversarial_prediction)


def test_a_zero_budget_breaks_nothing(victim, few):
    result = run(victim, few, AutoAttack(within=Linf(0)))
    assert not result.success.any()
    assert result.backwards.sum() == 0


@pytest.mark.usefixtures("short")
def test_larger_budgets_of_a_sweep_keep_what_smaller_ones_broke(victim, few):
    small, large = engine.sweep(
        victim, few.pixels, few.labels, [AutoAttack(within=Linf(f"{e}/255")) for e in (6, 16)], ids=few.ids
    )
    assert torch.equal(large.broken_by[small.success], small.broken_by[small.success])
    assert (large.success | ~small.success).all()
    assert large.success.sum() > small.success.sum() > 0


# ------------------------------------------------------------------------------------------------- refusals, luck and flags


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
    assert model.images == 96  # looked at, twice in the first batch, and not attacked


def test_within_a_patch_there_is_pgd_only():
    for kind in (APGD, FAB, Square, AutoAttack):
        with pytest.raises(InputError, match="use PGD within a patch"):
            kind(within=Patch(width=2))


@pytest.mark.usefixtures("short")
def test_one_lucky_draw_of_a_randomised_model_is_no_success(victim, few):
    """A model that names a random class one time in four cannot be fooled at a tiny budget, though a single look may say so."""
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
def test_a_model_that_hides_its_gradients_is_found_out_by_square(victim, few):
    masked = Returns(lambda x: victim(x.detach()) + 0 * x.flatten(1).sum(1, keepdim=True))
    flags = run(masked, few, AutoAttack(within=Linf("48/255"))).flags
    assert any("Square broke" in flag for flag in flags), flags
    assert any(flag.startswith("APGD-CE: the gradient was exactly zero") for flag in flags), flags


def test_stages_that_break_what_they_should_not_raise_a_flag():
    assert stage_flags({"APGD-CE": 50, "FAB-T": 1, "Square": 1}, 64) == []
    assert "FAB broke 9 of 64" in stage_flags({"APGD-CE": 30, "FAB-T": 9, "Square": 0}, 64)[0]
    assert "Square broke 2 of 64" in stage_flags({"APGD-CE": 30, "FAB-T": 0, "Square": 2}, 64)[0]


def test_success_that_only_float32_sees_raises_a_flag(victim, few):
    clean = victim(few.pixels).argmax(dim=1)
    rounding = Returns(lambda x: victim(x.float()) * (1 if x.dtype == torch.float64 else -1))
    assert "3 of 3 images" in precision_flags(rounding, few.pixels[:3], clean)[0]
    assert precision_flags(victim, few.pixels[:3], (clean + 1) % 10) == []


@pytest.mark.usefixtures("short")
def test_a_whole_cascade_whose_success_only_float32_sees_says_so(victim, few):
    """In float64 this model rounds to the grid of the clean images, 16ths, which undoes any perturbation of 7/255."""

    def rounding(x):
        return victim(x if x.dtype == torch.float32 else ((x * 16).round() / 16).float())

    result = run(Returns(rounding), few, AutoAttack(within=Linf("7/255")))
    assert result.success.any()
    seen = min(8, int(result.success.sum()))
    assert f"in float64 the model is not fooled by {seen} of {seen} images that fool it in float32" in result.flags


def test_fab_that_breaks_many_that_apgd_did_not_says_so(victim, few, monkeypatch):
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


@pytest.mark.usefixtures("short")
def test_who_survives_a_cascade_comes_back_clean(victim, few):
    result = run(victim, few, AutoAttack(within=L2(0.4)))
    left = ~result.success
    assert left.any()
    assert torch.equal(result.adversarial[left], few.pixels[left])
    assert torch.equal(result.adversarial_prediction[left], result.clean_prediction[left])
    assert (result.distance[left] == 0).all()


# ------------------------------------------------------------------------------------------------- the parts


def test_checkpoints_are_those_of_the_paper():
    since = checkpoints(100)
    assert [i for i, s in enumerate(since) if s] == [22, 41, 57, 70, 80, 87, 93, 99]
    assert [s for s in since if s] == [22, 19, 16, 13, 10, 7, 6, 6]


def test_apgd_is_at_least_as_strong_as_pgd_for_the_same_forwards(victim, few):
    for within in (Linf("8/255"), L2(0.4)):
        by_apgd, by_pgd = (run(victim, few, kind(within=within, steps=40)).success for kind in (APGD, PGD))
        assert by_apgd.sum() >= by_pgd.sum() - 1


def test_the_targets_of_an_example_enter_and_leave_together(victim, few):
    """Every forward of a fooled example is one for each of its targets, so their number divides the cost."""
    attack = APGD(within=Linf("10/255"), steps=12, loss="dlr-targeted", targets=5)
    result = run(victim, few, attack, batch_size=10)
    looks = 1 + (torch.arange(48) < 10).long() + result.success.long()  # clean, twice in the first batch; judged
    assert result.success.any()
    assert ((result.forwards - looks) % 5 == 0).all()
    assert (result.forwards - looks)[~result.success].unique().tolist() == [5 * 13]


@pytest.mark.parametrize("kind", [Linf, L2])
def test_the_move_to_a_plane_is_the_smallest_inside_the_box(kind):
    draw = torch.Generator().manual_seed(0)
    points, normal = (torch.rand(200, 6, generator=draw, dtype=torch.float64) for _ in range(2))
    normal = (normal - 0.5) * (normal > 0.1)
    lead = torch.randn(200, generator=draw, dtype=torch.float64) * 0.6
    moves = to_plane(points, normal, lead, kind(0.5))
    there, reach = (
        lead + (normal * moves).sum(dim=1),
        (normal.abs() * torch.where(moves > 0, 1 - points, points)).sum(dim=1),
    )
    possible = there.abs() < 1e-9
    assert 0.3 < possible.double().mean() < 1
    assert ((points + moves).min() > -1e-12) & ((points + moves).max() < 1 + 1e-12)
    assert (reach[~possible] <= lead[~possible].abs()).all()  # all the room was used and is too little
    for i in torch.nonzero(possible)[:, 0].tolist():
        assert _smallest(points[i].numpy(), normal[i].numpy(), float(lead[i]), kind) == pytest.approx(
            float(kind(0.5).size(moves[i : i + 1])), abs=1e-6
        )


def _smallest(point, normal, lead, kind) -> float:
    if kind is Linf:  # over (move, bound): minimise the bound
        rows = np.block([[s * np.eye(6), -np.ones((6, 1))] for s in (1, -1)])
        limits = [(-p, 1 - p) for p in point] + [(0, None)]
        found = linprog([0] * 6 + [1], rows, np.zeros(12), [[*normal, 0]], [-lead], limits)
        return float(found.fun)
    low, high = 0.0, 1e6  # the multiplier, by bisection
    for _ in range(200):
        middle = (low + high) / 2
        move = np.clip(-np.sign(lead) * middle * normal, -point, 1 - point)
        low, high = (middle, high) if (lead + normal @ move) * np.sign(lead) > 0 else (low, middle)
    return float(np.linalg.norm(move))


def test_fab_finds_smaller_perturbations_than_its_budget(victim, few):
    found = run(victim, few, FAB(within=L2(2.0), steps=1, targets=3))
    assert found.success.any()
    assert found.distance[found.success].median() < 1.5


def test_bumps_have_norm_one_and_moving_them_keeps_the_norm():
    draw = torch.rand(20, 8, generator=torch.Generator().manual_seed(1))
    for side in (1, 3, 7):
        assert square.bump_pair(side).norm() == pytest.approx(1.0)
        start = square.first_bumps(
            torch.rand(20, 4 * len(square.bump_grid(torch.Size((20, 3, 12, 12)))[1])), torch.Size((20, 3, 12, 12))
        )
        moved = square.moved_bumps(start / 50, torch.full((20,), side), draw, 0.5)
        assert torch.allclose(moved.flatten(1).norm(dim=1), torch.full((20,), 0.5), atol=1e-5)
        assert (moved != start).any()


def test_every_attack_knows_the_most_it_can_cost(victim, few):
    """Against a model that nothing fools, the forwards are those announced."""
    steady = Returns(lambda x: victim(x) * 0 + torch.arange(10.0) + 0 * x.flatten(1).sum(1, keepdim=True))
    attacks: list[Attack] = [
        PGD(within=Linf(0.1), steps=3, restarts=2),
        APGD(within=Linf(0.1), steps=3, restarts=2, loss="dlr-targeted", targets=4),
        Square(within=Linf(0.1), queries=7),
    ]
    for attack in attacks:
        looks = 2 if len(few.pixels) <= 64 else 1
        assert (run(steady, few, attack).forwards == attack.forwards + looks).all()
    assert (run(steady, few, FAB(within=Linf(0.1), steps=3, targets=2)).forwards <= 2 * 7 + 2).all()
