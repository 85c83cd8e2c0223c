"""Figure 1, measured: one image clean and attacked, its maps, and where the gradients of the two branches point."""

from __future__ import annotations

from antiphase.paper.grid import Grid
from antiphase.paper.questions import Ask
from antiphase.paper.study import Answers, Label, Line, Study, TableRow
from antiphase.paper.titles import data_name
from antiphase.results.questions import BranchPictureQuestion

FIGURES = {
    "cos": "cos of the Jacobians of A1 and A2 (Frobenius, heads stacked)",
    "rho": "rho = ||J2|| / ||J1||",
    "amplification": "||J1 - lambda J2|| / ||J1||",
    "contribution_cos": "cos of what the branches give to the loss gradient, J1'u and -lambda J2'u",
    "lambda": "lambda",
}
CANDIDATES = 64  # the first image among them that is classified correctly and gets broken is shown


def picture(grid: Grid) -> Ask:
    images = grid.test(min(CANDIDATES, grid.s.measure_images))
    return Ask(of=grid.diffvit(0), images=images, question=BranchPictureQuestion(attack=grid.pgd(grid.large)))


def lines(grid: Grid) -> list[Line]:
    """Numbers of the one image that the figure shows: an illustration, no evidence."""
    cell = picture(grid)

    def read(answers: Answers) -> list[TableRow]:
        shown, table = answers(cell), []
        for state, view in shown["states"].items():
            label = f"image {shown['image']} ({shown['label']}), {state}: “{view['prediction']}”"
            for name, text in FIGURES.items():
                table.append(TableRow(label=label, reading=text, value=view.get(name), unit="", n=1, seeds=1))
        return table

    return [Line(label=Label("DiffViT"), reading="one image, clean and attacked", cells=(cell,), read=read, unit="")]


STUDIES = (
    Study(
        name="fig1",
        title=lambda grid: (
            f"Figure 1: maps and branch gradients of one {data_name(grid.data)} image, clean and under PGD at {grid.large}"
        ),
        question="What do A1, A2, A1 - lambda A2 and the branch gradients of one image look like, clean and attacked?",
        minutes=0.4,
        lines=lines,
    ),
)
