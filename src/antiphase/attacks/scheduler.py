"""The scheduler of iterative attacks: an example that is fooled leaves the batch at once and one that waits takes its place.

An attack's algorithm is a state of tensors, one entry per example at work, and pure functions of it (`AttackAlgorithm`). All
the rest, which examples are at work, which are fooled, costs, journal and red flags, is done here. Every forward is spent on
an example that is not fooled yet, and success is read from the forward that the next gradient needs anyway.

n examples, S of them at work (slots), R restarts, G gradients that an algorithm wants of each (most want one), K classes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

import torch
from torch import Tensor

from antiphase.attacks.compiled import compiled
from antiphase.attacks.config import Attack
from antiphase.attacks.journal import Journal, JournalEntry, digest_of_image, pack, unpack
from antiphase.attacks.quantize import to_eight_bits
from antiphase.attacks.red_flags import RANDOMISED, RedFlagCounts
from antiphase.attacks.threat_model import SLACK
from antiphase.models.fast_path import fast_path

if TYPE_CHECKING:
    from antiphase.attacks.engine import Examples

State = TypeVar("State")  # a dataclass of tensors with leading axis S


# ------------------------------------------------------------------------------------------------- what an attack is


@dataclass(frozen=True)
class StepResult(Generic[State]):
    """What an algorithm makes of one forward. Book-keeping (S,) on the CPU."""

    state: State
    fooled: Tensor  # bool: successful, leaves the batch, and with it the other lanes of its restart
    finished: Tensor  # bool: takes no further step
    pixels: Tensor  # (S, C, H, W) what counts as adversarial where `fooled`
    takes_step: Tensor | None = None  # bool: of those that go on, which step along gradients taken here; None: all
    objective: Tensor | None = None  # float64: what is driven up, for the red flag that it did not rise


class AttackAlgorithm(Protocol[State]):
    """How one kind of attack begins, reads the model's answer and steps; made from (attack, examples).

    An attack with a budget reports `fooled` as soon as pixels within it fool the model. A minimum-norm attack keeps its best
    pixels in its state and reports `fooled` and `finished` together, at the end of its own rule.
    """

    lanes: int  # tries of one restart, one per target class, that enter together and leave together when one is fooled
    uses_gradients: bool  # else it sets its next pixels in `after_forward`
    eot_samples: (
        int  # evaluations of the same pixels of a randomised model, each with a gradient (expectation over them)
    )
    random_start: bool  # an example fooled by the first forward was fooled by noise
    masks: Tensor | None  # (n, 1, H, W) of all examples, where pixels may change; None: everywhere

    def begin(self, row: Tensor, restart: Tensor, lane: Tensor) -> State:
        """The state in which examples `row` begin their `restart` and `lane`: (S,) each, on the CPU."""

    def pixels(self, state: State) -> Tensor:
        """The pixels of the next forward. (S, C, H, W)"""

    def values(self, state: State, logits: Tensor) -> Tensor:
        """What it reads from the logits, and what gradients are taken of if it uses them. (G, S)"""

    def after_forward(self, state: State, values: Tensor, fooled: Tensor) -> StepResult[State]:
        """After a forward on `pixels`; the values are detached, `fooled` is (S,) bool on the CPU."""

    def step(self, state: State, grads: Tensor) -> State:
        """A step for those that take one, along their gradients: (G, S, C, H, W)."""


# ------------------------------------------------------------------------------------------------- the scheduler


@dataclass(frozen=True)
class Slots:
    """The S examples at work, on the CPU; their state is the algorithm's own."""

    row: Tensor  # (S,) which example
    restart: Tensor  # (S,) which of its restarts
    lane: Tensor  # (S,) which try of this restart
    fresh: Tensor  # (S,) bool: not evaluated yet
    first: Tensor  # (S,) objective at the first forward


