"""What is refused before an attack, and the red flags that belong to its result: reasons to distrust it.

n examples, S of them at work, G gradients of each, K classes.
"""

from __future__ import annotations

import copy

import torch
from torch import Tensor, nn

from antiphase.attacks.threat_model import ThreatModel
from antiphase.config import InputError

# ------------------------------------------------------------------------------------------------- refused before


HALVES = (torch.float16, torch.bfloat16)


def check_inputs(classifier: nn.Module, x: Tensor, y: Tensor, within: ThreatModel | None) -> None:
    """Refuse images outside [0,1], labels that cannot be labels, half precision, and a model in train mode."""
    if not isinstance(classifier, nn.Module):
        raise InputError(
            f"the classifier is a {type(classifier).__name__}: give a torch module, or wrap it by ap.as_classifier(model, ...)"
        )
    for name, value in (("images", x), ("labels", y)):
        if not isinstance(value, Tensor):
            raise InputError(f"{name} are a {type(value).__name__}: expected a tensor or a NumPy array")
    if x.ndim != 4 or not x.numel():
        raise InputError(f"images have shape {tuple(x.shape)}: expected (n, channels, height, width) with n at least 1")
    if not x.is_floating_point():
        raise InputError(f"images are {x.dtype}: expected floats in [0,1] (divide bytes by 255)")
    if x.dtype in HALVES:
        raise InputError(
            f"images are {x.dtype}, in which small steps are rounded away and a model looks robust that is not: call "
            ".float() on them"
        )
    low, high = x.min().item(), x.max().item()
    if not (low >= 0 and high <= 1):  # NaN fails both comparisons
        raise InputError(f"pixels range from {low:g} to {high:g}: expected [0,1], with normalisation inside the model")
    if y.shape != x.shape[:1] or y.is_floating_point() or y.is_complex() or y.dtype == torch.bool:
        raise InputError(f"labels have shape {tuple(y.shape)} and type {y.dtype}: expected {len(x)} whole numbers")
    for name, parameter in classifier.named_parameters():
        if parameter.dtype in HALVES:
            raise InputError(
                f"{name} is {parameter.dtype}, in which small steps are rounded away and a model looks robust that is not: call "
                ".float() on the model"
            )
    for name, module in classifier.named_modules():
        active = isinstance(module, nn.modules.batchnorm._BatchNorm) or (
            isinstance(module, nn.modules.dropout._DropoutNd) and module.p > 0
        )
        if active and module.training:
            raise InputError(
                f"{name or 'the model'} ({type(module).__name__}) is in train mode: call .eval() on the model first"
            )
    if within is not None:
        within.check(tuple(x.shape[1:]))


FEW = 4  # images on which a model is tried before an attack


def check_on_grid(x: Tensor) -> None:
    """Refuse images that rounding to 255ths would change outside of a patch."""
    apart = (x * 255 - (x * 255).round()).abs().amax() / 255
    if apart > 1e-5:
        raise InputError(
            f"eight_bit with a patch needs images on the grid of 255ths, and these are up to {float(apart):.2g} off it: rounding "
            "would change pixels outside of the patch; round the images first"
        )


def check_model(classifier: nn.Module, x: Tensor, *, gradients: bool) -> Tensor:
    """Refuse a model on which an attack would fail for another reason than robustness, found out on a few images x.

    It raises, returns no logits, computes in half precision, changes its images in place, gives no gradient where `gradients`
    are needed, or answers for an image by what its neighbours are. A model that answers differently when asked twice is not
    refused: that is a red flag of the result. Returns its logits on these images.
    """
    x = x[:FEW]
    given = x.clone()
    logits = call(classifier, given)
    check_untouched(given, x)
    if logits.dtype in HALVES:
        raise InputError(
            f"the model returns {logits.dtype} logits, so coarse that small changes vanish and it looks robust: let it "
            "compute in float32 (no autocast, .float())"
        )
    many = len(x) > 1  # then only images that it was given are shown: an intervention knows no others
    together, apart = (x, x[:1].repeat(len(x), 1, 1, 1)) if many else (torch.cat([x, x]), torch.cat([x, 1 - x]))
    first = logits if many else call(classifier, together)
    if _moves(first, call(classifier, apart)) and not _moves(first, call(classifier, together.clone())):
        raise InputError(BESIDE)
    if gradients:
        _check_gradient(classifier, x)
    return logits


def check_batches(classifier: nn.Module, x: Tensor) -> None:
    """`check_model` of a model that is only looked at, and in a batch of all of x: one that answers for an image by its batch."""
    logits = check_model(classifier, x, gradients=False)
    if len(x) > FEW and torch.equal(call(classifier, x[:FEW].clone()), logits):  # else its answers are random
        check_alike(logits, call(classifier, x.clone()))


BESIDE = (
    "the logits of an image change with the images beside it, so success would depend on the batch: call .eval() on every part "
    "of the model, or normalise each image by itself"
)


