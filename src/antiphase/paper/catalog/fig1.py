"""Figure 1, measured: one image clean and attacked, its maps, and where the gradients of the two branches point."""

from __future__ import annotations

from antiphase.paper.grid import Setting
from antiphase.paper.questions import Looked
from antiphase.paper.study import Found, Line, Missing, Study

FIGURES = {
    "cos": "cos of the Jacobians of A1 and A2 (Frobenius, heads stacked)",
    "rho": "rho = ||J2|| / ||J1||",
    "amplification": "||J1 - lambda J2|| / ||J1||",
    "contribution_cos": "cos of what the branches give to the loss gradient, J1'u and -lambda J2'u",
    "lambda": "lambda",
}
CANDIDATES = 64  # the first image among them that is right and gets broken is shown


def _cell(setting: Setting) -> Looked:
    attack = setting.pgd(setting.large)
    return Looked(of=setting.diffvit(0), images=setting.test(min(CANDIDATES, setting.s.measure_images)), attack=attack)


def lines(setting: Setting, found: Found) -> list[Line]:
    """Numbers of the one image that the figure shows: an illustration, no evidence."""
    try:
        seen = found(_cell(setting))
    except Missing:
        return [Line(label="DiffViT", reading=text, unit="", note="not run yet") for text in FIGURES.values()]
    table = []
    for state, look in seen["states"].items():
        label = f"image {seen['image']} ({seen['label']}), {state}: “{look['prediction']}”"
        for name, text in FIGURES.items():
            value = look.get(name, look["lambda"] if name == "lambda" else None)
            table.append(Line(label=label, reading=text, value=value, unit="", n=1, seeds=1))
    return table


STUDIES = (
    Study(
        name="fig1",
        title="Figure 1: maps and branch gradients of one image, clean and under PGD at 4/255",
        question="What do A1, A2, A1 - lambda A2 and the branch gradients of one image look like, clean and attacked?",
        minutes=0.4,
        cells=lambda setting: [_cell(setting)],
        lines=lines,
    ),
)
