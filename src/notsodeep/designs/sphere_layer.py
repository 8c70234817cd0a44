"""Designs on the unit sphere: one quadratic layer, not centred, in closed form, docs/theory.md (8.8) and (8.9)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from notsodeep.display import Shown
from notsodeep.equivalents.sphere import SphereCoefficients, sphere_coefficients
from notsodeep.errors import InputError
from notsodeep.gaussian.activations import activation
from notsodeep.models import DEQ, Explicit
from notsodeep.validation import one_of


@dataclass(frozen=True, repr=False)
class SphereDesign(Shown):
    """One quadratic layer with the equivalent of a √2·ReLU DEQ on the sphere (HLD, Corollary 1).

    Attributes:
        network: the explicit network; its layer is not centred, which the sphere does not need.
        model: the DEQ φ = √2 ReLU with σ_b² = 1 - σ_a².
        target: α, β, μ of the DEQ's pre-activation kernel, docs/theory.md (8.5).
        reached: the same of the network.
    """

    network: Explicit
    model: DEQ
    target: SphereCoefficients
    reached: SphereCoefficients

    @property
    def residual(self) -> float:
        """The largest relative residual of the three equations."""
        pairs = [(getattr(self.target, name), getattr(self.reached, name)) for name in _EQUATIONS]
        return float(max(abs(found - wanted) / abs(wanted) for wanted, found in pairs))

    @property
    def exact(self) -> bool:
        """Whether the three equations hold to 1e-9."""
        return self.residual <= 1e-9

    def __str__(self) -> str:
        rows = [f"one quadratic layer for the {self.target.kernel} of {self.model} on the sphere"]
        rows.append(f"  layer 1: {self.network.layers[0]}")
        for name in _EQUATIONS:
            rows.append(f"  {name:10}{getattr(self.target, name):16.9g}{getattr(self.reached, name):16.9g}")
        return "\n".join(rows)

    def _facts(self) -> dict[str, Any]:
        return {
            "exact": self.exact,
            "residual": self.residual,
            "network": self.network,
            "model": self.model,
        }


_EQUATIONS = ("constant", "linear", "identity")


def sphere_design(sigma_a2: float, d: int, kernel: str = "ck") -> SphereDesign:
    """The quadratic layer a₂t² + a₁t + a₀ that has the DEQ's equivalent on the unit sphere of dimension d.

    Args:
        sigma_a2: variance of the recurrent weights; the input weights have 1 - sigma_a2.
        d: dimension of the samples, all of norm 1.
        kernel: "ck" for docs/theory.md (8.8), "ntk" for (8.9); of the DEQ it is the kernel of the pre-activations
            that is matched, as in the paper.
    """
    one_of(kernel, ("ck", "ntk"), "kernel")
    if not 0.0 < sigma_a2 < 1.0:
        raise InputError(
            f"sigma_a2 = {sigma_a2}: on the sphere σ_b² = 1 - σ_a², so it must lie between 0 and 1."
        )
    model = DEQ(activation("relu", amplitude=math.sqrt(2.0)), sigma_a2)
    target = sphere_coefficients(model, d, f"{kernel}_preactivations")
    # Paths from the weights to the output: (8.7) counts order 1 twice and order 2 three times.
    first, second = (1.0, 1.0) if kernel == "ck" else (2.0, 3.0)
    quadratic = math.sqrt(target.identity / (2.0 * second))
    constant2 = target.constant - target.identity / d
    if constant2 < 0.0:
        raise InputError(
            f"In dimension d = {d} the constant of the kernel, {target.constant:.4g}, is smaller than what a quadratic "
            f"layer adds to it, {target.identity / d:.4g}. The equivalent needs a larger dimension."
        )
    coefficients = [math.sqrt(constant2) - quadratic, math.sqrt(target.linear / first), quadratic]
    network = Explicit([activation("polynomial", coefficients=coefficients)])
    return SphereDesign(network, model, target, sphere_coefficients(network, d, kernel))
