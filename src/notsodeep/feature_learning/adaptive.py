"""`adaptive_kernel`: the kernel of a network after it has learned, docs/theory.md section 16."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from notsodeep.errors import ConvergenceError, InputError
from notsodeep.feature_learning.hidden_layers import hidden_layers
from notsodeep.feature_learning.neuron_density import JITTER, NeuronDensity
from notsodeep.feature_learning.new_samples import missed_equilibrium, new_outputs
from notsodeep.feature_learning.points import Chains, QuasiMonteCarlo
from notsodeep.feature_learning.self_consistency import Posterior
from notsodeep.feature_learning.solution import STARTS, Solution, solve
from notsodeep.kernels import conjugate_kernel
from notsodeep.models import Model
from notsodeep.progress import Report, reported
from notsodeep.results import Result
from notsodeep.validation import Array, as_count, as_number, as_right_sides, as_rows, one_of, squared_norms

METHODS = ("auto", "sampling", "quasi-monte-carlo")
# Most samples; most samples of a quasi-Monte Carlo rule.
MOST_SAMPLES, _MOST_FOR_RULE = 200, 8
# Independent replicates behind standard errors, and those of many samples; how many are many.
_REPLICATES, _FEW_REPLICATES, _MANY = 8, 4, 32
# Distance from zero's equilibrium, relative to the kernel, up to which it counts as the learned one.
_LARGEST_MISS = 0.05
# Points of each rule; chains of each replicate, at least and per sample.
_RULE_POINTS, _CHAINS, _CHAINS_PER_SAMPLE = 2048, 256, 6


@dataclass(frozen=True, eq=False, repr=False)
class AdaptiveKernel(Result):
    """The kernel of a network after learning, beside its kernel before.

    Attributes:
        kernel: Φ = ⟨φφᵀ⟩ after learning, (n, n).
        standard_error: of each entry of `kernel`.
        lazy_kernel: the conjugate kernel, which wide networks keep in the lazy limit γ → 0.
        outputs: f on the training samples, (n,) or (n, outputs).
        outputs_error: standard error of each of them.
        solutions: all distinct solutions found, reached ones first, then the most probable first.
        misses: for each solution, how far iteration from zero ends from its equilibrium, relative to its kernel.
        log_evidences: log posterior of each solution per neuron and its standard error; NaN if there is only one.
        model: the model.
        X: the samples.
        y: the targets.
    """

    _figure = "plot_kernel_change"
    _shown = ("change", "alignment", "lazy_alignment", "rate", "converged", "reached")

    kernel: Array
    standard_error: Array
    lazy_kernel: Array
    outputs: Array
    outputs_error: Array
    solutions: tuple[Solution, ...]
    misses: Array
    log_evidences: Array
    model: Model
    X: Array
    y: Array

    @property
    def converged(self) -> bool:
        """Whether the iteration settled and the chains mixed; `solutions[0].diagnostics` has the numbers."""
        return self.solutions[0].converged

    @property
    def reached(self) -> bool:
        """Whether iteration from zero, as in `DEQNet`, leads to the learned equilibrium at the training samples.

        Otherwise networks that are solved this way do not have this kernel.
        """
        return bool(self.misses[0] <= _LARGEST_MISS)

    @property
    def rate(self) -> float:
        """Contraction rate of the DEQ after learning, docs/theory.md (16.8); 0 for explicit networks."""
        return self.solutions[0].rate

    @property
    def change(self) -> float:
        """‖Φ − lazy kernel‖/‖lazy kernel‖ in Frobenius norm."""
        return float(np.linalg.norm(self.kernel - self.lazy_kernel) / np.linalg.norm(self.lazy_kernel))

    @property
    def alignment(self) -> float:
        """Cosine between `kernel` and yyᵀ; 1 if features encode the targets alone."""
        return alignment(self.kernel, self.y)

    @property
    def lazy_alignment(self) -> float:
        """Cosine between `lazy_kernel` and yyᵀ."""
        return alignment(self.lazy_kernel, self.y)

    def predict(self, X_new: Any, *, return_error: bool = False) -> Any:
        """Predict the mean output of the trained network on new samples, docs/theory.md (16.7).

        Args:
            X_new: samples in rows.
            return_error: also return the standard error of each output.

        Returns:
            (n_new,) or (n_new, outputs), like y.
        """
        rows = as_rows(X_new, "X_new", columns=self.X.shape[1])
        outputs = new_outputs(self.solutions[0], self.X @ rows.T, squared_norms(rows))
        mean, error = _mean_and_error(outputs[..., 0] if self.y.ndim == 1 else outputs)
        return (mean, error) if return_error else mean


def alignment(kernel: Array, y: Array) -> float:
    """Compute the cosine between a kernel and yyᵀ in Frobenius norm."""
    targets = y.reshape(len(y), -1)
    size = np.linalg.norm(targets.T @ targets) * np.linalg.norm(kernel)
    return float(np.sum(targets * (kernel @ targets)) / size) if size else 0.0


def adaptive_kernel(
    model: Model,
    X: Any,
    y: ArrayLike,
    richness: float = 1.0,
    precision: float = 1.0,
    *,
    method: str = "auto",
    starts: tuple[str, ...] = STARTS,
    chains: int | None = None,
    tolerance: float = 0.003,
    seed: int = 0,
    progress: bool | Report = True,
) -> AdaptiveKernel:
    """Compute the kernel of a wide network after it has learned, from the Bayesian posterior in mean-field scaling.

    The network is f = Σ a φ(h)/(γ m) of width m → ∞ with unit Gaussian weights and the loss (m β/2)|y − f|²; equally,
    noisy gradient descent with weight decay. γ → 0 at fixed β/γ² is the lazy limit: ridge regression with the conjugate
    kernel and ridge γ²/β. Docs/theory.md section 16 has the equations.

    Args:
        model: a DEQ or an Explicit network.
        X: samples in rows, at most 200; time grows with the square of their number.
        y: real targets, (n,) or (n, outputs).
        richness: γ. The larger, the more features change.
        precision: β, inverse variance of the noise of the targets, divided by the width.
        method: "sampling" (Hamiltonian Monte Carlo over one neuron), "quasi-monte-carlo" (for n ≤ 8), or "auto".
        starts: where the iteration begins: "lazy", "rich"; at large γ they may reach different solutions.
        chains: Markov chains in each of the 8 replicates (4 for n > 32), at least n; 256 or 6 n if None. Standard
            errors fall with it. For quasi-Monte Carlo the points, 2048.
        tolerance: largest bias of the kernel by the noise of the chains, relative to its norm; a larger one is faster.
        seed: random seed.
        progress: a bar on a terminal after two seconds; False for none, or a function.

    Raises:
        InputError: for input that cannot be used.
        ConvergenceError: if no start leads to a solution, for example where ReLU features grow without bound.
    """
    layers, rows = hidden_layers(model), as_rows(X)
    n = len(rows)
    if n > MOST_SAMPLES:
        raise InputError(
            f"X has {n} samples; at most {MOST_SAMPLES} can be treated. Take a random subset of the rows."
        )
    targets = as_right_sides(y, n, "y")
    gamma = as_number(richness, "richness", positive=True)
    beta = as_number(precision, "precision", positive=True)
    accuracy = as_number(tolerance, "tolerance", positive=True)
    if not starts:
        raise InputError("starts is empty: give 'lazy', 'rich' or both.")
    use_rule = n <= _MOST_FOR_RULE and one_of(method, METHODS, "method") != "sampling"
    if method == "quasi-monte-carlo" and not use_rule:
        raise InputError(
            f"Quasi-Monte Carlo serves up to {_MOST_FOR_RULE} samples, X has {n}: use method='sampling'."
        )
    if chains is None:
        count = _RULE_POINTS if use_rule else max(_CHAINS, _CHAINS_PER_SAMPLE * n)
    else:
        count = as_count(chains, "chains", least=max(16, n))
    kind: Any = QuasiMonteCarlo if use_rule else Chains
    replicates = _REPLICATES if n <= _MANY else _FEW_REPLICATES
    entering = layers[0].inject * squared_norms(rows) + layers[0].constant
    spread = entering.max() * JITTER / entering[entering > 0.0].min(initial=np.inf)
    if spread > 1.0:
        raise InputError(
            f"The variances that the samples bring into a neuron span a factor of {spread / JITTER:.1g}; up to "
            f"{1.0 / JITTER:.0g} is resolved. Scale the rows to similar norms: X / np.linalg.norm(X, axis=1)[:, None]."
        )
    posterior = Posterior(layers, rows @ rows.T, targets.reshape(n, -1), gamma, beta)
    lazy = conjugate_kernel(model, rows)
    if not np.any(lazy):
        raise InputError(
            "The kernel before learning is zero. Give samples other than zero, or a model with bias2 > 0."
        )
    found: list[Solution] = []
    failures: list[ConvergenceError] = []
    with reported(progress, "kernel after learning") as report:
        for number, start in enumerate(one_of(one, STARTS, "starts") for one in starts):

            def make_points(density: NeuronDensity, layer: int, number: int = number) -> Any:
                return kind(density, count, (seed, number, layer))

            say = partial(_report_step, report, start)
            try:
                found.append(solve(posterior, lazy, replicates, make_points, start, accuracy, say))
            except ConvergenceError as error:
                failures.append(error)
    if not found:
        raise failures[0]
    solutions, misses, evidences = _ranked(found, seed)
    best = solutions[0]
    _warn(best, misses[0])
    outputs = posterior.targets - posterior.residuals(best.state.features[-1]) / beta
    fitted = _mean_and_error(outputs[..., 0] if targets.ndim == 1 else outputs)
    kernels = _mean_and_error(best.state.features[-1])
    return AdaptiveKernel(*kernels, lazy, *fitted, solutions, misses, evidences, model, rows, targets)


def _report_step(report: Report, start: str, step: int) -> None:
    report(0, 0, lambda: f"{start} start, step {step}")


def _ranked(found: list[Solution], seed: int) -> tuple[tuple[Solution, ...], Array, Array]:
    """Distinct solutions with their misses and evidences: reached ones first, then by evidence (NaN for a single one).

    Unsettled solutions count only if there is no other.
    """
    kept: list[Solution] = []
    for one in [one for one in found if one.converged] or found[:1]:
        if all(one.is_distinct(other) for other in kept):
            kept.append(one)
    misses = np.array([missed_equilibrium(one) for one in kept])
    if len(kept) == 1:
        return tuple(kept), misses, np.full((1, 2), np.nan)
    evidences = np.array([one.log_evidence(seed) for one in kept])
    order = np.lexsort((-evidences[:, 0], misses > _LARGEST_MISS))
    return tuple(kept[i] for i in order), misses[order], evidences[order]


def _warn(best: Solution, miss: float) -> None:
    if not best.converged:
        text = f"The kernel after learning has not converged: {best.diagnostics}."
        warnings.warn(f"{text} Use more chains, or a smaller richness or precision.", stacklevel=3)
    if miss > _LARGEST_MISS:
        text = f"Iteration from zero ends {miss:.0%} of the kernel away from the learned equilibrium: networks solved"
        warnings.warn(f"{text} this way do not have this kernel. Use a smaller richness.", stacklevel=3)
    if best.rate >= 1.0:
        text = f"After learning the DEQ has the contraction rate {best.rate:.3g}, 1 or more: networks have no stable"
        warnings.warn(f"{text} equilibrium. Use a smaller richness or sigma_a2.", stacklevel=3)


def _mean_and_error(replicates: Array) -> tuple[Array, Array]:
    return replicates.mean(axis=0), replicates.std(axis=0, ddof=1) / np.sqrt(len(replicates))