def check_untouched(given: Tensor, x: Tensor) -> None:
    """Refuse a model that has changed the images which it was shown."""
    if not torch.equal(given, x):
        raise InputError(
            "the model changes its images in place, and so the attack's own: let its forward begin with x = x.clone(), "
            "or wrap it by ap.as_classifier(model, ...)"
        )


def check_alike(few: Tensor, batch: Tensor) -> None:
    """Refuse a model whose logits on the first images are others in a whole batch than in one of only these."""
    few, batch = few.to(batch), batch[: len(few)]
    apart = (batch - few).abs().amax(dim=1) > DRIFT * few.abs().amax(dim=1).clamp_min(1e-12)
    if bool(apart.any()):
        raise InputError(BESIDE)


DRIFT = 1e-3  # of the largest logit: more than rounding, in batches of one size


def _moves(logits: Tensor, again: Tensor) -> bool:
    """Whether the answer on the first image is another one."""
    return bool((again[0] - logits[0]).abs().max() > DRIFT * logits[0].abs().max().clamp_min(1e-12))


def call(classifier: nn.Module, x: Tensor) -> Tensor:
    """The logits of a model; what it raises or returns instead is refused in one sentence."""
    try:
        with torch.no_grad():
            logits = classifier(x)
    except InputError:
        raise
    except Exception as error:
        kinds = {parameter.dtype for parameter in classifier.parameters()}
        remedy = "" if x.dtype in kinds or not kinds else f"; its weights are {kinds.pop()}: call .float() on the model"
        raise InputError(_cannot(x, error) + remedy) from error
    if not isinstance(logits, Tensor):
        raise InputError(
            f"the model returned a {type(logits).__name__}, not a tensor of logits: wrap it by ap.as_classifier(model, ...)"
        )
    check_logits(logits, len(x), torch.empty(0, dtype=torch.int64))
    return logits


def _cannot(x: Tensor, error: Exception) -> str:
    lines = str(error).strip().splitlines()
    said = f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__
    return f"the model cannot be called on {len(x)} images of shape {tuple(x.shape[1:])} and type {x.dtype}: {said}"


def _check_gradient(classifier: nn.Module, x: Tensor) -> None:
    remedy = "take no_grad, detach() or NumPy out of its forward, or use Square, which needs no gradient"
    pixels = x.clone().requires_grad_()
    try:
        with torch.enable_grad():
            logits = classifier(pixels)
            connected = logits.requires_grad
            if connected:
                (gradient,) = torch.autograd.grad(logits.sum(), pixels, allow_unused=True)
                connected = gradient is not None
    except Exception as error:
        lines = str(error).strip().splitlines() or [""]
        raise InputError(f"the model gives no gradient ({type(error).__name__}: {lines[0]}): {remedy}") from error
    if not connected:
        raise InputError(f"the model gives no gradient, without which an attack fails and it looks robust: {remedy}")


def check_logits(logits: Tensor, n: int, y: Tensor) -> None:
    """Refuse logits that are not one row of class scores per image or are NaN, and labels that are none of the classes."""
    if logits.ndim != 2 or len(logits) != n or not logits.shape[1]:
        raise InputError(f"the model returned shape {tuple(logits.shape)} for {n} images: expected ({n}, classes)")
    if logits.shape[1] == 1:
        raise InputError(
            "the model has one class, of which no prediction can change: of a single score z return the two columns 0 and z"
        )
    if logits.is_meta or not logits.is_floating_point():
        kind = "logits without values (its weights are on the meta device)" if logits.is_meta else f"{logits.dtype}"
        raise InputError(f"the model returned {kind}: expected floats, a score for each class")
    if nan := int(logits.isnan().any(dim=1).sum()):
        raise InputError(
            f"the model returned NaN for {nan} of {n} clean images: nothing can be said of its predictions"
        )
    wrong = y[(y < 0) | (y >= logits.shape[1])]
    if len(wrong):
        raise InputError(f"label {wrong[0].item()} is out of range for a model of {logits.shape[1]} classes")


# ------------------------------------------------------------------------------------------------- red flags


RANDOMISED = "the model answers differently when asked twice: use an attack for randomised models"


def model_flags(logits: Tensor, again: Tensor) -> list[str]:
    """Signs, from two forwards on the same clean images, that the model is not what a gradient attack takes it for."""
    flags = []
    if not torch.equal(again, logits):
        flags.append(RANDOMISED)
    rows = logits.sum(dim=1)
    if logits.min() >= 0 and torch.allclose(rows, torch.ones_like(rows), atol=1e-4):
        flags.append("the model returns probabilities, not logits: gradients vanish where it is confident")
    return flags