class Scheduler:
    """All examples of an attack; all their restarts if `every_restart`, else each until its first success.

    An example waits, is at work or has ended, when no restart is left. With a journal, the examples it holds have ended from
    the start, and every other is written there as it ends.
    """

    def __init__(
        self,
        examples: Examples,
        attack: Attack,
        algorithm: AttackAlgorithm[Any],
        *,
        every_restart: bool,
        compiling: bool = False,
        journal: Journal | None = None,
    ) -> None:
        n, restarts = len(examples.x), attack.restarts
        self.examples, self.attack, self.algorithm = examples, attack, algorithm
        self.every_restart, self.compiling, self.journal = every_restart, compiling, journal
        self.width = max(1, examples.batch_size // algorithm.lanes) * algorithm.lanes  # slots; all lanes enter together
        self.fast: Callable[[Tensor], Tensor] | None = None  # for full batches
        examples.changed_in_restart = torch.zeros(restarts if every_restart else 1, n, dtype=torch.bool)
        self.counts = RedFlagCounts(n)
        self.left = torch.full((n,), restarts)  # restarts that have not ended
        self.lanes_left: dict[tuple[int, int], int] = {}  # of every (example, restart) at work
        self.first_success = torch.full((n,), restarts)  # the earliest restart that succeeded: its pixels are kept
        self._read_journal()
        standing = torch.nonzero(self.left)[:, 0].tolist()
        # (example, restart); all restarts of an example together, so that it ends early and not with the last of all
        self.waiting = deque((i, r) for i in standing for r in range(len(examples.changed_in_restart)))

    def run(self) -> None:
        """Attack until no example waits or is at work."""
        if self.waiting:
            with fast_path(self.examples.classifier, self._image_for_folding()):
                slots, state = self._enter(self.width)
                if self.compiling and len(slots.row) == self.width:
                    pixels = self.algorithm.pixels(state)
                    self.fast = compiled(self.examples.classifier, pixels, backward=self.algorithm.uses_gradients)
                    self.examples.compiled = self.fast is not None
                while len(slots.row):
                    slots, state = self._iterate(slots, state)
        successes = int(self.examples.changed_in_restart.sum())
        self.examples.flags += self.counts.flags(self.algorithm.random_start, successes)

    def _image_for_folding(self) -> Tensor | None:
        """On which it is seen which batch norms follow a convolution; None where they are better left alone: for a model that
        is randomised or gives no gradients, and where the compiler sees to it."""
        randomised = self.algorithm.eot_samples > 1 or RANDOMISED in self.examples.clean.flags
        if randomised or self.compiling or not self.algorithm.uses_gradients:
            return None
        return self.examples.x[:1].to(self.examples.device)

    def _iterate(self, slots: Slots, state: Any) -> tuple[Slots, Any]:
        """One forward for all at work, one step for those that go on; those that wait take the free slots."""
        pixels = self.algorithm.pixels(state).detach().requires_grad_(self.algorithm.uses_gradients)
        values, fooled = self._forward(pixels, state, slots.row)
        result = self.algorithm.after_forward(state, values.detach(), fooled)
        slots = self._count(slots, result)
        fooled = self._record(slots, result)
        stay = ~(self._all_lanes(slots, fooled) | result.finished)
        stepping = stay if result.takes_step is None else stay & result.takes_step
        slots, state = keep(slots, stay), keep(result.state, stay)
        if self.algorithm.uses_gradients and bool(stepping.any()):
            grads = self._gradients(values, pixels, stepping)
            state = self._step(state, grads, slots.row, stepping[stay])
        free = self.width - len(slots.row)
        if not self.waiting or free < self.algorithm.lanes:
            return slots, state
        new_slots, new_state = self._enter(free)
        return join(slots, new_slots), join(state, new_state)

    def _forward(self, pixels: Tensor, state: Any, row: Tensor) -> tuple[Tensor, Tensor]:
        """The values that the algorithm reads, means over all samples: (G, S); and which examples are fooled: (S,)."""
        examples, algorithm = self.examples, self.algorithm
        model = self.fast if self.fast is not None and len(pixels) == self.width else examples.classifier
        with torch.set_grad_enabled(algorithm.uses_gradients):
            samples = [model(pixels) for _ in range(algorithm.eot_samples)]
            per_sample = [algorithm.values(state, logits) for logits in samples]
            values = per_sample[0] if len(per_sample) == 1 else torch.stack(per_sample).mean(dim=0)
        for _ in samples:
            examples.count(examples.forwards, row)
        prediction = examples.majority([logits.detach() for logits in samples]).cpu()
        return values, examples.fooled(prediction, row)

    def _gradients(self, values: Tensor, pixels: Tensor, stepping: Tensor) -> Tensor:
        """(G, S, C, H, W) of those that step. Summed, never averaged: an example must not depend on the size of its batch."""
        here = None if bool(stepping.all()) else stepping.to(pixels.device)
        grads = []
        for g, value in enumerate(values, 1):
            driven = value if here is None else value[here]
            (grad,) = torch.autograd.grad(driven.sum(), pixels, retain_graph=g < len(values))
            grads.append(grad if here is None else grad[here])
        return grads[0][None] if len(grads) == 1 else torch.stack(grads)

    def _step(self, state: Any, grads: Tensor, row: Tensor, where: Tensor) -> Any:
        """The state, a step further for those `where` (of all that go on)."""
        examples, row = self.examples, row[where]
        grads = grads if self.algorithm.masks is None else grads * self.algorithm.masks[row].to(grads)
        for _ in grads:
            examples.count(examples.backwards, row)
        self.counts.add_gradients(row, grads)
        if bool(where.all()):
            return self.algorithm.step(state, grads)
        return put(state, where, self.algorithm.step(keep(state, where), grads))

    def _enter(self, free: int) -> tuple[Slots, Any]:
        """Waiting restarts take the free slots, with all their lanes."""
        lanes = self.algorithm.lanes
        entering = [self.waiting.popleft() for _ in range(min(free // lanes, len(self.waiting)))]
        self.lanes_left.update(dict.fromkeys(entering, lanes))
        row, restart = (torch.tensor(t).repeat_interleave(lanes) for t in zip(*entering))
        lane = torch.arange(lanes).repeat(len(entering))
        first = torch.zeros(len(row), dtype=torch.float64)
        slots = Slots(row, restart, lane, torch.ones_like(row, dtype=torch.bool), first)
        return slots, self.algorithm.begin(row, restart, lane)

    def _count(self, slots: Slots, result: StepResult[Any]) -> Slots:
        """Count for the red flags what this forward showed."""
        objective = slots.first + 1 if result.objective is None else result.objective
        risen = objective - slots.first > 1e-5 * (1 + slots.first.abs())  # less is the rounding of other neighbours
        at_start = slots.fresh & (slots.lane == 0)  # counted once per restart, however many lanes have a start
        self.counts.add_forward(
            slots.row, at_start=at_start, risen=risen, fooled=result.fooled, finished=result.finished
        )
        first = torch.where(slots.fresh, objective, slots.first)
        return replace(slots, fresh=torch.zeros_like(slots.fresh), first=first)

    def _all_lanes(self, slots: Slots, fooled: Tensor) -> Tensor:
        """The slots that are fooled, and the other lanes of the same restarts. (S,) bool"""
        if self.algorithm.lanes == 1:
            return fooled
        key = slots.row * self.attack.restarts + slots.restart
        return torch.isin(key, key[fooled])

    def _quantized(self, row: Tensor, fooled: Tensor, pixels: Tensor) -> tuple[Tensor, Tensor]:
        """Which examples are still fooled by pixels on the grid of 255ths, and those pixels."""
        examples, within = self.examples, self.attack.within
        here = fooled.to(examples.device)
        x = examples.x[row[fooled]].to(examples.device)
        rounded = to_eight_bits(pixels[here], x, within)
        inside = within.size(rounded.double() - x.double()) <= float(within.eps) + SLACK
        again = examples.fooled(examples.query(rounded, row[fooled])[1], row[fooled]) & inside.cpu()
        kept, still = pixels.clone(), fooled.clone()
        kept[here], still[fooled] = rounded, again
        return still, kept

    def _record(self, slots: Slots, result: StepResult[Any]) -> Tensor:
        """Write down which slots are fooled and which are finished; the next restart of an example that is not fooled waits.

        Returns the slots that are fooled: with eight bits, only those that pixels on the grid fool too.
        """
        examples, fooled, adversarial = self.examples, result.fooled, result.pixels
        if examples.eight_bit and bool(fooled.any()):
            fooled, adversarial = self._quantized(slots.row, fooled, adversarial)
        places = zip(slots.row[fooled].tolist(), slots.restart[fooled].tolist())
        for (row, restart), pixels in zip(places, adversarial[fooled.to(examples.device)].cpu()):
            if not self.lanes_left.pop((row, restart), 0):
                continue  # an earlier lane of this restart was fooled by the same forward
            examples.changed_in_restart[restart if self.every_restart else 0, row] = True
            if restart < self.first_success[row]:
                examples.adversarial.change([row], [pixels])
                self.first_success[row] = restart
            self.left[row] = self.left[row] - 1 if self.every_restart else 0
        failed = result.finished & ~fooled
        for row, restart in zip(slots.row[failed].tolist(), slots.restart[failed].tolist()):
            self._end_lane(row, restart)
        ended = sorted({row for row in slots.row[fooled | failed].tolist() if not self.left[row]})
        if ended and self.journal is not None:
            self.journal.write([self._journal_entry(row) for row in ended])
        examples.advance(len(ended), f"{int(examples.changed_in_restart.any(dim=0).sum())} fooled")
        return fooled

    def _end_lane(self, row: int, restart: int) -> None:
        """A lane has ended without success; with the last lane its restart has."""
        if (row, restart) not in self.lanes_left:
            return  # another lane was fooled
        self.lanes_left[row, restart] -= 1
        if self.lanes_left[row, restart]:
            return
        del self.lanes_left[row, restart]
        self.left[row] -= 1
        if self.left[row] and not self.every_restart:
            self.waiting.append((row, restart + 1))

    def _journal_entry(self, row: int) -> JournalEntry:
        examples = self.examples
        changed = examples.changed_in_restart[:, row].int().tolist()
        costs = int(examples.forwards[row]), int(examples.backwards[row])
        pixels = pack(examples.adversarial.changed[row]) if any(changed) else None
        return JournalEntry(int(examples.ids[row]), changed, *costs, self.counts.of(row), pixels, *self._about(row))

    def _about(self, row: int) -> tuple[str, list[float] | None]:
        """What says in a journal which image an entry is about, and what the model answers on it."""
        return digest_of_image(self.examples.x[row], self.examples.y[row]), self.examples.clean_logits_of(row)

    def _read_journal(self) -> None:
        """Examples in the journal have ended, with all that is known about them."""
        examples, rows = self.examples, {int(number): row for row, number in enumerate(self.examples.ids)}
        entries = [] if self.journal is None else [e for e in self.journal.read() if e.id in rows]
        for entry in entries:
            row = rows[entry.id]
            if self.journal is not None and not entry.is_of(*self._about(row)):
                raise self.journal.another()
            examples.changed_in_restart[:, row] = torch.tensor(entry.changed, dtype=torch.bool)
            examples.forwards[row], examples.backwards[row], self.left[row] = entry.forwards, entry.backwards, 0
            self.counts.restore(row, entry.tally)
            if entry.pixels is not None:
                examples.adversarial.change([row], [unpack(entry.pixels, examples.x[row])])
        examples.advance(len(entries), "")


# ------------------------------------------------------------------------------------------------- states of S entries


def keep(state: State, stay: Tensor) -> State:
    """The entries of those that stay: (S,) bool."""
    if bool(stay.all()):
        return state
    return _each(state, lambda t: t[stay.to(t.device)])


def join(state: State, other: State) -> State:
    """The entries of both, one after the other."""
    return _each(state, lambda t, u: torch.cat([t, u]), other)


def put(state: State, where: Tensor, part: State) -> State:
    """The state with the entries at `where`, (S,) bool, taken from `part`, which has just these."""

    def written(t: Tensor, u: Tensor) -> Tensor:
        t = t.clone()
        t[where.to(t.device)] = u
        return t

    return _each(state, written, part)


def _each(state: State, act: Any, *others: State) -> State:
    names = [f.name for f in fields(state)]  # type: ignore[arg-type]
    return type(state)(*(act(*(getattr(s, name) for s in (state, *others))) for name in names))
