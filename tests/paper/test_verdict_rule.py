"""How claims are decided: the rule, what it reads, and verdicts in worlds whose truth is known."""

from dataclasses import replace

import numpy as np
import pytest

from antiphase.config import Budget, to_plain
from antiphase.measures.stats import Contrast
from antiphase.paper.catalog import studies
from antiphase.paper.claims import CLAIMS, plans, verdicts
from antiphase.paper.contrasts import about_equal
from antiphase.paper.grid import Grid
from antiphase.paper.ledger import Ledger
from antiphase.paper.questions import Ask, Train, ordered
from antiphase.paper.series import ALIKE, PLAN, Series, Success
from antiphase.paper.study import Answers, Missing
from antiphase.paper.verdict_rule import GAP, POWER, decide, place_of, why_uninformative
from antiphase.report.terminal.study import plan_words
from antiphase.scales import SCALES

# ------------------------------------------------------------------------------------------------- the rule

ENOUGH = {"seeds": 10, "accuracy": 0.5, "planned_power": 0.9, "power": 0.9}


def finding(above=0.5, below=0.5, equivalent=0.5, **other):
    value = 0.05 if above < below else -0.05
    ps = {"p_above": above, "p_below": below, "p_equivalent": equivalent}
    return Contrast(name=other.pop("name", "c"), value=value, interval=(-1.0, 1.0), **{**ENOUGH, **ps, **other})


UP, DOWN, OPEN, NONE = finding(0.001), finding(below=0.001), finding(0.1), finding(0.4, 0.6, 0.01)
RULE = [
    ([UP, UP], "supported", "all 2 contrasts"),
    ([UP, DOWN], "not supported", "other way round"),
    ([UP, OPEN], "partly supported", "1 of 2 contrasts"),
    ([finding(0.02), OPEN], "inconclusive", "1 of 2"),  # not after Holm
    ([UP, NONE], "partly supported", ""),  # nothing at one budget does not refute the others
    ([NONE, NONE], "not supported", "no effect"),
    ([NONE, OPEN], "inconclusive", ""),
    ([finding(0.001, threshold=True), UP], "supported", "all 2"),
    ([finding(0.4, 0.6, 0.01, threshold=True)], "inconclusive", ""),  # on a threshold is not "no effect"
    ([finding(below=0.001, threshold=True), UP], "not supported", "other way round"),
    # a saturated contrast decides nothing, whatever it says
    ([UP, finding(0.4, 0.6, 0.01, saturated=True)], "supported", "all 1 informative"),
    ([UP, finding(below=0.001, saturated=True)], "supported", ""),
    ([finding(0.001, saturated=True)], "inconclusive", "saturated"),
    ([finding(0.001, saturated=True, threshold=True)], "supported", ""),  # unless the claim is about that
    # nor does one that the plan gives too little
    ([UP, finding(below=0.001, planned_power=0.5)], "supported", ""),
    ([finding(0.001, planned_power=0.5)], "inconclusive", "too few seeds or images"),
    ([finding(0.001, needs="no direction")], "inconclusive", "no direction"),
    # opposite after Holm only
    ([OPEN] * 9 + [finding(below=0.02)], "inconclusive", ""),
    ([OPEN] * 9 + [finding(below=0.002)], "not supported", "other way round"),
    ([UP, finding(0.001, accuracy=0.39)], "inconclusive", "undertrained"),
    ([finding(below=0.001, accuracy=0.39)], "inconclusive", "undertrained"),
    ([UP, Contrast(name="c", missing="no row of X")], "not tested here", "no row of X"),
    ([DOWN, Contrast(name="c", missing="no row of X")], "not supported", ""),
    # while rows come in, Holm counts those that are to come
    ([finding(below=0.01)] + [Contrast(name="c", missing="no row of X")] * 2, "not tested here", "no row of X"),
    ([UP, Contrast(name="c")], "inconclusive", "does not exist"),
    ([finding(0.001, surrogate=True)], "not tested here", "stand in for the published"),
    ([finding(below=0.001, surrogate=True)], "not tested here", "stand in for the published"),
    ([finding(0.001, of_pair=True)], "supported", "of this pair"),
    # what a claim takes for granted can refute it, and never supports it
    ([finding(0.001, premise=True), UP], "supported", "all 2"),
    ([finding(0.001, premise=True), OPEN], "inconclusive", "1 of 2 contrasts undecided"),
    ([finding(0.001, premise=True), finding(0.001, planned_power=0.5)], "inconclusive", "only its premise"),
    ([finding(below=0.001, premise=True), UP], "not supported", "other way round"),
    ([finding(0.1, premise=True), UP], "partly supported", "1 of 2"),
    ([finding(0.001, premise=True), NONE], "not supported", "no effect: all 1 contrast"),
    # a claim that says two things is supported if both were decided
    ([finding(0.001, says="order"), finding(0.001, says="depth")], "supported", "all 2"),
    ([finding(0.001, says="order"), finding(0.001, says="depth", saturated=True)], "partly supported", "on depth"),
    (
        [finding(0.02, says="order"), finding(0.02, says="order"), finding(0.001, says="depth", needs="x")],
        "inconclusive",
        "none of 2 informative contrasts after correction; nothing was decided on depth",
    ),
    (
        [finding(0.1, premise=True, name="premise"), finding(0.02)],
        "inconclusive",
        "1 of 2 contrasts undecided: premise",
    ),
    ([], "not tested here", ""),
]


