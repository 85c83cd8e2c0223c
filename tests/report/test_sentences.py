"""Sentences say what the rows say: the findings of a comparison, and the verdicts on claims."""

import copy
import re
from dataclasses import replace
from typing import get_args

from antiphase.measures.stats import Contrast, Verdict
from antiphase.paper.verdict_rule import Outcome
from antiphase.report.figures.contrasts import forest
from antiphase.report.sentences import (
    MARKS,
    OUTCOMES,
    comparison_headline,
    contrast_words,
    findings,
    headline,
    reason,
    sentence,
    statement,
)
from tests.report.changed_comparisons import decided, swapped


def test_swapping_the_rows_changes_the_headline(comparison):
    before, after = findings(decided(comparison, 1))[0], findings(swapped(decided(comparison, 1)))[0]
    assert before.startswith("DiffViT is easier to fool than ViT")
    assert after.startswith("ViT is easier to fool than DiffViT")


def test_every_finding_follows_the_rows(comparison):
    before, after = findings(comparison), findings(swapped(comparison))
    assert len(before) == len(after)
    caveat = before.pop(), after.pop()
    assert caveat[0] == caveat[1]
    assert all(a != b for a, b in zip(before[1:], after[1:]))


def test_the_headline_admits_when_nothing_differs_or_the_sign_changes(comparison):
    even = copy.deepcopy(comparison)
    for row in even["paired"]:
        row["both_right"]["p_holm"] = 0.4
    assert findings(even)[0].startswith("No difference in robustness between ViT and DiffViT could be shown")
    mixed = decided(comparison, 1)
    mixed["paired"][0]["both_right"].update(only_first=30, only_second=2)
    assert findings(mixed)[0].startswith("Neither ViT nor DiffViT is the more robust")


def test_no_verdict_is_given_on_weak_models_or_at_a_scale_without_verdicts(comparison):
    weak = decided(comparison, 1)
    weak["models"][0]["test_accuracy"] = 0.2
    assert findings(weak)[0].startswith("No verdict: ViT stayed below 50 % test accuracy")
    weak["config"]["accuracy_floor"] = None
    assert findings(weak)[0].startswith("No verdict: this scale is for tests; what the numbers say: DiffViT")


def test_the_headline_in_two_sentences_says_what_it_says_in_one(comparison):
    for rows in (decided(comparison, 1), comparison):
        words = comparison_headline(rows)
        assert words.first_sentence.rstrip(".") in str(words)
        assert words.second_sentence[1:] in str(words)
    rows = decided(comparison, 1)
    rows["config"]["accuracy_floor"] = None
    words = comparison_headline(rows)
    assert words.first_sentence == "No verdict: this scale is for tests."
    assert words.second_sentence.startswith("What the numbers say: DiffViT is easier to fool than ViT")


def test_no_finding_carries_more_than_a_handful_of_numbers(comparison):
    for finding in findings(decided(comparison, 1))[1:]:
        assert len(re.findall(r"(?<![\w/])\d+(?:\.\d+)?(?![\w/])", finding)) <= 8, finding


def contrast(value, low, high, name="DiffViT − ViT", **more):
    return Contrast(name=name, value=value, interval=(low, high), n=512, **more)


def test_the_words_of_a_verdict_name_its_outcome_its_weakest_contrast_and_n():
    both = (contrast(0.123, 0.081, 0.164, "at 1/255"), contrast(0.04, 0.01, 0.07, "at 4/255"))
    held = Verdict(claim="K1", outcome="supported", why="", contrasts=both)
    assert sentence(held) == "K1 is supported: +4.0 points [+1.0, +7.0] for at 4/255 (n = 512), and 1 other contrast."
    partly = replace(held, outcome="partly supported", contrasts=(*both, contrast(-0.01, -0.03, 0.01, "at 8/255")))
    assert sentence(partly) == (
        "K1 is partly supported: -1.0 points [-3.0, +1.0] for at 8/255 (n = 512) "
        "to +12.3 points [+8.1, +16.4] for at 1/255 (n = 512), and 1 other contrast."
    )
    against = replace(held, outcome="not supported", contrasts=(contrast(-0.03, -0.05, -0.01, "at 1/255"),))
    assert sentence(against) == "K1 is not supported: -3.0 points [-5.0, -1.0] for at 1/255 (n = 512)."
    missing = Verdict(claim="K9", outcome="not tested here", why="no CLIP pair was given")
    assert sentence(missing) == "K9 is not tested here: no CLIP pair was given."
    undefined = replace(held, outcome="inconclusive", contrasts=(Contrast(name="gap"),), why="n = 0")
    assert sentence(undefined) == "K1 is inconclusive: n = 0."


