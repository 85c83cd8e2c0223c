"""Certified accuracy of ViT and DiffViT, smoothed: what is proven of their robustness, where attacks only fail to break it.

Our own question: it decides no claim of the papers.
"""

from __future__ import annotations

from antiphase.measures.certificates import RADII, CertificateAnswer
from antiphase.measures.questions import CertificateQuestion
from antiphase.measures.seed_intervals import difference
from antiphase.measures.stats import Array
from antiphase.paper.contrasts import predict
from antiphase.paper.grid import Grid, vit_series
from antiphase.paper.questions import Ask, Model
from antiphase.paper.series import Series, Values, difference_line, line
from antiphase.paper.study import Label, Line, Prediction, Study, Tick
from antiphase.paper.titles import data_name
from antiphase.store import Content

DECIDED_AT = {0.12: 0.125, 0.25: 0.25}  # noise -> L2 radius at which E4 is decided
READING = "certified accuracy"
ABSTAINED = "share of images on which the smoothed model abstains"


def certified_at(radius: float) -> Values:
    """Of all images, those predicted correctly and certified at this radius."""

    def values(content: Content) -> tuple[Array, Array]:
        certified = CertificateAnswer(content).certified(radius).astype(float)
        return certified, certified * 0 + 1

    return values


def abstained(content: Content) -> tuple[Array, Array]:
    undecided = CertificateAnswer(content).abstained.astype(float)
    return undecided, undecided * 0 + 1


def certificate(grid: Grid, of: Model, sigma: float) -> Ask:
    question = CertificateQuestion(sigma=sigma, samples=grid.s.certify_samples)
    return Ask(of=of, images=grid.test(grid.s.certify_images), question=question)


def _series(grid: Grid, sigma: float, values: Values) -> dict[str, Series]:
    return vit_series(grid, 1, lambda of: certificate(grid, of, sigma), values)


def lines(grid: Grid) -> list[Line]:
    table: list[Line] = []
    for sigma in DECIDED_AT:
        noise = f"sigma {sigma:g}"
        for radius in RADII:
            at, both = Tick.at("L2 radius", radius), _series(grid, sigma, certified_at(radius))
            table += [line(Label(name, noise, at), series, READING) for name, series in both.items()]
            table.append(difference_line(Label("DiffViT - ViT", noise, at), both["DiffViT"], both["ViT"], READING))
        for name, series in _series(grid, sigma, abstained).items():
            table.append(line(Label(name, noise), series, ABSTAINED))
    return table


def predictions(grid: Grid) -> list[Prediction]:
    """E4: what is proven of the ViT is more than what is proven of the DiffViT."""
    listed = []
    for sigma, radius in DECIDED_AT.items():
        both = _series(grid, sigma, certified_at(radius))
        name = f"ViT - DiffViT at L2 radius {radius:g}, sigma {sigma:g}"
        listed.append(predict("E4", name, grid.data, READING, [both["ViT"], both["DiffViT"]], difference))
    return listed


STUDIES = (
    Study(
        name="certificates",
        claims=("E4",),
        aliases=("x6",),
        title=lambda grid: f"X6: certified accuracy by randomised smoothing, depth 1, {data_name(grid.data)}",
        question="Is less proven of the DiffViT's robustness than of the ViT's, when both are smoothed by noise?",
        minutes=31.5,
        lines=lines,
        predictions=predictions,
    ),
)