@pytest.mark.parametrize(("findings", "outcome", "why"), RULE)
def test_a_claim_is_decided_by_the_rule_that_was_fixed_before(findings, outcome, why):
    verdict = decide(findings, floor=0.4)
    assert verdict.outcome == outcome
    assert why in verdict.why


def test_a_scale_for_tests_never_decides():
    for findings, _, _ in RULE:
        assert decide(findings, floor=None).outcome == "no verdict"


def test_every_verdict_prints_its_power():
    assert decide([UP, finding(0.001, power=0.7)], 0.4).power == (
        "a gap of 5 points would have been seen with probability 0.70 to 0.90"
    )
    assert "0.90" in decide([OPEN], 0.4).power
    threshold = decide([finding(0.001, threshold=True)], 0.4).power
    assert threshold == "a distance to the threshold of 5 points would have been seen with probability 0.90"
    assert "simulated" in decide([finding(0.001, power=None, planned_power=None)], 0.4).power  # ranks


def test_a_claim_partly_supported_lists_where():
    verdict = decide([finding(1e-4, name="here"), finding(0.2, name="there")], 0.4)
    assert (verdict.outcome, "(here)" in verdict.why, "there" in verdict.why) == ("partly supported", True, False)
    many = [finding(1e-6, name=f"here {place}") for place in range(8)]
    verdict = decide([*many, finding(0.2, name="there"), finding(0.3, name="and there")], 0.4)
    assert "8 of 10 contrasts in its direction (all but there; and there)" in verdict.why


# ------------------------------------------------------------------------------------------------- worlds
# Answers are made up cell by cell, as a run would file them; the claims are then decided by all that any study lists for them.