def test_only_differences_of_shares_are_given_in_points():
    cosine = contrast(-0.1234, -0.2, -0.04, "mean cosine", unit="")
    assert contrast_words(cosine) == "-0.123 [-0.2, -0.04] for mean cosine (n = 512)"
    assert contrast_words(replace(cosine, unit="%")) == "-12.3 % [-20.0, -4.0] for mean cosine (n = 512)"
    assert contrast_words(replace(cosine, unit="points")).startswith("-12.3 points [-20.0, -4.0]")


def test_a_stand_in_is_never_counted_among_the_papers_claims():
    own = Verdict(claim="K1", outcome="supported", why="")
    stand_in = Verdict(claim="K9", outcome="supported", why="", contrasts=(contrast(0.1, 0.05, 0.15, surrogate=True),))
    assert (
        headline([own, own, replace(own, outcome="inconclusive")])
        == "Of 3 claims 2 are supported and 1 is inconclusive."
    )
    assert "1 further claim was tested on a stand-in only" in headline([own, stand_in])
    assert headline([]) == "No claim has been put to the test yet."
    assert "decides nothing of the paper's own models" in sentence(stand_in)


def test_another_outcome_changes_the_sentence():
    one = Verdict(claim="K1", outcome="supported", why="", contrasts=(contrast(0.01, 0.005, 0.015),))
    sentences = {sentence(replace(one, outcome=outcome)) for outcome in OUTCOMES}
    assert len(sentences) == len(OUTCOMES)


def test_a_claim_is_shown_as_a_sentence_and_a_long_list_of_reasons_is_cut():
    verdict = Verdict(claim="K1", outcome="not tested here", why="a; b; c", statement="it is easier to fool")
    assert statement(verdict) == "It is easier to fool."
    assert reason(verdict) == "a, and 2 more"
    assert reason(replace(verdict, why="a; b")) == "a; b"


def test_a_list_of_reasons_in_brackets_is_cut_within_them():
    why = "3 of 4 contrasts in its direction (at 1/255; at 2/255; at 4/255), none opposite"
    verdict = Verdict(claim="K1", statement="", outcome="partly supported", why=why)
    assert reason(verdict) == "3 of 4 contrasts in its direction (at 1/255, and 2 more), none opposite"
    more = verdict.why.replace("at 4/255)", "at 4/255; and 3 more)") + "; nothing was decided on depth"
    assert reason(replace(verdict, why=more)) == (
        "3 of 4 contrasts in its direction (at 1/255, and 5 more), none opposite; nothing was decided on depth"
    )


def test_a_contrast_that_is_only_shown_bears_no_verdict_and_is_drawn_hollow():
    shown = contrast(-0.02, -0.05, 0.01, "at depth 4", needs="too few seeds")
    verdict = Verdict(claim="K4", outcome="supported", why="", contrasts=(contrast(0.04, 0.02, 0.06), shown))
    assert "+4.0 points" in sentence(verdict)
    decides, only_shown = forest(verdict).split("<li>")[1:3]
    assert ("hollow" in decides, "hollow" in only_shown) == (False, True)
    assert "decides nothing" in only_shown


def test_our_own_questions_are_not_counted_among_the_papers_claims():
    own = Verdict(claim="K4", outcome="supported", why="")
    ours = replace(own, claim="E4")
    assert headline([own, own, ours]) == "Of 2 claims 2 are supported. One question of our own: 1 is supported."


def test_every_outcome_of_the_verdict_rule_has_a_mark():
    assert set(MARKS) == set(get_args(Outcome))
