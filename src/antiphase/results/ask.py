"""One door to every question about a run on images: what a command asks and what a study asks is computed and kept once."""

from __future__ import annotations

import torch

from antiphase.attacks.question import AttackQuestion
from antiphase.config import InputError
from antiphase.data.imageset import ImageSet
from antiphase.evals.config import CorruptionQuestion
from antiphase.evals.corrupted import under_corruption
from antiphase.measures.questions import CertificateQuestion
from antiphase.models.run import Run
from antiphase.results.attack import attack_answers
from antiphase.results.branch_picture import branch_picture
from antiphase.results.certify import certificates
from antiphase.results.look import look
from antiphase.results.measure import measure
from antiphase.results.questions import BranchPictureQuestion, LookQuestion
from antiphase.results.theory import theory
from antiphase.store import Entry, Question
from antiphase.theory.question import AuditQuestion


def ask(
    run: Run, images: ImageSet, question: Question, *, base: Run | None = None, device: torch.device | str = "cpu"
) -> Entry:
    """The answer, read from the run's folder or computed and kept there. `base`: a softmax run, where the question takes one."""
    if isinstance(question, AttackQuestion):
        if question.after:
            raise InputError(
                "an attack after smaller budgets is asked for with them: call attack_answers with all of them"
            )
        names = ("protocol", "seed", "save", "eight_bit")
        settings = {name: getattr(question, name) for name in names}
        (answer,) = attack_answers(run, images, [question.attack], device=device, **settings)
        assert answer.entry is not None
        return answer.entry
    if isinstance(question, LookQuestion):
        return look(run, images, question, device=device)
    if isinstance(question, BranchPictureQuestion):
        return branch_picture(run, images, question, device=device)
    if isinstance(question, CertificateQuestion):
        return certificates(run, images, question, device=device)
    if isinstance(question, AuditQuestion):
        return theory(run, images, question, base=base, device=device)
    if isinstance(question, CorruptionQuestion):
        return under_corruption(run, images, question, device=device)
    return measure(run, images, question, base=base, device=device)
