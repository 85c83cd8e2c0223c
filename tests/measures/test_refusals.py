"""What cannot be measured is refused in a sentence, by every measure that takes perturbations."""

import numpy as np
import pytest
import torch
from torch import nn

from antiphase.config import InputError
from antiphase.data.imageset import Batch
from antiphase.measures.cancellation import cancellation
from antiphase.measures.correlation import correlation
from antiphase.measures.perturbations import perturbed
from antiphase.measures.residual_stream import block_sigma, propagation
from tests.models.encoder import Encoder

EPS = 8 / 255


def test_every_measure_reads_the_encoder_of_torch(digits):
    model, few = Encoder().eval(), digits[1].subset(3)
    assert len(cancellation(model, few, coupling="pseudo")) == 2 * 3 * 3  # layers, perturbations, levels
    assert len(correlation(model, few, coupling="pseudo", perturbations=("blur",))) == 2 * 2
    sigma = block_sigma(model, few)
    (found,) = propagation(model, few, perturbations=("sign",), sigma=sigma)
    assert found.gains.shape == sigma.shape == (3, 2)
    assert (found.slack > 0).all()


@pytest.mark.parametrize("measure", [cancellation, correlation])
def test_one_branch_where_two_are_needed_is_refused_with_the_remedy(measure, pair, digits):
    few = digits[1].subset(2)
    with pytest.raises(InputError, match=r'two branches.*coupling="pseudo"'):
        measure(pair[0].classifier(), few)
    model = pair[0].classifier().train()
    with pytest.raises(InputError) as kept:  # while the error is alive, too
        measure(model, few)
    assert kept
    assert model.training
    assert torch.is_grad_enabled()
    with pytest.raises(InputError, match=r'softmax layer.*coupling="branches"'):
        measure(pair[1].classifier(), few, coupling="pseudo")


@pytest.mark.parametrize("measure", [cancellation, correlation, propagation, block_sigma])
def test_broken_models_are_refused_in_a_sentence(measure, pair, digits):
    few, broken = digits[1].subset(2), pair[1].classifier()
    with pytest.raises(InputError, match="no attention layer"):
        measure(nn.Flatten(), few)
    with torch.no_grad():
        broken.model.blocks[0].attn.qkv.weight[0, 0] = torch.nan
    with pytest.raises(InputError, match="not finite"):
        measure(broken, few)


def test_bad_arguments_are_refused_in_a_sentence(pair, digits):
    model, few = pair[1].classifier(), digits[1].subset(2)
    for measure in (cancellation, correlation, propagation):
        with pytest.raises(InputError, match="'snow' is not known: it takes uniform"):
            measure(model, few, perturbations=("snow",))
        with pytest.raises(InputError, match="none at all"):
            measure(model, few, perturbations=())
        with pytest.raises(InputError, match="pixel range"):
            measure(model, few, perturbations=("sign",), eps=8)
    with pytest.raises(InputError, match="top=0"):
        correlation(model, few, top=0)
    with pytest.raises(InputError, match="sigma is for"):
        propagation(model, few, sigma=np.ones((3, 1)))
    two = Batch(torch.rand(2, 2, 8, 8), few.all.labels, few.ids)
    with pytest.raises(InputError, match="1 or 3 channels"):
        perturbed(model, two, "jpeg50", EPS)
