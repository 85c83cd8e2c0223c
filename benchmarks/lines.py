"""All lines of the benchmark, by name."""

from __future__ import annotations

from benchmarks.attack_lines import ATTACK_LINES
from benchmarks.autoattack_lines import AUTOATTACK_LINES
from benchmarks.lens_lines import LENS_LINES
from benchmarks.minimal_lines import MINIMAL_LINES
from benchmarks.model_lines import MODEL_LINES
from benchmarks.start_lines import START_LINES
from benchmarks.timing import Line
from benchmarks.training_lines import TRAINING_LINES

LINES: dict[str, Line] = (
    TRAINING_LINES | ATTACK_LINES | AUTOATTACK_LINES | MINIMAL_LINES | LENS_LINES | START_LINES | MODEL_LINES
)
