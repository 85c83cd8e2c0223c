"""The embedded digits."""

from antiphase.data import load


def test_train_and_test_share_no_image():
    assert not set(load("digits", "train").ids) & set(load("digits", "test").ids)


def test_the_digits_split_is_fixed():
    assert load("digits", "test").fingerprint == "ec0a9bcf2e01f08b"
