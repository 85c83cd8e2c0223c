"""Interventions change one thing about differential layers, exactly, and leave nothing behind."""

import pytest
import torch
import torch.nn.functional as F

from antiphase.attacks import PGD, Linf, engine
from antiphase.config import InputError
from antiphase.measures.lipschitz import l_sample
from antiphase.measures.success import predictions
from antiphase.models import Differential, DifferentialV2, Dint, GroupedDifferential, Softmax, ViTConfig
from antiphase.models.adapters import INTERVENTIONS, read
from antiphase.models.attention import project
from antiphase.models.fast_path import fast_path
from antiphase.models.interventions import intervene
from antiphase.models.taps import gated_layers, look, taps
from antiphase.models.vit import build
from tests.models.attention_layers import ours

LAYERS = ("model.blocks.0.attn", "model.blocks.1.attn")


def tiny(*attention):
    """A model of small images in float64 with maps that are far from uniform."""
    config = ViTConfig(patch=4, width=16, heads=4, depth=2, attention=attention or (Differential(),))
    model = build(config, shape=(1, 8, 8), classes=3, seed=3).double().eval()
    with torch.no_grad():
        for block in model.model.blocks:
            block.attn.qkv.weight.mul_(20)
    return model


@pytest.fixture(scope="module")
def model():
    return tiny()


@pytest.fixture(scope="module")
def x():
    return torch.rand(6, 1, 8, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(0))


