"""Figures 1 to 3 of the ICLR submission: spectra of Λ and its equivalent, one Leaky-ReLU layer, accuracy by width.

ICLR's "G" is the kernel of the pre-activations, Λ of docs/theory.md (3.3); G here is the kernel of the features.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, ClassVar, TypeVar

from notsodeep.models import DEQ, Model
from notsodeep_lab.papers.accuracy import CUT, AccuracyExperiment, AccuracySpec, both_sizes
from notsodeep_lab.papers.experiment import Expectation, Experiment, Row, Task
from notsodeep_lab.papers.experiment_settings import Spec
from notsodeep_lab.papers.row_statistics import kolmogorov, mean, values_of
from notsodeep_lab.plots.row_selection import chosen

if TYPE_CHECKING:
    from notsodeep_lab.papers.measures import Sample

# Relative distances below this count as "extremely accurate"; Kolmogorov distances below the second.
_DESCRIBED = 0.02
_DISTRIBUTED = 0.03


@dataclass(frozen=True)
class SpectraSpec(Spec):
    """Spectra on the papers' mixture and on two classes of a real data set."""

    sigma_a2: float  # width times the variance of a recurrent weight
    n: int  # number of samples of the mixture
    p: int  # dimension
    seeds: int  # number of draws of the mixture
    real: str  # real data set (classes 6 and 8)
    real_n: int | None  # number of samples of it; all if None
    width: int  # width of the random networks of the Monte-Carlo kernels
    draws: int  # number of these networks on the mixture
    real_draws: int  # number of these networks on real data


S = TypeVar("S", bound=SpectraSpec)

# The paper's sizes, and the distances that its figures state.
_SETTINGS = {"mixture": {"n": 800, "p": 1000}, "mnist": {"n": 6000, "p": 784}}
_STATED_1 = {"mixture": 0.12, "mnist": 1.57}
_STATED_2 = {"mixture": 0.23, "mnist": 1.83}


class Iclr1Spec(SpectraSpec):
    """Figure 1: arctan on the mixture, tanh on MNIST."""


class Iclr2Spec(SpectraSpec):
    """Figure 2: ReLU on both."""


class _Spectra(Experiment[S]):
    """Eigenvalues on the mixture and on real data: the common part of the two figures."""

    activations: ClassVar[tuple[str, str]]  # activations of the DEQ on the mixture and on real data

    def models(self, spec: S) -> list[Model]:
        return [DEQ(name, spec.sigma_a2) for name in self.activations]

    def tasks(self, spec: S) -> list[Task]:
        real_n = spec.real_n or 300
        draws = [("mixture", seed, (spec.n / 1000) ** 2) for seed in range(spec.seeds)]
        tasks = [
            Task.named("{data} seed={seed}", cost, data=data, seed=seed, random=False)
            for data, seed, cost in [*draws, (spec.real, 0, 2 * (real_n / 1000) ** 2)]
        ]
        for data, count, n in (("mixture", spec.draws, spec.n), (spec.real, spec.real_draws, real_n)):
            cost = count * (n / 1000) * (spec.width / 1000) * (0.2 + (spec.width + n) / 5000)
            tasks.append(Task.named("{data}, random networks", cost, data=data, seed=0, random=True))
        return tasks

    def run(self, spec: S, task: Task, data_dir: Path | None) -> list[Row]:
        from notsodeep_lab.papers.measures import sample_of

        mixture = task["data"] == "mixture"
        sample = sample_of(task["data"], spec.n if mixture else spec.real_n, spec.p, task["seed"], data_dir)
        on_mixture, on_real = self.activations
        model = DEQ(on_mixture if mixture else on_real, spec.sigma_a2).centred(sample.tau0)
        if task["random"]:
            return list(self.random_rows(spec, model, sample, spec.draws if mixture else spec.real_draws))
        return self.exact_rows(model, sample, data_dir)

    @abstractmethod
    def random_rows(self, spec: S, model: DEQ, sample: Sample, draws: int) -> Iterable[Row]:
        """Compute rows of kernels averaged over random networks."""

    @abstractmethod
    def exact_rows(self, model: DEQ, sample: Sample, data_dir: Path | None) -> list[Row]:
        """Compute rows of exact kernels."""


