"""The ways in which people call the interface wrongly: each works, or is refused in one sentence; none ends in anything else."""

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import antiphase as ap
from antiphase.config import InputError

N, CLASSES = 4, 5
SMOOTHING = ap.CertificateQuestion(sigma=0.25, samples=20)
LINF = ap.PGD(within=ap.Linf("8/255"), steps=2)


class Tiny(nn.Module):
    """Eight lines of a model: (B, 3, 8, 8) -> (B, 5)"""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.head = nn.Linear(192, CLASSES)

    def forward(self, x):
        return self.head(x.flatten(1))


MODEL = Tiny().eval()
X, Y = torch.rand(N, 3, 8, 8, generator=torch.Generator().manual_seed(1)), torch.arange(N)
IMAGES = ap.ImageSet.of_tensors(X, Y, [f"class {i}" for i in range(CLASSES)])


def wrapped(answer):
    class Wrapped(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = MODEL

        def forward(self, x):
            return answer(x)

    return Wrapped().eval()


def beside(model):
    """A model whose logits change with the images beside it."""
    return lambda x: model(x) - model(x).mean(dim=0)


def returning(change):
    """An attack of one's own that returns its images changed."""
    return lambda _, x, __: change(x)


SQUARE = ap.Square(within=ap.Linf("8/255"), queries=2)
LINFS = [ap.PGD(within=ap.Linf(e), steps=2) for e in (0.05, 0.1)]
VIT = ap.ViTConfig(width=32, heads=2, patch=4, attention=(ap.Differential(),))
DIFFVIT = ap.build(VIT, shape=(3, 8, 8), classes=CLASSES).eval()
WORKS = {
    "an image set of NumPy arrays": lambda: ap.accuracy(MODEL, ap.ImageSet.of_tensors(X.numpy(), Y.numpy())),
    "NumPy numbers in a config": lambda: ap.PGD(within=ap.Linf(np.float32(0.1)), steps=np.int64(3)),
    "labels as int32": lambda: ap.attack(MODEL, X, Y.int(), LINF),
    "labels as uint8": lambda: ap.attack(MODEL, X, Y.byte(), LINF),
    "labels as a list": lambda: ap.attack(MODEL, X, [0, 1, 2, 3], LINF),
    "labels as NumPy int32": lambda: ap.attack(MODEL, X, Y.numpy().astype(np.int32), LINF),
    "images as NumPy float32": lambda: ap.attack(MODEL, X.numpy(), Y.numpy(), LINF),
    "images as NumPy float64": lambda: ap.attack(MODEL, X.numpy().astype(np.float64), Y, LINF),
    "NumPy with negative strides": lambda: ap.attack(MODEL, X.numpy()[:, :, ::-1], Y, LINF),
    "images that want a gradient": lambda: ap.attack(MODEL, X.clone().requires_grad_(), Y, LINF),
    "a tuple of NumPy arrays": lambda: ap.attack(MODEL, (X.numpy(), Y.numpy()), LINF),
    "a plain function": lambda: ap.attack(lambda x: MODEL(x), X, Y, LINF),
    "a function that returns a dict": lambda: ap.attack(lambda x: {"logits": MODEL(x)}, X, Y, LINF),
    "a wrapped tuple": lambda: ap.attack(ap.as_classifier(wrapped(lambda x: (MODEL(x), 1)), "none"), X, Y, LINF),
    "a model in train mode without dropout": lambda: ap.attack(Tiny().train(), X, Y, LINF),
    "a sweep in any order": lambda: ap.sweep(MODEL, X, Y, [ap.fgsm(ap.Linf(0.1)), ap.fgsm(ap.Linf(0.05))]),
    "a sweep as a tuple": lambda: ap.sweep(MODEL, X.numpy(), Y.int(), (LINF,)),
    "accuracy of NumPy arrays": lambda: ap.accuracy(MODEL, (X.numpy(), Y.numpy().astype(np.int32))),
    "accuracy of a function": lambda: ap.accuracy(lambda x: MODEL(x), IMAGES),
    "certificates at the default noise": lambda: ap.certificates(MODEL, IMAGES),
    "certificates of a function": lambda: ap.certificates(lambda x: MODEL(x), IMAGES, SMOOTHING),
    "certificates of NumPy arrays": lambda: ap.certificates(MODEL, (X.numpy(), Y.numpy()), SMOOTHING),
    "another seed": lambda: ap.attack(MODEL, X, Y, LINF, seed=3),
    "an attack of one's own": lambda: ap.attack(MODEL, X, Y, lambda _, x, __: x, within=ap.Linf(0.1)),
    "one image": lambda: ap.attack(MODEL, X[:1], Y[:1], LINF),
    "a budget of 0": lambda: ap.attack(MODEL, X, Y, ap.PGD(within=ap.Linf(0))),
    "non-contiguous images": lambda: ap.attack(MODEL, X.transpose(2, 3), Y, LINF),
    "images of the other byte order": lambda: ap.attack(MODEL, X.numpy().astype(">f4"), Y, LINF),
    "images in long double": lambda: ap.attack(MODEL, X.numpy().astype(np.longdouble), Y, LINF),
    "ids as a tensor": lambda: ap.attack(MODEL, X, Y, LINF, ids=torch.arange(N) + 7),
    "an attack of one's own in float64": lambda: ap.attack(MODEL, X, Y, returning(torch.Tensor.double)),
    "a sweep of steps that grow with the budget": lambda: ap.sweep(
        MODEL, X, Y, [ap.PGD(within=ap.L2(e), steps=2, step_size=e) for e in (0.1, 0.2)]
    ),
    "a folder as a path": lambda: ap.Run(Path("runs/vit")),
    "images at positions in a list": lambda: IMAGES.take([3, 0]),
    "transfer of functions": lambda: ap.transfer([lambda x: MODEL(x), MODEL], IMAGES, LINF),
    "a float64 model": lambda: ap.attack(Tiny().double().eval(), X.double(), Y, LINF),
}
REFUSED = {
    "bytes": (lambda: ap.attack(MODEL, (255 * X).byte(), Y, LINF), "uint8"),
    "NumPy bytes": (lambda: ap.attack(MODEL, (255 * X).byte().numpy(), Y, LINF), "uint8"),
    "pixels up to 255": (lambda: ap.attack(MODEL, 255 * X, Y, LINF), r"expected \[0,1\]"),
    "normalised pixels": (lambda: ap.attack(MODEL, 2 * X - 1, Y, LINF), r"expected \[0,1\]"),
    "NaN pixels": (lambda: ap.attack(MODEL, X * float("nan"), Y, LINF), "nan"),
    "one image without a batch": (lambda: ap.attack(MODEL, X[0], Y[:1], LINF), "shape"),
    "channels last": (lambda: ap.attack(MODEL, X[:, :, :7].permute(0, 2, 3, 1), Y, LINF), "cannot be called"),
    "no images": (lambda: ap.attack(MODEL, X[:0], Y[:0], LINF), "n at least 1"),
    "a list of tensors": (lambda: ap.attack(MODEL, list(X), Y, LINF), "images are an ImageSet, a tensor"),
    "a PIL-like object": (lambda: ap.attack(MODEL, object(), Y, LINF), "images are an ImageSet, a tensor"),
    "images as text": (lambda: ap.attack(MODEL, "cifar10", Y, LINF), "images are an ImageSet, a tensor"),
    "NumPy objects": (lambda: ap.attack(MODEL, np.array([None] * 4), Y, LINF), "images are an ImageSet"),
    "half pixels": (lambda: ap.attack(MODEL, X.half(), Y, LINF), "float16"),
    "bfloat16 pixels": (lambda: ap.attack(MODEL, X.bfloat16(), Y, LINF), "bfloat16"),
    "a half model": (lambda: ap.attack(Tiny().half().eval(), X, Y, LINF), "float16"),
    "float64 images for a float32 model": (lambda: ap.attack(MODEL, X.double(), Y, LINF), "cannot be called"),
    "labels as floats": (lambda: ap.attack(MODEL, X, Y.float(), LINF), "whole numbers"),
    "labels as booleans": (lambda: ap.attack(MODEL, X, Y > 1, LINF), "whole numbers"),
    "one-hot labels": (lambda: ap.attack(MODEL, X, torch.eye(N).long(), LINF), "labels have shape"),
    "labels as strings": (lambda: ap.attack(MODEL, X, ["cat"] * N, LINF), "whole numbers"),
    "one label": (lambda: ap.attack(MODEL, X, 3, LINF), "whole numbers"),
    "too few labels": (lambda: ap.attack(MODEL, X, Y[:2], LINF), "labels have shape"),
    "labels from 1": (lambda: ap.attack(MODEL, X, Y + 2, LINF), "out of range"),
    "negative labels": (lambda: ap.attack(MODEL, X, Y - 1, LINF), "out of range"),
    "no labels": (lambda: ap.attack(MODEL, X, LINF), "need their labels"),
    "labels twice": (lambda: ap.attack(MODEL, IMAGES, Y, LINF), "brings its labels"),
    "a tuple of three": (lambda: ap.attack(MODEL, (X, Y, Y), LINF), "3 parts"),
    "no attack": (lambda: ap.attack(MODEL, X, Y), "need their labels"),
    "an attack by name": (lambda: ap.attack(MODEL, X, Y, "pgd"), "attack"),
    "an attack class": (lambda: ap.attack(MODEL, X, Y, ap.PGD), "the class PGD is no attack"),
    "None as the attack": (lambda: ap.attack(MODEL, X, Y, None), "NoneType is no attack"),
    "a threat model as the attack": (lambda: ap.attack(MODEL, X, Y, ap.Linf(0.1)), "Linf is no attack"),
    "a list of attacks": (lambda: ap.attack(MODEL, X, Y, [LINF]), "takes one attack"),
    "a sweep of one": (lambda: ap.sweep(MODEL, X, Y, LINF), "takes a list"),
    "a sweep of none": (lambda: ap.sweep(MODEL, X, Y, []), "empty list"),
    "a sweep of budgets": (lambda: ap.sweep(MODEL, X, Y, [0.1, 0.2]), "takes attacks such as"),
    "a sweep of text": (lambda: ap.sweep(MODEL, X, Y, "pgd"), "takes a list"),
    "an unknown setting": (lambda: ap.attack(MODEL, X, Y, LINF, batchsize=2), "'batchsize' is no argument"),
    "a batch of none": (lambda: ap.attack(MODEL, X, Y, LINF, batch_size=0), "batch_size=0"),
    "a batch of text": (lambda: ap.attack(MODEL, X, Y, LINF, batch_size="all"), "whole number"),
    "a seed of text": (lambda: ap.attack(MODEL, X, Y, LINF, seed="a"), "whole number"),
    "an unknown protocol": (
        lambda: ap.attack(MODEL, X, Y, LINF, protocol="slow"),
        "protocol='slow' must be one of fast, paper",
    ),
    "an unknown way to compile": (lambda: ap.attack(MODEL, X, Y, LINF, compile=True), "compile=True must be one of"),
    "a model class": (lambda: ap.attack(Tiny, X, Y, LINF), "the class Tiny is no model"),
    "None as the model": (lambda: ap.attack(None, X, Y, LINF), "no model"),
    "weights as the model": (lambda: ap.attack(MODEL.state_dict(), X, Y, LINF), "no model"),
    "a path as the model": (lambda: ap.attack("my_vit.pth", X, Y, LINF), "no model"),
    "a model of features": (lambda: ap.attack(nn.Flatten(2), X, Y, LINF), "expected"),
    "a model that returns a tuple": (lambda: ap.attack(wrapped(lambda x: (MODEL(x),)), X, Y, LINF), "as_classifier"),
    "a model that returns a dict": (
        lambda: ap.attack(wrapped(lambda x: {"logits": MODEL(x)}), X, Y, LINF),
        "as_classifier",
    ),
    "a model that returns None": (lambda: ap.attack(wrapped(lambda _: None), X, Y, LINF), "NoneType"),
    "a model of classes": (lambda: ap.attack(wrapped(lambda x: MODEL(x).argmax(1)), X, Y, LINF), "expected"),
    "a model that fails": (lambda: ap.attack(wrapped(lambda x: 1 / 0 * x), X, Y, LINF), "ZeroDivisionError"),
    "a model for other sizes": (lambda: ap.attack(MODEL, torch.rand(2, 3, 9, 9), Y[:2], LINF), "cannot be called"),
    "a model for other channels": (lambda: ap.attack(MODEL, X[:, :1], Y, LINF), "cannot be called"),
    "a budget of 8": (lambda: ap.attack(MODEL, X, Y, ap.PGD(within=ap.Linf(8))), "8/255"),
    "a budget in words": (lambda: ap.attack(MODEL, X, Y, ap.PGD(within=ap.Linf("small"))), "not a budget"),
    "no steps": (lambda: ap.attack(MODEL, X, Y, ap.PGD(within=ap.Linf(0.1), steps=0)), "steps=0"),
    "a patch too wide": (lambda: ap.attack(MODEL, X, Y, ap.PGD(within=ap.Patch(1.0, width=9))), "9 x 9"),
    "accuracy of bytes": (lambda: ap.accuracy(MODEL, ((255 * X).byte(), Y)), "uint8"),
    "accuracy of normalised pixels": (lambda: ap.accuracy(MODEL, (2 * X - 1, Y)), r"expected \[0,1\]"),
    "accuracy without labels": (lambda: ap.accuracy(MODEL, X), "needs labels"),
    "accuracy of a model of fewer classes": (
        lambda: ap.accuracy(lambda x: MODEL(x)[:, :2], (X, torch.full_like(Y, 2))),
        "label 2 is out of range",
    ),
    "accuracy of NaN": (lambda: ap.accuracy(lambda x: MODEL(x) / 0 * 0, (X, Y)), "NaN for"),
    "accuracy in batches of none": (
        lambda: ap.accuracy(MODEL, (X, Y), batch_size=0),
        "batch_size=0 must be at least 1",
    ),
    "accuracy in half batches": (lambda: ap.accuracy(MODEL, (X, Y), batch_size=2.5), "must be a whole number"),
    "a sample with a seed of letters": (lambda: ap.l_sample(DIFFVIT, IMAGES, draws=1, seed="x"), "seed='x'"),
    "alignment with half a seed": (lambda: ap.branch_alignment(DIFFVIT, IMAGES, seed=1.5), "seed=1.5"),
    "an image twice": (lambda: ap.attack(MODEL, IMAGES.take(np.array([0, 0, 1])), LINF), "is there twice"),
    "a journal in a folder": (lambda: ap.attack(MODEL, X, Y, LINF, journal="/tmp"), "is no file that a journal"),
    "more steps than there are numbers": (lambda: ap.PGD(within=ap.Linf("1/255"), steps=10**20), r"at most 2\*\*53"),
    "a floor in percent": (lambda: ap.compare("a", "b", accuracy_floor=40.0), "between 0 and 1"),
    "accuracy of a list": (lambda: ap.accuracy(MODEL, [X, Y]), "images are an ImageSet"),
    "accuracy of three": (lambda: ap.accuracy(MODEL, (X, Y, Y)), "3 parts"),
    "accuracy with float labels": (lambda: ap.accuracy(MODEL, (X, Y.float())), "whole numbers"),
    "accuracy with few labels": (lambda: ap.accuracy(MODEL, (X, Y[:1])), "one label per image"),
    "accuracy of a class": (lambda: ap.accuracy(Tiny, IMAGES), "no model"),
    "accuracy of a tuple": (lambda: ap.accuracy(wrapped(lambda x: (MODEL(x),)), IMAGES), "as_classifier"),
    "accuracy of another size": (lambda: ap.accuracy(MODEL, (torch.rand(2, 3, 4, 4), Y[:2])), "cannot be called"),
    "accuracy with an unknown setting": (lambda: ap.accuracy(MODEL, IMAGES, batch=3), "'batch' is no argument"),
    "Lipschitz without attention": (lambda: ap.l_sample(MODEL, IMAGES, draws=2), "no attention layer"),
    "Lipschitz of None": (lambda: ap.l_sample(None, IMAGES), "no model"),
    "alignment without attention": (lambda: ap.branch_alignment(MODEL, IMAGES, probes=2), "no attention layer"),
    "alignment by an unknown reading": (lambda: ap.branch_alignment(MODEL, IMAGES, "R99"), "R99|no attention"),
    "certificates at a number": (lambda: ap.certificates(MODEL, IMAGES, 0.25), "CertificateQuestion"),
    "certificates at no noise": (lambda: ap.certificates(MODEL, IMAGES, ap.CertificateQuestion(sigma=0.0)), "sigma=0"),
    "certificates in batches of none": (
        lambda: ap.certificates(MODEL, IMAGES, SMOOTHING, batch_size=0),
        "batch_size=0",
    ),
    "certificates of a class": (lambda: ap.certificates(Tiny, IMAGES, SMOOTHING), "no model"),
    "certificates of bytes": (lambda: ap.certificates(MODEL, ((255 * X).byte(), Y), SMOOTHING), "uint8"),
    "certificates with an unknown setting": (
        lambda: ap.certificates(MODEL, IMAGES, SMOOTHING, sigma=1),
        "'sigma' is no",
    ),
    "certifying no run": (lambda: ap.certify("nowhere"), "there is no folder nowhere"),
    "certifying with an unknown flag": (lambda: ap.certify("nowhere", noise=1), "'noise' is no argument"),
    "certifying with text as noise": (lambda: ap.certify("nowhere", sigma="loud"), "sigma"),
    "an audit without images": (lambda: ap.audit(MODEL, preprocessing="none"), "on images that are given"),
    "an audit of None": (lambda: ap.audit(None, IMAGES, preprocessing="none"), "no model"),
    "an audit without preprocessing": (lambda: ap.audit(MODEL, IMAGES), "preprocessing"),
    "an audit in train mode": (
        lambda: ap.audit(nn.Sequential(Tiny()).train(), IMAGES, preprocessing="none"),
        "train mode",
    ),
    "an audit of bytes": (lambda: ap.audit(MODEL, ((255 * X).byte(), Y), preprocessing="none"), "uint8"),
    "an audit of an unknown model": (lambda: ap.audit("resnet9000", IMAGES), "no file or folder"),
    "an audit with an unknown setting": (lambda: ap.audit(MODEL, IMAGES, quikc=True), "'quikc' is no argument"),
    "a classifier of a number": (lambda: ap.as_classifier(3), "is no model"),
    "an unknown preprocessing": (lambda: ap.as_classifier(MODEL, "imgnet"), "'imgnet' is not known"),
    "ids twice": (lambda: ap.attack(MODEL, X, Y, LINF, ids=[1, 1, 2, 3]), "no two the same"),
    "a seed with a fraction": (lambda: ap.attack(MODEL, X, Y, LINF, seed=1.5), "whole number"),
    "a batch with a fraction": (lambda: ap.attack(MODEL, X, Y, LINF, batch_size=2.5), "whole number"),
    "a device that is none": (lambda: ap.accuracy(MODEL, IMAGES, device="gpu"), "not available"),
    "a list of budgets": (lambda: ap.Linf([0.1, 0.2]), "not a budget"),
    "no budget": (lambda: ap.Linf(None), "not a budget"),
    "a budget below 0": (lambda: ap.Linf(-0.1), "finite number"),
    "a budget that is no number": (lambda: ap.L2(float("nan")), "finite number"),
    "a patch without width": (lambda: ap.Patch(1.0, width=0), "at least 1"),
    "a patch of 2.5 pixels": (lambda: ap.Patch(1.0, width=2.5), "width=2.5 must be a whole number"),
    "2.5 steps": (lambda: ap.PGD(within=ap.Linf(0.1), steps=2.5), "steps=2.5 must be a whole number"),
    "steps in words": (lambda: ap.PGD(within=ap.Linf(0.1), steps="many"), "must be a whole number"),
    "steps that are true": (lambda: ap.PGD(within=ap.Linf(0.1), steps=True), "must be a whole number"),
    "no restarts": (lambda: ap.PGD(within=ap.Linf(0.1), restarts=0), "restarts=0"),
    "a number as the threat model": (lambda: ap.PGD(within=0.1), "within=0.1 must be"),
    "no threat model": (lambda: ap.PGD(within=None), "within=None must be"),
    "a step backwards": (lambda: ap.PGD(within=ap.Linf(0.1), step_size=-1), "step_size=-1"),
    "an unknown loss": (lambda: ap.PGD(within=ap.Linf(0.1), loss="foo"), "foo"),
    "an unknown AutoAttack": (lambda: ap.AutoAttack(within=ap.Linf(0.1), version="best"), "one of"),
    "CW with searches of text": (lambda: ap.CW(searches="9"), "whole number"),
    "FMN without steps": (lambda: ap.FMN(steps=0), "steps=0"),
    "heads that do not divide": (lambda: ap.ViTConfig(width=32, heads=5), "does not divide"),
    "no width": (lambda: ap.ViTConfig(width=0), "width=0"),
    "a depth in words": (lambda: ap.ViTConfig(depth="two"), "whole number"),
    "a depth that is true": (lambda: ap.ViTConfig(depth=True), "whole number"),
    "attention by name": (lambda: ap.ViTConfig(attention="differential"), "attention='differential' must be"),
    "attention as a list": (lambda: ap.ViTConfig(attention=[ap.Softmax()]), "must be a tuple"),
    "lambda in words": (lambda: ap.Differential(lambda_init="x"), "lambda_init='x' must be"),
    "lambda that is no number": (lambda: ap.Differential(lambda_init=float("nan")), "finite"),
    "an unknown head norm": (lambda: ap.Differential(head_norm="layer"), "one of"),
    "no classes": (lambda: ap.build(VIT, shape=(3, 8, 8), classes=0), "classes=0"),
    "a shape of two": (lambda: ap.build(VIT, shape=(8, 8), classes=5), "shape="),
    "a patch that does not tile": (lambda: ap.build(VIT, shape=(3, 9, 9), classes=5), "does not tile"),
    "an image set of bytes": (lambda: ap.ImageSet.of_tensors((255 * X).byte(), Y), "uint8"),
    "an image set with few labels": (lambda: ap.ImageSet.of_tensors(X, Y[:2]), "one label per image"),
    "an image set with few names": (lambda: ap.ImageSet.of_tensors(X, Y, ["a", "b"]), "out of range"),
    "an unknown data set": (lambda: ap.load("cifra10", "test"), "did you mean 'cifar10'"),
    "an unknown split": (lambda: ap.load("digits", "testing"), "testing"),
    "no epochs": (lambda: ap.TrainConfig(epochs=0), "epochs=0"),
    "a learning rate in words": (lambda: ap.TrainConfig(lr="fast"), "lr='fast' must be a number"),
    "an unknown schedule": (lambda: ap.TrainConfig(schedule="cosin"), "one of"),
    "no draws": (lambda: ap.l_sample(DIFFVIT, IMAGES, draws=0), "draws=0"),
    "one probe": (lambda: ap.branch_alignment(DIFFVIT, IMAGES, probes=1), "at least 2"),
    "an unknown reading of a DiffViT": (lambda: ap.branch_alignment(DIFFVIT, IMAGES, "R99"), "R99"),
    "an intervention in words": (lambda: ap.intervene(DIFFVIT, lam="x").__enter__(), "lam='x'"),
    "no intervention": (lambda: ap.intervene(DIFFVIT).__enter__(), "one intervention"),
    "an intervention in a layer too many": (lambda: ap.intervene(DIFFVIT, lam=0, layers=[7]).__enter__(), "no layer 7"),
    "an intervention without attention": (lambda: ap.intervene(MODEL, lam=0).__enter__(), "no attention layer"),
    "nothing to differentiate": (lambda: ap.differentiate(MODEL), "no attention layer"),
    "differentiate None": (lambda: ap.differentiate(None), "torch.nn.Module"),
    "a report of nowhere": (lambda: ap.report("nowhere"), "nothing to report"),
    "theory of nowhere": (lambda: ap.theory("nowhere"), "there is no folder"),
    "a measure of nowhere": (lambda: ap.measure("nowhere"), "there is no folder"),
    "a Run of nowhere": (lambda: ap.attack(ap.Run("nowhere"), IMAGES, LINF), "there is no folder"),
    "a sweep over two norms": (
        lambda: ap.sweep(MODEL, X, Y, [ap.PGD(within=ap.Linf(0.05)), ap.PGD(within=ap.L2(0.06))]),
        "PGD L2 0.06 differs from PGD Linf .* in more than eps",
    ),
    "a sweep over two widths": (
        lambda: ap.sweep(MODEL, X, Y, [ap.PGD(within=ap.Patch(1.0, width=w)) for w in (8, 1)]),
        "one attack at several budgets",
    ),
    "a sweep over two aims": (
        lambda: ap.sweep(MODEL, X, Y, [LINF, ap.PGD(within=ap.Linf("9/255"), steps=2, target=1)]),
        "one attack at several budgets",
    ),
    "a sweep over two attacks": (lambda: ap.sweep(MODEL, X, Y, [LINF, SQUARE]), "one attack at several budgets"),
    "a sweep over two numbers of steps": (
        lambda: ap.sweep(MODEL, X, Y, [LINF, ap.PGD(within=ap.Linf("9/255"))], protocol="bisect"),
        "one attack at several budgets",
    ),
    "a sweep without a budget": (lambda: ap.sweep(MODEL, X, Y, [ap.FMN(steps=2)]), "FMN has no budget"),
    "clean predictions of other images": (
        lambda: ap.attack(MODEL, X, Y, LINF, clean_predictions=ap.attack(MODEL, 1 - X, Y, LINF).clean),
        "'clean_predictions' is no argument",
    ),
    "clean predictions in a sweep": (lambda: ap.sweep(MODEL, X, Y, [LINF], clean_predictions="x"), "is no argument"),
    "ids twice in a tensor": (lambda: ap.attack(MODEL, X, Y, LINF, ids=torch.tensor([1] * N)), "no two the same"),
    "ids twice in an array": (lambda: ap.attack(MODEL, X, Y, LINF, ids=np.array([1] * N)), "no two the same"),
    "ids of fewer images": (lambda: ap.attack(MODEL, X, Y, LINF, ids=[0, 1]), "4 whole numbers"),
    "ids of no size": (lambda: ap.attack(MODEL, X, Y, LINF, ids=[0, 1, 2, 2**70]), r"up to 2\*\*53"),
    "ids in halves": (lambda: ap.attack(MODEL, X, Y, LINF, ids=torch.arange(N) / 2), "whole numbers"),
    "one id": (lambda: ap.attack(MODEL, X, Y, LINF, ids=3), "4 whole numbers"),
    "ids of different lengths": (lambda: ap.attack(MODEL, X, Y, LINF, ids=[[1], [2, 3]]), "4 whole numbers"),
    "eight bits in words": (lambda: ap.attack(MODEL, X, Y, LINF, eight_bit="no"), "eight_bit='no' must be true"),
    "a journal that is a number": (lambda: ap.attack(MODEL, X, Y, LINF, journal=3), "journal=3 must be a path"),
    "a number as the label of progress": (lambda: ap.attack(MODEL, X, Y, LINF, label=3), "label=3 must be a text"),
    "a second threat model": (
        lambda: ap.attack(MODEL, X, Y, LINF, within=ap.Linf(0.1)),
        "within=Linf 25.5/255 is for an attack of your own: PGD",
    ),
    "a threat model of a sweep": (lambda: ap.sweep(MODEL, X, Y, [LINF], within=ap.L2(0.1)), "of your own"),
    "a number as the threat model of a function": (
        lambda: ap.attack(MODEL, X, Y, returning(torch.clone), within=0.1),
        "within=0.1 must be Linf or L2 or Patch",
    ),
    "an attack that returns None": (lambda: ap.attack(MODEL, X, Y, lambda *_: None), "returned a NoneType"),
    "an attack that returns an array": (lambda: ap.attack(MODEL, X, Y, returning(torch.Tensor.numpy)), "a ndarray"),
    "an attack that returns a tuple": (lambda: ap.attack(MODEL, X, Y, returning(lambda x: (x, 1))), "a tuple"),
    "an attack that returns one image": (
        lambda: ap.attack(MODEL, X, Y, returning(lambda x: x[0])),
        r"shape \(3, 8, 8\) .* for images of shape \(4, 3, 8, 8\)",
    ),
    "an attack that returns bytes": (lambda: ap.attack(MODEL, X, Y, returning(torch.Tensor.byte)), "uint8"),
    "images without values": (lambda: ap.attack(MODEL, X.to("meta"), Y, LINF), "without values"),
    "sparse images": (lambda: ap.attack(MODEL, X.to_sparse(), Y, LINF), "sparse"),
    "labels without values": (lambda: ap.attack(MODEL, X, Y.to("meta"), LINF), "labels are a tensor that is without"),
    "images of no pixels": (lambda: ap.attack(MODEL, X[:, :, :0, :0], Y, LINF), r"shape \(4, 3, 0, 0\)"),
    "an image set of no pixels": (lambda: ap.ImageSet.of_tensors(X[:, :, :0, :0]), r"shape \(4, 3, 0, 0\)"),
    "a label of no size": (lambda: ap.attack(MODEL, X, [0, 1, 2, 2**70], LINF), "labels are classes"),
    "a model without values": (lambda: ap.attack(Tiny().to("meta").eval(), X, Y, LINF), "meta"),
    "accuracy of a model without values": (lambda: ap.accuracy(Tiny().to("meta").eval(), IMAGES), "meta"),
    "a model of no classes": (lambda: ap.attack(wrapped(lambda x: MODEL(x)[:, :0]), X, Y, LINF), r"shape \(4, 0\)"),
    "complex logits": (lambda: ap.attack(wrapped(lambda x: MODEL(x) * 1j), X, Y, SQUARE), "complex64: expected floats"),
    "whole numbers as logits": (lambda: ap.attack(wrapped(lambda x: MODEL(x).long()), X, Y, SQUARE), "int64: expected"),
    "yes and no as logits": (lambda: ap.attack(wrapped(lambda x: MODEL(x) > 0), X, Y, SQUARE), "bool: expected"),
    "accuracy of a model that looks at the batch": (lambda: ap.accuracy(beside(MODEL), IMAGES), "images beside it"),
    "accuracy of one image by a batch": (lambda: ap.accuracy(beside(MODEL), (X[:1], Y[:1])), "images beside it"),
    "accuracy of a model that counts its images": (
        lambda: ap.accuracy(
            lambda x: MODEL(x) - (len(x) > 4) * MODEL(x).mean(dim=0), (X.repeat(3, 1, 1, 1), Y.repeat(3))
        ),
        "images beside it",
    ),
    "Lipschitz of a model that looks at the batch": (
        lambda: ap.l_sample(wrapped(beside(DIFFVIT)), IMAGES, draws=1),
        "images beside it",
    ),
    "certificates of a model that looks at the batch": (
        lambda: ap.certificates(beside(MODEL), IMAGES, SMOOTHING),
        "images beside it",
    ),
    "a sample within less than nothing": (lambda: ap.l_sample(DIFFVIT, IMAGES, draws=1, eps=-1), "eps=-1 must be at"),
    "a sample within nothing": (lambda: ap.l_sample(DIFFVIT, IMAGES, draws=1, eps=0), "above 0"),
    "a sample within no number": (lambda: ap.l_sample(DIFFVIT, IMAGES, draws=1, eps=float("nan")), "eps=nan must be"),
    "a sample within what is rounded away": (lambda: ap.l_sample(DIFFVIT, IMAGES, draws=1, eps=1e-12), "eps=1e-12 is"),
    "alignment around no number": (lambda: ap.branch_alignment(DIFFVIT, IMAGES, eps=float("inf")), "eps=inf must be"),
    "a sample clipped in words": (lambda: ap.l_sample(DIFFVIT, IMAGES, draws=1, clip="no"), "clip='no' must be true"),
    "a reading that is a number": (lambda: ap.branch_alignment(DIFFVIT, IMAGES, 3), "reading=3 must be a text"),
    "images from the end": (lambda: IMAGES.take(np.array([-1])), "there is no image at -1: positions here are 0 to 3"),
    "images beyond the end": (lambda: IMAGES.take([99]), "there is no image at 99"),
    "half an image": (lambda: IMAGES.take([0.5]), "positions of images are whole numbers"),
    "a batch from the end": (lambda: IMAGES.batch(np.array([-1])), "there is no image at -1"),
    "a subset of 2.5 images": (lambda: IMAGES.subset(2.5), "n=2.5 must be a whole number"),
    "a subset in words": (lambda: IMAGES.subset("3"), "n='3' must be a whole number"),
    "a subset by a seed in words": (lambda: IMAGES.subset(2, seed="x"), "seed='x' must be a whole number"),
    "a subset by a seed below 0": (lambda: IMAGES.subset(2, seed=-1), "seed=-1 must be at least 0"),
    "batches of none": (lambda: next(IMAGES.batches(0)), "size=0 must be at least 1"),
    "one name for all classes": (lambda: ap.ImageSet.of_tensors(X, Y, "abcdefgh"), "class_names='abcdefgh' must be"),
    "a budget that is true": (lambda: ap.Linf(True), "True is not a budget"),
    "FGSM by a budget alone": (lambda: ap.fgsm("8/255"), "within='8/255' must be Linf"),
    "transfer with a seed in words": (lambda: ap.transfer([MODEL], IMAGES, LINF, seed="x"), "seed='x' must be"),
    "transfer by name": (lambda: ap.transfer([MODEL], IMAGES, "pgd"), "transfer takes an attack"),
    "transfer of no models": (lambda: ap.transfer(None, IMAGES, LINF), "takes a list of models"),
    "transfer of a function": (lambda: ap.transfer(lambda x: MODEL(x), IMAGES, LINF), "takes a list of models"),
    "transfer of nothing in a list": (lambda: ap.transfer([None], IMAGES, LINF), "no model"),
    "a Run of a number": (lambda: ap.Run(5), "folder=5 must be a path"),
    "a report of a number": (lambda: ap.report(5), "folders=5 must be Run or a path"),
    "a measure of a number": (lambda: ap.measure(5), "run=5 must be"),
    "a comparison of nothing": (lambda: ap.compare(None, None), "first=None must be"),
    "a look at a number": (lambda: ap.look(5), "takes a list of runs"),
    "a look at None": (lambda: ap.look([None]), "run=None must be"),
    "an audit into a number": (lambda: ap.audit(MODEL, IMAGES, preprocessing="none", out=3), "out=3 must be"),
    "a data set of None": (lambda: ap.load(None, "test"), "name=None must be a text"),
    "a data set without its split": (lambda: ap.load("digits", None), "split=None must be a text"),
    "a conversion of numbers": (lambda: ap.convert(3, 4), "source=3 must be a text"),
    "a model of None": (lambda: ap.build(None, shape=(3, 8, 8), classes=2), "config=None must be ViTConfig"),
    "a look into None": (lambda: ap.taps(None), "model=None must be Module"),
    "a study of a number": (lambda: ap.study("status", 5), "names=5 must be a text"),
    "a study by a number": (lambda: ap.study(5), "action=5 must be a text"),
    "distances of a number": (lambda: ap.distances(3), "result=3 must be AttackResult"),
    "success rates of a number": (lambda: ap.success_rates(3), "result=3 must be AttackResult"),
}


@pytest.mark.parametrize("name", WORKS)
def test_what_people_call_it_with_works(name):
    result = WORKS[name]()
    assert result is not None


@pytest.mark.parametrize("name", REFUSED)
def test_a_misuse_is_refused_in_one_sentence(name):
    misuse, sentence = REFUSED[name]
    with pytest.raises(InputError, match=sentence) as refused:
        misuse()
    assert "\n" not in str(refused.value)


def test_the_same_images_in_every_form_give_the_same_result():
    attack = ap.PGD(within=ap.Linf("16/255"), steps=5, random_start=False)
    forms = [(X, Y), (X.numpy(), Y.int()), (X.numpy().astype(np.float64), Y.tolist())]
    first, *others = [ap.attack(MODEL, x, y, attack).adversarial for x, y in forms]
    assert all(torch.equal(first, other) for other in others)


def test_an_attack_of_ones_own_that_changes_its_images_in_place_is_measured_from_the_images_themselves():
    def adds(_, x, __):
        return x.add_(0.5).clamp_(0, 1)

    given, result = X.clone(), ap.attack(MODEL, X, Y, adds, within=ap.Linf("8/255"))
    assert any("lie outside the allowed set" in flag for flag in result.flags)
    assert not result.success.any()
    assert torch.equal(X, given)


def test_an_attack_of_ones_own_in_another_precision_is_judged_in_that_of_the_images():
    def darker(x):
        return (x - 8 / 255).clamp(0, 1)

    within = ap.Linf("8/255")
    wide, plain = (ap.attack(MODEL, X, Y, returning(f), within=within) for f in (lambda x: darker(x.double()), darker))
    assert torch.equal(wide.success, plain.success)
    assert wide.adversarial.dtype == X.dtype


def test_ids_in_every_form_give_the_same_starts():
    attack, ids = ap.PGD(within=ap.Linf("8/255"), steps=1), [7, 3, 2, 5]
    first, *others = [
        ap.attack(MODEL, X, Y, attack, ids=form).adversarial for form in (ids, np.array(ids), torch.tensor(ids))
    ]
    assert all(torch.equal(first, other) for other in others)


def test_a_randomised_model_has_an_accuracy():
    noisy = wrapped(lambda x: MODEL(x + 0.01 * torch.randn_like(x)))
    assert 0 <= ap.accuracy(noisy, (X.repeat(3, 1, 1, 1), Y.repeat(3))) <= 1