@pytest.fixture
def tokens():
    return torch.randn(2, 5, 24, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


def tiny_layer():
    layer = ours(head_norm=False, gain=1.0)
    with torch.no_grad():
        layer.qkv.weight.mul_(3)
    return layer


def mixed_by_hand(layer, tokens, first, second, lam):
    """(A_first - lam A_second) V, projected, by torch's own attention"""
    q, k, v = project(layer, tokens)
    one, two = (F.scaled_dot_product_attention(q[:, :, i], k[:, :, i], v) for i in (first, second))
    return layer.proj((one - lam * two).transpose(1, 2).flatten(2))


def test_lambda_zero_is_softmax_attention_with_the_first_map(tokens):
    layer = tiny_layer()
    with intervene(layer, lam=0):
        torch.testing.assert_close(layer(tokens), mixed_by_hand(layer, tokens, 0, 1, 0.0))


def test_a_given_lambda_is_the_one_that_is_subtracted(tokens):
    layer = tiny_layer()
    with intervene(layer, lam=0.4), torch.no_grad():
        torch.testing.assert_close(layer(tokens), mixed_by_hand(layer, tokens, 0, 1, 0.4))
        assert read(layer, tokens).scalar_lambda == 0.4


def test_swapping_subtracts_the_first_map_from_the_second(tokens):
    layer = tiny_layer()
    lam = layer._compute_lambda()
    with intervene(layer, swap=True):
        torch.testing.assert_close(layer(tokens), mixed_by_hand(layer, tokens, 1, 0, lam))


def test_swapping_twice_is_no_change(model, x):
    plain = model(x)
    with intervene(model, swap=True):
        assert not torch.allclose(model(x), plain)
        with intervene(model, swap=True):
            assert torch.equal(model(x), plain)
        assert not torch.allclose(model(x), plain)


def test_queries_and_keys_are_swapped_with_their_maps(tokens):
    layer = tiny_layer()
    plain = read(layer, tokens)
    with intervene(layer, swap=True, heads=[1]):
        swapped = read(layer, tokens)
    assert torch.equal(swapped.heads.q[:, 1, 0], plain.heads.q[:, 1, 1])
    assert torch.equal(swapped.heads.q[:, 0], plain.heads.q[:, 0])
    assert torch.equal(swapped.heads.weights[1][1, 0], plain.heads.weights[1][1, 1])


@pytest.mark.parametrize("hold", ["A1", "A2"])
def test_holding_a_map_changes_nothing_at_the_clean_images(model, x, hold):
    plain = model(x)
    with intervene(model, hold=hold, clean=x):
        torch.testing.assert_close(model(x), plain, rtol=1e-12, atol=1e-12)
        torch.testing.assert_close(model(x[[4, 1]]), plain[[4, 1]], rtol=1e-12, atol=1e-12)  # any order, any batch


def test_a_held_map_has_no_derivative_by_the_pixels_and_the_other_map_keeps_its_own(model, x):
    moved = x[2:3] + 0.01

    def maps(pixels):
        first = look(model, pixels, LAYERS[:1])[LAYERS[0]]
        return torch.stack([first.signal, first.noise])

    free = torch.autograd.functional.jacobian(maps, moved)
    with intervene(model, hold="A2", clean=x):
        held = torch.autograd.functional.jacobian(maps, moved)
        kept = maps(moved)[1]
        forward = torch.func.jacfwd(maps)(moved)
    assert torch.equal(held[1], torch.zeros_like(held[1]))
    assert float(free[1].abs().max()) > 1e-3
    torch.testing.assert_close(held[0], free[0])
    torch.testing.assert_close(forward, held)
    torch.testing.assert_close(kept, maps(x[2:3])[1])


def test_with_a_held_map_the_output_moves_by_the_other_one_only():
    """The derivative is that of the same network written down with the clean map as a constant."""
    layer = tiny_layer()
    tokens = torch.randn(2, 5, 24, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    clean = read(layer, tokens)

    def by_hand(t):
        now = read(layer, t)
        return now.heads.project(now.heads.norm((now.signal - now.lam * clean.noise) @ now.values))

    moved = tokens + 0.05
    wanted = torch.autograd.functional.jacobian(by_hand, moved)
    with intervene(layer, hold="A2", clean=tokens):
        torch.testing.assert_close(torch.autograd.functional.jacobian(layer, moved), wanted)


def test_only_the_named_layers_and_heads_are_changed(model, x):
    with intervene(model, lam=0, layers=1, heads=[0]) as names, taps(model) as maps, torch.no_grad():
        model(x)
    assert names == LAYERS[1:]
    plain = float(model.get_submodule(LAYERS[0])._compute_lambda().detach())
    assert maps[LAYERS[0]].scalar_lambda == pytest.approx(plain)
    other = float(model.get_submodule(LAYERS[1])._compute_lambda().detach())
    assert maps[LAYERS[1]].lam.flatten().tolist() == pytest.approx([0.0, other])
    with intervene(model, lam=0, layers=LAYERS[0]) as names:
        assert names == LAYERS[:1]


def test_outside_every_bit_is_as_it_was_also_after_an_exception(model, x):
    plain = model(x)
    for settings in ({"lam": 0.0}, {"swap": True}, {"hold": "A1", "clean": x}):
        with intervene(model, **settings):
            assert not torch.equal(model(x + 0.01), plain)
        assert torch.equal(model(x), plain)
        with pytest.raises(ZeroDivisionError), intervene(model, **settings):
            raise ZeroDivisionError
        assert torch.equal(model(x), plain)
    assert not INTERVENTIONS
    assert not any(m._forward_pre_hooks or m._forward_hooks or "forward" in vars(m) for m in model.modules())


def test_the_fast_path_respects_an_intervention_in_either_order(x):
    model = tiny().float()
    x = x.float()
    with intervene(model, swap=True):
        wanted = model(x)
        with fast_path(model):
            torch.testing.assert_close(model(x), wanted)
        assert predictions(model, x).tolist() == wanted.argmax(dim=1).tolist()
    with fast_path(model), intervene(model, swap=True):
        torch.testing.assert_close(model(x), wanted)
    assert not torch.allclose(model(x), wanted, atol=1e-4)


def test_attacks_work_inside_whatever_the_batches(x):
    model = tiny().float()
    x, y = x.float(), torch.tensor([0, 1, 2, 0, 1, 2])
    attack = PGD(within=Linf("32/255"), steps=8, restarts=3)
    with intervene(model, hold="A2", clean=x):
        whole, single = (engine.run(model, x, y, attack, batch_size=size) for size in (6, 1))
        judged = model(whole.adversarial).argmax(dim=1)
    assert whole.success.tolist() == single.success.tolist()
    assert int(whole.success.sum()) > 0
    assert judged.tolist() == whole.adversarial_prediction.tolist()


def test_measures_of_maps_see_the_changed_maps(model, x):
    def largest(**settings):
        if not settings:
            return [layer.ratios for layer in l_sample(model, x, draws=2)]
        with intervene(model, **settings):
            return [layer.ratios for layer in l_sample(model, x, draws=2)]

    first = look(model, x, LAYERS[:1])[LAYERS[0]]
    with intervene(model, lam=0, layers=0):
        assert torch.equal(look(model, x, LAYERS[:1])[LAYERS[0]].combined, first.signal)
    alone, held = largest(lam=0, layers=0)[0], largest(hold="A2", clean=x, layers=0)[0]
    assert held == pytest.approx(alone, rel=1e-9)  # with A2 held, A1 - lambda A2 moves as A1 does
    assert largest()[0] != pytest.approx(alone, rel=1e-3)


REFUSED = {
    "none": ({}, "one intervention at a time.*none was given"),
    "two": ({"lam": 0, "swap": True}, "lam and swap were given"),
    "hold without images": ({"hold": "A2"}, "give them by clean="),
    "a map that is not there": ({"hold": "A3", "clean": torch.rand(1, 1, 8, 8)}, "hold='A3' is not known"),
    "clean images for nothing": ({"lam": 0, "clean": torch.rand(1, 1, 8, 8)}, "clean images are for hold"),
    "a layer number": ({"lam": 0, "layers": 2}, "no layer 2: this model has 2 attention layers"),
    "a layer name": ({"lam": 0, "layers": "blocks.7"}, "no attention layer 'blocks.7'"),
    "no layer": ({"lam": 0, "layers": []}, "layers is empty"),
    "no number": ({"lam": float("nan")}, "must be a finite number"),
    "rows": ({"hold": "A1", "clean": torch.rand(1, 1, 8, 8), "rows": "ids"}, "rows='ids' is not known"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_makes_no_sense_is_refused_in_a_sentence(model, case):
    settings, message = REFUSED[case]
    with pytest.raises(InputError, match=message), intervene(model, **settings):
        pass
    assert not INTERVENTIONS


def test_a_head_that_is_not_there_is_refused_when_the_layer_is_called(model, x):
    with pytest.raises(InputError, match="has 2 differential heads"), intervene(model, lam=0, heads=2):
        model(x)


def test_softmax_layers_have_nothing_to_change():
    with pytest.raises(InputError, match="has no differential layer"), intervene(tiny(Softmax()), lam=0):
        pass
    mixed = tiny(Softmax(), Differential())
    with intervene(mixed, lam=0) as names:
        assert names == LAYERS[1:]
    with pytest.raises(InputError, match="softmax layer with one map"), intervene(mixed, lam=0, layers=0):
        pass


def test_an_image_that_belongs_to_no_clean_image_is_refused(model, x):
    with intervene(model, hold="A2", clean=x[:3]):
        with pytest.raises(InputError, match="belongs to none"):
            model(x[3:])
        with pytest.raises(InputError, match="call it, not a part of it"):
            model.model.blocks[0].attn(torch.rand(3, 5, 16, dtype=torch.float64))
    with intervene(model, hold="A2", clean=x[:3], rows="position"):
        model(x[3:])
        with pytest.raises(InputError, match="must have the 3 clean images"):
            model(x)


@pytest.mark.parametrize(
    "attention", [DifferentialV2(), GroupedDifferential(ratio=2), Dint()], ids=lambda a: type(a).__name__
)
def test_every_kind_of_differential_layer_is_changed_as_its_equations_say(attention, x):
    """A number for lambda also ends what depends on lambda: the gate of V2, the mean that DINT adds."""
    model = tiny(attention)
    name = LAYERS[0]
    plain = look(model, x, (name,))[name]
    with intervene(model, lam=0.0):
        none = look(model, x, (name,))[name]
    torch.testing.assert_close(none.combined, plain.signal, rtol=0, atol=1e-12)
    with intervene(model, lam=0.3):
        some = look(model, x, (name,))[name]
        assert not gated_layers(model, x[:2])
    mean = plain.signal.mean(dim=-2, keepdim=True) if isinstance(attention, Dint) else 0.0
    torch.testing.assert_close(some.combined, plain.signal - 0.3 * plain.noise + 0.3 * mean, rtol=0, atol=1e-12)
    with intervene(model, swap=True):
        swapped = look(model, x, (name,))[name]
    mean = plain.noise.mean(dim=-2, keepdim=True) if isinstance(attention, Dint) else 0.0
    by_hand = plain.noise - plain.lam * plain.signal + plain.lam * mean
    torch.testing.assert_close(swapped.combined, by_hand, rtol=0, atol=1e-12)
