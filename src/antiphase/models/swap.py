"""What `differentiate` did to a model, as plain values."""

from __future__ import annotations

from dataclasses import dataclass

PAIRED = (
    "q, k: rows of softmax heads 2i and 2i+1 make the signal's and the noise's map of differential head i; "
    "v: values of heads 2i and 2i+1 side by side are the values of head i; "
    "out: as it was, its columns meet the same rows of v"
)
REGROUPED = (
    "q, k, v: rows in their order, cut anew into maps of another width, so softmax heads do not pair; "
    "out: as it was, its columns meet the same rows of v"
)
NOT_CARRIED = "nothing: q, k, v and out begin anew"


@dataclass(frozen=True, kw_only=True)
class Replaced:
    """One attention layer that is differential now."""

    name: str
    kind: str  # library and class of what it was
    heads: int  # of the softmax layer
    diff_heads: int
    map_width: int  # of each of a head's two queries and keys
    value_width: int  # of a head's values: twice that
    lambda_init: float
    gain: float  # of the normed output
    carried: dict[str, str]  # parameter here -> parameter of the old layer that it is
    new: dict[str, int]  # parameter -> its number of entries
    out_elsewhere: str | None  # the model's own output projection outside of the layer, which stays as it was

    @property
    def projections(self) -> dict[str, str]:
        """q, k, v and out: what became of weight and bias."""
        state = {part: self._state(prefix) for part, prefix in _PREFIX.items()}
        if self.out_elsewhere is not None:
            state["out"] = f"left as it is, outside of the layer: {self.out_elsewhere}"
        return state

    def _state(self, prefixes: tuple[str, ...]) -> str:
        told = []
        for what in ("weight", "bias"):
            names = [f"{prefix}.{what}" for prefix in prefixes]
            carried, new = (next((n for n in names if n in group), None) for group in (self.carried, self.new))
            told.append(f"{what} {'carried' if carried else 'new' if new else 'none'}")
        return ", ".join(told)

    @property
    def mapping(self) -> str:
        """How weights that were carried over meet the two branches."""
        if not self.carried:
            return NOT_CARRIED
        return PAIRED if self.heads == 2 * self.diff_heads else REGROUPED


_PREFIX = {
    "q": ("qkv", "qkv.query"),
    "k": ("qkv", "qkv.key"),
    "v": ("qkv", "qkv.value"),
    "out": ("proj",),
}


@dataclass(frozen=True)
class Left:
    """An attention layer that is as it was."""

    name: str
    kind: str
    reason: str


@dataclass(frozen=True)
class Swap:
    """What was replaced, what was not and why. `str` of it is a page to read."""

    layers: tuple[Replaced, ...]
    left: tuple[Left, ...]
    parameters_before: int
    parameters_after: int
    carry: bool
    seed: int

    def __str__(self) -> str:
        more = self.parameters_after - self.parameters_before
        lines = [
            f"{len(self.layers)} attention layers are differential now; what the model computes is not what it computed",
            f"parameters: {self.parameters_before:,} before, {self.parameters_after:,} after ({more:+,})",
        ]
        for row in self.layers:
            extra = {name: n for name, n in row.new.items() if not name.startswith(("qkv.", "proj."))}
            lines += [
                f"{row.name} ({row.kind}): {row.heads} heads -> {row.diff_heads} of two maps of width {row.map_width}, "
                f"values of width {row.value_width}; lambda_init {row.lambda_init:.3g}, gain {row.gain:.3g}",
                *(f"  {', '.join(parts)}: {state}" for state, parts in _by_state(row.projections).items()),
                f"  added: {', '.join(extra) or 'nothing'} ({sum(extra.values()):,})",
            ]
        lines += [f"carried over: {mapping}" for mapping in dict.fromkeys(row.mapping for row in self.layers)]
        lines += [f"left: {row.name} ({row.kind}): {row.reason}" for row in self.left]
        return "\n".join(lines)


def _by_state(projections: dict[str, str]) -> dict[str, list[str]]:
    states: dict[str, list[str]] = {}
    for part, state in projections.items():
        states.setdefault(state, []).append(part)
    return states
