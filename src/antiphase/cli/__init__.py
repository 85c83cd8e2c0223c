"""The command line. A static table answers `antiphase --help`; a subcommand is imported only when it is named.

Exit codes: 0 done, 1 the run failed (it diverged), 2 the input was refused (one sentence on stderr), 130 interrupted.
"""

from __future__ import annotations

import ctypes
import os
import sys

MALLOC = {"MALLOC_MMAP_THRESHOLD_": (-3, 2**30), "MALLOC_TRIM_THRESHOLD_": (-1, 2**31 - 1)}  # mallopt's option, bytes
COMMANDS = {
    "demo": "Train a ViT and its differential twin on digits, attack, measure, compare, report: about a minute.",
    "train": "Train a ViT or DiffViT; the same command goes on where a killed run stopped.",
    "train-clip": "Train a CLIP or DiffCLIP on image-caption pairs or class prompts; resumes like train.",
    "audit": "Audit a model of your own: clean and under attack, judged by AutoAttack, and inside its attention.",
    "convert": "Make a run of a published CLIP or DiffCLIP checkpoint: safetensors and a config.",
    "eval": "Judge a run by what its features are good for: zero-shot, retrieval, linear probe, few-shot, OOD, MMVP.",
    "attack": "Attack a trained run: PGD, FGSM, AutoAttack and its parts over a grid of budgets, or for the smallest L2.",
    "measure": "Look into the attention of a trained run: sensitivity, branch alignment, cancellation, lambda.",
    "theory": "Hold each lemma and theorem against a trained run and its softmax baseline.",
    "certify": "Certify L2 radii of one run or two by randomised smoothing, and attack what is certified.",
    "compare": "Attack and measure two runs on the same images and test their difference.",
    "study": "Run a table or figure of the papers by name, hold it against their numbers, and decide their claims.",
    "look": "Show a few test images to trained runs, clean and attacked, and keep every map for the lens of the report.",
    "report": "Draw the page of a comparison or of runs: findings, tables, figures and an interactive lens.",
}


def usage() -> str:
    width = max(map(len, COMMANDS))
    table = "\n".join(f"  {name:<{width}}  {summary}" for name, summary in COMMANDS.items())
    return (
        "usage: antiphase COMMAND [flags]\n\n"
        "What the subtraction in differential attention costs in robustness, and what it buys.\n\n"
        f"commands:\n{table}\n\n"
        "antiphase COMMAND --help shows its flags and examples; antiphase --version the version.\n"
        "--scale smoke|cpu|desk|paper picks all sizes at once and means the same in every command that takes it."
    )


def main(argv: list[str]) -> int:
    if not argv or argv[0] in ("-h", "--help", "help"):
        print(usage())
        return 0 if argv else 2
    if argv[0] == "--version":
        from importlib.metadata import version

        print(f"antiphase {version('antiphase')}")
        return 0
    name, *rest = argv
    if name not in COMMANDS:
        from difflib import get_close_matches

        near = get_close_matches(name, COMMANDS, n=1)
        print(
            f"antiphase: there is no command {name!r}"
            + (f": did you mean {near[0]!r}?" if near else "; see antiphase --help"),
            file=sys.stderr,
        )
        return 2
    from antiphase.cli.dispatch import run_command

    return run_command(name, rest)


def environ_for_threads() -> None:
    """How OpenMP's threads wait, before torch is loaded and reads it; what the user set stays.

    Threads that wait for each other soon sleep: beside other jobs those that spin are many times slower, and alone those that
    sleep at once twice as slow. The second variable is of the library that torch's Linux wheels use.
    """
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    os.environ.setdefault("GOMP_SPINCOUNT", "3000")


def keep_freed_memory() -> None:
    """Let glibc keep the memory of freed tensors for the next ones; what the user set stays.

    By default it gives large blocks back to the kernel and asks for them again, page by page, at every step of a training.
    The variables are for processes that this one starts: its own allocator has read them already and must be called.
    """
    if any(name in os.environ for name in (*MALLOC, "GLIBC_TUNABLES")):
        return
    os.environ.update({name: str(value) for name, (_, value) in MALLOC.items()})
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):  # not glibc
        return
    for option, value in MALLOC.values():
        mallopt(option, value)


def entry() -> None:
    environ_for_threads()
    keep_freed_memory()
    code = main(sys.argv[1:])
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        _end_at_once(code)
    sys.exit(code)


def _end_at_once(code: int) -> None:
    """The end of one of several processes, when all is written: without tearing down the interpreter, which a thread of torch's
    process group that still wants it turns into an abort now and then (the status -6 of a rank whose work was done)."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
