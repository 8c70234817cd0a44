"""Explicit networks with the kernel scalars of a deep equilibrium model: docs/theory.md section 7.

    made = design(DEQ("tanh", 0.2), tau0=1.0)
    made.network, made.exact, made.residual, print(made), made.explain()

Where a family cannot match, `exact` is false and `explain` says why and what to try.
"""

from notsodeep.designs.designer import FAMILIES, design
from notsodeep.designs.distances import TwinDistances, twin_distances
from notsodeep.designs.families import DesignTask, FamilySolution, NetworkFamily
from notsodeep.designs.injected import InjectedFamily
from notsodeep.designs.result import FORMAT, INJECTED_IN_WORDS, KERNELS, Design

__all__ = [
    "FAMILIES",
    "FORMAT",
    "INJECTED_IN_WORDS",
    "KERNELS",
    "Design",
    "DesignTask",
    "FamilySolution",
    "InjectedFamily",
    "NetworkFamily",
    "TwinDistances",
    "design",
    "twin_distances",
]