class World:
    """Answers for ViTs and DiffViTs: a success rate for every model and attack, trainings that differ, and coins for images."""

    def __init__(self, rate, *, seed=0, seed_sd=0.02, size=None):
        self.rate, self.seed, self.seed_sd = rate, seed, seed_sd
        self.size = size  # of a Carlini-Wagner distance, by model; infinite where an image cannot be broken
        self.made = {}

    def __call__(self, cell):
        if cell.key not in self.made:
            self.made[cell.key] = self._train(cell) if isinstance(cell, Train) else self._attack(cell)
        return self.made[cell.key]

    def _train(self, cell):
        return {
            "log": [{"test_accuracy": 0.7}],
            "test_accuracy": 0.7,
            "train_accuracy": 0.7,
            "lambda": [{"lambda": 0.8}] * cell.model.depth,
        }

    def _attack(self, cell):
        n, model = cell.images.n or 10_000, cell.of.model
        draw = np.random.default_rng([self.seed, int(cell.key[:8], 16)])
        luck = np.random.default_rng([self.seed, int(cell.of.key[:8], 16)]).normal()
        attack = cell.question.attack
        images = {"id": list(range(n)), "label": [0] * n, "clean": (draw.random(n) < 0.5).astype(int).tolist()}
        if type(attack).__name__ == "CW":
            distance = draw.lognormal(0, 0.5, n) * self.size(model.is_differential, model.depth)
            fooled = np.isfinite(distance)
            shown = np.where(fooled, distance, 0).tolist()
            return {"images": images | {"changed_in_run": [fooled.astype(int).tolist()], "distance": shown}}
        p = self.rate(model.is_differential, model.depth, cell) + self.seed_sd * luck
        first = draw.random(n) < np.clip(p, 0, 1)
        runs = [first ^ (draw.random(n) < 0.01) for _ in range(3)] if 0 < p < 1 else [first] * 3
        return {"images": images | {"changed_in_run": [run.astype(int).tolist() for run in runs]}}


def claim_in(world, claim, scale="cpu"):
    of = [study for study in studies().values() if claim in study.claims]
    (row,) = verdicts(of, Grid.at(scale), world, {claim})
    return row


def is_patch(cell):
    return "patch" in cell.question.title


def test_a_gap_everywhere_but_where_all_is_saturated_supports_k1():
    def rate(differential, _, cell):
        return 1.0 if "8x8" in cell.question.title else 0.5 + 0.15 * differential

    row = claim_in(World(rate), "K1")
    assert row["verdict"] == "supported"
    assert {c["shown_only"] for c in row["contrasts"] if "patch 8" in c["name"]} == {"saturated: no gap could show"}
    assert "would have been seen with probability" in row["power"]


def test_no_gap_at_all_is_never_the_other_way_round_more_often_than_the_level():
    outcomes = [claim_in(World(lambda *_: 0.5, seed=seed), "K1")["verdict"] for seed in range(3)]
    assert outcomes.count("inconclusive") == 3


def test_trends_that_agree_support_k11_and_k23_though_the_diffvit_is_more_fragile_at_every_depth():
    def rate(differential, depth, _):
        return 0.8 - 0.15 * np.log2(depth) + 0.12 * differential

    world = World(rate, seed_sd=0.005)
    assert claim_in(world, "K11", "desk")["verdict"] == "supported"
    k23 = claim_in(world, "K23", "desk")
    towards = [
        c
        for c in k23["contrasts"]
        if c["reading"] == "asr_change" and c["name"].startswith("fall of ASR of DiffViT with")
    ]
    assert [c["place"] for c in towards] == ["towards"]
    assert k23["verdict"] != "not supported"
    assert claim_in(world, "K3", "desk")["verdict"] == "not supported"  # it never crosses below


def test_restarts_that_keep_the_order_say_nothing_of_depth_where_depth_does_nothing():
    k11 = claim_in(World(lambda differential, *_: 0.5 + 0.15 * differential), "K11")
    assert k11["verdict"] == "partly supported"
    assert k11["why"].endswith("nothing was decided on what depth does")


def test_that_the_shallow_diffvit_is_easier_to_fool_does_not_support_k3():
    def rate(differential, depth, _):
        return 0.5 + 0.15 * differential * (depth == 1)

    k3 = claim_in(World(rate, seed_sd=0.05), "K3")
    premise = next(c for c in k3["contrasts"] if c["premise"])
    assert premise["place"] == "towards"
    assert premise["name"] not in k3["why"]


