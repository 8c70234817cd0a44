"""The figures of the ICML paper: error of the equivalents by n, kernels of designed networks, accuracy by width."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from notsodeep.papers.accuracy import (
    AccuracySpec,
    accuracy_expectations,
    accuracy_tasks,
    run_accuracy,
)
from notsodeep.papers.embedded import not_embedded
from notsodeep.papers.experiment import Expectation, Experiment, Row, Size, Task
from notsodeep.papers.experiment_settings import Spec
from notsodeep.papers.row_statistics import chosen, exponent, mean

# A fitted exponent this far above −½ still counts as n^{-1/2}.
_SLACK = 0.05
# A twin's kernel within this share of the DEQ's is called a match.
_MATCHED = 0.02


# --- error by n ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class IcmlErrorSpec(Spec):
    """Error of the asymptotic equivalents on the papers' mixture.

    Attributes:
        sigma_a2: of the DEQs.
        ratio: p/n.
        activations: of the DEQs.
        kernels: which kernels.
        sizes: the n.
        seeds: draws of the mixture.
    """

    sigma_a2: float
    ratio: float
    activations: tuple[str, ...]
    kernels: tuple[str, ...]
    sizes: tuple[int, ...]
    seeds: int


class IcmlError(Experiment[IcmlErrorSpec]):
    """‖G − Ḡ‖/‖G‖ against n."""

    name = "icml-error"
    paper = "ICML 2024, error of the equivalents"
    summary = "Relative error of the high-dimensional equivalents against the number of samples"
    minutes = MappingProxyType({"quick": 0.3, "full": 2.0})
    cut = "The paper does not list its activations: ReLU, tanh, Swish and Leaky-ReLU are taken."
    spec_type = IcmlErrorSpec

    def spec(self, size: Size, seeds: int | None = None) -> IcmlErrorSpec:
        """The paper's σ_a² and p/n at both sizes."""
        names, kernels = ("relu", "tanh", "swish", "leaky_relu"), ("features", "ntk", "ntk_paper")
        if size == "quick":
            return IcmlErrorSpec(0.2, 0.8, names, kernels, (200, 400, 800), seeds or 3)
        return IcmlErrorSpec(0.2, 0.8, names, kernels, (250, 500, 1000, 2000, 4000), seeds or 5)

    def tasks(self, spec: IcmlErrorSpec) -> list[Task]:
        """One for each n, activation and draw."""
        return [
            Task(
                f"n={n} {name} seed={seed}",
                {"n": n, "activation": name, "seed": seed},
                0.05 + (n / 1000) ** 2,
            )
            for n in spec.sizes
            for name in spec.activations
            for seed in range(spec.seeds)
        ]

    def run(self, spec: IcmlErrorSpec, task: Task, data_dir: Path | None) -> list[Row]:
        """All kernels on one draw."""
        from notsodeep.models import DEQ
        from notsodeep.papers.kernel_rows import error_rows
        from notsodeep.papers.measures import mixture_sample

        n, name = int(task.parameters["n"] or 0), str(task.parameters["activation"])
        sample = mixture_sample(n, round(spec.ratio * n), int(task.parameters["seed"] or 0))
        model = DEQ(name, spec.sigma_a2).centred(sample.tau0)
        return [
            {**row, "activation": name} for row in error_rows(model, sample, spec.kernels, ("asymptotic",))
        ]

    def expectations(self, spec: IcmlErrorSpec, rows: Sequence[Row]) -> list[Expectation]:
        """The error falls like n^{-1/2}."""
        return [
            told
            for kernel in spec.kernels
            for name in spec.activations
            for told in _decay(chosen(rows, kind="error", kernel=kernel, activation=name), kernel, name)
        ]


def _decay(rows: list[Row], kernel: str, name: str) -> Iterator[Expectation]:
    fitted = exponent(rows, "n") if rows else None
    if fitted is None:
        return
    first, last = (chosen(rows, n=n) for n in (rows[0]["n"], rows[-1]["n"]))
    yield Expectation(
        f"exponent of ‖K − K̄‖/‖K‖ in n, {name}, {kernel}",
        -0.5 if kernel != "ntk" else None,
        str(fitted),
        bool(fitted.slope <= -0.5 + _SLACK),
        f"yes if at most −0.45; error {mean(first, 'relative'):.3g} at n = {first[0]['n']}, "
        f"{mean(last, 'relative'):.3g} at n = {last[0]['n']}",
    )


# --- matching -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class IcmlMatchingSpec(Spec):
    """Kernels of DEQs beside those of the networks designed for them.

    Attributes:
        sigma_a2: of the DEQs.
        activations: tanh is matched by one hard-tanh layer, ReLU by two Leaky-ReLU layers.
        n: samples of the mixture.
        p: their dimension.
        seeds: draws of the mixture.
        real: the real data set; its classes are 6 and 8.
        real_n: samples of it; all if None.
    """

    sigma_a2: float
    activations: tuple[str, ...]
    n: int
    p: int
    seeds: int
    real: str
    real_n: int | None


