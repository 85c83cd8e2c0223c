"""Two small models and what is asked of them: a study that takes seconds."""

from dataclasses import replace

from antiphase.attacks import PGD, Linf
from antiphase.attacks.question import AttackQuestion
from antiphase.measures.questions import PredictionQuestion
from antiphase.models.config import Differential, ViTConfig
from antiphase.paper.ledger import Ledger
from antiphase.paper.questions import Ask, Images, Train
from antiphase.training.config import TrainConfig

TRAIN = Train(
    model=ViTConfig(patch=2, width=32, heads=2), training=TrainConfig(epochs=1, lr=1e-3), data="digits", images=200
)
TWIN = replace(TRAIN, model=replace(TRAIN.model, attention=(Differential(lambda_init=0.8),)))
IMAGES = Images(data="digits", n=32)
ATTACK = AttackQuestion(attack=PGD(within=Linf("8/255"), steps=5, restarts=2), protocol="paper")
CELLS = [Ask(of=of, images=IMAGES, question=q) for q in (PredictionQuestion(), ATTACK) for of in (TRAIN, TWIN)]


def answers(ledger: Ledger) -> dict:
    """What the rows say, but for when and where they were computed."""
    timed = ("provenance", "kept", "seconds")
    rows = {row["key"]: {name: row[name] for name in row if name not in timed} for row in ledger.readable()}
    assert not ledger.damaged()
    return rows
