"""One network for both kernels: activations match the conjugate kernel, learning rates the tangent kernel.

The tangent kernel of a network trained with a learning rate of its own for the weights of each layer is linear in
these rates, so that matching it is a non-negative least-squares problem: docs/matching_both.md.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy import optimize

from notsodeep.designs.least_squares import Problem, descend
from notsodeep.designs.matching_equations import EXACT, Candidate, Equations
from notsodeep.equivalents.coefficients import Coefficients, explicit_coefficients
from notsodeep.errors import InputError
from notsodeep.kernels import exact_kernel
from notsodeep.models import Explicit, as_tau
from notsodeep.validation import Array, as_rows

_LARGEST_RATE = 10.0


def tangent_coefficients(network: Explicit, tau0: float, multipliers: Sequence[float]) -> Coefficients:
    """The scalars of the tangent kernel under learning-rate multipliers, docs/theory.md (4.15) with rates.

    Args:
        network: an explicit network with centred layers.
        tau0: the norm of a typical input.
        multipliers: one for the weights of each layer, then one for the readout.
    """
    return explicit_coefficients(network, as_tau(tau0), "ntk", as_multipliers(multipliers, network))


def tangent_kernel_with_multipliers(network: Explicit, X: ArrayLike, multipliers: Sequence[float]) -> Array:
    """The exact tangent kernel of a network trained with learning-rate multipliers, docs/theory.md (3.11), (7.14).

    Θ^(0) = η_1 C and Θ^(l) = η_{l+1} Σ^(l) + Θ^(l-1) ∘ Σ'^(l); with all rates equal to one it is the ordinary one.
    Weights that read the input again have the rate η_1, too.
    """
    rates = as_multipliers(multipliers, network)
    return np.asarray(exact_kernel(network.with_rates(rates), as_rows(X), kernel="ntk"))


def as_multipliers(multipliers: Sequence[float], network: Explicit) -> list[float]:
    """Learning-rate multipliers for an explicit network: one per layer and one for the readout, none negative."""
    if not isinstance(network, Explicit):
        raise InputError(
            f"Learning-rate multipliers belong to an Explicit, not to a {type(network).__name__}."
        )
    layers = len(network.layers)
    try:
        rates = [float(rate) for rate in multipliers]
    except (TypeError, ValueError):
        raise InputError(f"multipliers must be a list of numbers, not {multipliers!r}.") from None
    if len(rates) != layers + 1 or not all(np.isfinite(rate) and rate >= 0.0 for rate in rates):
        raise InputError(
            f"A network of {layers} layers takes {layers + 1} multipliers, one for the weights of each layer and one "
            f"for the readout, finite and not negative; got {rates}."
        )
    return rates


@dataclass(frozen=True)
class Matched:
    """A candidate, the learning rates that bring its tangent kernel closest, and the largest residual they leave."""

    candidate: Candidate
    multipliers: tuple[float, ...]
    residual: float


def match_multipliers(candidate: Candidate, equations: Equations) -> Matched:
    """Non-negative rates that minimise the sum of squared relative residuals of the tangent equations."""
    scales = equations.scales()
    columns = [
        candidate.energies(tangent=True, multipliers=rates) / scales
        for rates in np.eye(len(candidate.layers) + 1).tolist()
    ]
    wanted = equations.as_array() / scales
    matrix = np.array(columns).T
    rates, _ = optimize.nnls(matrix, wanted)
    return Matched(candidate, tuple(rates.tolist()), float(np.abs(matrix @ rates - wanted).max()))


def closest(candidates: Iterable[Candidate], equations: Equations) -> Matched | None:
    """The candidate whose tangent kernel can be brought closest by learning rates."""
    return min((match_multipliers(c, equations) for c in candidates), key=lambda m: m.residual, default=None)


def matched_together(start: Matched, features: Equations, tangent: Equations) -> Matched:
    """Activations and rates solved together from a start that is exact for the conjugate kernel.

    Returned only if all equations of both kernels hold; else the start, whose conjugate kernel is exact.
    """
    problem = Problem(features, start.candidate.kind, len(start.candidate.layers))
    count, scales, wanted = len(problem.low), tangent.scales(), tangent.as_array()

    def both(vector: Array) -> Array:
        candidate = problem.candidate(vector[:count])
        found = candidate.energies(tangent=True, multipliers=vector[count:].tolist())
        return np.concatenate([problem.residuals(vector[:count]), (found - wanted) / scales])

    rates = len(start.multipliers)
    low = np.concatenate([problem.low, np.zeros(rates)])
    high = np.concatenate([problem.high, np.full(rates, _LARGEST_RATE)])
    begin = np.concatenate([problem.vector(start.candidate), np.clip(start.multipliers, 0.05, _LARGEST_RATE)])
    vector = descend(both, begin, low, high, 40)
    residual = float(np.abs(both(vector)).max())
    if residual > EXACT / 10.0:
        return start
    return Matched(problem.candidate(vector[:count]), tuple(vector[count:].tolist()), residual)
