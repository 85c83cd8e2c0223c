"""At which point of an attention layer something is measured: its map, what the layer returns, what its block returns."""

from __future__ import annotations

from contextlib import suppress
from typing import Literal, get_args

from torch import Tensor, nn

from antiphase.config import InputError
from antiphase.models.taps import Enough, attention_layers, blocks, explicit, look, outputs

Level = Literal["maps", "branch", "block"]
LEVELS: dict[Level, str] = {
    "maps": "map A1 - lambda A2, all heads",
    "branch": "output of the attention layer",
    "block": "output of the block, residual stream included",
}


def check_level(level: str) -> None:
    if level not in get_args(Level):
        raise InputError(f"level {level!r} is not known: it takes {', '.join(get_args(Level))}")


def at_level(classifier: nn.Module, x: Tensor, level: Level, layer: str | None = None) -> dict[str, Tensor]:
    """What each attention layer (or one) gives for pixels x: (B, h, N, M) or (B, N, D). Differentiable in both modes."""
    check_level(level)
    only = None if layer is None else [layer]
    if level == "maps":
        return {name: maps.combined for name, maps in look(classifier, x, only).items() if only is None or name in only}
    modules = blocks(classifier) if level == "block" else attention_layers(classifier)
    wanted = {name: module for name, module in modules.items() if only is None or name in only}
    last = next(reversed(wanted.values()))
    with explicit(classifier), outputs(wanted) as out, suppress(Enough):
        handle = last.register_forward_hook(_stop)  # after the hook that keeps its output
        try:
            classifier(x)
        finally:
            handle.remove()
    return out


def _stop(*_: object) -> None:
    raise Enough