def test_a_claim_that_says_several_things_names_them():
    """So that none of them can be supported in the name of another."""
    from benchmarks.calibrate import predictions_at

    says = {claim: {_contrast_without_rows(p).says for p in of} for claim, of in predictions_at("paper").items()}
    several = {"K2", "K3", "K4", "K6", "K8", "K10", "K11", "K12", "K14", "K18", "K20", "K21", "K24", "E3", "E7"}
    assert {claim for claim, things in says.items() if len(things) > 1} == several
    assert all("" not in says[claim] for claim in several - {"K3", "E7"})  # of these it is a premise


def _contrast_without_rows(prediction):
    def nothing(_):
        raise Missing(prediction.cells[0])

    return prediction.contrast(nothing)


def test_branches_of_the_diffvit_that_are_opposed_say_nothing_of_diffclip():
    """K8 of a pair of which too few images were measured to decide on its first layer."""
    from benchmarks.calibrate import predictions_at
    from benchmarks.worlds import World as Simulated
    from benchmarks.worlds import contrast_in

    listed = predictions_at("cpu")["K8"]
    few = [replace(contrast_in(Simulated(0), p, 0.2), planned_power=0.36 if p.planned.of_pair else 1.0) for p in listed]
    verdict = decide(few, floor=0.0)
    assert verdict.outcome == "partly supported"
    assert verdict.why.endswith("nothing was decided on the first layer of DiffCLIP")


def test_attacks_that_disagree_about_depth_refute_k23():
    def rate(_, depth, cell):
        sign = 1 if "AutoAttack" in cell.question.title else -1
        return 0.5 + sign * 0.12 * (np.log2(depth) - 1.2)

    k23 = claim_in(World(rate, seed_sd=0.005), "K23", "desk")
    assert {c["place"] for c in k23["contrasts"] if c["name"].startswith("fall of ASR of DiffViT with")} == {"opposite"}


def test_what_has_no_direction_itself_decides_nothing_about_agreement():
    k11 = claim_in(World(lambda *_: 0.5), "K11")
    assert all("no known direction" in c["shown_only"] for c in k11["contrasts"] if c["reading"] == "union_change")
    assert k11["verdict"] == "inconclusive"


def test_models_that_cannot_be_broken_need_larger_perturbations():
    """K5: an infinite distance is the largest, and no seed is dropped for having an infinite median."""

    def size(_, depth):
        return np.inf if depth >= 4 else 1.0 + 0.5 * np.log2(depth)

    (contrast,) = claim_in(World(lambda *_: 0.5, size=size), "K5", "desk")["contrasts"]
    assert contrast["place"] == "towards"
    assert contrast["value"] > 0.3
    fig3c = studies()["fig3c"].table(Grid.at("cpu"), World(lambda *_: 0.5, size=size))
    medians = {row.label: row for row in fig3c if row.reading == "CW l2, median" and row.model == "DiffViT"}
    assert medians["DiffViT, depth 4"].text == "not reached in 5 of 5 seeds"
    assert medians["DiffViT, depth 4"].value is None
    assert medians["DiffViT, depth 1"].value > 0


@pytest.mark.parametrize(
    ("gaps", "direction"),
    [((0.2, 0.1, -0.2), "falls below"), ((-0.2, -0.1, 0.2), "rises above"), ((0.2, 0.1, 0.1), None)],
)
def test_a_crossover_is_one_of_the_sample_with_its_direction(gaps, direction):
    def rate(differential, depth, _):
        return 0.5 + differential * gaps[{1: 0, 2: 1, 4: 2}[depth]]

    rows = studies()["fig3a"].table(Grid.at("cpu"), _with_accuracies(World(rate, seed_sd=0.001)))
    row = next(r for r in rows if r.label.startswith("crossover depth") and "1/255" in r.label)
    if direction is None:
        assert (row.value, row.text) == (None, "none among these depths")
    else:
        assert 2 < row.value < 4
        assert f"the gap {direction} 0" in row.note
    assert ("100 % likely falls below" in row.note) == (direction == "falls below")


