"""The kernel after learning compared with networks that learn, and what learning features changes in test error."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import sqrt
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from notsodeep.data import GaussianMixture
from notsodeep.designs import design
from notsodeep.feature_learning import adaptive_kernel
from notsodeep.feature_learning.adaptive import AdaptiveKernel, alignment
from notsodeep.feature_learning.solution import STARTS
from notsodeep.kernels import conjugate_kernel
from notsodeep.models import DEQ
from notsodeep.validation import Array
from notsodeep_lab.papers.experiment import Expectation, Experiment, Row, Task, claims_by, grid
from notsodeep_lab.papers.experiment_settings import DEQSpec
from notsodeep_lab.papers.row_statistics import mean
from notsodeep_lab.plots.row_selection import chosen

# Relative error up to which the kernel of a network counts as that of the theory; tolerance of test errors.
_CLOSE, _TOLERANCE = 0.05, 0.02
# Kernels of narrower networks are further from the theory of infinite width than that.
_WIDE = 100
_TARGETS = ("single index", "sparse", "mixture")
# Samples, their dimension, the seed and the richness of a case with two solutions; detour of networks to the rich one.
_TWO, _DETOUR = {"n": 24, "dimension": 6, "seed": 1, "richness": 0.26}, 1.3
# As many samples as the equations are meant for.
_MANY = {"n": 100, "seed": 1, "richness": 0.1}
_COMPARED = ("change", "alignment", "lazy_alignment", "rate", "converged", "reached")


@dataclass(frozen=True)
class FeaturesSpec(DEQSpec):
    """Networks that learn, compared with their theory."""

    ridge: float  # γ²/β, the ridge of the lazy limit
    richness: tuple[float, ...]  # values of γ; networks learn at the last two
    dimension: int  # number of inputs
    sizes: tuple[
        int, ...
    ]  # numbers of samples of networks whose weights are sampled; of noisy descent the last one
    widths: tuple[int, ...]  # their widths
    moves: int  # Monte Carlo moves, after half as many for tuning
    samples: int  # number of samples of test errors
    test_samples: int  # number of test samples
    descent_width: int  # width of the network trained by noisy gradient descent
    descent_steps: int  # its steps
    solution_widths: tuple[int, ...] = ()  # widths of networks sampled near each of two solutions
    dimensions: tuple[int, ...] = ()  # numbers of inputs of 100 samples, without networks


class LearnedFeatures(Experiment[FeaturesSpec]):
    """Kernels and outputs after learning; test errors against richness."""

    name = "features"
    paper = "ours"
    summary = "Kernel after learning against networks that learn; test error against richness, DEQ and twin"
    minutes = MappingProxyType({"quick": 1.0, "full": 50.0})
    quick = FeaturesSpec(0.4, ("tanh",), 1, 0.25, (0.3,), 8, (4,), (50,), 60, 12, 50, 50, 200, ())
    full = replace(
        quick, seeds=4, richness=(0.1, 0.3, 0.6), sizes=(4, 16), widths=(100, 400), moves=100,
        samples=48, test_samples=200, descent_width=200, descent_steps=2000, solution_widths=(200,),
        dimensions=(6, 8, 50),
    )  # fmt: skip

    def tasks(self, spec: FeaturesSpec) -> list[Task]:
        learned: dict[str, Any] = {"activation": spec.activations, "richness": spec.richness[-2:]}
        cases = [("posterior", n, width) for n in spec.sizes for width in spec.widths]
        everywhere: dict[str, Any] = learned | {"richness": spec.richness, "seed": range(spec.seeds)}
        tasks = grid(
            "{kind} {activation} {target} n={n} richness={richness} seed={seed}", lambda n, **_: n**2 / 256,
            kind=["error"], target=_TARGETS, n=[spec.samples], **everywhere,
        )  # fmt: skip
        for kind, n, width in [*cases, ("descent", spec.sizes[-1], spec.descent_width)]:
            tasks += grid(
                "{kind} {activation} n={n} m={width} richness={richness}",
                lambda n, width, **_: n * width**2 / 1e5, kind=[kind], n=[n], width=[width], **learned,
            )  # fmt: skip
        two, many = ({name: [value] for name, value in one.items()} for one in (_TWO, _MANY))
        tasks += grid(
            "{kind} {activation} {start} m={width}", lambda width, **_: width**2 / 1e3, kind=["solutions"],
            activation=spec.activations, start=STARTS, width=spec.solution_widths, **two,
        )  # fmt: skip
        return tasks + grid(
            "{kind} {activation} n={n} p={dimension}", lambda **_: 30.0, kind=["many"],
            activation=spec.activations, dimension=spec.dimensions, **many,
        )  # fmt: skip

    def run(self, spec: FeaturesSpec, task: Task, data_dir: Path | None) -> list[Row]:
        from notsodeep_lab.papers.weight_posterior import WeightPosterior

        deq, gamma = DEQ(task["activation"], spec.sigma_a2), task["richness"]
        beta = gamma**2 / spec.ridge
        given, n = task.parameters, task["n"]
        if task["kind"] == "error":
            X, y = labelled(task["target"], n + spec.test_samples, spec.dimension, task["seed"])
            return [{**given, **row} for row in error_rows(deq, X, y, n, gamma, beta)]
        start, p = given.get("start", "lazy"), given.get("dimension", spec.dimension)
        X, y = labelled("single index", n + 8, p, given.get("seed", 0))
        if task["kind"] == "many":
            theory = adaptive_kernel(deq, X[:n], y[:n], gamma, beta, starts=(start,))
            return [{**given, **settled(theory)}]
        weights = WeightPosterior(deq, X[:n], y[:n], task["width"], gamma, beta)
        if task["kind"] == "descent":
            kernel, outputs = weights.descend(X[n:], spec.descent_steps, 0)
        else:
            detour = _DETOUR if start == "rich" else 1.0
            kernel, outputs = weights.sample(X[n:], spec.moves, spec.moves // 2, 2, 0, detour)
        theory = adaptive_kernel(deq, X[:n], y[:n], gamma, beta, starts=(start,))
        return [{**given, **comparison(theory, X[n:], kernel[:, :n, :n], outputs)}]

    def expectations(self, spec: FeaturesSpec, rows: Sequence[Row]) -> list[Expectation]:
        networks = [row for row in rows if row["kind"] not in ("error", "many")]
        axes = {name: sorted({row[name] for row in networks}) for name in ("kind", "n", "width", "richness")}
        errors = chosen(rows, kind="error")
        starts = [{"start": "lazy"} | row for row in networks]
        many = [_settles(row) for row in chosen(rows, kind="many")]
        changes = claims_by(_errors, errors, target=_TARGETS, n=(spec.samples,), richness=spec.richness)
        return [*claims_by(_agrees, starts, **axes, start=STARTS), *changes, *many]


def labelled(target: str, n: int, p: int, seed: int) -> tuple[Array, Array]:
    """Samples of mean square norm 1 and targets ±1.

    Targets are the sign of one coordinate ("single index"), the sign of x₀ + √p x₁x₂ ("sparse"), or the class of a
    mixture of two Gaussian distributions.
    """
    rng = np.random.default_rng(seed)
    if target != "mixture":
        X = rng.standard_normal((n, p)) / sqrt(p)
        value = X[:, 0] + (sqrt(p) * X[:, 1] * X[:, 2] if target == "sparse" else 0.0)
        return X, np.asarray(np.sign(value), dtype=np.float64)
    means = np.zeros((2, p))
    means[:, 0] = -2.0, 2.0
    X, y = GaussianMixture(means, [1.0, 1.0]).sample(n, seed=seed)
    order = rng.permutation(n)
    return X[order] / sqrt(np.mean(np.sum(X**2, axis=1))), np.where(y[order] > 0, 1.0, -1.0)


def settled(theory: AdaptiveKernel) -> Row:
    """The kernel after learning in a few numbers, whether it has converged and its relative standard error."""
    error = float(np.linalg.norm(theory.standard_error) / np.linalg.norm(theory.kernel))
    steps = theory.solutions[0].diagnostics.steps
    return {**{key: getattr(theory, key) for key in _COMPARED}, "theory_error": error, "steps": steps}


def lazy_outputs(theory: AdaptiveKernel, X: Array) -> Array:
    """Ridge regression with the kernel before learning."""
    posterior = theory.solutions[0].posterior
    readout = posterior.residuals(theory.lazy_kernel)[:, 0] / posterior.richness**2
    return np.asarray(conjugate_kernel(theory.model, X, theory.X) @ readout)


def comparison(theory: AdaptiveKernel, X_test: Array, kernel: Array, outputs: Array) -> Row:
    """Kernel, alignment and outputs of networks (chains first) beside theory and the lazy limit."""
    measured, means, n = kernel.mean(axis=0), outputs.mean(axis=0), len(theory.y)
    new = theory.predict(X_test)
    after, lazy = (
        np.concatenate([theory.outputs, new]),
        lazy_outputs(theory, np.concatenate([theory.X, X_test])),
    )
    error = kernel.std(axis=0, ddof=1) / sqrt(len(kernel))
    return {
        "kernel_error": _distance(theory.kernel, measured),
        "lazy_kernel_error": _distance(theory.lazy_kernel, measured),
        "sampling_error": float(np.linalg.norm(error) / np.linalg.norm(measured)),
        **settled(theory),
        "alignment": alignment(measured, theory.y),
        "theory_alignment": theory.alignment,
        "fit_error": float(np.sqrt(np.mean((after - means)[:n] ** 2))),
        "test_error": float(np.sqrt(np.mean((after - means)[n:] ** 2))),
        "lazy_test_error": float(np.sqrt(np.mean((lazy - means)[n:] ** 2))),
    }


def _distance(one: Array, other: Array) -> float:
    return float(np.linalg.norm(one - other) / np.linalg.norm(other))


def error_rows(deq: DEQ, X: Array, y: Array, n: int, gamma: float, beta: float) -> Iterator[Row]:
    """Test errors of the DEQ and of its twin, lazy and after learning; distances are from the DEQ's kernels."""
    first = None
    for name, model in (("deq", deq), ("twin", design(deq, 1.0, "ck").network)):
        after = adaptive_kernel(model, X[:n], y[:n], gamma, beta, starts=("lazy",), tolerance=_TOLERANCE)
        first = first or after
        outputs = {"lazy": lazy_outputs(after, X[n:]), "after": after.predict(X[n:])}
        yield {
            "model": name,
            **settled(after),
            "kernel_distance": _distance(after.kernel, first.kernel),
            "lazy_distance": _distance(after.lazy_kernel, first.lazy_kernel),
            **{f"{kind}_mse": float(np.mean((f - y[n:]) ** 2)) for kind, f in outputs.items()},
            **{f"{kind}_accuracy": float(np.mean(f * y[n:] > 0.0)) for kind, f in outputs.items()},
        }


