"""Explicit networks with the kernel scalars of a deep equilibrium model: docs/theory.md section 7.

    made = design(DEQ("tanh", 0.2), tau0=1.0)
    made.network, made.exact, made.residual, print(made), made.explain()

Where a family cannot match, `exact` is false and `explain` says why and what to try.
"""

from notsodeep.designs.api import design
from notsodeep.designs.both import tangent_coefficients, tangent_kernel_with_multipliers
from notsodeep.designs.families import FAMILIES, Family
from notsodeep.designs.parts import Curve, Polish, Tangent
from notsodeep.designs.result import Design
from notsodeep.designs.serial import activation_from_dict, activation_to_dict
from notsodeep.designs.sphere import SphereDesign, sphere_design

__all__ = [
    "FAMILIES",
    "Curve",
    "Design",
    "Family",
    "Polish",
    "SphereDesign",
    "Tangent",
    "activation_from_dict",
    "activation_to_dict",
    "design",
    "sphere_design",
    "tangent_coefficients",
    "tangent_kernel_with_multipliers",
]
