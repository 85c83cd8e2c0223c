"""Run by tests/attacks/test_peers.py with the python of .venv-peers: ours and peers' on the same images, as JSON."""

import json
import sys
from pathlib import Path

import torch
from benchmarks.peers import foolbox_cw, foolbox_ddn, torchattacks_cw

from antiphase.attacks import CW, DDN, FMN, MinimalL2, engine
from antiphase.data import load
from antiphase.models.run import Run

model = Run(Path(sys.argv[1])).classifier()
x, y, ids = load("cifar10", "test").subset(int(sys.argv[2])).all
short = CW(searches=5, steps=100)
attacks = {
    "CW, foolbox": foolbox_cw(short),
    "CW, torchattacks": torchattacks_cw(short),
    "DDN, foolbox": foolbox_ddn(DDN()),
    "CW": short,
    "DDN": DDN(),
    "FMN": FMN(),
    "MinimalL2": MinimalL2(cw=short),
}
with torch.no_grad():
    clean = model(x).argmax(dim=1)  # the class that ours leave: a peer is given it as its label
found = {}
for name, attack in attacks.items():
    result = engine.run(model, x, clean, attack, ids=ids)
    won = result.success
    found[name] = {"success": int(won.sum()), "median": float(result.distance[won].median()), "flags": result.flags}
print(json.dumps(found))