def _both_sizes(kind: type[S]) -> tuple[S, S]:
    """The quick and full settings of both figures."""
    quick = kind(0.1, 400, 500, 2, real="digits", real_n=None, width=250, draws=40, real_draws=40)
    return quick, replace(quick, n=800, p=1000, seeds=5, real="mnist", real_n=6000, width=1000, draws=400)


class Iclr1(_Spectra[Iclr1Spec]):
    """Eigenvalues of Λ and its equivalent."""

    name = "iclr-1"
    paper = "ICLR submission, Figure 1"
    summary = (
        "Eigenvalues of a DEQ's kernel and of its high-dimensional equivalent, on a mixture and on MNIST"
    )
    minutes = MappingProxyType({"quick": 0.3, "full": 5.0})
    cut = "The Monte-Carlo kernel on MNIST averages 40 random networks instead of 400."
    quick, full = _both_sizes(Iclr1Spec)

    activations = ("arctan", "tanh")

    def random_rows(self, spec: Iclr1Spec, model: DEQ, sample: Sample, draws: int) -> Iterable[Row]:
        from notsodeep_lab.papers.random_network_rows import random_equivalent_rows

        return random_equivalent_rows(model, sample, spec.width, draws)

    def exact_rows(self, model: DEQ, sample: Sample, data_dir: Path | None) -> list[Row]:
        """Compare Λ with its equivalents, for real data in several scalings."""
        from notsodeep_lab.papers.kernel_rows import equivalent_rows, scaled_otherwise_rows

        rows = _with_paper_numbers(equivalent_rows(model, sample), _STATED_1)
        return rows if sample.data == "mixture" else [*rows, *scaled_otherwise_rows(model, sample, data_dir)]

    def expectations(self, spec: Iclr1Spec, rows: Sequence[Row]) -> list[Expectation]:
        return [
            *_stated(spec, rows, "‖Λ − Λ̄‖", "Figure 1", ("left", "right")),
            *_described(spec, chosen(rows, kind="distance", data=spec.real)),
            *_distributed(chosen(rows, kind="spectrum")),
        ]


def _with_paper_numbers(rows: Iterable[Row], stated: dict[str, float]) -> list[Row]:
    """Add the number of the paper to rows with the data and size of the paper."""
    marked = list(rows)
    for data, number in stated.items():
        for row in chosen(marked, kind="distance", main=True, data=data, **_SETTINGS[data]):
            row["paper"] = number
    return marked


def _stated(
    spec: SpectraSpec, rows: Sequence[Row], what: str, figure: str, places: tuple[str, str]
) -> Iterator[Expectation]:
    """Compare the numbers of the paper with ours; the remark lists other readings of the text."""
    distances = chosen(rows, kind="distance")
    for data, place in zip(("mixture", spec.real), places, strict=True):
        main = chosen(distances, data=data, main=True)
        if main:
            others = [row for row in chosen(distances, data=data) if not row["main"]]
            yield Expectation(
                f"{what} on {data}, n = {main[0]['n']} ({figure} {place})",
                main[0].get("paper"),
                mean(main, "absolute"),
                remark=f"ours is exact, {main[0]['reading']}; other readings: {_readings(others)}",
            )


def _readings(rows: list[Row]) -> str:
    parts = []
    for reading in values_of(rows, "reading"):
        own = chosen(rows, reading=reading)
        networks = f" ({own[0]['draws']} networks of width {own[0]['width']})" if "draws" in own[0] else ""
        parts.append(f"{reading}{networks} {mean(own, 'absolute'):.3g}")
    return "; ".join(parts)


