"""Figure 1 of the AISTATS submission: training loss by width, and the norm of W during gradient descent."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from types import MappingProxyType
from typing import Any

from notsodeep.gaussian.activations import activation
from notsodeep.models import DEQ, Model
from notsodeep_lab.papers.experiment import Expectation, Experiment, Row, Task, claims_by, grid
from notsodeep_lab.papers.experiment_settings import Spec
from notsodeep_lab.papers.row_statistics import exponent, mean, values_of
from notsodeep_lab.plots.row_selection import chosen

_RATES = {
    "common": "one step size for all widths, 1/λ_max(H) of the widest network",
    "own": "for each width its own 1/λ_max(H), halved while the loss rises",
}


@dataclass(frozen=True)
class Aistats1Spec(Spec):
    """Full-batch gradient descent on all weights."""

    data: tuple[str, ...]  # "sphere", or real data sets whose classes 0 and 1 are taken
    n: int  # number of samples
    d: int  # dimension of the sphere
    sigma_w2: float  # σ_w² of docs/theory.md (8.11)
    widths: tuple[int, ...]  # widths of the networks
    seeds: int  # number of draws of the weights
    steps: int  # number of gradient steps
    every: int  # steps between two records


class Aistats1(Experiment[Aistats1Spec]):
    """Training loss by width, and ‖W(τ)‖₂ during training."""

    name = "aistats-1"
    paper = "AISTATS submission, Figure 1"
    summary = "Training loss of ReLU DEQs by width, and the norm of W during gradient descent"
    minutes = MappingProxyType({"quick": 0.5, "full": 30.0})
    cut = (
        "The paper states neither widths, step sizes nor the number of steps: here widths 250 to 2000 and 120 steps, "
        "in single precision."
    )
    quick = Aistats1Spec(
        ("sphere", "digits"), 150, 150, 0.08, widths=(50, 100, 200), seeds=3, steps=100, every=5
    )
    full = Aistats1Spec(
        ("sphere", "mnist", "cifar10"), 1000, 1000, 0.08, (250, 500, 1000, 2000), seeds=1, steps=120, every=6
    )

    def models(self, spec: Aistats1Spec) -> list[Model]:
        return [DEQ(activation("relu", amplitude=2.0**0.5), spec.sigma_w2, 1.0)]

    def tasks(self, spec: Aistats1Spec) -> list[Task]:
        """One task per data set, width and seed; the widest network is trained once, the others twice."""

        def cost(width: int, **_: Any) -> float:
            return spec.steps * spec.n * width * (width + 100) / 1e9 * (1 if width == max(spec.widths) else 2)

        key = "{data} m={width} seed={seed}"
        return grid(key, cost, data=spec.data, width=spec.widths, seed=range(spec.seeds))

    def run(self, spec: Aistats1Spec, task: Task, data_dir: Path | None) -> list[Row]:
        """Train one network with both step sizes, which are equal for the widest network."""
        from notsodeep_lab.papers.training_rows import descent_row, regression, stable_step

        data, width, seed = task["data"], task["width"], task["seed"]
        problem = regression(data, spec.n, spec.d, data_dir)

        def trained(lr: float | None) -> Row:
            return descent_row(
                problem, width, spec.sigma_w2, lr=lr, steps=spec.steps, every=spec.every, seed=seed
            )

        own = trained(None)
        if width == max(spec.widths) and own["halvings"] == 0:
            # Both step sizes are equal, and so are the trainings.
            common = own
        else:
            common = trained(stable_step(problem, max(spec.widths), spec.sigma_w2, seed))
        return [{**common, "data": data, "rate": "common"}, {**own, "data": data, "rate": "own"}]

    def expectations(self, spec: Aistats1Spec, rows: Sequence[Row]) -> list[Expectation]:
        trained = chosen(rows, kind="training")
        claims = claims_by(_wider, trained, data=values_of(trained, "data"), rate=_RATES)
        if trained:
            largest = max(row["largest_norm"] for row in trained)
            claims.append(
                Expectation(
                    "largest ‖W(τ)‖₂ in all trainings",
                    "smaller than 1 throughout",
                    largest,
                    bool(largest < 1.0),
                    f"2√2 σ_w = {(8 * spec.sigma_w2) ** 0.5:.3f} at infinite width before training",
                )
            )
        return claims


def _wider(rows: list[Row], data: str, rate: str) -> Iterator[Expectation]:
    widths = sorted(values_of(rows, "width"))
    if len(widths) < 2:
        return
    # Not relative to the first loss: initial outputs have a common part that is random and vanishes after a few steps.
    losses = [mean(chosen(rows, width=width), "last_loss") for width in widths]
    listed = ", ".join(f"{loss:.4g} (m = {width})" for loss, width in zip(losses, widths, strict=True))
    yield Expectation(
        f"loss after {rows[0]['steps'][-1]} steps on {data}, {rate} step size",
        "faster as m increases, and the final loss smaller",
        listed,
        all(after < before for before, after in pairwise(losses)),
        f"yes if it decreases with every width; {_RATES[rate]}; exponent in the width: "
        f"{exponent(rows, 'width', 'last_loss')}",
    )
