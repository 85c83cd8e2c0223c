"""Which classes a targeted attack tries. n examples, K classes."""

from __future__ import annotations

from torch import Tensor

from antiphase.attacks.job import Job


def likeliest_others(job: Job, aim: Tensor, count: int) -> Tensor:
    """(n, T): the classes that the clean image comes nearest to, T = min(count, K - 1).

    Never the class `aim` that is driven away from; the predicted one, if that is another, comes last: reaching it is no success.
    """
    order = job.seen.logits.clone()
    order.scatter_(1, job.clean[:, None], order.amin(dim=1, keepdim=True) - 1)
    order.scatter_(1, aim[:, None], order.amin(dim=1, keepdim=True) - 1)
    return order.argsort(dim=1, descending=True, stable=True)[:, : min(count, order.shape[1] - 1)]
