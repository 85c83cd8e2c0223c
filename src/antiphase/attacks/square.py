"""Square attack (Andriushchenko et al. 2020): random search with squares, without gradients.

Within Linf a proposal changes one square by the budget; within L2 it moves the energy of one window to a pair of bumps in
another. Every proposal of an example is drawn from its own stream, keyed by (seed, restart) and by its id and query.

S examples at work (attacks/scheduler.py), C channels, windows of s x s pixels.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from antiphase import runtime
from antiphase.attacks.config import Square
from antiphase.attacks.losses import margin
from antiphase.attacks.scheduler import StepResult
from antiphase.attacks.threat_model import L2

if TYPE_CHECKING:
    from antiphase.attacks.engine import Examples

HALVINGS = (10, 50, 200, 500, 1000, 2000, 4000, 6000, 8000)  # queries after which squares have half the area
QUERY_BITS = 20  # an id and a query make one stream


@dataclass(frozen=True)
class SquareState:
    """The best point of each example and its next proposal; on the model's device unless said otherwise."""

    row: Tensor  # (S,) which example; on the CPU, as the next two
    restart: Tensor  # (S,)
    query: Tensor  # (S,) proposals drawn
    x: Tensor  # (S, C, H, W) the originals
    best: Tensor
    best_margin: Tensor  # (S,) margin at `best`
    proposal: Tensor  # (S, C, H, W) what the next forward evaluates
    loss_label: Tensor  # (S,)


class SquareAlgorithm:
    """A proposal that lowers the margin is kept; squares shrink as queries go by."""

    lanes, eot_samples, uses_gradients, random_start = 1, 1, False, False
    masks: Tensor | None = None

    def __init__(self, attack: Square, examples: Examples) -> None:
        self.attack, self.examples, self.loss_label = attack, examples, examples.loss_label(attack.label)
        self.euclidean = isinstance(attack.within, L2)

    def begin(self, row: Tensor, restart: Tensor, lane: Tensor) -> SquareState:
        """Vertical stripes of eps (Linf), or a grid of windows with bumps (L2)."""
        examples, eps, x = self.examples, float(self.attack.within.eps), self.examples.x[row]
        _, c, _, w = x.shape
        count = len(bump_grid(x.shape)[1]) * (1 + c) if self.euclidean else c * w
        draw = self._draws("start", row, restart, torch.zeros_like(row), count)
        if self.euclidean:
            delta = first_bumps(draw, x.shape).to(x)
            first = x + eps * self.attack.within.ascent(delta)
        else:
            first = x + eps * signs(draw).reshape(len(row), c, 1, w).to(x)
        first = self.attack.within.project(first, x).clamp(0, 1).to(examples.device)
        unknown = first.new_full((len(row),), torch.inf)
        here = (t.to(examples.device) for t in (x, x, unknown, first, self.loss_label[row]))
        return SquareState(row, restart, torch.zeros_like(lane), *here)

    def pixels(self, state: SquareState) -> Tensor:
        return state.proposal

    def values(self, state: SquareState, logits: Tensor) -> Tensor:
        return margin(logits, state.loss_label)[None]

    def after_forward(self, state: SquareState, values: Tensor, fooled: Tensor) -> StepResult[SquareState]:
        """Keep the proposal where it lowered the margin, and draw the next one."""
        better = values[0] < state.best_margin
        best = torch.where(better[:, None, None, None], state.proposal, state.best)
        proposal = self._propose(state, best)
        margins = torch.where(better, values[0], state.best_margin)
        after = replace(state, query=state.query + 1, best=best, best_margin=margins, proposal=proposal)
        return StepResult(after, fooled, state.query == self.attack.queries, state.proposal)

    def step(self, state: SquareState, grads: Tensor) -> SquareState:
        raise NotImplementedError(f"{type(self).__name__} takes no gradients, and was given {len(grads)}")

    def _propose(self, state: SquareState, best: Tensor) -> Tensor:
        draw = self._draws("square", state.row, state.restart, state.query, 5 + best.shape[1]).to(best.device)
        side = self._side(state.query, best.shape).to(best.device)
        eps = float(self.attack.within.eps)
        if self.euclidean:
            fresh = state.x + moved_bumps(best - state.x, side, draw, eps)
        else:
            jump = 2 * eps * signs(draw[:, 5:])[:, :, None, None].to(best)  # from one face of the cube to the other
            fresh = best + jump * in_square(draw[:, :2], side, best.shape)
        return self.attack.within.project(fresh, state.x).clamp(0, 1)

    def _side(self, query: Tensor, shape: torch.Size) -> Tensor:
        """(S,) width of the square: its area is p of the image, and p is halved again and again."""
        *_, h, w = shape
        at = query * 10_000 // self.attack.queries if self.attack.rescale else query
        halvings = torch.bucketize(at, torch.tensor(HALVINGS))
        side = (self.attack.p_init / 2.0**halvings * h * w).sqrt().round().long()
        if self.euclidean:
            side = side.clamp_min(3)
            side = side + (side % 2 == 0)  # a bump has a middle
        return side.clamp(1, min(h, w))

    def _draws(self, purpose: str, row: Tensor, restart: Tensor, query: Tensor, count: int) -> Tensor:
        """(S, count) uniform numbers in [0,1)"""
        draws = torch.empty(len(row), count, dtype=torch.float64)
        for r in sorted(set(restart.tolist())):
            here = restart == r
            streams = self.examples.ids[row[here].numpy()] * 2**QUERY_BITS + query[here].numpy()
            draws[here] = torch.from_numpy(runtime.uniform((self.examples.seed, purpose, r), streams, (count,)))
        return draws