def _agrees(
    rows: list[Row], kind: str, n: int, width: int, richness: float, start: str
) -> Iterator[Expectation]:
    row = rows[0]
    yield Expectation(
        f"relative error of the kernel after learning, {kind}, n = {n}, width {width}, richness {richness:g}, "
        f"{start} start",
        None,
        row["kernel_error"],
        bool(row["kernel_error"] <= _CLOSE) if width >= _WIDE else None,
        f"yes if at most {_CLOSE:g}, from width {_WIDE} on; lazy kernel {row['lazy_kernel_error']:.3g}; sampling error "
        f"of networks {row['sampling_error']:.2g}; alignment {row['alignment']:.3f}, theory "
        f"{row['theory_alignment']:.3f}, lazy {row['lazy_alignment']:.3f}; test outputs off by "
        f"{row['test_error']:.2g}, lazy {row['lazy_test_error']:.2g}",
    )


def _settles(row: Row) -> Expectation:
    return Expectation(
        f"alignment after learning, {row['n']} samples in {row['dimension']} dimensions",
        None,
        row["alignment"],
        row["converged"],
        f"yes if the iteration settled; {row['steps']} steps; relative standard error {row['theory_error']:.2g}; "
        f"kernel changed by {row['change']:.2g}, alignment before {row['lazy_alignment']:.3f}",
    )


def _errors(rows: list[Row], target: str, n: int, richness: float) -> Iterator[Expectation]:
    keys = ("after_mse", "lazy_mse", "change", "kernel_distance", "lazy_distance", "rate")
    deq, twin = ({key: mean(chosen(rows, model=name), key) for key in keys} for name in ("deq", "twin"))
    yield Expectation(
        f"test error after learning − lazy, {target}, {n} samples, richness {richness:g}",
        None,
        deq["after_mse"] - deq["lazy_mse"],
        None,
        f"DEQ {deq['after_mse']:.3f}, lazy {deq['lazy_mse']:.3f}; twin {twin['after_mse']:.3f}, lazy "
        f"{twin['lazy_mse']:.3f}; distance of the kernels {twin['kernel_distance']:.2g}, lazy "
        f"{twin['lazy_distance']:.2g}; kernel of the DEQ changed by {deq['change']:.2g} "
        f"(contraction rate {deq['rate']:.2f}), twin {twin['change']:.2g}; iteration from zero reaches the equilibrium "
        f"of {sum(row['reached'] for row in rows if row['model'] == 'deq')} of {len(rows) // 2} DEQs",
    )
