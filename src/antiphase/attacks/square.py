"""Square attack (Andriushchenko et al. 2020) as a method of the pool: no gradients. S examples at work.

Every proposal of an example is drawn from its own stream, keyed by (seed, run) and its id and query.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from antiphase import runtime
from antiphase.attacks import bumps
from antiphase.attacks.config import Square
from antiphase.attacks.corners import inside, signs
from antiphase.attacks.job import Job
from antiphase.attacks.losses import margin
from antiphase.attacks.method import Seen
from antiphase.attacks.within import L2

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
        """Vertical stripes of eps (Linf), or a grid of small bumps (L2)."""
        job, eps, x = self.job, float(self.attack.within.eps), self.job.x[row]
        _, c, _, w = x.shape
        count = len(bumps.grid(x.shape)[1]) * (1 + c) if self.euclidean else c * w
        draw = self._draws("start", row, run, torch.zeros_like(row), count)
        if self.euclidean:
            delta = bumps.first(draw, x.shape).to(x)
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
            fresh = state.x + bumps.shifted(best - state.x, side, draw, eps)
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