def _with_accuracies(world):
    plain = world._train
    world._train = lambda cell: plain(cell) | {"train_images": 1000, "test_images": 1000}
    return world


def test_depth_claims_use_every_trained_depth():
    grid = Grid.at("desk")
    listed = [p for study in studies().values() for p in study.predictions(grid)]
    for claim in ("K3", "K4", "K5", "K6", "K11", "K17", "K20", "K23", "K7", "K22"):
        depths = {m.model.depth for p in listed if p.claim == claim for m in p.cells if isinstance(m, Train)}
        assert {4, 8, 12} <= depths, claim


def test_our_own_questions_are_extensions_and_never_the_verdict_on_a_claim_of_the_papers():
    grid = Grid.at("cpu")
    about = {}
    for study in studies().values():
        for p in study.predictions(grid):
            about.setdefault(p.claim, set()).update(m.model.is_differential for m in p.cells if isinstance(m, Train))
    for claim in ("K13", "K19", "K24"):  # about DiffCLIP, and about ImageNet
        assert not about[claim], claim
    assert all(about[claim] for claim in ("E1", "E2", "E3", "E4", "E5", "E6", "E7", "E8", "E9"))
    assert all(CLAIMS[claim].startswith("our question") for claim in CLAIMS if claim.startswith("E"))


# ------------------------------------------------------------------------------------------------- operating characteristics


@pytest.mark.parametrize("claim", ["K2", "K3", "K7", "K8", "E2"])
def test_a_world_without_the_effect_seldom_gives_a_verdict_and_one_with_it_never_the_opposite(claim):
    """A slice of `make calibrate`."""
    from benchmarks.calibrate import predictions_at
    from benchmarks.worlds import World as Simulated
    from benchmarks.worlds import everywhere, verdict_in

    scale, number = ("desk" if claim == "K7" else "cpu"), 4
    predictions = predictions_at(scale)[claim]
    null = [verdict_in(Simulated(seed), predictions, everywhere(0.0)) for seed in range(number)]
    effect = [verdict_in(Simulated(seed), predictions, everywhere(0.05)) for seed in range(number)]
    assert sum(outcome in ("supported", "partly supported", "not supported") for outcome in null) <= 1
    assert "not supported" not in effect
    assert sum(outcome in ("supported", "partly supported") for outcome in effect) >= number / 2


def test_lambda_and_lipschitz_that_have_nothing_to_do_with_each_other_are_seldom_decisive():
    """K7 over four and eight layers, five and three seeds that share what their layers are like."""
    from antiphase.measures.stats import ranked_alike

    draw, decisive, number = np.random.default_rng(0), 0, 120
    for _ in range(number):
        groups = []
        for layers, seeds in ((4, 5), (5, 3)):
            x, y = (draw.normal(size=(layers, 1)) + 0.2 * draw.normal(size=(layers, seeds)) for _ in range(2))
            groups.append((x, y))
        test = ranked_alike(groups)
        decisive += min(test["p_above"], test["p_below"]) < 0.025
    assert decisive / number < 0.11  # 5 % and what 120 trials allow


def test_corruptions_of_a_family_that_are_alike_seldom_decide_e6():
    """Families share an effect and seeds vary; a test that permutes all corruptions alike is then wrong far too often."""
    from benchmarks.calibrate import predictions_at
    from benchmarks.worlds import World as Simulated
    from benchmarks.worlds import contrast_in

    from antiphase.measures.stats import ranked_alike

    (e6,) = predictions_at("cpu")["E6"]
    number = 60
    without, within = ([place_of(contrast_in(Simulated(s), e6, e)) for s in range(number)] for e in (0.0, 0.05))
    assert number - without.count("open") <= 7  # 5 % and what 60 trials allow
    assert within.count("towards") >= number / 3
    assert within.count("opposite") == 0
    draw, unrelated = np.random.default_rng(0), 0
    for _ in range(number):
        x, y = (draw.normal(size=4)[np.repeat(range(4), 4)] + 0.5 * draw.normal(size=16) for _ in range(2))
        test = ranked_alike([(x[:, None], y[:, None])])
        unrelated += min(test["p_above"], test["p_below"]) < 0.025
    assert unrelated > 7


