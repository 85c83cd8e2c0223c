"""The model under attack and the images that most tests attack it with."""

import pytest


@pytest.fixture(scope="module")
def few(digits):
    return digits[1].subset(96).all


@pytest.fixture(scope="module")
def victim(pair):
    return pair[1].classifier()