class RedFlagCounts:
    """What is counted during an iterative attack, one entry per example over all its restarts.

    Kept per example, so that an example taken over from a journal brings its own.
    """

    NAMES = (
        "zero_gradient",
        "bad_gradient",
        "fooled_at_start",
        "failed",
        "failed_without_rise",
    )  # as journals order them

    def __init__(self, n: int) -> None:
        self.zero_gradient, self.bad_gradient = torch.zeros(n, dtype=torch.int64), torch.zeros(n, dtype=torch.int64)
        self.fooled_at_start = torch.zeros(n, dtype=torch.int64)  # restarts that succeeded at their random start
        self.failed = torch.zeros(n, dtype=torch.int64)  # restarts that failed
        self.failed_without_rise = torch.zeros(n, dtype=torch.int64)  # of these, with a loss that did not rise

    def add_forward(self, rows: Tensor, *, at_start: Tensor, risen: Tensor, fooled: Tensor, finished: Tensor) -> None:
        """A forward of these examples and what it showed, (S,) each."""
        failed = finished & ~fooled
        self.fooled_at_start.index_add_(
            0, rows, (fooled & at_start).long()
        )  # two restarts of one example may be at work
        self.failed.index_add_(0, rows, failed.long())
        self.failed_without_rise.index_add_(0, rows, (failed & ~risen).long())

    def add_gradients(self, rows: Tensor, grads: Tensor) -> None:
        """A step at which the gradients of an example, (G, S, C, H, W), may be no numbers, or all exactly zero."""
        largest = grads.flatten(2).norm(torch.inf, dim=2).amax(dim=0).cpu()  # (S,); NaN and infinity show in it
        self.bad_gradient.index_add_(0, rows, (~largest.isfinite()).long())
        self.zero_gradient.index_add_(0, rows, (largest == 0).long())

    def of(self, row: int) -> list[int]:
        return [int(getattr(self, name)[row]) for name in self.NAMES]

    def restore(self, row: int, counts: list[int]) -> None:
        for name, count in zip(self.NAMES, counts):
            getattr(self, name)[row] = count

    def flags(self, random_start: bool, successes: int) -> list[str]:
        """Signs that the attack was weaker than it should have been; so many of its restarts succeeded."""
        n = len(self.failed)
        zero, bad = int((self.zero_gradient > 0).sum()), int((self.bad_gradient > 0).sum())
        failed, flat = int(self.failed.sum()), int(self.failed_without_rise.sum())
        by_noise = int(self.fooled_at_start.sum()) if random_start else 0
        flags = []
        if bad:
            flags.append(f"the gradient was not a number for {bad} of {n} images")
        if zero:
            flags.append(f"the gradient was exactly zero for {zero} of {n} images: the loss or the model hides it")
        if flat > 0.2 * failed and flat >= 5:
            flags.append(f"the loss did not rise in {flat} of {failed} restarts that failed: the step may be too large")
        if by_noise >= 0.9 * successes and by_noise > 0.05 * n:
            flags.append(
                f"random starts alone succeeded {by_noise} times where the attack succeeded {successes} times: its gradient does "
                "not help"
            )
        return flags


def stage_flags(broken: dict[str, int], n: int) -> list[str]:
    """Signs that the gradients mislead: stages that use them less, or not at all, fooled what the stages before could not.

    `broken` counts the examples that each stage fooled, in the order of the stages.
    """
    flags = []
    by_square, by_fab = (sum(k for name, k in broken.items() if name.startswith(s)) for s in ("Square", "FAB"))
    if by_square > max(1, 0.002 * n):
        flags.append(f"Square broke {by_square} of {n} images that the gradients before it did not: they may be masked")
    if by_fab > max(2, 0.05 * n):
        flags.append(f"FAB broke {by_fab} of {n} images that APGD did not: its loss or steps may not suit the model")
    return flags


def precision_flags(classifier: nn.Module, adversarial: Tensor, clean: Tensor, most: int = 8) -> list[str]:
    """Success that is an artefact of float32: a few adversarial images do not fool the model in float64."""
    few = adversarial[:most].double()
    if not len(few):
        return []
    try:
        with torch.no_grad():
            wide = copy.deepcopy(classifier).double()(few).argmax(dim=1).cpu()
    except (RuntimeError, TypeError):  # a model that cannot be copied, or not be brought to float64: nothing is known
        return []
    same = int((wide == clean[: len(few)]).sum())
    return (
        [f"in float64 the model is not fooled by {same} of {len(few)} images that fool it in float32"] if same else []
    )


def unfound_flags(unfound: int, n: int) -> list[str]:
    """An attack without a budget or a target that finds nothing at any distance was misled, or stopped too soon."""
    why = "it was misled, or has too few steps"
    return [f"no adversarial image was found at any distance for {unfound} of {n} images: {why}"] if unfound else []


def unconfirmed_flags(unconfirmed: int, claimed: int) -> list[str]:
    """What fooled the model in the attack's steps, which may be compiled or leave work out, has to fool it when judged."""
    if unconfirmed <= max(1, 0.02 * claimed):
        return []
    return [f"{unconfirmed} of {claimed} images that fooled the model during the attack did not when they were judged"]


def order_flags(rates: list[float]) -> list[list[str]]:
    """For success rates of growing budgets: what is wrong with each, if it fell."""
    return [
        [f"a larger budget was not stronger: success {now:.3f} after {before:.3f}"] if now < before else []
        for before, now in zip([0.0, *rates], rates)
    ]
