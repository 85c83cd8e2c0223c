"""Run by tests/attacks/test_peers.py with the python of .venv-peers: our attacks and the peers' on the same images, as JSON.

    peers_autoattack.py CASE EPS N [RUN]

EPS is within Linf, or as "L2 0.1" within L2. RUN is the folder of one of our runs; without it the model is the CIFAR-10
ResNet that pyautoattack ships.
"""

import importlib.util
import json
import sys
from pathlib import Path

import torch
from benchmarks.peers import foolbox_named, pyautoattack, torchattacks_named

from antiphase.attacks import APGD, FAB, L2, AutoAttack, Linf, Square, engine
from antiphase.data import load
from antiphase.models.run import Run


def shipped() -> torch.nn.Module:
    import pyautoattack as package

    folder = Path(package.__file__).parent / "examples"
    spec = importlib.util.spec_from_file_location("resnet", folder / "resnet.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    model = module.ResNet18()
    model.load_state_dict(torch.load(folder / "model_test.pt", map_location="cpu", weights_only=True))
    return model.eval()


case, eps, n = sys.argv[1], sys.argv[2], int(sys.argv[3])
model = Run(Path(sys.argv[4])).classifier() if len(sys.argv) > 4 else shipped()
x, y, ids = load("cifar10", "test").subset(n).all
with torch.no_grad():
    right = model(x).argmax(dim=1) == y
x, y, ids = x[right], y[right], ids[right.numpy()]  # the others are attacked by no peer
within = L2(eps.split()[1]) if eps.startswith("L2") else Linf(eps)
MANY = {"steps": 30, "multi_targeted": True, "n_classes": 10}
CASES = {
    "apgd-ce": (APGD(within=within), pyautoattack(within, ["apgd-ce"])),
    "apgd-dlr": (APGD(within=within, loss="dlr"), pyautoattack(within, ["apgd-dlr"])),
    "apgd-t": (APGD(within=within, loss="dlr-targeted"), pyautoattack(within, ["apgd-t"])),
    "apgd-torchattacks": (APGD(within=within, steps=50), torchattacks_named("APGD", within, steps=50)),
    "fab": (FAB(within=within, steps=30), torchattacks_named("FAB", within, steps=30, multi_targeted=False)),
    "fab-t-pyautoattack": (FAB(within=within, targets=9), pyautoattack(within, ["fab-t"])),
    "fab-t": (FAB(within=within, targets=9, steps=30), torchattacks_named("FAB", within, **MANY)),
    "square": (Square(within=within, queries=500), pyautoattack(within, ["square"], queries=500)),
    "square-torchattacks": (
        Square(within=within, queries=500, rescale=True),
        torchattacks_named("Square", within, n_queries=500),
    ),
    "pgd-foolbox": (APGD(within=within, steps=40), foolbox_named("LinfPGD", within, steps=40)),
    "autoattack": (AutoAttack(within=within), pyautoattack(within)),
}
attack, peer = CASES[case]
ours = engine.run(model, x, y, attack, ids=ids)
theirs = peer(model, x, y)
with torch.no_grad():
    theirs_stand = model(theirs).argmax(dim=1) == y
delta = within.size(theirs.double() - x.double())
stands = {"ours": ~ours.success, "theirs": theirs_stand | (delta > float(within.eps) + 1e-6)}
print(
    json.dumps(
        {
            **{side: int(left.sum()) for side, left in stands.items()},
            "agree": int((stands["ours"] == stands["theirs"]).sum()),
            "clean": len(x),
            "flags": list(ours.flags),
        }
    )
)
