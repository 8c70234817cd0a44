"""Figure 1 of the HLD paper: a √2·ReLU DEQ on the sphere and its quadratic twin.

HLD's "G" is the kernel of the pre-activations, Λ of docs/theory.md (8.2), and its NTK is Π of (8.3).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import MappingProxyType

from notsodeep.gaussian.activations import activation
from notsodeep.models import DEQ, Model
from notsodeep_lab.papers.experiment import Expectation, Experiment, Row, Task, claims_by, grid
from notsodeep_lab.papers.experiment_settings import Spec
from notsodeep_lab.papers.row_statistics import exponent, mean
from notsodeep_lab.plots.row_selection import chosen

_KERNELS = {"ck": "preactivations", "ntk": "ntk_preactivations"}
# A distance below this, relative to the eigenvalues of the bulk (of order one), counts as a match.
_MATCHED = 0.02


@dataclass(frozen=True)
class Hld1Spec(Spec):
    """Spectra of CK and NTK on the unit sphere."""

    sigma_a2: float  # width times the variance of a recurrent weight
    n: int  # number of samples for the spectra
    ratio: float  # d/n
    sizes: tuple[int, ...]  # further n at which the distance is measured
    seeds: int  # number of draws of the samples
    width: int  # width of the random networks of the Monte-Carlo kernel
    draws: int  # number of these networks


class Hld1(Experiment[Hld1Spec]):
    """Spectra of CK and NTK, implicit and explicit, and the quadratic activations."""

    name = "hld-1"
    paper = "HLD 2023, Figure 1"
    summary = "Spectra of the CK and NTK of a ReLU DEQ on the sphere and of its twin, one quadratic layer"
    minutes = MappingProxyType({"quick": 0.2, "full": 1.0})
    quick = Hld1Spec(0.2, 400, 1.2, (200, 400), seeds=2, width=250, draws=40)
    full = Hld1Spec(0.2, 1000, 1.2, (500, 1000, 2000), seeds=3, width=1000, draws=100)

    def models(self, spec: Hld1Spec) -> list[Model]:
        return [DEQ(activation("relu", amplitude=2.0**0.5), spec.sigma_a2)]

    def tasks(self, spec: Hld1Spec) -> list[Task]:
        sizes = sorted({spec.n, *spec.sizes})
        tasks = grid(
            "{which} n={n} seed={seed}",
            lambda n, **_: (n / 1000) ** 2,
            which=_KERNELS,
            n=sizes,
            seed=range(spec.seeds),
        )
        cost = spec.draws * (spec.width / 1000) ** 2 * spec.n / 2000
        return [*tasks, Task.named("random networks", cost, which="random", n=spec.n, seed=0)]

    def run(self, spec: Hld1Spec, task: Task, data_dir: Path | None) -> list[Row]:
        n, seed = task["n"], task["seed"]
        d = round(spec.ratio * n)
        if task["which"] == "random":
            from notsodeep_lab.papers.random_network_rows import random_sphere_rows

            return list(random_sphere_rows(n, d, spec.sigma_a2, spec.width, spec.draws))
        from notsodeep_lab.papers.kernel_rows import sphere_rows

        return list(sphere_rows(n, d, spec.sigma_a2, task["which"], seed, drawn=n == spec.n and seed == 0))

    def expectations(self, spec: Hld1Spec, rows: Sequence[Row]) -> list[Expectation]:
        twins = chosen(rows, kind="distance", second="twin")
        return claims_by(partial(_alike, spec.n), twins, kernel=_KERNELS.values())


def _alike(n: int, rows: list[Row], kernel: str) -> Iterator[Expectation]:
    name = "CK" if kernel == _KERNELS["ck"] else "NTK"
    main = chosen(rows, n=n)
    if main:
        yield Expectation(
            f"‖implicit − explicit‖ of the {name}, n = {n} (Figure 1)",
            "the same spectra",
            mean(main, "absolute"),
            bool(mean(main, "absolute") <= _MATCHED),
            f"yes if at most {_MATCHED:g}, where the eigenvalues of the bulk are of order 1; relative to the norm, an "
            f"isolated eigenvalue of order n: {mean(main, 'relative'):.2g}",
        )
    fitted = exponent(rows, "n", "absolute")
    if fitted is not None:
        yield Expectation(
            f"exponent of ‖implicit − explicit‖ of the {name} in n",
            "→ 0",
            str(fitted),
            bool(fitted.slope + 2.0 * fitted.error < 0.0),
            "yes if negative by two standard errors",
        )
