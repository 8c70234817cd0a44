"""The figures of the ICLR submission: spectra of Λ and of its equivalent, one Leaky-ReLU layer, accuracy by width.

ICLR's "G" is the kernel of the pre-activations, Λ of docs/theory.md (3.3); G here is the kernel of the features.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, TypeVar

from notsodeep.papers.accuracy import (
    AccuracySpec,
    accuracy_expectations,
    accuracy_tasks,
    run_accuracy,
)
from notsodeep.papers.embedded import not_embedded
from notsodeep.papers.experiment import Expectation, Experiment, Row, Size, Task
from notsodeep.papers.experiment_settings import Spec
from notsodeep.papers.row_statistics import chosen, kolmogorov, mean, values_of

if TYPE_CHECKING:
    from notsodeep.papers.measures import Sample

_CLASSES = (6, 8)
# "Extremely accurate", in a number: a distance below this share of the kernel.
_DESCRIBED = 0.02
# The same for shares of eigenvalues.
_DISTRIBUTED = 0.03


@dataclass(frozen=True)
class SpectraSpec(Spec):
    """Spectra on the papers' mixture and on two classes of a real data set.

    Attributes:
        sigma_a2: of the DEQ.
        n: samples of the mixture.
        p: their dimension.
        seeds: draws of the mixture.
        real: the real data set; its classes are 6 and 8.
        real_n: samples of it; all if None.
        width: of the random networks behind the Monte-Carlo kernels.
        draws: of these networks, on the mixture.
        real_draws: the same on the real data.
    """

    sigma_a2: float
    n: int
    p: int
    seeds: int
    real: str
    real_n: int | None
    width: int
    draws: int
    real_draws: int


S = TypeVar("S", bound=SpectraSpec)

# The paper's sizes, and the distances that its figures state.
_SETTINGS = {"mixture": {"n": 800, "p": 1000}, "mnist": {"n": 6000, "p": 784}}
_STATED_1 = {"mixture": 0.12, "mnist": 1.57}
_STATED_2 = {"mixture": 0.23, "mnist": 1.83}


class Iclr1Spec(SpectraSpec):
    """Figure 1: arctan on the mixture, tanh on MNIST."""


class Iclr2Spec(SpectraSpec):
    """Figure 2: ReLU on both."""


def _spec(kind: type[S], size: Size, seeds: int | None) -> S:
    if size == "quick":
        return kind(0.1, 400, 500, seeds or 2, "digits", None, 250, 40, 40)
    return kind(0.1, 800, 1000, seeds or 5, "mnist", 6000, 1000, 400, 40)


def _tasks(spec: SpectraSpec) -> list[Task]:
    """Each draw of the mixture, the real data, and the random networks on both."""
    real_n = spec.real_n or 300
    tasks = [_task("mixture", seed, (spec.n / 1000) ** 2) for seed in range(spec.seeds)]
    tasks.append(_task(spec.real, 0, 2 * (real_n / 1000) ** 2))
    for data, draws, n in (("mixture", spec.draws, spec.n), (spec.real, spec.real_draws, real_n)):
        cost = draws * (n / 1000) * (spec.width / 1000) * (0.2 + (spec.width + n) / 5000)
        tasks.append(Task(f"{data}, random networks", {"data": data, "seed": 0, "random": True}, cost))
    return tasks


def _task(data: str, seed: int, cost: float) -> Task:
    return Task(f"{data} seed={seed}", {"data": data, "seed": seed, "random": False}, cost)


def _sample(spec: SpectraSpec, task: Task, data_dir: Path | None) -> Sample:
    from notsodeep.papers.measures import mixture_sample, real_sample

    if task.parameters["data"] == "mixture":
        return mixture_sample(spec.n, spec.p, int(task.parameters["seed"] or 0))
    return real_sample(spec.real, _CLASSES, spec.real_n, 0, data_dir)


class Iclr1(Experiment[Iclr1Spec]):
    """Eigenvalues of Λ and of its equivalent."""

    name = "iclr-1"
    paper = "ICLR submission, Figure 1"
    summary = (
        "Eigenvalues of a DEQ's kernel and of its high-dimensional equivalent, on a mixture and on MNIST"
    )
    minutes = MappingProxyType({"quick": 0.3, "full": 5.0})
    cut = "The Monte-Carlo kernel on MNIST averages 40 random networks instead of 400 (the exact one needs none)."
    needs = ("mnist",)
    spec_type = Iclr1Spec

    def spec(self, size: Size, seeds: int | None = None) -> Iclr1Spec:
        """The paper's n and p at full size."""
        return _spec(Iclr1Spec, size, seeds)

    def data_needed(self, spec: Iclr1Spec) -> tuple[str, ...]:
        """The digits of the quick size are embedded."""
        return not_embedded(spec.real)

    def tasks(self, spec: Iclr1Spec) -> list[Task]:
        """Exact kernels first, random networks last."""
        return _tasks(spec)

    def run(self, spec: Iclr1Spec, task: Task, data_dir: Path | None) -> list[Row]:
        """Spectra, and distances in several readings."""
        from notsodeep.models import DEQ
        from notsodeep.papers.kernel_rows import equivalent_rows, scaled_otherwise_rows

        sample = _sample(spec, task, data_dir)
        mixture = sample.data == "mixture"
        model = DEQ("arctan" if mixture else "tanh", spec.sigma_a2).centred(sample.tau0)
        if task.parameters["random"]:
            from notsodeep.papers.random_network_rows import random_equivalent_rows

            draws = spec.draws if mixture else spec.real_draws
            return list(random_equivalent_rows(model, sample, spec.width, draws))
        rows = _beside(equivalent_rows(model, sample), _STATED_1)
        return rows if mixture else [*rows, *scaled_otherwise_rows(model, sample, _CLASSES, data_dir)]

    def expectations(self, spec: Iclr1Spec, rows: Sequence[Row]) -> list[Expectation]:
        """0.12 and 1.57, and whether the equivalents describe real data."""
        return [
            *_stated(spec, rows, "‖Λ − Λ̄‖", "Figure 1", ("left", "right")),
            *_described(spec, chosen(rows, kind="distance", data=spec.real)),
            *_distributed(chosen(rows, kind="spectrum")),
        ]


