"""Results: `Forecast`, what a solver will do with each sample, and `PhaseDiagram`, rates over two parameters."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from notsodeep.display import Shown
from notsodeep.errors import InputError
from notsodeep.results import Result, plain
from notsodeep.validation import Array, as_count, one_of

SOLVERS = ("iteration", "anderson")
# What `advice` aims at: relative errors of the equilibrium and of the gradient, and a rate that leaves a margin.
ACCURACY, GRADIENT_ACCURACY, SAFE_RATE = 1e-3, 0.1, 0.95
# Share of networks of a width that must have an equilibrium where σ_a² is called safe.
SAFE_PROBABILITY = 0.95
# What advice says of several samples.
OUTCOMES = {
    "grows": "grow",
    "oscillates": "oscillate",
    "unstable": "rest on an equilibrium that does not attract",
}
# A predicted rate above which narrow networks differ; the largest rate and number of steps that advice may propose.
NARROW_RATE, DAMPED_RATE, TRUNCATION = 0.9, 0.98, 50


@dataclass(frozen=True, eq=False, repr=False)
class GradientForecast(Shown):
    """How the adjoint equation t = w + Jᵀ t behaves, J the Jacobian of the cell at the equilibrium.

    Attributes:
        adjoint_norm: ‖t‖/‖w‖ of each sample for a random cotangent w; infinite where the adjoint has no limit.
        errors: relative error of the adjoint after 0, 1, … terms of its series, (samples, terms).
        rate: factor by which each further term reduces the error.
    """

    adjoint_norm: Array
    errors: Array
    rate: Array

    def error(self, k: int) -> Array:
        """Relative error ‖t − t_k‖/‖t‖ of the k-step ("phantom") gradient of each sample.

        t_k has k terms: k = 1 is the gradient of one evaluation of the cell at the equilibrium. The gradient of a
        weight is t times a signal, so that its relative error is the same. Infinite where the adjoint has no limit.
        """
        last, steps = self.errors.shape[1] - 1, as_count(k, "k")
        known = self.errors[:, min(steps, last)]
        return np.asarray(known * self.rate ** max(0, steps - last))


@dataclass(frozen=True, eq=False, repr=False)
class Forecast(Result):
    """What a solver does with each sample: whether it settles, in how many steps, and how good gradients are.

    Returned by `forecast`: predicted from a model (wide limit, no network), or measured on a network.

    Attributes:
        source: "predicted" or "measured".
        model: the model or network, in words.
        rate: factor by which a late evaluation of the cell reduces a small error, (n,): the larger of both modes, with
            the spectral radius of the median network if there is a width; measured, the largest modulus of an
            eigenvalue of the Jacobian. Where no equilibrium was found it is infinite, or the factor of the last
            measured steps if time was over.
        residuals: ‖z_{k+1} − z_k‖/‖z_{k+1}‖ of plain iteration, (n, K); column k is the step from z_k, z_0 = 0. The
            residual that `DEQNet` reports after s steps is column s, because it starts at z_1. Measured, K is the
            number of evaluations of the slowest sample, and NaN follows after a sample has finished.
        errors: ‖z_k − z*‖/‖z*‖ in column k, (n, K); NaN where there is no equilibrium. A loop of K steps has K + 1
            columns, the last for its output.
        gradient: the adjoint and truncated gradients, in the wide limit.
        anderson_curve: computes `anderson_residuals`, when they are needed; predicted ones are those of the wide limit.
        probability: chance of an equilibrium at this width, (n,); None without a width, or below the simulated widths.
        probability_error: its standard error.
        remark: what is said of the probability if the width was not simulated.
        width: m; None for the wide limit.
        loop_steps: number of steps of an explicit loop; None for a model that is solved.
        eigenvalues: leading eigenvalues of the Jacobian of each sample, (n, some), measured only.
        initial: of a measured network, the forecast for its random initialisation, where its model is known.
        safe_gain: computes the largest safe σ_a² and the present one; predicted only.
        outcome: what plain iteration of each sample did, (n,): "settles", "grows", "oscillates", "unstable" (it rests
            on an equilibrium that does not attract) or "not within N evaluations"; measured only.
        seconds: time that the measurement could take.
        precision: type in which it was computed: float64, whatever the cell's type, unless the cell is compiled.
        damped_rate: computes the rate of damped iteration with a share η; measured only.
        draws: forecasts measured on single networks of this width, whose medians this is; cells with a width only.
    """

    _figure = "plot_forecast"

    source: str
    model: str
    rate: Array
    residuals: Array
    errors: Array
    gradient: GradientForecast
    anderson_curve: Callable[[], Array]
    probability: Array | None = None
    probability_error: Array | None = None
    remark: str = ""
    width: int | None = None
    loop_steps: int | None = None
    eigenvalues: Any = None
    initial: Forecast | None = None
    safe_gain: Callable[[], tuple[float, float]] | None = None
    outcome: Any = None
    seconds: float | None = None
    precision: str = "float64"
    damped_rate: Callable[[float], float] | None = None
    draws: tuple[Forecast, ...] = ()

    @property
    def settles(self) -> Any:
        """Whether plain iteration settles, (n,): a rate below 1; measured, that it did."""
        below = self.rate < 1.0
        return below if self.outcome is None else below & (self.outcome == "settles")

    @cached_property
    def anderson_residuals(self) -> Array:
        """The residuals of Anderson acceleration with memory 5, as `residuals`; from z_1 on, as `DEQNet` does."""
        return self.anderson_curve()

    def steps(self, tolerance: float, solver: str = "iteration") -> Array:
        """Evaluations of the cell until the relative residual is at most `tolerance`, (n,); infinite if never.

        The first evaluation is at z_0 = 0. `DEQNet` takes one product less: at zero it needs none. A loop has only its
        own steps: infinite if it ends before.

        Args:
            tolerance: on ‖f(z) − z‖/‖f(z)‖.
            solver: "iteration" or "anderson" (memory 5).
        """
        one_of(solver, SOLVERS, "solver")
        if not 0.0 < tolerance < np.inf:
            raise InputError(f"tolerance must be a positive number, got {tolerance}.")
        curve = self.residuals if solver == "iteration" else self.anderson_residuals
        reached = curve <= tolerance
        counts = np.where(reached.any(axis=1), reached.argmax(axis=1) + 1.0, np.inf)
        if self.outcome is not None and solver == "iteration":
            # Steps of a state that grows are small beside it, and those of chaos now and then, but it settles nowhere.
            counts[np.isin(self.outcome, ("grows", "oscillates"))] = np.inf
        # Beyond the curve, residuals fall with the rate.
        ends = np.maximum((~np.isnan(curve)).sum(axis=1) - 1, 0)
        last = np.maximum(curve[np.arange(len(curve)), ends], 1e-300)
        open_end = ~reached.any(axis=1) & self.settles & (self.rate > 0.0) & (last > tolerance)
        open_end &= self.loop_steps is None
        with np.errstate(divide="ignore", invalid="ignore"):
            further = np.ceil(np.log(tolerance / last) / np.log(self.rate))
        return np.asarray(np.where(open_end, ends + 1.0 + further, counts))

    @cached_property
    def advice(self) -> str:
        """What to do, in sentences: steps, the largest safe σ_a², damping, tolerance and gradients."""
        settled, known = np.asarray(self.settles), self.rate[np.isfinite(self.rate)]
        slowest, late = float(np.max(known, initial=0.0)), int((~settled).sum())
        parts = [self._summary(settled)]
        if slowest > 0.0:
            parts.append(f"Slowest rate {_rate_words(slowest)}{self._spread()}.")
        if self.source == "predicted" and self.width is None and slowest > NARROW_RATE:
            parts.append(
                f"Rates above {NARROW_RATE:g} are those of wide networks: narrow ones settle more slowly or not at "
                "all, which width= forecasts."
            )
        if self.loop_steps is not None:
            ends = np.median(self.residuals[:, -1]), np.median(self.errors[:, -1])
            distance = f", {ends[1]:.2g} from the equilibrium" if np.isfinite(ends[1]) else ""
            parts.append(
                f"The loop ends after {self.loop_steps} steps at residual {ends[0]:.2g}{distance} (medians)."
            )
        elif not late:
            counts = [f"{np.median(self.steps(goal)):.0f} to {goal:g}" for goal in (1e-3, 1e-6)]
            parts.append(f"Median steps: {' and '.join(counts)}.")
        if self.width is not None:
            chance = [self.remark] if self.remark else []
            if self.probability is not None and self.probability_error is not None:
                least = int(np.argmin(self.probability))
                numbers = f"{self.probability[least]:.2f} ± {self.probability_error[least]:.2f}"
                chance.insert(0, f"{numbers} for the worst sample")
            parts.append(f"Probability of an equilibrium at width {self.width}: {', '.join(chance)}.")
        if self.initial is not None:
            which = "Wide networks" if self.draws else "Random weights"
            parts.append(f"{which} of this model have rate {_rate_words(float(self.initial.rate.max()))}.")
        if self.safe_gain is not None and np.isfinite((safe := self.safe_gain())[0]):
            bound = f"sigma_a2 up to {safe[0]:.3g}" if safe[0] else "No sigma_a2"
            kept = "rates" if self.width is None else "the median rate"
            share = f", with an equilibrium in {100 * SAFE_PROBABILITY:g} % of such networks"
            where = "" if self.probability is None else share
            parts.append(f"{bound} keeps {kept} below {SAFE_RATE:g}{where} (now {safe[1]:.3g}).")
        if not self.draws:
            parts.append(self._damping_advice(slowest))
        if settled.any():
            rate = float(np.max(self.rate[settled]))
            # Steps are orthogonal to each other in a wide network: the error is the root of the sum of their squares.
            # Those of one cell may have one direction.
            left = 1.0 - rate if self.source == "measured" else np.sqrt(1.0 - rate**2)
            tolerance = ACCURACY * min(left / max(rate, 1e-6), 1.0)
            parts.append(f"A tolerance of {tolerance:.1g} gives equilibria to {100 * ACCURACY:g} %.")
            errors = (self.gradient.error(k)[settled].max() for k in range(1, TRUNCATION + 1))
            terms = next((k for k, error in enumerate(errors, 1) if error < GRADIENT_ACCURACY), None)
            within = f"within {100 * GRADIENT_ACCURACY:g} %"
            parts.append(
                f"No gradient of up to {TRUNCATION} steps is {within}: use the implicit gradient."
                if terms is None
                else f"A gradient of {terms} steps is {within}."
            )
        if self.precision != "float64":
            parts.append(f"Computed in {self.precision}: smaller residuals are rounding.")
        return " ".join(parts)

    def _summary(self, settled: Any) -> str:
        """How many samples settle, and what the others do."""
        late = int((~settled).sum())
        where = "" if self.width is None else " in the median network"
        if self.outcome is None or not late:
            samples = f"{late} of {len(settled)} samples do not settle" if late else "All samples settle"
            return f"{samples}{where}."
        names, counts = np.unique(self.outcome, return_counts=True)
        told = [f"{count} {OUTCOMES.get(name, name)}" for name, count in zip(names, counts, strict=True)]
        told = [each for each in told if not each.endswith("settles")]
        limit = f" (seconds={self.seconds:g})" if any("not within" in each for each in told) else ""
        return f"{late} of {len(settled)} samples do not settle{where}: {', '.join(told)}{limit}."

    def _spread(self) -> str:
        """The range of the largest rate among the networks that were drawn."""
        if not self.draws:
            return ""
        rates = np.stack([one.rate for one in self.draws])
        worst = np.sort(rates[:, np.median(rates, axis=0).argmax()])
        return f" ({_rate_words(worst[0])} to {_rate_words(worst[-1])} among {len(worst)} networks)"

    def _damping_advice(self, slowest: float) -> str:
        """Whether z + η (f(z) − z) with η < 1 settles faster, from the eigenvalues where they are known."""
        if self.eigenvalues is None:
            return "Damping does not help: the eigenvalues of the Jacobian fill a disc around zero."
        values = self.eigenvalues[~np.isnan(self.eigenvalues).any(axis=1)]
        if not len(values):
            return "No equilibrium was found: damping cannot be judged."
        shares = np.linspace(0.05, 1.0, 96)[:, None, None]
        rates = np.abs(1.0 - shares + shares * values).max(axis=(1, 2))
        best, largest = float(shares[rates.argmin(), 0, 0]), min(0.97 * slowest, DAMPED_RATE)
        damped = float(rates.min())
        if damped < largest and self.damped_rate is not None:
            # Eigenvalues that are not among the leading ones may be the slowest after damping.
            damped = max(damped, self.damped_rate(best))
        if damped >= largest:
            return "Damping does not help."
        return f"Damping helps: steps of {best:.2f} have rate {_rate_words(damped)}."

    def to_dict(self) -> dict[str, Any]:
        """The numbers as plain JSON values; infinite and undefined ones are None."""
        arrays = {name: getattr(self, name) for name in ("rate", "settles", "residuals", "errors")}
        arrays |= {"steps_1e-3": self.steps(1e-3), "steps_1e-6": self.steps(1e-6)}
        arrays |= {"adjoint_norm": self.gradient.adjoint_norm, "gradient_error_1": self.gradient.error(1)}
        if self.probability is not None:
            arrays |= {"probability": self.probability, "probability_error": self.probability_error}
        words = {name: getattr(self, name) for name in ("source", "model", "width", "advice")}
        if self.outcome is not None:
            words["outcome"] = self.outcome.tolist()
        return words | {key: plain(values) for key, values in arrays.items()}

    def _facts(self) -> dict[str, Any]:
        settled = f"{int(np.sum(self.settles))} of {len(self.rate)}"
        facts = {"source": self.source, "model": self.model, "settles": settled}
        return facts | {"rate": float(np.max(self.rate)), "width": self.width}


def continued(curve: Array, rate: Array, columns: int) -> Array:
    """Curves (samples, columns) that fall with the rate after their last number; above 1 they stay where they are."""
    missing = max(0, columns - curve.shape[1])
    known = np.pad(curve[:, :columns], ((0, 0), (0, missing)), constant_values=np.nan)
    ends = (~np.isnan(known)).cumsum(axis=1).argmax(axis=1)[:, None]
    further = np.maximum(np.arange(columns) - ends, 0)
    factor = np.where(rate < 1.0, rate, 1.0)[:, None]
    return np.where(np.isnan(known), np.take_along_axis(known, ends, axis=1) * factor**further, known)


def _rate_words(rate: float) -> str:
    """A rate with the digits that show on which side of 1 it is."""
    near = max(abs(rate - 1.0), 1e-4)
    return f"{rate:.3g}" if near >= 0.005 else f"{rate:.{-int(np.floor(np.log10(near)))}f}"


@dataclass(frozen=True, eq=False, repr=False)
class PhaseDiagram(Result):
    """Rates of the models `make_model(gain, injection)` for samples of one norm.

    Attributes:
        gain: first arguments, along columns.
        injection: second arguments, along rows.
        rate: factor per step of a small error, (injections, gains); infinite where variances have no fixed point,
            NaN where the state is zero.
        norm: ‖x‖.
    """

    _figure = "plot_phase_diagram"

    gain: Array
    injection: Array
    rate: Array
    norm: float


__all__ = ["SAFE_RATE", "Forecast", "GradientForecast", "PhaseDiagram", "continued"]
