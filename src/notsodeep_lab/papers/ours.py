"""Our own experiments: predicted spectra, and kernels of random networks of finite width."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType

import numpy as np

from notsodeep.models import DEQ
from notsodeep_lab.papers.experiment import Expectation, Experiment, Row, Task, claims_by, grid
from notsodeep_lab.papers.experiment_settings import DEQSpec
from notsodeep_lab.papers.row_statistics import exponent, mean, values_of
from notsodeep_lab.plots.row_selection import chosen

# Largest error of a predicted spectrum.
_SPECTRUM_LIMIT = 0.03
# A fitted exponent within this of −½ counts as m^{-1/2}.
_SLACK = 0.1


# --- spectrum -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class SpectrumSpec(DEQSpec):
    """Spectra predicted from the mixture alone, compared with exact ones."""

    kernels: tuple[str, ...]  # which kernels
    forms: tuple[str, ...]  # "asymptotic": the limit; "refined": with corrections for finite n and p
    n: int  # number of samples
    ratios: tuple[float, ...]  # ratios p/n


class SpectrumPrediction(Experiment[SpectrumSpec]):
    """Predicted density and isolated eigenvalues."""

    name = "spectrum"
    paper = "ours"
    summary = "Density and isolated eigenvalues predicted without data, compared with exact eigenvalues"
    minutes = MappingProxyType({"quick": 0.3, "full": 1.0})
    quick = SpectrumSpec(
        0.2, ("tanh", "relu"), 1, ("features", "ntk"), ("asymptotic", "refined"), n=1000, ratios=(0.8,)
    )
    full = replace(quick, activations=("tanh", "relu", "swish"), n=2000, ratios=(0.8, 1.25), seeds=2)

    def tasks(self, spec: SpectrumSpec) -> list[Task]:
        return grid(
            "{activation} {kernel} p={p} seed={seed}",
            lambda **_: 1.0,
            activation=spec.activations,
            kernel=spec.kernels,
            p=[round(ratio * spec.n) for ratio in spec.ratios],
            seed=range(spec.seeds),
        )

    def run(self, spec: SpectrumSpec, task: Task, data_dir: Path | None) -> list[Row]:
        from notsodeep_lab.papers.kernel_rows import prediction_rows

        name, kernel, p, seed = (task[key] for key in ("activation", "kernel", "p", "seed"))
        return list(prediction_rows(name, spec.sigma_a2, spec.n, p, kernel, seed, spec.forms))

    def expectations(self, spec: SpectrumSpec, rows: Sequence[Row]) -> list[Expectation]:
        return claims_by(_predicted, chosen(rows, kind="prediction"), form=spec.forms)


def _predicted(rows: list[Row], form: str) -> Iterator[Expectation]:
    worst = max(row["kolmogorov"] for row in rows)
    yield Expectation(
        f"largest Kolmogorov distance between predicted and exact eigenvalues, {form}",
        None,
        worst,
        bool(worst <= _SPECTRUM_LIMIT),
        f"yes if at most {_SPECTRUM_LIMIT:g}; mean {mean(rows, 'kolmogorov'):.3g}; for p < n the limit has an atom, "
        "which is a narrow bulk at finite n and increases this distance",
    )
    apart = [
        abs(guess - exact) / abs(exact)
        for row in rows
        for guess, exact in zip(row["isolated"], row["isolated_exact"], strict=True)
    ]
    if apart:
        yield Expectation(
            f"largest relative difference of isolated eigenvalues, {form}",
            None,
            max(apart),
            bool(max(apart) <= _SPECTRUM_LIMIT),
            f"yes if at most {_SPECTRUM_LIMIT:g}; {len(apart)} eigenvalues, median {np.median(apart):.3g}",
        )


# --- width --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class WidthSpec(DEQSpec):
    """Kernels of random networks compared with their limits."""

    data: str  # data set (classes 6 and 8)
    n: int  # number of samples
    widths: tuple[int, ...]  # widths of single networks
    draws_width: int  # width of the averaged networks
    draws: tuple[int, ...]  # numbers of averaged networks


class Width(Experiment[WidthSpec]):
    """Error of finite-width kernels."""

    name = "width"
    paper = "ours"
    summary = "Kernels of random networks of finite width compared with their limits: one network, or the mean of many"
    minutes = MappingProxyType({"quick": 0.3, "full": 3.0})
    quick = WidthSpec(
        0.2,
        ("relu", "tanh"),
        seeds=3,
        data="digits",
        n=150,
        widths=(125, 250, 500, 1000),
        draws_width=250,
        draws=(1, 4, 16, 64),
    )
    full = replace(
        quick,
        data="mnist",
        n=200,
        widths=(250, 500, 1000, 2000, 4000),
        seeds=5,
        draws_width=500,
        draws=(1, 4, 16, 64, 256),
    )

    def tasks(self, spec: WidthSpec) -> list[Task]:
        single = grid(
            "{model} {activation} m={width} seed={seed}",
            lambda width, **_: 0.05 + (width / 1000) ** 2,
            activation=spec.activations,
            model=("deq", "twin"),
            width=spec.widths,
            seed=range(spec.seeds),
        )
        averaged = grid(
            "draws {activation} seed={seed}",
            lambda width, **_: max(spec.draws) * (width / 1000) ** 2,
            activation=spec.activations,
            model=("draws",),
            width=(spec.draws_width,),
            seed=range(spec.seeds),
        )
        return single + averaged

    def run(self, spec: WidthSpec, task: Task, data_dir: Path | None) -> list[Row]:
        from notsodeep.designs import design
        from notsodeep_lab.papers.measures import real_sample
        from notsodeep_lab.papers.random_network_rows import draws_rows, width_rows

        model, name, width, seed = (task[key] for key in ("model", "activation", "width", "seed"))
        sample = real_sample(spec.data, spec.n, 0, data_dir)
        tau0 = sample.root_mean_square
        deq = DEQ(name, spec.sigma_a2).centred(tau0)
        if model == "draws":
            rows = draws_rows(deq, sample, width, spec.draws, seed)
        else:
            network = deq if model == "deq" else design(deq, tau0, "ck").network
            rows = width_rows(model, network, sample, width, seed)
        return [{**row, "activation": name} for row in rows]

    def expectations(self, spec: WidthSpec, rows: Sequence[Row]) -> list[Expectation]:
        names, models, kernels = spec.activations, ("deq", "twin"), ("features", "ntk")
        single, averaged = chosen(rows, kind="width"), chosen(rows, kind="draws")
        return [
            *claims_by(_wider, single, activation=names, model=models, kernel=kernels),
            *claims_by(_more_draws, averaged, activation=names),
        ]


def _wider(rows: list[Row], activation: str, model: str, kernel: str) -> Iterator[Expectation]:
    return _decay(rows, "width", f"error of one {model}'s {kernel} kernel in the width, {activation}")


def _more_draws(rows: list[Row], activation: str) -> Iterator[Expectation]:
    networks = f"networks of width {rows[0]['width']}"
    return _decay(rows, "draws", f"noise of an average of {networks} in their number, {activation}")


def _decay(rows: list[Row], over: str, what: str) -> Iterator[Expectation]:
    fitted = exponent(rows, over)
    if fitted is None:
        return
    largest = max(values_of(rows, over))
    error = mean(chosen(rows, **{over: largest}), "relative")
    yield Expectation(
        f"exponent of the {what}",
        -0.5,
        str(fitted),
        bool(abs(fitted.slope + 0.5) <= _SLACK),
        f"yes if within 0.1 of −0.5; relative error {error:.3g} at {over} = {largest}",
    )