def _beside(rows: Iterable[Row], stated: dict[str, float]) -> list[Row]:
    """The rows, with the number of the paper where data and size are the paper's."""
    found = list(rows)
    for data, number in stated.items():
        for row in chosen(found, kind="distance", main=True, data=data, **_SETTINGS[data]):
            row["paper"] = number
    return found


def _stated(
    spec: SpectraSpec, rows: Sequence[Row], what: str, figure: str, places: tuple[str, str]
) -> Iterator[Expectation]:
    """The numbers that the paper states beside ours; all readings of them in the remark."""
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
        "Λ, asymptotic": "for an odd activation the equivalent of Λ is linear in XXᵀ, and Λ is nearly so itself",
        "G, asymptotic": "the kernel of the features, which a readout sees",
        "G, refined": "each sample with its own norm, docs/theory.md (5.2)",
    }
    for reading, remark in readings.items():
        for row in chosen(distances, reading=reading):
            yield Expectation(
                f"relative distance of {reading} equivalent on {spec.real}",
                "extremely accurate" if reading.startswith("Λ") else None,
                row["relative"],
                bool(row["relative"] <= _DESCRIBED),
                f"yes if at most {_DESCRIBED:g}; {remark}",
            )


def _distributed(spectra: list[Row]) -> Iterator[Expectation]:
    """Small eigenvalues do not show in an operator norm; they do in a distribution function."""
    for exact in chosen(spectra, source="deq"):
        for source in ("equivalent", "refined"):
            for other in chosen(spectra, source=source, data=exact["data"]):
                apart = kolmogorov(exact["eigenvalues"], other["eigenvalues"])
                yield Expectation(
                    f"Kolmogorov distance of the eigenvalues of Λ and of its {other['label']}, {exact['data']}",
                    "extremely accurate" if source == "equivalent" else None,
                    apart,
                    bool(apart <= _DISTRIBUTED),
                    f"yes if at most {_DISTRIBUTED:g}: the largest difference of the shares below any point",
                )


