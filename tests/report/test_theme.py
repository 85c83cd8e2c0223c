"""The colours of models can be distinguished by every reader."""

import numpy as np
import pytest

from antiphase.report import theme


def luminance(colour):
    c = np.array([int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)])
    return np.where(c <= 0.04045, c / 12.92, ((c + 0.055) / 1.055) ** 2.4)


LUMA = np.array([0.2126, 0.7152, 0.0722])
BLINDNESS = {  # Machado, Oliveira and Fernandes 2009, complete
    "none": np.eye(3),
    "protanopia": np.array([[0.152, 1.053, -0.205], [0.115, 0.786, 0.099], [-0.004, -0.048, 1.052]]),
    "deuteranopia": np.array([[0.367, 0.861, -0.228], [0.280, 0.673, 0.047], [-0.012, 0.043, 0.969]]),
}


@pytest.mark.parametrize("kind", BLINDNESS)
@pytest.mark.parametrize(("colours", "ground"), [(theme.MODELS, "#ffffff"), (theme.MODELS_DARK, "#101419")])
def test_colours_of_models_differ_for_colour_blind_readers_and_contrast_with_the_page(colours, ground, kind):
    perceived = [np.clip(BLINDNESS[kind] @ luminance(c), 0, 1) ** (1 / 2.2) for c in colours]
    apart = min(np.linalg.norm(a - b) for i, a in enumerate(perceived[:2]) for b in perceived[:i])
    assert apart > 0.3  # the two of a comparison; more models also differ by mark and line
    back = luminance(ground) @ LUMA
    for colour in colours:
        light, dark = sorted((luminance(colour) @ LUMA, back), reverse=True)
        assert (light + 0.05) / (dark + 0.05) > 4.5