class IcmlMatching(Experiment[IcmlMatchingSpec]):
    """Spectra of DEQs and of their twins."""

    name = "icml-matching"
    paper = "ICML 2024, conjugate kernels of DEQs and designed networks"
    summary = "Kernels of a tanh DEQ and one hard-tanh layer, of a ReLU DEQ and two Leaky-ReLU layers"
    minutes = MappingProxyType({"quick": 0.1, "full": 2.0})
    cut = "The paper states neither n nor p: those of ICLR's figure are taken, and 6000 samples of MNIST."
    needs = ("mnist",)
    spec_type = IcmlMatchingSpec

    def spec(self, size: Size, seeds: int | None = None) -> IcmlMatchingSpec:
        """The embedded digits at quick size."""
        if size == "quick":
            return IcmlMatchingSpec(0.2, ("tanh", "relu"), 400, 500, seeds or 2, "digits", None)
        return IcmlMatchingSpec(0.2, ("tanh", "relu"), 800, 1000, seeds or 5, "mnist", 6000)

    def data_needed(self, spec: IcmlMatchingSpec) -> tuple[str, ...]:
        """The digits of the quick size are embedded."""
        return not_embedded(spec.real)

    def tasks(self, spec: IcmlMatchingSpec) -> list[Task]:
        """One for each activation and draw, and for the real data."""
        draws = [("mixture", seed, spec.n) for seed in range(spec.seeds)]
        return [
            Task(
                f"{data} {name} seed={seed}",
                {"data": data, "activation": name, "seed": seed},
                0.1 + (n / 1000) ** 2,
            )
            for name in spec.activations
            for data, seed, n in [*draws, (spec.real, 0, spec.real_n or 300)]
        ]

    def run(self, spec: IcmlMatchingSpec, task: Task, data_dir: Path | None) -> list[Row]:
        """The DEQ, its twin and a plain network on one sample."""
        from notsodeep.models import DEQ
        from notsodeep.papers.kernel_rows import matching_rows
        from notsodeep.papers.measures import mixture_sample, real_sample

        name = str(task.parameters["activation"])
        if task.parameters["data"] == "mixture":
            sample = mixture_sample(spec.n, spec.p, int(task.parameters["seed"] or 0))
            tau0 = sample.tau0
        else:
            sample = real_sample(spec.real, (6, 8), spec.real_n, 0, data_dir)
            # The means of real classes are not small: a network is designed for the rows it will see.
            tau0 = sample.root_mean_square
        return list(matching_rows(DEQ(name, spec.sigma_a2).centred(tau0), sample, tau0, name))

    def expectations(self, spec: IcmlMatchingSpec, rows: Sequence[Row]) -> list[Expectation]:
        """Twins match, plain networks do not."""
        return [
            told
            for name in spec.activations
            for data in ("mixture", spec.real)
            for told in _matched(chosen(rows, kind="distance", activation=name, data=data), name, data)
        ]


def _matched(rows: list[Row], name: str, data: str) -> Iterator[Expectation]:
    twins, plains = chosen(rows, second="twin"), chosen(rows, second="plain")
    if not twins:
        return
    apart = [row["spectra_apart"] for row in twins if "spectra_apart" in row]
    spectra = f"eigenvalues apart by at most {max(apart):.2g} of the largest; " if apart else ""
    yield Expectation(
        f"relative distance of the kernels of a {name} DEQ and its designed network, {data}",
        "close",
        mean(twins, "relative"),
        bool(mean(twins, "relative") <= _MATCHED),
        f"yes if at most {_MATCHED:g}; {spectra}a plain network of the same depth: {mean(plains, 'relative'):.3g}, "
        f"with the best factor {mean(plains, 'relative_up_to_factor'):.3g}",
    )


# --- accuracy -----------------------------------------------------------------------------------------


class IcmlAccuracySpec(AccuracySpec):
    """Accuracy of tanh and ReLU DEQs, of the networks designed for them, and of plain ones."""


class IcmlAccuracy(Experiment[IcmlAccuracySpec]):
    """Accuracy by width."""

    name = "icml-accuracy"
    paper = "ICML 2024, classification accuracies"
    summary = "Accuracy of tanh and ReLU DEQs, of the networks designed for them and of plain ones, by width"
    minutes = MappingProxyType({"quick": 1.0, "full": 14.0})
    cut = (
        "Widths up to 1024 instead of 8192 and 20 epochs instead of 100 (at a learning rate found to be near the end "
        "of training by then); CIFAR-10 as 20 000 VGG-19 features."
    )
    needs = ("mnist", "fashion_mnist", "cifar10_vgg19")
    spec_type = IcmlAccuracySpec

    def spec(self, size: Size, seeds: int | None = None) -> IcmlAccuracySpec:
        """The embedded digits at quick size."""
        names = ("tanh", "relu")
        if size == "quick":
            return IcmlAccuracySpec(0.2, ("digits",), names, (32, 128, 512), seeds or 3, 20, 32, None, "ck")
        return IcmlAccuracySpec(0.2, self.needs, names, (32, 128, 512, 1024), seeds or 2, 20, 128, None, "ck")

    def data_needed(self, spec: IcmlAccuracySpec) -> tuple[str, ...]:
        """The digits of the quick size are embedded."""
        return not_embedded(*spec.data)

    def tasks(self, spec: IcmlAccuracySpec) -> list[Task]:
        """Data set by data set."""
        return accuracy_tasks(spec)

    def run(self, spec: IcmlAccuracySpec, task: Task, data_dir: Path | None) -> list[Row]:
        """Three trainings."""
        return run_accuracy(spec, task, data_dir)

    def expectations(self, spec: IcmlAccuracySpec, rows: Sequence[Row]) -> list[Expectation]:
        """The designed networks reach the accuracy, the plain ones do not."""
        return list(accuracy_expectations(rows))


__all__ = [
    "IcmlAccuracy",
    "IcmlAccuracySpec",
    "IcmlError",
    "IcmlErrorSpec",
    "IcmlMatching",
    "IcmlMatchingSpec",
]
