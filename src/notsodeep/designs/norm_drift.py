"""How kernels change with the norm of the samples, and exact designs whose kernel changes as the model's does.

The scalars of docs/theory.md (7.1) fix the kernel at one norm τ0. Real rows have different norms, and two exact
designs may differ in how their kernels change with them: their drift. What freedom a family has left is spent on it.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from notsodeep.designs.least_squares import Problem, descend
from notsodeep.designs.matching_equations import EXACT, Candidate, Equations
from notsodeep.equivalents.expansion import exact_diagonal, expand
from notsodeep.models import DEQ, Explicit
from notsodeep.validation import Array

# Squared norms, relative to τ0², at which two kernels are compared.
NORMS = np.array([0.8, 1.25])
# Drifts, as shares of the diagonal, small enough to take the simplest family of a depth, and large enough to take a
# layer more. Tangent kernels of plain networks are closer to the DEQ's to begin with: less is allowed.
SIMPLEST, DEEPER = {"ck": 0.025, "ntk": 0.01}, {"ck": 0.05, "ntk": 0.02}
# Candidates looked at; in the refinement: networks evaluated, what the drift weighs against the equations, and the
# relative gain below which it stops.
_LOOK, _EVALUATIONS, _WEIGHT, _GAIN = 12, 100, 0.1, 0.05


class NormResponse:
    """The diagonal and the linear coefficient of a model's kernel at norms around τ0.

    Attributes:
        enough: the drift up to which no other family of the same depth is tried.
        tolerable: the drift up to which no deeper network is tried.
    """

    def __init__(self, model: DEQ | Explicit, tau0: float, kernel: str) -> None:
        self.tau0, self.kernel = tau0, kernel
        group = "ck" if kernel == "ck" else "ntk"
        self.enough, self.tolerable = SIMPLEST[group], DEEPER[group]
        self._size = float(exact_diagonal(model, np.array([tau0**2]), kernel)[0])
        self._wanted = self._of(model)

    def _of(self, model: DEQ | Explicit) -> Array:
        squares = self.tau0**2 * NORMS
        diagonal = exact_diagonal(model, squares, self.kernel)
        slopes = expand(model, squares, squares, self.kernel, 1, 0.0)[1].diagonal()
        return np.concatenate([diagonal, self.tau0**2 * slopes])

    def mismatch(self, network: Explicit) -> Array:
        """Differences between the network's kernel and the model's at these norms, relative to the diagonal."""
        return np.asarray((self._of(network) - self._wanted) / self._size)

    def drift(self, network: Explicit) -> float:
        """The largest difference between the network's kernel and the model's, relative to the diagonal."""
        return float(np.abs(self.mismatch(network)).max())


def least_drift(
    equations: Equations, candidates: Sequence[Candidate], response: NormResponse
) -> tuple[Candidate, float]:
    """Of exact candidates the one that drifts least, refined along the designs that stay exact, with its drift."""
    stride = max(1, -(-len(candidates) // _LOOK))
    measured = [(response.drift(c.network(response.tau0)), c) for c in candidates[::stride]]
    drift, best = min(measured, key=lambda entry: entry[0])
    if not best.kind.has_freedom:
        return best, drift
    refined = _refined(equations, best, response)
    if equations.largest_residual(refined) > EXACT / 10.0:
        return best, drift
    after = response.drift(refined.network(response.tau0))
    return (refined, after) if after < 0.9 * drift else (best, drift)


def _refined(equations: Equations, start: Candidate, response: NormResponse) -> Candidate:
    """First the equations together with the drift, then the equations alone from there: the nearest exact design."""
    problem = Problem(equations, start.kind, len(start.layers))

    def together(vector: Array) -> Array:
        network = problem.candidate(vector).network(response.tau0)
        return np.concatenate([problem.residuals(vector), _WEIGHT * response.mismatch(network)])

    vector = problem.vector(start)
    steps = _EVALUATIONS // len(vector)
    near = descend(together, vector, problem.low, problem.high, steps, least_gain=_GAIN)
    return problem.candidate(descend(problem.residuals, near, problem.low, problem.high, 40))
