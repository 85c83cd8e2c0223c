"""Every attack stays within its threat model, says the truth about what it did, and leaves everything as it was."""

import numpy as np
import pytest
import torch

from antiphase.attacks import APGD, FAB, L2, PGD, AutoAttack, Linf, Patch, Square, engine, fgsm
from antiphase.measures.success import success_rates
from tests.attacks.harness import Returns, run, take

ATTACKS = {
    "linf": PGD(within=Linf("12/255"), restarts=2),
    "l2": PGD(within=L2(0.6), restarts=2),
    "patch": PGD(within=Patch(width=3), steps=30),
    "patch where it attends": PGD(within=Patch(width=3, place="attention"), steps=30),
    "patch in a corner": PGD(within=Patch(width=4, place=(0, 4)), steps=30),
    "margin": PGD(within=Linf("12/255"), loss="margin"),
    "dlr": PGD(within=Linf("12/255"), loss="dlr"),
    "cosine": PGD(within=Linf("12/255"), loss="cosine"),
    "predicted label": PGD(within=Linf("12/255"), label="predicted"),
    "least likely": PGD(within=Linf("48/255"), target="least-likely"),
    "random target": PGD(within=Linf("32/255"), target="random"),
    "one target": PGD(within=Linf("32/255"), target=3),
    "fgsm": fgsm(Linf("16/255")),
    "apgd": APGD(within=Linf("12/255"), steps=20, restarts=2),
    "apgd dlr l2": APGD(within=L2(0.6), steps=20, loss="dlr"),
    "apgd by target": APGD(within=Linf("12/255"), steps=10, loss="dlr-targeted", targets=4, label="predicted"),
    "fab": FAB(within=Linf("12/255"), steps=5, restarts=2),
    "fab by target l2": FAB(within=L2(0.6), steps=5, targets=4),
    "square": Square(within=Linf("24/255"), queries=80),
    "square l2": Square(within=L2(1.2), queries=60, restarts=2, label="predicted"),
}


@pytest.fixture(scope="module", params=ATTACKS)
def attacked(request, victim, few):
    attack = ATTACKS[request.param]
    return attack, run(victim, few, attack)


# ------------------------------------------------------------------------------------------------- the contract, every attack


def test_adversarial_pixels_stay_in_the_set_and_in_range(attacked, few):
    attack, result = attacked
    delta = result.adversarial.double() - few.pixels.double()
    assert attack.within.size(delta).max() <= attack.within.eps + 1e-7
    assert torch.equal(result.distance, attack.within.size(delta))
    assert 0 <= result.adversarial.min() <= result.adversarial.max() <= 1


def test_success_is_what_the_model_says_of_the_returned_pixels(attacked, victim):
    attack, result = attacked
    with torch.no_grad():
        now = victim(result.adversarial).argmax(dim=1)
    assert torch.equal(now, result.adversarial_prediction)
    assert torch.equal(result.success, result.changed_in_restart.any(dim=0))
    assert (now[result.success] != result.clean_prediction[result.success]).all()
    if isinstance(getattr(attack, "target", None), int):
        assert (now[result.success] == attack.target).all()
    assert 0.02 < result.success.float().mean() < 1


def test_a_failed_example_comes_back_clean(attacked, few):
    _, result = attacked
    assert (~result.success).any()
    assert torch.equal(result.adversarial[~result.success], few.pixels[~result.success])
    assert (result.distance[~result.success] == 0).all()


def test_results_do_not_depend_on_batch_or_neighbours(attacked, few, victim):
    attack, result = attacked
    small = run(victim, few, attack, batch_size=7)
    part = run(victim, take(few, np.arange(40, 60)), attack)
    for other, rows in ((small, slice(None)), (part, slice(40, 60))):
        assert torch.equal(result.success[rows], other.success)
        assert torch.equal(result.adversarial_prediction[rows], other.adversarial_prediction)
        assert torch.equal(result.distance[rows] > 0, other.distance > 0)


