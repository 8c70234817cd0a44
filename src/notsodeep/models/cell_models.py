"""Models whose step is an expression of `notsodeep.cells`: at its equilibrium, or after a number of steps."""

from __future__ import annotations

from dataclasses import dataclass

from notsodeep.cells.expressions import Node


@dataclass(frozen=True, eq=False)
class Equilibrium:
    """The network whose state is the fixed point of a cell, z = step(z, x).

    Args:
        step: the cell, an expression of `notsodeep.cells`; `cells.pool(step)` or `cells.flatten(step)` for images.
    """

    step: Node


@dataclass(frozen=True, eq=False)
class Loop:
    """The network that applies a cell a number of times with the same weights, from z_0 = 0.

    Args:
        step: the cell, an expression of `notsodeep.cells`.
        steps: how often it is applied.
    """

    step: Node
    steps: int