def _described(spec: SpectraSpec, distances: list[Row]) -> Iterator[Expectation]:
    readings = {
        "Λ, asymptotic": "for an odd activation the equivalent of Λ is linear in XXᵀ, and so is Λ, nearly",
        "G, asymptotic": "the kernel of the features, which a readout uses",
        "G, refined": "uses the norm of each sample, docs/theory.md (5.2)",
    }
    for reading, remark in readings.items():
        for row in chosen(distances, reading=reading):
            yield Expectation(
                f"relative error of the equivalent: {reading}, {spec.real}",
                "extremely accurate" if reading.startswith("Λ") else None,
                row["relative"],
                bool(row["relative"] <= _DESCRIBED),
                f"yes if at most {_DESCRIBED:g}; {remark}",
            )


def _distributed(spectra: list[Row]) -> Iterator[Expectation]:
    """Compare distribution functions, which show small eigenvalues; operator norms do not."""
    for exact in chosen(spectra, source="deq"):
        for source in ("equivalent", "refined"):
            for other in chosen(spectra, source=source, data=exact["data"]):
                apart = kolmogorov(exact["eigenvalues"], other["eigenvalues"])
                yield Expectation(
                    f"Kolmogorov distance of the eigenvalues of Λ and of its {other['label']}, {exact['data']}",
                    "extremely accurate" if source == "equivalent" else None,
                    apart,
                    bool(apart <= _DISTRIBUTED),
                    f"yes if at most {_DISTRIBUTED:g}",
                )


class Iclr2(_Spectra[Iclr2Spec]):
    """A ReLU DEQ and its twin, one Leaky-ReLU layer."""

    name = "iclr-2"
    paper = "ICLR submission, Figure 2"
    summary = "Eigenvalues of a ReLU DEQ's kernel and of one Leaky-ReLU layer, on a mixture and on MNIST"
    minutes = MappingProxyType({"quick": 0.2, "full": 8.0})
    cut = "The Monte-Carlo kernel of the DEQ on MNIST averages 40 random networks instead of 400."
    quick, full = _both_sizes(Iclr2Spec)

    activations = ("relu", "relu")

    def random_rows(self, spec: Iclr2Spec, model: DEQ, sample: Sample, draws: int) -> Iterable[Row]:
        """Average both kernels over random networks, more of the cheap one-layer network."""
        from notsodeep_lab.papers.random_network_rows import random_twin_rows

        return random_twin_rows(model, sample, spec.width, draws, spec.draws)

    def exact_rows(self, model: DEQ, sample: Sample, data_dir: Path | None) -> list[Row]:
        from notsodeep_lab.papers.kernel_rows import leaky_rows

        return _with_paper_numbers(leaky_rows(model, sample), _STATED_2)

    def expectations(self, spec: Iclr2Spec, rows: Sequence[Row]) -> list[Expectation]:
        return [
            *_stated(spec, rows, "‖Λ − Σ‖", "Figure 2", ("middle", "right")),
            *(
                Expectation(
                    f"largest difference of eigenvalues, relative to the largest one, {row['data']}",
                    "a surprisingly close eigenspectral behaviour",
                    row["spectra_apart"],
                    bool(row["spectra_apart"] <= _DESCRIBED),
                    f"yes if at most {_DESCRIBED:g}",
                )
                for row in chosen(rows, kind="distance", main=True, seed=0)
            ),
        ]


# --- Figure 3 -----------------------------------------------------------------------------------------


class Iclr3Spec(AccuracySpec):
    """Figure 3: a ReLU DEQ, one Leaky-ReLU layer, one ReLU layer."""


class Iclr3(AccuracyExperiment[Iclr3Spec]):
    """The twin reaches the accuracy of the DEQ, a plain layer does not."""

    name = "iclr-3"
    paper = "ICLR submission, Figure 3"
    summary = "Accuracy of a ReLU DEQ, of its one-layer Leaky-ReLU twin and of one ReLU layer, by width"
    minutes = MappingProxyType({"quick": 0.6, "full": 7.0})
    cut = CUT + " The twin matches G, the kernel of the features."
    quick, full = both_sizes(Iclr3Spec, ("relu",), "leaky")
