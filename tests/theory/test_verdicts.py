"""The forms of a verdict."""

from antiphase.theory.verdicts import holds, percent


def test_shares_are_never_rounded_to_none_or_all():
    assert [percent(v) for v in (0.0, 1.0, 0.5, 0.9999, 0.0001)] == ["0", "100", "50", "99.99", "0.01"]
    assert holds([True, True]).why == "holds on 100 % (n = 2)"
    assert holds([True, False]).why == "violated on 50 % (n = 2)"
    assert holds([True], [False], empty="nothing there").why == "not evaluated: nothing there"
