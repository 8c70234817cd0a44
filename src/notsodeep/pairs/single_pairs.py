"""Pairs one by one: Newton's method with the evaluators of F that hold at any correlation."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from notsodeep.errors import ConvergenceError
from notsodeep.gaussian.bivariate import shape_dual
from notsodeep.gaussian.price import price_integral
from notsodeep.pairs.compiled_series import STEEPEST
from notsodeep.pairs.pair_problem import PairProblem, Where
from notsodeep.pairs.tiles import TILE
from notsodeep.results import KernelInfo
from notsodeep.validation import Array

# F and F' at covariances, of those pairs that the second argument selects.
Evaluator = Callable[[Array, Any], tuple[Array, Array]]

# Pairs timed before a long run, and the seconds from which on it is announced.
PROBED, PATIENCE = 4, 10.0


class SinglePairs:
    """Solves listed pairs by Price's integral or by two-dimensional quadrature."""

    def __init__(self, problem: PairProblem) -> None:
        self.problem = problem
        self._announced = False

    def solve(
        self,
        c: Array,
        rows: Where,
        columns: Where,
        value: Array,
        slope: Array,
        where: tuple[NDArray[np.intp], ...],
        *,
        guessed: bool = False,
    ) -> KernelInfo:
        """Newton's method on the listed pairs with the evaluators that hold at any correlation.

        With `guessed`, `value` holds about F of these pairs already.
        """
        i, j = where
        problem = self.problem
        shift_left, shift_right, root_left, root_right = problem.sides(rows, columns)
        bound = root_left[i] * root_right[j]
        target = problem.kappa * c[i, j] + shift_left[i] + shift_right[j]
        evaluate = self._evaluator(_places(rows)[i], _places(columns)[j])
        self._announce(evaluate, np.clip(target, -bound, bound))
        guess = problem.feedback * value[i, j] + target if guessed else target
        covariance, steps, residual = solve_pairs(evaluate, target, bound, problem.feedback, guess)
        f, df = evaluate(covariance, slice(None))
        value[i, j] = f
        if problem.want_slope:
            slope[i, j] = df
        way = "quadrature" if problem.phi.shape.kinked_pieces is None else "integral"
        return KernelInfo(steps, residual, (1e-12 + residual) / problem.margin, len(i), (way,))

    def _announce(self, evaluate: Evaluator, covariance: Array) -> None:
        """Say beforehand when pairs that have to be integrated one by one will take long."""
        phi, feedback = self.problem.phi, self.problem.feedback
        if self._announced or phi.shape.kinked_pieces is not None or len(covariance) < 20 * PROBED:
            return
        begin = time.perf_counter()
        evaluate(covariance[:PROBED], slice(PROBED))
        seconds = (time.perf_counter() - begin) / PROBED * len(covariance) * (5 if feedback else 1)
        if seconds > PATIENCE:
            self._announced = True
            warnings.warn(
                f"{len(covariance)} pairs of a tile of {TILE} × {TILE} are too correlated for a series, and the "
                f"activation {phi} has no table: they are integrated one by one, about {seconds:.0f} s a tile.",
                stacklevel=2,
            )

    def _evaluator(self, i: NDArray[np.intp], j: NDArray[np.intp]) -> Evaluator:
        """F and F' of these samples as a function of their covariances, for a selection of the pairs."""
        shape, left, right = self.problem.phi.shape, self.problem.left, self.problem.right
        pieces = shape.kinked_pieces
        if pieces is not None:
            scales = left.root[i], right.root[j]
            means = left.mean[i], right.mean[j], left.rise[i], right.rise[j]

            def by_integral(covariance: Array, chosen: Any) -> tuple[Array, Array]:
                return price_integral(
                    pieces,
                    scales[0][chosen],
                    scales[1][chosen],
                    covariance,
                    [part[chosen] for part in means],
                )

            return by_integral
        q1, q2 = left.inner[i], right.inner[j]
        return lambda covariance, chosen: shape_dual(shape, q1[chosen], q2[chosen], covariance)


def _places(where: Where) -> NDArray[np.intp]:
    return np.arange(where.start, where.stop) if isinstance(where, slice) else where


def solve_pairs(
    evaluate: Evaluator, target: Array, bound: Array, feedback: float, guess: Array
) -> tuple[Array, int, float]:
    """Λ = feedback · F(Λ) + target by Newton's method; returns Λ, steps and the worst relative residual."""
    covariance = np.clip(guess, -bound, bound)
    if feedback == 0.0:
        return covariance, 0, 0.0
    active = np.arange(len(target))
    worst = 0.0
    for step in range(1, 61):
        f, df = evaluate(covariance[active], active)
        gap = feedback * f + target[active] - covariance[active]
        sizes = np.abs(gap) / bound[active]
        worst = float(sizes.max())
        move = gap / np.maximum(1.0 - feedback * df, STEEPEST)
        covariance[active] = np.clip(covariance[active] + move, -bound[active], bound[active])
        active = active[sizes > 1e-14]
        # Late in the iteration what is left of the gap is the rounding of F.
        if not len(active) or (step > 10 and worst < 1e-12):
            return covariance, step, worst
    raise no_solution(len(active), worst)


def no_solution(pairs: int, residual: float) -> ConvergenceError:
    """What is raised when Newton's method ends without a solution."""
    return ConvergenceError(
        f"The pair equation Λ = σ_a² F(Λ) + … did not converge for {pairs} pairs (residual {residual:.1e}).",
        "Lower sigma_a2: the map is too close to losing its contraction, σ_a² E[φ'φ'] ≥ 1.",
    )