def test_results_do_not_depend_on_the_order(attacked, few, victim):
    attack, result = attacked
    order = np.random.default_rng(0).permutation(96)
    shuffled = run(victim, take(few, order), attack)
    assert torch.equal(result.success[order], shuffled.success)
    assert torch.equal(result.adversarial_prediction[order], shuffled.adversarial_prediction)


def test_in_float64_the_pixels_themselves_do_not_depend_on_the_batch(pair, few):
    model = pair[1].classifier().double()
    wide = few._replace(pixels=few.pixels.double())
    for attack in (ATTACKS["linf"], ATTACKS["l2"]):
        a, b = run(model, wide, attack, batch_size=96), run(model, wide, attack, batch_size=11)
        assert (a.adversarial - b.adversarial).abs().max() < 1e-9


def test_in_float32_the_share_of_pixels_that_depend_on_the_batch_is_small(victim, few, record_property):
    a, b = (run(victim, few, ATTACKS["linf"], batch_size=size) for size in (96, 11))
    share = float((a.adversarial != b.adversarial).double().mean())
    record_property("share of differing pixels", share)
    assert share < 0.01


def test_a_zero_budget_changes_nothing_and_costs_nothing(victim, few):
    for within in (Linf(0), L2(0), Patch(eps=0, width=2)):
        result = run(victim, few, PGD(within=within))
        assert torch.equal(result.adversarial, few.pixels)
        assert success_rates(result)["asr_change"]["value"] == 0
        assert result.backwards.sum() == 0


def test_a_larger_budget_fools_more(victim, few):
    rates = [run(victim, few, PGD(within=Linf(f"{e}/255"))).success.float().mean() for e in (2, 8, 24, 64)]
    assert rates == sorted(rates)
    assert rates[0] < 0.15
    assert rates[-1] > 0.9


def test_the_model_and_the_global_stream_are_left_as_they_were(pair, few):
    model = pair[1].classifier()
    model.train()
    model.model.blocks[0].eval()
    model.model.head.weight.requires_grad_(False)
    model.model.head.bias.grad = torch.ones(10)
    modes, wants = [m.training for m in model.modules()], [p.requires_grad for p in model.parameters()]
    before = {k: v.clone() for k, v in model.state_dict().items()}
    torch.manual_seed(3)
    state = torch.get_rng_state()
    run(model, few, PGD(within=Patch(width=2, place="attention"), steps=2))
    assert [m.training for m in model.modules()] == modes
    assert [p.requires_grad for p in model.parameters()] == wants
    assert all(torch.equal(v, before[k]) for k, v in model.state_dict().items())
    assert torch.equal(model.model.head.bias.grad, torch.ones(10))
    assert not any(m._forward_pre_hooks or m._forward_hooks for m in model.modules())
    assert torch.equal(torch.get_rng_state(), state)


# ------------------------------------------------------------------------------------------------- restarts and budgets


def test_the_fast_protocol_finds_the_union_of_the_restarts(victim, few):
    attack = PGD(within=Linf("8/255"), restarts=4, steps=5)
    fast, paper = (run(victim, few, attack, protocol=p) for p in ("fast", "paper"))
    assert paper.changed_in_restart.shape == (4, 96)
    assert torch.equal(fast.success, paper.changed_in_restart.any(dim=0))
    assert fast.forwards.sum() < paper.forwards.sum()
    assert paper.changed_in_restart.float().mean() <= paper.success.float().mean()


def test_a_sweep_contains_its_smaller_budgets_and_misses_nothing(victim, few):
    attacks = [PGD(within=Linf(f"{e}/255"), steps=10) for e in (4, 8, 16, 32)]
    args = (victim, few.pixels, few.labels, attacks)
    fast, paper = (engine.sweep(*args, ids=few.ids, protocol=p) for p in ("fast", "paper"))
    for i, (a, b) in enumerate(zip(fast, paper)):
        assert (a.success | ~b.success).all()  # what an independent attack fools is fooled
        assert a.distance.max() <= attacks[i].within.eps + 1e-7
        if i:
            assert (a.success | ~fast[i - 1].success).all()
    assert sum(r.forwards.sum() for r in fast) < sum(r.forwards.sum() for r in paper)