# ------------------------------------------------------------------------------------------------- parts


@pytest.mark.parametrize(("gaps", "places"), [((0.01, -0.01, 0.0), "towards"), ((0.06, 0.05, 0.07), "opposite")])
def test_about_equal_is_said_of_the_mean_difference(gaps, places):
    """Seeds may scatter to both sides; a gap of five points is not equal."""
    grid = Grid.at("cpu")

    def rate(differential, _, cell):
        return 0.5 + (gaps[cell.of.training.seed % 3] if differential else 0)

    world = World(rate, seed_sd=0.0)
    cells = {
        name: tuple(grid.under_attack(make(seed), grid.pgd(grid.middle), 10_000) for seed in range(9))
        for name, make in (("ViT", grid.vit), ("DiffViT", grid.diffvit))
    }
    series = [Series(cells[name], Success("asr_change")) for name in ("DiffViT", "ViT")]
    above, below = (
        place_of(p.contrast(lambda s: s.arm(world))) for p in about_equal("K1", "gap", "part", "asr_change", series)
    )
    assert (above, below) == (places, "towards")


def test_a_models_accuracy_is_judged_by_its_depth_1_witness():
    grid = Grid.at("cpu")
    deep = grid.diffvit(2, 4, data="tiny-imagenet")
    assert grid.witness(deep) == grid.diffvit(2)
    assert grid.witness(grid.diffvit(1, lambda_init=0.5)) == grid.diffvit(1, lambda_init=0.5)
    assert grid.witness(grid.vit(0, adv_eps=Budget("1/255"))) == grid.vit(0)


def test_informative_contrasts_are_known_before_any_run():
    grid = Grid.at("cpu")
    k1 = [p for p in studies()["fig2a"].predictions(grid) if p.claim == "K1"]
    assert all(p.planned.seeds == 10 and p.planned.power > 0.8 for p in k1)
    few = Contrast(name="c", value=0.1, planned_power=0.3)
    assert "0.30" in why_uninformative(few)


def test_margins_and_radii_are_planned_with_the_images_that_both_models_classify_correctly():
    listed = [p for p in studies()["theory-audit"].predictions(Grid.at("cpu")) if p.claim == "K21"]
    assert {p.planned.images for p in listed} == {int(PLAN.accuracy * SCALES["cpu"].measure_images)}


def test_one_rate_against_a_threshold_is_planned_by_its_own_variance():
    """K4: so that every depth with five seeds may decide at `cpu`, and each is something that the claim says."""
    k4 = [p for p in studies()["fig3a"].predictions(Grid.at("cpu")) if p.claim == "K4"]
    depths = Grid.at("cpu").depths
    assert len(k4) == 2 * len(depths)
    assert all(p.planned.power > 0.9 for p in k4)
    assert {_contrast_without_rows(p).says for p in k4} == {f"depth {depth}" for depth in depths}
    assert PLAN.against(0.95).seeds_needed(230, 0.05) < PLAN.seeds_needed(230, 0.05)


