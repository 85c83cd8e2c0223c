"""Run by tests/attacks/test_peers.py with the python of .venv-peers: our PGD and a peer's on the same images, as JSON."""

import json
import sys
from pathlib import Path

from benchmarks.peers import PGD_PEERS

from antiphase.attacks import PGD, Linf, engine
from antiphase.data import load
from antiphase.models.run import Run

folder, peer, n = sys.argv[1], sys.argv[2], int(sys.argv[3])
model = Run(Path(folder)).classifier()
x, y, ids = load("cifar10", "test").subset(n).all
rows = []
for eps in (0.25, 0.5, 1, 2, 4):
    attack = PGD(within=Linf(f"{eps}/255"), steps=20)
    ours = engine.run(model, x, y, attack, ids=ids)
    theirs = engine.run(model, x, y, PGD_PEERS[peer](attack), ids=ids, within=attack.within)
    agree = float((ours.success == theirs.success).double().mean())
    rows.append(
        {
            "eps": eps,
            "ours": float(ours.success.double().mean()),
            "theirs": float(theirs.success.double().mean()),
            "agree": agree,
            "flags": [*ours.flags, *theirs.flags],
        }
    )
print(json.dumps(rows))
