"""From uniform numbers to places and signs, for the Square attack. S examples."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from antiphase import runtime
from antiphase.attacks import square
from antiphase.attacks.config import Square
from antiphase.attacks.losses import margin
from antiphase.attacks.scheduler import Seen
from antiphase.attacks.threat_model import L2

if TYPE_CHECKING:
    from antiphase.attacks.engine import Job


def signs(draw: Tensor) -> Tensor:
    """-1 or 1, each as likely."""
    return torch.where(draw < 0.5, -1.0, 1.0).to(draw)


def corner(draw: Tensor, side: Tensor, shape: torch.Size) -> Tensor:
    """(S, 2): top and left of a square of this side anywhere in the image, from two numbers an example."""
    room = torch.tensor(shape[-2:], device=side.device) - side[:, None] + 1
    return torch.minimum((draw * room).long(), room - 1)  # float32 may round a draw up to one


def inside(draw: Tensor, side: Tensor, shape: torch.Size) -> Tensor:
    """(S, 1, H, W) bool: in a random square."""
    at = corner(draw, side, shape)
    along = [torch.arange(n, device=side.device) for n in shape[-2:]]
    tall, wide = ((a >= start[:, None]) & (a < (start + side)[:, None]) for a, start in zip(along, at.T))
    both: Tensor = tall[:, :, None] & wide[:, None, :]
    return both[:, None]


# ------------------------------------------------------------------------------------------------- attacks.bumps
# The shapes that the Square attack moves about within L2: two bumps of opposite sign, side by side, of norm 1.
#
# B examples, C channels, windows of s x s pixels.


def grid(shape: torch.Size) -> tuple[int, list[tuple[int, int]]]:
    """The side of the windows of the first proposal, five along the height, and their corners."""
    *_, h, w = shape
    side = max(h // 5, 1)
    edge = max(h - 5 * side, 0) // 2
    tops, lefts = (range(edge, n - side + 1, side) for n in (h, w))
    return side, [(top, left) for top in tops for left in lefts]


def first(draw: Tensor, shape: torch.Size) -> Tensor:
    """(B, C, H, W): a window of bumps at every place of the grid, each lying or standing, its channels up or down.

    The draws are (B, windows * (1 + C)) uniform numbers.
    """
    side, places = grid(shape)
    delta = torch.zeros(shape, dtype=draw.dtype)
    for (top, left), some in zip(places, draw.reshape(len(draw), len(places), -1).unbind(1)):
        delta[:, :, top : top + side, left : left + side] = _turned(side, some)
    return delta


def shifted(delta: Tensor, side: Tensor, draw: Tensor, eps: float) -> Tensor:
    """A perturbation whose energy in one random window is given up for new bumps in another, at norm eps.

    The draws are (B, 5 + C): the two corners, lying or standing, the channels' signs.
    """
    delta = delta.clone()
    for s in sorted(set(side.tolist())):
        here = side == s
        delta[here] = _shifted(delta[here], s, draw[here].to(delta), eps)
    return delta / _norm(delta, (1, 2, 3)) * eps


def _shifted(delta: Tensor, side: int, draw: Tensor, eps: float) -> Tensor:
    sides = torch.full((len(delta),), side, device=delta.device)
    into, gone = (_window(corner(d, sides, delta.shape), side, delta) for d in (draw[:, :2], draw[:, 2:4]))
    either = torch.zeros_like(delta)
    either[into] = either[gone] = 1.0
    there = delta[into]  # (B, C, s, s)
    bumps = _turned(side, draw[:, 4:]) + there / _norm(there, (2, 3))
    unused = (eps**2 - delta.square().sum(dim=(1, 2, 3), keepdim=True)).clamp_min(0) / delta.shape[1]
    energy = unused + (delta * either).square().sum(dim=(2, 3), keepdim=True)  # (B, C, 1, 1)
    delta = delta.clone()
    delta[gone] = 0.0
    delta[into] = bumps / _norm(bumps, (2, 3)) * energy.sqrt()
    return delta


def _window(at: Tensor, side: int, like: Tensor) -> tuple[Tensor, ...]:
    """What indexes the window with its corner `at`, (B, 2), in a (B, C, H, W) tensor."""
    along = torch.arange(side, device=like.device)
    example, channel = (torch.arange(n, device=like.device) for n in like.shape[:2])
    rows, columns = at[:, :1] + along, at[:, 1:] + along  # (B, s)
    return example[:, None, None, None], channel[None, :, None, None], rows[:, None, :, None], columns[:, None, None, :]


def _turned(side: int, draw: Tensor) -> Tensor:
    """(B, C, s, s) bumps: the first of (B, 1 + C) draws turns them, the others give the channels their signs."""
    shape = pair(side).to(draw)
    stands = draw[:, :1, None, None] < 0.5
    return torch.where(stands, shape, shape.T) * signs(draw[:, 1:])[:, :, None, None]


@cache
def pair(side: int) -> Tensor:
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


# ------------------------------------------------------------------------------------------------- attacks.square
# Square attack (Andriushchenko et al. 2020) as a method of the pool: no gradients. S examples at work.
#
# Every proposal of an example is drawn from its own stream, keyed by (seed, run) and its id and query.


HALVINGS = (10, 50, 200, 500, 1000, 2000, 4000, 6000, 8000)  # queries after which squares have half the area
QUERY_BITS = 20  # an id and a query make one stream


@dataclass(frozen=True)
class Search:
    row: Tensor  # (S,) which example; on the CPU, as the next two
    run: Tensor  # (S,)
    query: Tensor  # (S,) proposals drawn
    x: Tensor  # (S, C, H, W) the originals
    best: Tensor
    least: Tensor  # (S,) margin at `best`
    tried: Tensor  # (S, C, H, W) the proposal that is looked at
    aim: Tensor  # (S,)


class BySquare:
    lanes, looks, steered, random_start = 1, 1, False, False
    masks: Tensor | None = None

    def __init__(self, attack: Square, job: Job) -> None:
        self.attack, self.job, self.aim = attack, job, job.aim(attack.label)
        self.euclidean = isinstance(attack.within, L2)

    def begin(self, row: Tensor, run: Tensor, lane: Tensor) -> Search:
        """Vertical stripes of eps (Linf), or a grid of small square (L2)."""
        job, eps, x = self.job, float(self.attack.within.eps), self.job.x[row]
        _, c, _, w = x.shape
        count = len(square.grid(x.shape)[1]) * (1 + c) if self.euclidean else c * w
        draw = self._draws("start", row, run, torch.zeros_like(row), count)
        if self.euclidean:
            delta = square.first(draw, x.shape).to(x)
            first = x + eps * self.attack.within.ascent(delta)
        else:
            first = x + eps * signs(draw).reshape(len(row), c, 1, w).to(x)
        first = self.attack.within.project(first, x).clamp(0, 1).to(job.device)
        least = first.new_full((len(row),), torch.inf)
        here = (t.to(job.device) for t in (x, x, least, first, self.aim[row]))
        return Search(row, run, torch.zeros_like(lane), *here)

    def pixels(self, state: Search) -> Tensor:
        return state.tried

    def values(self, state: Search, logits: Tensor) -> Tensor:
        return margin(logits, state.aim)[None]

    def see(self, state: Search, values: Tensor, fooled: Tensor) -> Seen[Search]:
        """Keep what lowered the margin, and propose anew."""
        better = values[0] < state.least
        best = torch.where(better[:, None, None, None], state.tried, state.best)
        proposal = self._proposed(state, best)
        least = torch.where(better, values[0], state.least)
        after = replace(state, query=state.query + 1, best=best, least=least, tried=proposal)
        return Seen(after, fooled, state.query == self.attack.queries, state.tried)

    def move(self, state: Search, grads: Tensor) -> Search:
        raise NotImplementedError(f"{type(self).__name__} takes no gradients, and was given {len(grads)}")

    def _proposed(self, state: Search, best: Tensor) -> Tensor:
        draw = self._draws("square", state.row, state.run, state.query, 5 + best.shape[1]).to(best.device)
        side = self._side(state.query, best.shape).to(best.device)
        eps = float(self.attack.within.eps)
        if self.euclidean:
            fresh = state.x + square.shifted(best - state.x, side, draw, eps)
        else:
            jump = 2 * eps * signs(draw[:, 5:])[:, :, None, None].to(best)  # from one face of the cube to the other
            fresh = best + jump * inside(draw[:, :2], side, best.shape)
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

    def _draws(self, purpose: str, row: Tensor, run: Tensor, query: Tensor, count: int) -> Tensor:
        """(S, count) uniform numbers in [0,1)"""
        found = torch.empty(len(row), count, dtype=torch.float64)
        for r in sorted(set(run.tolist())):
            here = run == r
            streams = self.job.ids[row[here].numpy()] * 2**QUERY_BITS + query[here].numpy()
            found[here] = torch.from_numpy(runtime.uniform((self.job.seed, purpose, r), streams, (count,)))
        return found
