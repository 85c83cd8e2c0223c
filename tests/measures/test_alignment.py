"""The readings of alignment and their controls."""

import numpy as np
import pytest

from antiphase.config import InputError
from antiphase.measures.alignment import READINGS, align, controls
from antiphase.measures.jacobians_forward import branch_alignment
from antiphase.models.vit import build


@pytest.mark.parametrize("reading", READINGS)
def test_every_reading_gives_raw_numbers_for_every_image_and_head(reading, pair, digits):
    few = digits[1].subset(4)
    (layer,) = align(pair[1].classifier(), few, reading, probes=4)
    heads = 1 if reading == "R2" else 2
    assert layer.n1.shape[:2] == (4, heads)
    assert (layer.n1 > 0).all()
    assert (np.abs(layer.cos) <= 1 + 1e-6).all()
    assert len(layer.rows(few.ids)) == 4 * heads
    assert {"n1", "n2", "ip", "lambda", "cos", "image", "head"} <= set(layer.rows(few.ids)[0])


def test_r1_is_taken_at_a_point_near_the_image_and_not_at_it(pair, digits):
    few, model = digits[1].subset(3), pair[1].classifier()
    (at_image,), (near,) = branch_alignment(model, few, probes=4), align(model, few, "R1", probes=4)
    assert not np.allclose(at_image.n1, near.n1, rtol=1e-3)
    (far,) = branch_alignment(model, few, probes=4, around=0.5)
    assert np.abs(far.n1 - at_image.n1).mean() > 2 * np.abs(near.n1 - at_image.n1).mean()


def test_the_class_row_is_a_part_of_the_whole(pair, digits):
    few, model = digits[1].subset(3), pair[1].classifier()
    (whole,), (row,) = align(model, few, "R1", probes=4), align(model, few, "R7", probes=4)
    assert (row.n1 < whole.n1).all()


@pytest.mark.parametrize(
    ("reading", "why"), [("D1", "rows of a softmax map always sum to one"), ("D2", "sign\\(lambda\\)")]
)
def test_degenerate_readings_are_detected_and_refused(reading, why, pair, digits):
    with pytest.raises(InputError, match=why):
        align(pair[1].classifier(), digits[1].subset(4), reading)


def test_controls_stand_beside_a_frequency(pair, digits):
    few = digits[1].subset(6)
    untrained = build(pair[1].config, shape=few.shape, classes=10, seed=0).eval()
    found = controls(pair[1].classifier(), few, "R3", untrained=untrained, softmax=pair[0].classifier())
    assert list(found) == ["untrained", "shuffled", "pseudo"]
    (own,) = align(pair[1].classifier(), few, "R3")
    (shuffled,) = found["shuffled"]
    assert np.array_equal(shuffled.n1, own.n1)
    assert np.allclose(shuffled.n2, own.n2[:, ::-1])
    assert not np.allclose(shuffled.ip, own.ip)
    assert found["pseudo"][0].lam == 0.8
    assert list(controls(pair[1].classifier(), few, "R3", softmax=pair[1].classifier())) == ["shuffled"]
