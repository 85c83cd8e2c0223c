"""At which point of an attention layer something is measured: its map, what the layer returns, what its block returns."""

from __future__ import annotations

from typing import Literal, get_args

from torch import Tensor, nn

from antiphase.config import InputError
from antiphase.models.taps import Record, attention_layers, blocks, explicit, outputs

Level = Literal["maps", "branch", "block"]
LEVELS: dict[Level, str] = {
    "maps": "map A1 - lambda A2, all heads",
    "branch": "output of the attention layer",
    "block": "output of the block, residual stream included",
}


def check_level(level: str) -> None:
    if level not in get_args(Level):
        raise InputError(f"level {level!r} is not known: it takes {', '.join(get_args(Level))}")


class _Enough(Exception):
    """Raised inside a forward when the layer that is looked at has answered: what follows need not be computed."""


def at_level(classifier: nn.Module, x: Tensor, level: Level, layer: str | None = None) -> dict[str, Tensor]:
    """What each attention layer (or one) gives for pixels x: (B, h, N, M) or (B, N, D). Differentiable in both modes."""
    check_level(level)
    wanted = blocks(classifier) if level == "block" else attention_layers(classifier)
    wanted = wanted if layer is None else {layer: wanted[layer]}
    with explicit(classifier) as record, outputs(wanted) as out:
        handle = None
        if layer is not None:
            handle = wanted[layer].register_forward_hook(_stop)  # after the one that keeps its output
        try:
            classifier(x)
        except _Enough:
            pass
        finally:
            if handle is not None:
                handle.remove()
        return _maps(record, wanted) if level == "maps" else dict(out)


def _stop(*_: object) -> None:
    raise _Enough


def _maps(record: Record, wanted: dict[str, nn.Module]) -> dict[str, Tensor]:
    return {layer: maps.combined for layer, maps in record.items() if layer in wanted}
