"""Figures of the ICML paper: error of the equivalents by n, kernels of twins, accuracy by width."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType

from notsodeep_lab.papers.accuracy import CUT, AccuracyExperiment, AccuracySpec, both_sizes
from notsodeep_lab.papers.experiment import Expectation, Experiment, Row, Task, claims_by, grid
from notsodeep_lab.papers.experiment_settings import DEQSpec
from notsodeep_lab.papers.row_statistics import exponent, mean
from notsodeep_lab.plots.row_selection import chosen

# A fitted exponent up to this much above −½ counts as n^{-1/2}.
_SLACK = 0.05
# A relative kernel error of a twin below this counts as a match.
_MATCHED = 0.02


# --- error by n ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class IcmlErrorSpec(DEQSpec):
    """Error of the asymptotic equivalents on the papers' mixture."""

    ratio: float  # p/n
    kernels: tuple[str, ...]  # names of the kernels
    sizes: tuple[int, ...]  # numbers of samples


class IcmlError(Experiment[IcmlErrorSpec]):
    """‖G − Ḡ‖/‖G‖ against n."""

    name = "icml-error"
    paper = "ICML 2024, error by n"
    summary = "Relative error of the high-dimensional equivalents by the number of samples"
    minutes = MappingProxyType({"quick": 0.3, "full": 2.0})
    cut = "The paper does not list its activations: here ReLU, tanh, Swish and Leaky-ReLU."
    quick = IcmlErrorSpec(
        0.2,
        ("relu", "tanh", "swish", "leaky_relu"),
        seeds=3,
        ratio=0.8,
        kernels=("features", "ntk", "ntk_paper"),
        sizes=(200, 400, 800),
    )
    full = replace(quick, sizes=(250, 500, 1000, 2000, 4000), seeds=5)

    def tasks(self, spec: IcmlErrorSpec) -> list[Task]:
        return grid(
            "n={n} {activation} seed={seed}",
            lambda n, **_: 0.05 + (n / 1000) ** 2,
            n=spec.sizes,
            activation=spec.activations,
            seed=range(spec.seeds),
        )

    def run(self, spec: IcmlErrorSpec, task: Task, data_dir: Path | None) -> list[Row]:
        from notsodeep_lab.papers.kernel_rows import error_rows
        from notsodeep_lab.papers.measures import mixture_sample

        sample = mixture_sample(task["n"], round(spec.ratio * task["n"]), task["seed"])
        return list(error_rows(task["activation"], spec.sigma_a2, sample, spec.kernels))

    def expectations(self, spec: IcmlErrorSpec, rows: Sequence[Row]) -> list[Expectation]:
        errors = chosen(rows, kind="error")
        return claims_by(_decay, errors, kernel=spec.kernels, activation=spec.activations)


def _decay(rows: list[Row], kernel: str, activation: str) -> Iterator[Expectation]:
    fitted = exponent(rows, "n")
    if fitted is None:
        return
    first, last = (chosen(rows, n=n) for n in (rows[0]["n"], rows[-1]["n"]))
    yield Expectation(
        f"exponent of ‖K − K̄‖/‖K‖ in n, {activation}, {kernel}",
        -0.5 if kernel != "ntk" else None,
        str(fitted),
        bool(fitted.slope <= -0.5 + _SLACK),
        f"yes if at most −0.45; error {mean(first, 'relative'):.3g} at n = {first[0]['n']}, "
        f"{mean(last, 'relative'):.3g} at n = {last[0]['n']}",
    )


# --- matching -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class IcmlMatchingSpec(DEQSpec):
    """Kernels of DEQs compared with those of their twins."""

    n: int  # number of samples of the mixture
    p: int  # dimension
    real: str  # real data set (classes 6 and 8)
    real_n: int | None  # number of samples of it; all if None


class IcmlMatching(Experiment[IcmlMatchingSpec]):
    """Spectra of DEQs and of their twins."""

    name = "icml-matching"
    paper = "ICML 2024, kernels"
    summary = "Kernels of a tanh DEQ and its hard-tanh twin, of a ReLU DEQ and its two-layer Leaky-ReLU twin"
    minutes = MappingProxyType({"quick": 0.1, "full": 2.0})
    cut = "The paper states neither n nor p: here those of ICLR's figure, and 6000 samples of MNIST."
    quick = IcmlMatchingSpec(0.2, ("tanh", "relu"), seeds=2, n=400, p=500, real="digits", real_n=None)
    full = replace(quick, seeds=5, n=800, p=1000, real="mnist", real_n=6000)

    def tasks(self, spec: IcmlMatchingSpec) -> list[Task]:
        draws = [("mixture", seed, spec.n) for seed in range(spec.seeds)]
        return [
            Task.named(
                "{data} {activation} seed={seed}",
                0.1 + (n / 1000) ** 2,
                data=data,
                activation=name,
                seed=seed,
            )
            for name in spec.activations
            for data, seed, n in [*draws, (spec.real, 0, spec.real_n or 300)]
        ]

    def run(self, spec: IcmlMatchingSpec, task: Task, data_dir: Path | None) -> list[Row]:
        from notsodeep.models import DEQ
        from notsodeep_lab.papers.kernel_rows import matching_rows
        from notsodeep_lab.papers.measures import sample_of

        name, mixture = task["activation"], task["data"] == "mixture"
        sample = sample_of(task["data"], spec.n if mixture else spec.real_n, spec.p, task["seed"], data_dir)
        # The means of real classes are not small: τ0 includes them.
        tau0 = sample.tau0 if mixture else sample.root_mean_square
        return list(matching_rows(DEQ(name, spec.sigma_a2).centred(tau0), sample, tau0, name))

    def expectations(self, spec: IcmlMatchingSpec, rows: Sequence[Row]) -> list[Expectation]:
        distances, data = chosen(rows, kind="distance"), ("mixture", spec.real)
        return claims_by(_matched, distances, activation=spec.activations, data=data)


def _matched(rows: list[Row], activation: str, data: str) -> Iterator[Expectation]:
    twins, plains = chosen(rows, second="twin"), chosen(rows, second="plain")
    apart = [row["spectra_apart"] for row in twins if "spectra_apart" in row]
    spectra = f"eigenvalues differ by at most {max(apart):.2g} of the largest; " if apart else ""
    yield Expectation(
        f"kernel error of the twin of a {activation} DEQ, {data}",
        "close",
        mean(twins, "relative"),
        bool(mean(twins, "relative") <= _MATCHED),
        f"yes if at most {_MATCHED:g}; {spectra}a plain network of the same depth: {mean(plains, 'relative'):.3g}, "
        f"with the best factor {mean(plains, 'relative_up_to_factor'):.3g}",
    )


# --- accuracy -----------------------------------------------------------------------------------------


class IcmlAccuracySpec(AccuracySpec):
    """Accuracy of tanh and ReLU DEQs, of their twins, and of plain networks."""


class IcmlAccuracy(AccuracyExperiment[IcmlAccuracySpec]):
    """The twins reach the accuracy of the DEQs, plain networks do not."""

    name = "icml-accuracy"
    paper = "ICML 2024, accuracy"
    summary = "Accuracy of tanh and ReLU DEQs, of their twins and of plain networks, by width"
    minutes = MappingProxyType({"quick": 1.0, "full": 14.0})
    cut = CUT
    quick, full = both_sizes(IcmlAccuracySpec, ("tanh", "relu"), "ck")
