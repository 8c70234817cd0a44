"""Our own experiments: the refined equivalent, predicted spectra, speed and accuracy of twins, finite width."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType

import numpy as np

from notsodeep.models import DEQ
from notsodeep_lab.papers.experiment import Expectation, Experiment, Row, Task, claims_by, grid
from notsodeep_lab.papers.experiment_settings import DEQSpec
from notsodeep_lab.papers.row_statistics import NEGLIGIBLE_GAP, accuracy_gap, exponent, mean, values_of
from notsodeep_lab.plots.row_selection import chosen

# Largest error of a predicted spectrum.
_SPECTRUM_LIMIT = 0.03
# A fitted exponent within this of −½ counts as m^{-1/2}.
_SLACK = 0.1


# --- refined ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class RefinedSpec(DEQSpec):
    """Asymptotic and refined equivalents compared with exact kernels."""

    ratio: float  # p/n of the mixture
    kernels: tuple[str, ...]  # which kernels
    forms: tuple[str, ...]  # equivalents, see `kernel_rows.FORMS`
    sizes: tuple[int, ...]  # numbers of samples of the mixture
    real: str  # real data set (classes 6 and 8)
    real_sizes: tuple[int, ...]  # numbers of samples of it


class RefinedEquivalent(Experiment[RefinedSpec]):
    """Errors of the refined and of the asymptotic equivalent."""

    name = "refined"
    paper = "ours"
    summary = "Errors of the refined equivalent, which needs no labels, and of the asymptotic one, mixture and MNIST"
    minutes = MappingProxyType({"quick": 0.3, "full": 3.0})
    quick = RefinedSpec(
        0.2,
        ("tanh", "relu", "swish"),
        seeds=2,
        ratio=0.8,
        kernels=("features",),
        forms=("asymptotic", "refined-order-1", "refined", "refined-exact-square", "refined-order-3"),
        sizes=(200, 400, 800),
        real="digits",
        real_sizes=(100, 200),
    )
    full = replace(
        quick,
        kernels=("features", "ntk"),
        sizes=(500, 1000, 2000, 4000),
        seeds=3,
        real="mnist",
        real_sizes=(500, 1000, 2000, 4000),
    )

    def tasks(self, spec: RefinedSpec) -> list[Task]:
        cases = [("mixture", n, seed) for n in spec.sizes for seed in range(spec.seeds)]
        cases += [(spec.real, n, 0) for n in spec.real_sizes]
        key = "{data} {activation} n={n} seed={seed}"
        return [
            Task.named(key, 0.05 + (n / 1000) ** 2, data=data, activation=name, n=n, seed=seed)
            for name in spec.activations
            for data, n, seed in cases
        ]

    def run(self, spec: RefinedSpec, task: Task, data_dir: Path | None) -> list[Row]:
        from notsodeep_lab.papers.kernel_rows import error_rows
        from notsodeep_lab.papers.measures import sample_of

        sample = sample_of(task["data"], task["n"], round(spec.ratio * task["n"]), task["seed"], data_dir)
        return list(error_rows(task["activation"], spec.sigma_a2, sample, spec.kernels, spec.forms))

    def expectations(self, spec: RefinedSpec, rows: Sequence[Row]) -> list[Expectation]:
        errors = chosen(rows, kind="error")
        data = ("mixture", spec.real)
        return claims_by(_improved, errors, data=data, kernel=spec.kernels, activation=spec.activations)


def _improved(rows: list[Row], data: str, kernel: str, activation: str) -> Iterator[Expectation]:
    n = max(values_of(rows, "n"))
    last = {form: mean(chosen(rows, n=n, form=form), "relative") for form in values_of(rows, "form")}
    best = last["refined-exact-square"]
    slopes = {form: exponent(chosen(rows, form=form), "n") for form in ("asymptotic", "refined-exact-square")}
    falls = ", ".join(f"{form} {fit}" for form, fit in slopes.items() if fit is not None)
    others = ", ".join(
        f"{form} {value:.2g}" for form, value in last.items() if form != "refined-exact-square"
    )
    yield Expectation(
        f"relative error of the refined equivalent, {activation}, {kernel}, {data}, n = {n}",
        None,
        best,
        bool(best < last["asymptotic"]),
        f"yes if below the asymptotic one; with the square of the Gram matrix; others: {others}; exponents: {falls}",
    )


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


# --- twins --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class TwinsSpec(DEQSpec):
    """Races between a DEQ, its twin and a plain network."""

    data: str  # data set
    samples: int | None  # number of training samples; all if None
    modes: tuple[str, ...]  # what is trained: "readout" or "all"
    width: int  # width of all networks
    epochs: int  # epochs of SGD


class Twins(Experiment[TwinsSpec]):
    """Speed, accuracy and agreement of twins."""

    name = "twins"
    paper = "ours"
    summary = "Speed, accuracy and agreement of a DEQ, its twin and a plain network after equal training"
    minutes = MappingProxyType({"quick": 0.6, "full": 5.0})
    timed = True
    quick = TwinsSpec(
        0.2, ("tanh", "relu"), 2, "digits", samples=None, modes=("readout", "all"), width=128, epochs=10
    )
    full = replace(quick, data="mnist", samples=10_000, width=512, seeds=3)

    def tasks(self, spec: TwinsSpec) -> list[Task]:
        key = f"{spec.data} {{activation}} {{mode}}"
        costs = {"readout": 1.0, "all": 10.0}
        return grid(key, lambda mode, **_: costs[mode], activation=spec.activations, mode=spec.modes)

    def run(self, spec: TwinsSpec, task: Task, data_dir: Path | None) -> list[Row]:
        from notsodeep.nets.race import RaceSettings
        from notsodeep_lab.papers.training_rows import race_rows

        name, mode = task["activation"], task["mode"]
        settings = RaceSettings(width=spec.width, mode=mode, seeds=spec.seeds, epochs=spec.epochs)
        rows = race_rows(DEQ(name, spec.sigma_a2), settings, spec.data, spec.samples, data_dir)
        return [{**row, "activation": name} for row in rows]

    def expectations(self, spec: TwinsSpec, rows: Sequence[Row]) -> list[Expectation]:
        races = chosen(rows, kind="race")
        return claims_by(_raced, races, activation=spec.activations, mode=spec.modes)


def _raced(rows: list[Row], activation: str, mode: str) -> Iterator[Expectation]:
    deq, twin, plain = (chosen(rows, model=model) for model in ("deq", "twin", "plain"))
    where = f"{activation}, {mode} trained"
    gap = accuracy_gap(rows, "twin")
    yield Expectation(
        f"accuracy of the DEQ − accuracy of its twin, {where}",
        None,
        str(gap),
        gap.negligible,
        f"yes if at most half a point; plain network: {accuracy_gap(rows, 'plain')}",
    )
    if len(deq) > 1:
        yield Expectation(
            f"agreement with the DEQ, {where}",
            None,
            mean(twin, "agreement"),
            bool(mean(twin, "agreement") >= mean(deq, "agreement") - NEGLIGIBLE_GAP),
            f"yes if within half a point of the agreement of two DEQs with different seeds, "
            f"{mean(deq, 'agreement'):.3f}; plain network: {mean(plain, 'agreement'):.3f}",
        )
    faster = _median(deq, "inference_seconds") / _median(twin, "inference_seconds")
    trained = _median(deq, "epoch_seconds") / _median(twin, "epoch_seconds")
    yield Expectation(
        f"speed-up of inference over the DEQ, {where}",
        None,
        faster,
        bool(faster > 1.0),
        f"speed-up of an epoch: {trained:.2g}",
    )


def _median(rows: list[Row], field: str) -> float:
    return float(np.median([row[field] for row in rows]))


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