# ------------------------------------------------------------------------------------------------- squares, for Linf


def signs(draw: Tensor) -> Tensor:
    """-1 or 1, each as likely."""
    return torch.where(draw < 0.5, -1.0, 1.0).to(draw)


def corner(draw: Tensor, side: Tensor, shape: torch.Size) -> Tensor:
    """(S, 2): top and left of a square of this side anywhere in the image, from two numbers per example."""
    room = torch.tensor(shape[-2:], device=side.device) - side[:, None] + 1
    return torch.minimum((draw * room).long(), room - 1)  # float32 may round a draw up to one


def in_square(draw: Tensor, side: Tensor, shape: torch.Size) -> Tensor:
    """(S, 1, H, W) bool: in a random square."""
    at = corner(draw, side, shape)
    along = [torch.arange(n, device=side.device) for n in shape[-2:]]
    tall, wide = ((a >= start[:, None]) & (a < (start + side)[:, None]) for a, start in zip(along, at.T))
    both: Tensor = tall[:, :, None] & wide[:, None, :]
    return both[:, None]


# ------------------------------------------------------------------------------------------------- bumps, for L2
# A pair of bumps of opposite sign, side by side, together of norm 1.


def bump_grid(shape: torch.Size) -> tuple[int, list[tuple[int, int]]]:
    """The side of the windows of the first proposal, five along the height, and their corners."""
    *_, h, w = shape
    side = max(h // 5, 1)
    edge = max(h - 5 * side, 0) // 2
    tops, lefts = (range(edge, n - side + 1, side) for n in (h, w))
    return side, [(top, left) for top in tops for left in lefts]


def first_bumps(draw: Tensor, shape: torch.Size) -> Tensor:
    """(S, C, H, W): a window of bumps at every place of the grid, each lying or standing, its channels up or down.

    The draws are (S, windows * (1 + C)) uniform numbers.
    """
    side, places = bump_grid(shape)
    delta = torch.zeros(shape, dtype=draw.dtype)
    for (top, left), draws in zip(places, draw.reshape(len(draw), len(places), -1).unbind(1)):
        delta[:, :, top : top + side, left : left + side] = _turned(side, draws)
    return delta


def moved_bumps(delta: Tensor, side: Tensor, draw: Tensor, eps: float) -> Tensor:
    """The perturbation with its energy in one random window moved to new bumps in another; of norm eps.

    The draws are (S, 5 + C): the two corners, lying or standing, the channels' signs.
    """
    delta = delta.clone()
    for s in sorted(set(side.tolist())):
        here = side == s
        delta[here] = _moved(delta[here], s, draw[here].to(delta), eps)
    return delta / _norm(delta, (1, 2, 3)) * eps


def _moved(delta: Tensor, side: int, draw: Tensor, eps: float) -> Tensor:
    sides = torch.full((len(delta),), side, device=delta.device)
    into, gone = (_window(corner(d, sides, delta.shape), side, delta) for d in (draw[:, :2], draw[:, 2:4]))
    either = torch.zeros_like(delta)
    either[into] = either[gone] = 1.0
    there = delta[into]  # (S, C, s, s)
    bumps = _turned(side, draw[:, 4:]) + there / _norm(there, (2, 3))
    unused = (eps**2 - delta.square().sum(dim=(1, 2, 3), keepdim=True)).clamp_min(0) / delta.shape[1]
    energy = unused + (delta * either).square().sum(dim=(2, 3), keepdim=True)  # (S, C, 1, 1)
    delta = delta.clone()
    delta[gone] = 0.0
    delta[into] = bumps / _norm(bumps, (2, 3)) * energy.sqrt()
    return delta


def _window(at: Tensor, side: int, like: Tensor) -> tuple[Tensor, ...]:
    """What indexes the window with its corner `at`, (S, 2), in a (S, C, H, W) tensor."""
    along = torch.arange(side, device=like.device)
    example, channel = (torch.arange(n, device=like.device) for n in like.shape[:2])
    rows, columns = at[:, :1] + along, at[:, 1:] + along  # (S, s)
    return example[:, None, None, None], channel[None, :, None, None], rows[:, None, :, None], columns[:, None, None, :]


def _turned(side: int, draw: Tensor) -> Tensor:
    """(S, C, s, s) bumps: the first of (S, 1 + C) draws turns them, the others give the channels their signs."""
    shape = bump_pair(side).to(draw)
    stands = draw[:, :1, None, None] < 0.5
    return torch.where(stands, shape, shape.T) * signs(draw[:, 1:])[:, :, None, None]


@cache
def bump_pair(side: int) -> Tensor:
    """(s, s): a bump above its negative, together of norm 1."""
    both = torch.cat([_bump(side // 2, side), -_bump(side - side // 2, side)])
    return both / both.square().sum().sqrt()


def _bump(height: int, width: int) -> Tensor:
    """Highest in the middle, by 1/k^2 for every ring of pixels k further in; of norm 1."""
    rows, columns = ((torch.arange(n) - n // 2).abs() for n in (height, width))
    ring = torch.maximum(rows[:, None], columns[None, :])  # (h, w)
    gain = 1.0 / torch.arange(1, max(height, width) // 2 + 2, dtype=torch.float64).square()
    hill = gain.flip(0).cumsum(0).flip(0)[ring]
    return hill / hill.square().sum().sqrt().clamp_min(1e-12)


def _norm(delta: Tensor, dims: tuple[int, ...]) -> Tensor:
    return delta.square().sum(dim=dims, keepdim=True).sqrt().clamp_min(1e-12)
