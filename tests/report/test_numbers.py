"""Numbers as text: shares in percent, differences of shares in points, anything else as measured."""

import pytest

from antiphase.report.numbers import interval_text, scaled, value_text


@pytest.mark.parametrize(
    ("unit", "value", "text", "interval"),
    [
        ("%", 0.12345, "12.3 %", "[10.0, 15.0]"),
        ("points", 0.12345, "+12.3 points", "[+10.0, +15.0]"),
        ("", 0.12345, "0.123", "[0.1, 0.15]"),
    ],
)
def test_only_shares_and_their_differences_are_multiplied_by_100(unit, value, text, interval):
    assert value_text(value, unit) == text
    assert interval_text((0.1, 0.15), unit) == interval
    assert scaled(value, unit) == pytest.approx(100 * value if unit else value)


def test_a_number_that_is_not_there_is_a_dash_and_a_word_stays_a_word():
    assert value_text(None, "%") == interval_text(None, "%") == "-"
    assert value_text("figure only", "%") == "figure only"
