"""Evidence of small models with known branches, shared by the tests of the audit."""

import re
from dataclasses import replace
from functools import cache

import numpy as np
import torch

from antiphase.data import load
from antiphase.models import Differential, Softmax, ViTConfig
from antiphase.models.vit import build
from antiphase.theory import table
from antiphase.theory.collect import collect

NAMES = [
    "Lemma 1",
    "cross term",
    "negative alignment",
    "Section 4.1, opposite gradients",
    "Theorem 1",
    "Theorem 2",
    "Theorem 3, pointwise",
    "Theorem 3, existence",
    "Equation 4",
    "Lemma 2, r -> 0",
    "Lemma 2, r = 8/255",
    "Lemma 2, its proof",
    "Equation 5",
    "Theorem 4",
    "cancellation and alignment",
    "Corollary 1",
    "Appendix B, radius",
    "Theorem 5",
    "gamma is constant",
    "row sums",
    "scale of A_DA",
    "lambda_init = 1",
]


FORMS = re.compile(
    r"identity holds to \d\.\de[-+]\d+|(holds|violated) on [\d.e-]+ % \(n = \d+\)|not evaluated: .+"
    r"|postulated; measured \w+ -?[\d.]+ \[-?[\d.]+, -?[\d.]+\] \(n = \d+\)"
)


def tiny(lam=None, *, second=None, sharp=5.0, gain=None, **kwargs):
    """An untrained float64 model on digits with maps far from uniform; `second` makes W2 = +W1 or -W1 in the scores."""
    attention = Softmax() if lam is None else Differential(lambda_init=lam, learned=False, **kwargs)
    config = ViTConfig(patch=2, width=16, heads=4, attention=(attention,), init="matched")
    model = build(config, shape=(1, 8, 8), classes=10, seed=0).double().eval()
    attn = model.model.blocks[0].attn
    with torch.no_grad():
        attn.qkv.weight[:32].mul_(sharp)
        if second is not None:
            q, k = (part.view(2, 2, 4, 16) for part in attn.qkv.weight[:32].view(2, 16, 16))
            q[:, 1], k[:, 1] = second * q[:, 0], k[:, 0]
    if gain is not None:
        attn.gain = gain
    return model


MODELS = {
    "plain": {"lam": 0.8},
    "opposed": {"lam": 0.5, "second": -1, "head_norm": "none"},
    "opposed, lambda < 0": {"lam": -0.5, "second": -1},
    "aligned, lambda = 2": {"lam": 2.0, "second": 1},
    "saturated": {"lam": 0.8, "sharp": 1000.0},
    "lambda = 0, closed": {"lam": 0.0, "gain": 0.0},
}


@cache
def evidence(name):
    images = load("digits", "test").subset(6)
    return collect(tiny(**MODELS[name]), tiny(), images, probes=8, draws=4, steps=4)


def verdicts(found):
    return {row.name: row.verdict.why for row in table.audit(found)}


def of_layer(found, **changes):
    """The evidence with entries of its layer replaced."""
    return replace(found, layers=[replace(found.layers[0], **changes)])


def at_clean(found, **changes):
    points = found.layers[0].points
    return of_layer(found, points={**points, "clean": replace(points["clean"], **changes)})


def operator_norms(found):
    """Lemma 1 with operator norms: ||J1||, ||J2||, ||J_DA|| as sigma_max, the angle as it is."""
    layer, p = found.layers[0], found.layers[0].points["clean"]
    cos = p.ip.sum(1) / np.sqrt(p.n1.sum(1) * p.n2.sum(1))
    first, second, both = (layer.op[k][:, None] for k in ("first", "second", "da"))
    squares = {"n1": first**2, "n2": second**2, "ip": cos[:, None] * first * second, "da": both**2}
    return at_clean(found, **squares, cos_se=p.cos_se[:, :1])
