"""FAB (Croce & Hein 2020, "Minimally distorted adversarial examples").

S examples at work (attacks/scheduler.py), G boundaries of each: that to one target, or those to all other classes.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from antiphase.attacks.config import FAB
from antiphase.attacks.losses import class_logit
from antiphase.attacks.scheduler import StepResult
from antiphase.attacks.threat_model import L2, SLACK, ThreatModel

if TYPE_CHECKING:
    from antiphase.attacks.engine import Examples


@dataclass(frozen=True)
class FABState:
    """Where each example is, on the model's device."""

    step: Tensor  # (S,) steps taken
    x: Tensor  # (S, C, H, W) the originals
    adv: Tensor
    loss_label: Tensor  # (S,) the class that is left
    others: Tensor  # (S, G) the classes behind the boundaries
    lead: Tensor  # (S, G) their logits minus that of `loss_label`
    back: Tensor  # (S,) bool: has just been drawn back towards the image, and steps from there whatever it finds


class FABAlgorithm:
    """A point that does not fool gives its own gradients, so one forward serves both; one that fools is drawn back first."""

    eot_samples, uses_gradients, random_start = 1, True, False
    masks: Tensor | None = None

    def __init__(self, attack: FAB, examples: Examples) -> None:
        self.attack, self.examples, self.loss_label = attack, examples, examples.loss_label(attack.label)
        every = examples.clean.logits.shape[1] - 1
        others = examples.clean.likeliest_others(self.loss_label, attack.targets or every)
        self.lanes = 1 if attack.targets is None else others.shape[1]
        self.others = others.reshape(len(others), self.lanes, -1)  # (n, lanes, G)

    def begin(self, row: Tensor, restart: Tensor, lane: Tensor) -> FABState:
        examples, within = self.examples, self.attack.within
        x = examples.x[row]
        adv = x.clone()
        for r, t in sorted(set(zip(restart.tolist(), lane.tolist()))):
            here = (restart == r) & (lane == t)
            if r:
                start = within.start((examples.seed, "fab", r, t), examples.ids[row[here].numpy()], tuple(x.shape[1:]))
                adv[here] = (x[here] + torch.from_numpy(start).to(x) / 2).clamp(0, 1)
        others, step = self.others[row, lane], torch.zeros(len(row), dtype=torch.int64)
        fields = (step, x, adv, self.loss_label[row], others, x.new_zeros(others.shape), step > 0)
        return FABState(*(t.to(examples.device) for t in fields))

    def pixels(self, state: FABState) -> Tensor:
        return state.adv

    def values(self, state: FABState, logits: Tensor) -> Tensor:
        return (logits.gather(1, state.others) - class_logit(logits, state.loss_label)[:, None]).T

    def after_forward(self, state: FABState, values: Tensor, fooled: Tensor) -> StepResult[FABState]:
        within = self.attack.within
        moved = within.size(state.adv.cpu().double() - state.x.cpu().double())
        inside = fooled & (moved <= float(within.eps) + SLACK)  # as it will be judged
        takes_step = ~fooled | state.back.cpu()
        drawn_back = ~takes_step.to(state.back.device)
        nearer = state.x + self.attack.beta * (state.adv - state.x)
        adv = torch.where(drawn_back[:, None, None, None], nearer, state.adv)
        after = replace(state, adv=adv, lead=values.T, back=drawn_back)
        return StepResult(after, inside, (state.step == self.attack.steps).cpu(), state.adv, takes_step)

    def step(self, state: FABState, grads: Tensor) -> FABState:
        """To the nearest boundary, as seen from here and from the image; mostly from here, pulled a little to the image."""
        within, x, adv = self.attack.within, state.x, state.adv
        normals = grads.nan_to_num().transpose(0, 1).flatten(2)  # (S, G, C*H*W)
        distance = state.lead.abs() / (1e-12 + _dual(normals, within))  # (S, G)
        nearest = distance.argmin(dim=1)
        each = torch.arange(len(x), device=x.device)
        normal, lead = normals[each, nearest], state.lead[each, nearest]
        from_here = to_plane(adv.flatten(1), normal, lead, within)
        at_image = lead + (normal * (x - adv).flatten(1)).sum(dim=1)
        from_image = to_plane(x.flatten(1), normal, at_image, within)
        near, far = (within.size(d).clamp_min(1e-8) for d in (from_here, from_image))
        pull = (near / (near + far)).clamp(max=self.attack.alpha_max)[:, None, None, None]
        here, image = (p + self.attack.eta * d.view_as(p) for p, d in ((adv, from_here), (x, from_image)))
        point = ((1 - pull) * here + pull * image).clamp(0, 1)
        return replace(state, step=state.step + 1, adv=point, back=torch.zeros_like(state.back))


def _dual(normals: Tensor, within: ThreatModel) -> Tensor:
    """The dual norm over the last axis: what a perturbation of size 1 can move a linear function by."""
    size: Tensor = normals.norm(dim=-1) if isinstance(within, L2) else normals.abs().sum(dim=-1)
    return size


def to_plane(points: Tensor, normal: Tensor, lead: Tensor, within: ThreatModel) -> Tensor:
    """The smallest move, in the norm of `within`, after which `lead` + normal . move = 0 and the point is in [0,1]; if there
    is none, the move in [0,1] that comes nearest. (S, D), (S, D), (S,) -> (S, D)

    The move is min(m * pace, room) in every coordinate, pace 1 for Linf and |normal| for L2. What it gains is a concave,
    piecewise linear function of m, so Newton's steps from below reach the exact m, with no sorting.
    """
    scale = normal.abs().amax(dim=1, keepdim=True).clamp_min(1e-30)
    normal, lead = normal / scale, lead / scale[:, 0]
    weight = normal.abs()
    sign = -normal.sign() * lead.sign()[:, None]
    room = torch.where(sign > 0, 1 - points, points) * (weight > 0)
    pace = weight if isinstance(within, L2) else torch.ones_like(weight)
    full = torch.zeros_like(weight, dtype=torch.bool)
    while True:  # each round fills at least one more coordinate, or is the last
        owed = lead.abs() - (weight * room * full).sum(dim=1)
        free = (weight * pace * ~full).sum(dim=1)
        m = torch.where(free > 0, owed / free.clamp_min(1e-30), torch.inf)[:, None]
        fuller = full | (m * pace >= room)
        if bool((fuller == full).all()):
            return sign * torch.where(full, room, (m * pace).clamp(max=1).minimum(room))
        full = fuller
