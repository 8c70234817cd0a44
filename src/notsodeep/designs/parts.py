"""The parts of a design: attempts, polish, tangent side, curves, and what a relative residual is."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from notsodeep.designs.goal import EQUATIONS, NEGLIGIBLE
from notsodeep.equivalents.coefficients import Coefficients

Array = NDArray[np.float64]

# Largest relative residual of an exact design.
EXACT = 1e-9


def relative_residuals(target: Coefficients, reached: Coefficients) -> dict[str, float]:
    """|reached - target|/|target| for each equation; for a target of zero, relative to the diagonal's scale."""
    square = target.tau0**2
    units = target.diagonal / np.array([1.0, square, square**2, square**2])
    wanted, found = target.as_array(), reached.as_array()
    scales = np.where(np.abs(wanted) > NEGLIGIBLE * units, np.abs(wanted), units)
    return dict(zip(EQUATIONS, (np.abs(found - wanted) / scales).tolist(), strict=True))


@dataclass(frozen=True)
class Attempt:
    """A family that was tried: the largest relative residual it reached, and why no less."""

    family: str
    residual: float
    reason: str


@dataclass(frozen=True)
class Polish:
    """What polishing on data did: relative Frobenius distances of the exact kernels.

    Attributes:
        samples: rows that the parameters were polished on, and as many others that they were tried on.
        before, after: distance on the rows that were polished on.
        held_out_before, held_out_after: distance on the others.
    """

    samples: int
    before: float
    after: float
    held_out_before: float
    held_out_after: float

    def __str__(self) -> str:
        return (
            f"polished on {self.samples} rows: distance of the exact kernels {self.before:.3g} → {self.after:.3g}, "
            f"on other rows {self.held_out_before:.3g} → {self.held_out_after:.3g}"
        )


@dataclass(frozen=True)
class Tangent:
    """The tangent kernel of a design for both kernels: learning-rate multipliers, target and what they reach."""

    multipliers: tuple[float, ...]
    target: Coefficients
    reached: Coefficients

    @property
    def residuals(self) -> dict[str, float]:
        """Relative residual of each tangent equation."""
        return relative_residuals(self.target, self.reached)

    @property
    def residual(self) -> float:
        """The largest of them."""
        return max(self.residuals.values())


@dataclass(frozen=True)
class Curve:
    """An activation over the range where its pre-activations live: standard deviation `scale`."""

    label: str
    scale: float
    x: Array
    y: Array
