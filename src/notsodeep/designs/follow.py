"""How a kernel follows the norms of the data, and designs that follow as the model does.

The scalars of docs/theory.md (7.1) fix the kernel at one norm τ0. Real rows have different norms, and two exact
designs may differ in how their kernels change with them. What freedom a family has left is spent on that.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from notsodeep.designs.fit import Problem, descend, residuals
from notsodeep.designs.goal import Goal
from notsodeep.designs.parts import EXACT
from notsodeep.designs.reduce import Candidate
from notsodeep.designs.units import HardTanh, LeakyReLU, Unit
from notsodeep.equivalents.expansion import exact_diagonal, expand
from notsodeep.models import DEQ, Explicit

Array = NDArray[np.float64]

# Squared norms, relative to τ0², at which two kernels are compared.
NORMS = np.array([0.8, 1.25])
# Drifts, as shares of the diagonal, small enough to take the simplest family of a depth, and large enough to take a
# layer more. Tangent kernels of plain networks are closer to the DEQ's to begin with: less is allowed.
DRIFT, DEEPER = {"ck": 0.025, "ntk": 0.01}, {"ck": 0.05, "ntk": 0.02}
# Candidates looked at; in the refinement: networks evaluated, what the drift weighs against the equations, and the
# relative gain below which it stops.
_LOOK, _EVALUATIONS, _WEIGHT, _GAIN = 12, 100, 0.1, 0.05


class Response:
    """The diagonal and the linear coefficient of a model's kernel at norms around τ0."""

    def __init__(self, model: DEQ | Explicit, tau0: float, kernel: str) -> None:
        self.tau0, self.kernel = tau0, kernel
        self._size = float(exact_diagonal(model, np.array([tau0**2]), kernel)[0])
        self._wanted = self._of(model)

    @property
    def allowed(self) -> float:
        """The drift up to which no other family of the same depth is tried."""
        return DRIFT["ck" if self.kernel == "ck" else "ntk"]

    @property
    def tolerable(self) -> float:
        """The drift up to which no deeper network is tried."""
        return DEEPER["ck" if self.kernel == "ck" else "ntk"]

    def _of(self, model: DEQ | Explicit) -> Array:
        squares = self.tau0**2 * NORMS
        diagonal = exact_diagonal(model, squares, self.kernel)
        slopes = expand(model, squares, squares, self.kernel, 1, 0.0)[1].diagonal()
        return np.concatenate([diagonal, self.tau0**2 * slopes])

    def mismatch(self, network: Explicit) -> Array:
        """Differences to the model, relative to its diagonal."""
        return np.asarray((self._of(network) - self._wanted) / self._size)

    def drift(self, candidate: Candidate) -> float:
        """The largest of them."""
        return float(np.abs(self.mismatch(network_of(candidate, self.tau0))).max())


def network_of(candidate: Candidate, tau0: float) -> Explicit:
    """The candidate at the scale of the data; every hidden layer keeps τ̃ = τ0, docs/theory.md (7.7)."""
    outputs = [tau0] * (len(candidate.layers) - 1) + [math.sqrt(candidate.energy)]
    parts = zip(candidate.units, candidate.layers, outputs, strict=True)
    return Explicit([unit.activation(layer, tau0, output) for unit, layer, output in parts]).centred(tau0)


def best_follower(
    goal: Goal, units: Sequence[Unit], candidates: Sequence[Candidate], response: Response
) -> tuple[Candidate, float]:
    """Of exact candidates the one that drifts least, refined along the designs that stay exact."""
    stride = max(1, -(-len(candidates) // _LOOK))
    drift, _, best = min((response.drift(c), i, c) for i, c in enumerate(candidates[::stride]))
    if isinstance(units[0], HardTanh | LeakyReLU):
        return best, drift
    refined = _refined(goal, units, best, response)
    if float(np.abs(residuals(goal, refined)).max()) > EXACT / 10.0:
        return best, drift
    after = response.drift(refined)
    return (refined, after) if after < 0.9 * drift else (best, drift)


def _refined(goal: Goal, units: Sequence[Unit], start: Candidate, response: Response) -> Candidate:
    """First the equations together with the drift, then the equations alone from there: the nearest exact design."""
    problem = Problem(goal, units)

    def together(vector: Array) -> Array:
        network = network_of(problem.candidate(vector), response.tau0)
        return np.concatenate([problem.residuals(vector), _WEIGHT * response.mismatch(network)])

    vector = problem.vector(start)
    near = descend(together, vector, problem.bounds, _EVALUATIONS // len(vector), least_gain=_GAIN)
    return problem.candidate(descend(problem.residuals, near, problem.bounds, 40))
