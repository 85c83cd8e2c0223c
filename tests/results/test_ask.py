"""A question is answered once, whoever asks; a damaged answer is named and computed again."""

import json
import shutil
from dataclasses import dataclass
from typing import ClassVar

import pytest

from antiphase.attacks import PGD, Linf
from antiphase.attacks.question import AttackQuestion
from antiphase.config import InputError
from antiphase.measures.questions import (
    AlignmentQuestion,
    CancellationQuestion,
    CorrelationQuestion,
    DepthQuestion,
    LipschitzQuestion,
    PredictionQuestion,
)
from antiphase.models.run import Run
from antiphase.results.ask import ask
from antiphase.results.questions import BranchPictureQuestion, LookQuestion
from antiphase.store import Question, read_entry
from antiphase.theory.question import AuditQuestion

ATTACK = PGD(within=Linf("16/255"), steps=3)
QUESTIONS = [
    PredictionQuestion(),
    AttackQuestion(attack=ATTACK),
    LipschitzQuestion(draws=2),
    AlignmentQuestion(probes=2),
    CancellationQuestion(perturbations=("sign", "fgsm")),
    DepthQuestion(perturbations=("sign",)),
    CorrelationQuestion(),
    AuditQuestion(probes=2, draws=2),
    LookQuestion(eps=(0.05,), probes=2),
    BranchPictureQuestion(attack=ATTACK, probes=2),
]


@pytest.fixture
def run(pair, tmp_path):
    shutil.copytree(pair[1].folder, tmp_path / "run", ignore=shutil.ignore_patterns("attacks", "measures", "looks"))
    return Run(str(tmp_path / "run"))


def stored(run):
    kinds = ("attacks", "measures", "looks", "pictures", "predictions")
    return {path for kind in kinds for path in (run.folder / kind).glob("*.json")}


@pytest.mark.parametrize("question", QUESTIONS, ids=lambda q: q.kind)
def test_every_question_is_answered_kept_with_a_digest_and_read_again(run, digits, question, monkeypatch):
    few = digits[1].subset(4)
    first = ask(run, few, question)
    assert stored(run) == {first.path}
    assert read_entry(first.path).digest == first.digest
    assert first.content["seed"] == question.seed
    assert question.work.forwards(4, 1) > 0
    monkeypatch.setattr(Run, "classifier_for", None)  # would fail if anything were computed
    assert ask(run, few, question) == first


@dataclass(frozen=True, kw_only=True)
class Colliding(Question):
    kind: ClassVar[str] = "colliding"
    folder: ClassVar[str] = "measures"
    images: int = 3


def test_what_cannot_be_answered_is_refused_before_anything_is_computed(run, digits):
    few = digits[1].subset(4)
    with pytest.raises(InputError, match="is no measure"):
        ask(run, few, Colliding())
    with pytest.raises(TypeError, match="may not have a field 'images'"):
        run.answer_on(Colliding(), few, lambda _: {})
    with pytest.raises(InputError, match="after smaller budgets"):
        ask(run, few, AttackQuestion(attack=ATTACK, after=({},)))
    assert not stored(run)


def test_a_command_and_a_study_share_one_answer(run, digits, cli):
    few = digits[1].subset(8)
    words = ("--measures", "lipschitz", "--draws", 2, "--images", 8, "--json")
    assert cli("measure", run.folder, *words)[0] == 0
    (kept,) = stored(run)
    assert ask(run, few, LipschitzQuestion(draws=2)).path == kept
    assert stored(run) == {kept}


def test_a_damaged_answer_is_named_and_computed_again(run, digits, capsys):
    few, question = digits[1].subset(4), AttackQuestion(attack=ATTACK)
    whole = ask(run, few, question)
    changed = whole.path.read_text().replace('"hits": ', '"hits": 1', 1)
    whole.path.write_text(changed)
    again = ask(run, few, question)
    assert f"{whole.path.name} is damaged" in " ".join(capsys.readouterr().err.split())
    assert again.content["images"] == whole.content["images"]
    assert again.content["rates"] == whole.content["rates"]
    assert read_entry(whole.path).digest == again.digest


def test_an_answer_of_the_layout_before_digests_is_read(run, digits):
    few, question = digits[1].subset(4), LipschitzQuestion(draws=2)
    entry = ask(run, few, question)
    entry.path.write_text(json.dumps(entry.content, indent=2))
    assert ask(run, few, question).content == entry.content
    assert "digest" not in json.loads(entry.path.read_text())  # it is left as it is