def test_a_given_pair_is_shown_the_images_that_its_claims_need():
    """K8, K13 and K24 at every scale, K9 and K10 within two points at `paper`; COCO has just enough for K9."""
    from benchmarks.calibrate import predictions_at

    for scale in ("cpu", "desk", "paper"):
        listed = predictions_at(scale)
        pair = [p.planned for claim in ("K8", "K13", "K24") for p in listed[claim] if p.planned.of_pair]
        assert all(plan.images >= plan.images_needed == 785 and plan.power >= POWER for plan in pair), scale
        assert len(pair) == 11 + 3 + 6  # layers but the first; kinds of noise; both numbers under each
    about_clip = [p.planned for claim in ("K9", "K10") for p in listed[claim]]
    assert {plan.margin for plan in about_clip} == {ALIKE, GAP}
    assert all(plan.images_there >= plan.images >= plan.images_needed for plan in about_clip)
    short = plans(p for claim in ("K9", "K10") for p in predictions_at("cpu")[claim])
    assert all(plan["pair_needs"]["images"] > plan["pair_needs"]["given"] == 1_000 for plan in short)


def test_a_pair_that_needs_more_images_than_there_are_is_told_so():
    needs = {"images": 6_568, "margin": 0.02, "given": 5_000, "there": 5_000}
    plan = {
        "claim": "K10",
        "contrasts": 1,
        "informative": 1,
        "surrogates": 0,
        "least_p": None,
        "at_margin": None,
        "seeds": [1],
        "images": 5_000,
        "of_pair": True,
        "seeds_needed": None,
        "pair_needs": needs,
        "power": [1.0, 1.0],
    }
    assert "6,568 images (power 0.8), more than the 5,000 that the data have" in plan_words(plan)
    assert "more than" not in plan_words(plan | {"pair_needs": needs | {"there": 50_000}})


def test_surrogates_and_trained_models_are_shown_as_many_images_as_before():
    sizes = {
        cell.images.n
        for name in ("fig5-clip", "map-correlation-clip", "fig2b")
        for cell in studies()[name].cells(Grid.at("cpu"))
        if isinstance(cell, Ask)
    }
    assert sizes == {SCALES["cpu"].measure_images, SCALES["cpu"].eval_images}


# ------------------------------------------------------------------------------------------------- a claim from rows


@pytest.mark.parametrize(
    ("accuracy", "leave_out", "data", "verdict", "why"),
    [
        (0.6, "", "cifar10", "supported", "in its direction"),
        (0.6, "cifar100", "cifar10", "not tested here", "cifar100"),
        (0.3, "", "cifar10", "inconclusive", "undertrained"),
        (0.6, "", "digits", "not tested here", "the claim is about cifar10; on digits it would be supported (all"),
    ],
)
def test_k1_follows_from_the_rows(tmp_path, accuracy, leave_out, data, verdict, why):
    """Rows of figure 2 as a run would file them."""
    changed = {"ViT": 0.3, "DiffViT": 0.6}
    ledger, grid = Ledger(tmp_path), Grid.at("cpu", data)
    for cell in ordered(c for name in ("fig2a", "fig2c") for c in studies()[name].cells(grid)):
        if leave_out and leave_out in cell.title:
            continue
        if isinstance(cell, Train):
            reached = accuracy if cell.data == grid.data else 0.2  # of more classes fewer are learned: that is no fault
            log = [{"test_accuracy": reached}, {"test_accuracy": 0.1}]  # it overfits: the best epoch counts
            answer = {"log": log, "train_accuracy": reached, "lambda": [{"lambda": 0.8}]}
        else:
            draw = np.random.default_rng(int(cell.key[:8], 16))
            broken = (draw.random(400) < changed[cell.of.model.title]).astype(int).tolist()
            columns = {"id": list(range(400)), "label": [0] * 400, "clean": [0] * 300 + [1] * 100}
            answer = {"images": {**columns, "changed_in_run": [broken]}}
        ledger.keep(cell, {"config": to_plain(cell), "answer": answer})
    figure = [studies()[name] for name in ("fig2a", "fig2c")]
    (k1,) = [v for v in verdicts(figure, grid, Answers(ledger)) if v["claim"] == "K1"]
    assert k1["verdict"] == verdict
    assert why in k1["why"]
    assert set(k1["readings"]) == {"asr_change", "asr_correct"}
    if leave_out:
        assert k1["parts"]["cifar10, pixels"]["verdict"] == "supported"
