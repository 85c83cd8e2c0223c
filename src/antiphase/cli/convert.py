"""antiphase convert"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tyro

from antiphase.config import check_fields
from antiphase.files import require_folder
from antiphase.models.attention_syntax import parse_attention
from antiphase.models.config import Differential
from antiphase.models.prompts import PROMPT_SETS
from antiphase.scales import ScaleName

EXAMPLES = """\
  antiphase convert checkpoint_best.pt runs/diffclip
  antiphase convert checkpoint_best.pt runs/diffclip-star --lambda-init schedule
  antiphase convert clip.pt runs/clip --heads 12 --text-heads 8"""
TAKES = "a checkpoint and the folder of the run to write"


@dataclass(frozen=True, kw_only=True)
class Command:
    file: tyro.conf.Positional[str]  # checkpoint of DiffCLIP or SLIP, or owner/name on the Hugging Face hub
    out: tyro.conf.Positional[Path]  # folder of the run that is written
    heads: int | None = None  # of a softmax vision tower: its tensors do not show them
    text_heads: int | None = None  # of a softmax text tower
    lambda_init: str | None = None  # a number, 0.2/0.4/..., or schedule[/a/b/c/base]; not stored: 0.8 is assumed
    json: bool = False  # print the result as JSON on stdout

    @classmethod
    def defaults(cls, scale: ScaleName) -> Command:
        del scale  # a checkpoint has its own size
        return cls(file=tyro.MISSING, out=tyro.MISSING)

    def __post_init__(self) -> None:
        check_fields(self, heads=1, text_heads=1)
        self.differential()  # refuses what cannot be read

    def differential(self) -> Differential | None:
        """The attention with the lambda_init that was given."""
        if self.lambda_init is None:
            return None
        attention = parse_attention(f"differential:lambda_init={self.lambda_init}")
        assert isinstance(attention, Differential)
        return attention


def run(command: Command) -> dict[str, Any]:
    require_folder(command.out)
    from antiphase.models.attention import lambdas
    from antiphase.models.convert import convert
    from antiphase.results.measure import lambda_rows, parameters

    run = convert(
        command.file,
        command.out,
        heads=command.heads,
        text_heads=command.text_heads,
        lambda_init=command.differential(),
    )
    return {
        "run": str(run.folder),
        "title": run.config.title,
        "parameters": parameters(run),
        "assumed": run.about["assumed"],
        "lambda": lambda_rows(run) if lambdas(run.model()) else [],
    }


def show(result: dict[str, Any]) -> None:
    print(f"{result['title']} with {result['parameters']:,} parameters in {result['run']}")
    for assumption in result["assumed"]:
        print(f"assumed: {assumption}, which a checkpoint does not store; --lambda-init says otherwise")
    print(f"prompts: a checkpoint stores none; commands take {PROMPT_SETS['paper'][0]!r}, and --prompts chooses others")
    for row in result["lambda"]:
        warning = "".join(f"  WARNING: {flag}" for flag in row["flags"])
        print(f"  {row['layer']}  lambda {row['lambda']:.4f} (from {row['lambda_init']:.3g}){warning}")
    if any(row["flags"] for row in result["lambda"]):
        print("lambda outside (0, 1): is --lambda-init the one this model was trained with?")