@pytest.mark.parametrize("budgets", [(4, 8, 16, 32), (16,), (8, 4)])
def test_a_sweep_that_bisects_finds_what_the_sweep_in_order_finds_with_fewer_forwards(victim, few, budgets):
    """But for images that stand at a larger budget and fall at a smaller one, which are few."""
    attacks = [PGD(within=Linf(f"{e}/255"), steps=10) for e in budgets]
    args = (victim, few.pixels, few.labels, attacks)
    fast, bisected = (engine.sweep(*args, ids=few.ids, protocol=p) for p in ("fast", "bisect"))
    for i, (a, b) in enumerate(zip(fast, bisected)):
        eps = sorted(attack.within.eps for attack in attacks)[i]
        assert (a.success | ~b.success).all()  # nothing is claimed that the other does not find
        assert (a.success != b.success).sum() <= 1
        assert (b.distance <= eps + 1e-7).all()
        with torch.no_grad():
            assert torch.equal(victim(b.adversarial).argmax(dim=1) != b.clean_prediction, b.success)
        if i:
            assert (b.success | ~bisected[i - 1].success).all()
    spent = [sum(int(r.forwards.sum()) for r in results) for results in (fast, bisected)]
    assert spent[1] < spent[0] if len(budgets) > 2 else spent[1] <= spent[0]


def test_a_sweep_that_bisects_takes_attacks_in_stages(victim, few):
    attacks = [AutoAttack(within=Linf(f"{e}/255"), steps=5, targets=2, queries=20) for e in (4, 16, 48)]
    results = engine.sweep(victim, few.pixels[:16], few.labels[:16], attacks, ids=few.ids[:16], protocol="bisect")
    for result in results:
        assert torch.equal(result.broken_by >= 0, result.success)


def test_a_sweep_predicts_clean_images_only_once(victim, few):
    """Fewer forwards, the same verdicts and flags as budget after budget by hand."""
    attacks = [PGD(within=Linf(f"{e}/255"), steps=5) for e in (4, 12)]
    unsteady = Returns(lambda x: victim(x).softmax(dim=1))
    small, large = engine.sweep(unsteady, few.pixels, few.labels, attacks, ids=few.ids)
    rest = np.flatnonzero(~small.success.numpy())
    by_hand = run(unsteady, take(few, rest), attacks[1])
    assert torch.equal(large.success[rest], by_hand.success)
    assert torch.equal(large.adversarial_prediction[rest], by_hand.adversarial_prediction)
    assert large.flags == by_hand.flags != ()
    assert set((by_hand.forwards - large.forwards[rest]).tolist()) <= {
        1,
        2,
    }  # the clean forwards, two in the first batch


def test_a_foreign_attack_is_judged_by_the_same_rules(victim, few):
    def strong(model, x, y):
        leaf = x.clone().requires_grad_()
        (grad,) = torch.autograd.grad(torch.nn.functional.cross_entropy(model(leaf), y), leaf)
        return (x + 16 / 255 * grad.sign()).clamp(0, 1)

    ours = run(victim, few, fgsm(Linf("16/255")))
    theirs = run(victim, few, strong, within=Linf("16/255"))
    assert torch.equal(theirs.success, ours.success)
    cheating = run(victim, few, lambda m, x, y: 1 - x, within=Linf("16/255"))  # noqa: ARG005
    assert not cheating.success.any()
    assert "96 of 96 returned images lie outside" in cheating.flags[0]


# ------------------------------------------------------------------------------------------------- a huge budget


def test_an_honest_attack_raises_no_flag(victim, few):
    attack = PGD(within=Linf("12/255"))
    assert run(victim, few, attack).flags == ()
    assert engine.strength_flags(victim, few.pixels, few.labels, attack) == []


def test_a_misled_attack_fails_at_a_huge_budget(victim, few):
    masked = Returns(lambda x: victim((x * 2).round() / 2 + 0 * x))
    flags = engine.strength_flags(masked, few.pixels, few.labels, PGD(within=Linf("4/255")))
    assert "huge budget" in flags[0]