class Iclr2(Experiment[Iclr2Spec]):
    """A ReLU DEQ and one Leaky-ReLU layer."""

    name = "iclr-2"
    paper = "ICLR submission, Figure 2"
    summary = "Eigenvalues of a ReLU DEQ's kernel and of one Leaky-ReLU layer, on a mixture and on MNIST"
    minutes = MappingProxyType({"quick": 0.2, "full": 8.0})
    cut = "The DEQ's Monte-Carlo kernel on MNIST averages 40 random networks instead of 400 (the exact one needs none)."
    needs = ("mnist",)
    spec_type = Iclr2Spec

    def spec(self, size: Size, seeds: int | None = None) -> Iclr2Spec:
        """The paper's n and p at full size."""
        return _spec(Iclr2Spec, size, seeds)

    def data_needed(self, spec: Iclr2Spec) -> tuple[str, ...]:
        """The digits of the quick size are embedded."""
        return not_embedded(spec.real)

    def tasks(self, spec: Iclr2Spec) -> list[Task]:
        """Exact kernels first, random networks last."""
        return _tasks(spec)

    def run(self, spec: Iclr2Spec, task: Task, data_dir: Path | None) -> list[Row]:
        """Spectra, activations, and distances in several readings."""
        from notsodeep.models import DEQ
        from notsodeep.papers.kernel_rows import leaky_rows

        sample = _sample(spec, task, data_dir)
        model = DEQ("relu", spec.sigma_a2).centred(sample.tau0)
        if task.parameters["random"]:
            from notsodeep.papers.random_network_rows import random_twin_rows

            draws = spec.draws if sample.data == "mixture" else spec.real_draws
            # One layer costs little beside a DEQ.
            return list(random_twin_rows(model, sample, spec.width, draws, spec.draws))
        return _beside(leaky_rows(model, sample), _STATED_2)

    def expectations(self, spec: Iclr2Spec, rows: Sequence[Row]) -> list[Expectation]:
        """0.23 and 1.83, and whether the spectra match."""
        told = list(_stated(spec, rows, "‖Λ − Σ‖", "Figure 2", ("middle", "right")))
        for row in chosen(rows, kind="distance", main=True, seed=0):
            told.append(
                Expectation(
                    f"largest difference of eigenvalues over the largest one, {row['data']}",
                    "a surprisingly close eigenspectral behaviour",
                    row["spectra_apart"],
                    bool(row["spectra_apart"] <= _DESCRIBED),
                    f"yes if at most {_DESCRIBED:g}",
                )
            )
        return told


# --- Figure 3 -----------------------------------------------------------------------------------------


class Iclr3Spec(AccuracySpec):
    """Figure 3: a ReLU DEQ, one Leaky-ReLU layer, one ReLU layer."""


class Iclr3(Experiment[Iclr3Spec]):
    """Accuracy by width."""

    name = "iclr-3"
    paper = "ICLR submission, Figure 3"
    summary = "Accuracy of a ReLU DEQ, of one Leaky-ReLU layer made for it and of one ReLU layer, by width"
    minutes = MappingProxyType({"quick": 0.6, "full": 7.0})
    cut = (
        "Widths up to 1024 instead of 8192 and 20 epochs instead of 100 (at a learning rate found to be near the end "
        "of training by then); CIFAR-10 as 20 000 VGG-19 features. The layer is made for the features' kernel G."
    )
    needs = ("mnist", "fashion_mnist", "cifar10_vgg19")
    spec_type = Iclr3Spec

    def spec(self, size: Size, seeds: int | None = None) -> Iclr3Spec:
        """The embedded digits at quick size."""
        if size == "quick":
            return Iclr3Spec(0.2, ("digits",), ("relu",), (32, 128, 512), seeds or 3, 20, 32, None, "leaky")
        return Iclr3Spec(0.2, self.needs, ("relu",), (32, 128, 512, 1024), seeds or 2, 20, 128, None, "leaky")

    def data_needed(self, spec: Iclr3Spec) -> tuple[str, ...]:
        """The digits of the quick size are embedded."""
        return not_embedded(*spec.data)

    def tasks(self, spec: Iclr3Spec) -> list[Task]:
        """Data set by data set."""
        return accuracy_tasks(spec)

    def run(self, spec: Iclr3Spec, task: Task, data_dir: Path | None) -> list[Row]:
        """Three trainings."""
        return run_accuracy(spec, task, data_dir)

    def expectations(self, spec: Iclr3Spec, rows: Sequence[Row]) -> list[Expectation]:
        """The designed layer reaches the accuracy, the plain one does not."""
        return list(accuracy_expectations(rows))


__all__ = ["Iclr1", "Iclr1Spec", "Iclr2", "Iclr2Spec", "Iclr3", "Iclr3Spec"]
