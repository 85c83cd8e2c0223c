"""Carlini and Wagner's attack."""

from antiphase.attacks import CW, engine
from antiphase.attacks.losses import margin
from tests.attacks.harness import Linear, near_grey


def test_confidence_is_the_margin_of_the_new_class():
    model, x = Linear(), near_grey(8)
    y = model(x).argmax(dim=1)
    near, far = (engine.run(model, x, y, CW(searches=3, initial_c=0.1, confidence=k)) for k in (0.0, 0.5))
    lead = -margin(model(far.adversarial), y)
    assert far.success.all()
    assert (lead >= 0.5).all()
    assert (lead < 0.8).all()
    assert (far.distance > near.distance).all()
