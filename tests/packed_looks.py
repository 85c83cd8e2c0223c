"""How the script of a page reads what results/look.py packs: for tests that hold its bytes against the model's own maps."""

import numpy as np

from antiphase.results.look import restored, unpacked


def read_look(cell):
    """Clean and attacked pixels, and layer -> maps (states, n, branches, h, N, N); four maps where a layer has no one lambda."""
    data, at = unpacked(cell["packed"]), 0
    n, states = len(cell["ids"]), len(cell["eps"]) + 1
    tokens = cell["patches"] ** 2 + cell["class_tokens"]

    def take(shape, kind):
        nonlocal at
        array = np.frombuffer(data, kind, int(np.prod(shape)), at).reshape(shape)
        at += array.nbytes
        return array

    shape = (n, *cell["pixels"])
    clean = take(shape, np.uint8) / 255
    attacked = [clean + take(shape, np.int8) / 127 * eps for eps in cell["eps"]]
    maps = {}
    for layer in cell["layers"]:
        rows = (n, layer.get("maps", layer["branches"]), layer["heads"], tokens)
        maps[layer["layer"]] = restored(take((states, *rows, tokens), np.uint8), take(rows, np.float32))
    assert at == len(data)
    return clean, attacked, maps
