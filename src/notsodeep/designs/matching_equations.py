"""The equations of a design, docs/theory.md (7.1) and (7.2), and the layers that are to meet them: both without units.

Energies are measured in the variance of the inputs and of the outputs, so that neither τ0 nor the amplitude of a
hidden layer (the gauge of docs/theory.md (7.7)) is left in them. A centred layer whose input and output have
variance 1 is then, for every kind of layer,

    ρ(u) = linear · u + even · E(u) + odd · O(u),      linear² + even² + odd² = 1,

with E an even and O an odd function of unit variance, O orthogonal to u. In these coordinates the moments of
docs/theory.md section 2 are polynomials in the three weights, and a few numbers of E and O (`Basis`) are all that
depends on the kind. docs/theory.md, section 18, derives this.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from notsodeep.equivalents.centring import centred_kernel_coefficients
from notsodeep.equivalents.coefficients import Coefficients, coefficients
from notsodeep.gaussian.activations import Activation
from notsodeep.models import DEQ, Explicit, Model
from notsodeep.validation import Array

# The knot of a hard tanh; other kinds have none.
ShapeParameters = tuple[float, ...]

# The names of the four equations, in the order of docs/theory.md (7.1).
EQUATIONS = ("diagonal", "linear", "norm", "trace")
# Largest relative residual of an exact design.
EXACT = 1e-9
# A coefficient below this fraction of the diagonal is zero: what the moments of an odd function leave of rounding.
NEGLIGIBLE = 1e-13
# Angles stay off the corners, where a weight vanishes and with it the derivative.
_CORNER = 1e-9


def design_scalars(model: Model, tau0: float, kernel: str, *, has_bias: bool) -> Coefficients:
    """The scalars that a design matches; where the model has a bias, those of the kernel after centring."""
    if has_bias and isinstance(model, DEQ | Explicit):
        return centred_kernel_coefficients(model, tau0, kernel)[0]
    return coefficients(model, tau0, kernel)


def relative_residuals(target: Coefficients, reached: Coefficients) -> dict[str, float]:
    """|reached - target|/|target| for each equation; for a target of zero, relative to the diagonal's scale."""
    square = target.tau0**2
    units = target.diagonal / np.array([1.0, square, square**2, square**2])
    goals, values = target.as_array(), reached.as_array()
    scales = np.where(np.abs(goals) > NEGLIGIBLE * units, np.abs(goals), units)
    return dict(zip(EQUATIONS, (np.abs(values - goals) / scales).tolist(), strict=True))


@dataclass(frozen=True)
class Equations:
    """The four equations of a design: the energies that a network has to reach.

    Attributes:
        diagonal: γ² or κ².
        linear: α₁τ0², the energy at order 1 in the inner product.
        norm: 2α₂τ0⁴, of the fluctuations of the norms; one layer at order 2 makes it equal to `trace`.
        trace: α₃τ0⁴, the energy at order 2.
        tangent: whether the explicit network's tangent kernel is meant, or its conjugate kernel.
    """

    diagonal: float
    linear: float
    norm: float
    trace: float
    tangent: bool

    @classmethod
    def of(cls, target: Coefficients) -> Equations:
        """The equations with these coefficients on their right-hand side; negligible ones are set to zero."""
        square = target.tau0**2
        energies = (target.linear * square, 2.0 * target.norm * square**2, target.trace * square**2)
        floor = NEGLIGIBLE * target.diagonal
        linear, norm, trace = (0.0 if value < floor else value for value in energies)
        return cls(target.diagonal, linear, norm, trace, target.kernel != "ck")

    @property
    def is_odd(self) -> bool:
        """Whether there is no energy at order 2, as for odd activations: docs/theory.md (7.3)."""
        return self.norm == 0.0 and self.trace == 0.0

    @property
    def allow_one_layer(self) -> bool:
        """Whether norm and trace have the ratio of one layer, docs/theory.md (7.3): 1, for tangent kernels ⅓."""
        return math.isclose(self.trace, (3.0 if self.tangent else 1.0) * self.norm, rel_tol=1e-11)

    @property
    def norm_to_trace(self) -> float:
        """2α₂/α₃, the ratio of the two second-order energies; infinite where only the trace's is zero."""
        return self.norm / self.trace if self.trace else math.inf

    def as_array(self) -> Array:
        """The four energies in the order of `EQUATIONS`."""
        return np.array([self.diagonal, self.linear, self.norm, self.trace])

    def scales(self) -> Array:
        """What each residual is relative to: the number itself, or the diagonal where it is zero."""
        values = self.as_array()
        return np.where(values > 0.0, values, self.diagonal)

    def residuals(self, network: UnitNetwork, scales: Array | None = None) -> Array:
        """Residual of each equation, relative to `scales`."""
        energies = network.energies(tangent=self.tangent)
        return np.asarray((energies - self.as_array()) / (self.scales() if scales is None else scales))

    def largest_residual(self, network: UnitNetwork) -> float:
        """The largest relative residual of the four equations."""
        return float(np.abs(self.residuals(network)).max())


@dataclass(frozen=True)
class Basis:
    """What the scalars need of E and O.

    Attributes:
        even_second: square of the second Hermite coefficient of E: its share of energy at order 2.
        even_slope: E[E E' u], the logarithmic slope of its energy in the variance.
        even_roughness: E[E'²].
        odd_third: √6 times the third Hermite coefficient of O, which is E[u² O'].
        odd_slope: E[O O' u].
        odd_roughness: E[O'²].
    """

    even_second: float
    even_slope: float
    even_roughness: float
    odd_third: float = 0.0
    odd_slope: float = 0.0
    odd_roughness: float = 0.0


@dataclass(frozen=True)
class UnitLayer:
    """One layer without units: its weights, and the moments that enter docs/theory.md (4.14) and (4.15).

    Attributes:
        linear, even, odd: the weights of u, E and O; squares sum to one.
        shape: the shape parameters of E and O.
        basis: the numbers of E and O.
    """

    linear: float
    even: float
    odd: float
    shape: ShapeParameters
    basis: Basis

    @property
    def slope2(self) -> float:
        """M_1², the share of energy at order 1."""
        return self.linear**2

    @property
    def curvature2(self) -> float:
        """½ M_2², the share of energy at order 2."""
        return self.even**2 * self.basis.even_second

    @property
    def energy_slope(self) -> float:
        """S' for a layer that keeps variance 1."""
        b = self.basis
        parts = self.linear**2 + self.even**2 * b.even_slope + self.odd**2 * b.odd_slope
        return parts + self.linear * self.odd * b.odd_third

    @property
    def roughness(self) -> float:
        """E1 for a layer that keeps variance 1."""
        b = self.basis
        return self.linear**2 + self.even**2 * b.even_roughness + self.odd**2 * b.odd_roughness


class LayerKind(ABC):
    """A kind of layer: its functions E and O, and the activations that its layers are.

    Attributes:
        name: what designs with such layers are called.
        bounds: lower and upper bound of each shape parameter.
        has_even, has_odd: whether there is an E, an O.
        shortage: why a target may be out of reach, in words.
    """

    name: str
    bounds: tuple[tuple[float, float], ...] = ()
    has_even: bool = True
    has_odd: bool = True
    shortage: str = "no solution was found from any starting point"

    @abstractmethod
    def basis(self, shape: ShapeParameters) -> Basis:
        """The numbers of E and O at these shape parameters."""

    @abstractmethod
    def activation(self, layer: UnitLayer, input_scale: float, output_scale: float) -> Activation:
        """output_scale · ρ(x/input_scale) as an activation, up to a constant."""

    def layer(self, linear: float, even: float, odd: float, shape: ShapeParameters) -> UnitLayer:
        """The layer with these weights, brought to unit length, and these shape parameters."""
        size = math.sqrt(linear**2 + even**2 + odd**2)
        return UnitLayer(linear / size, even / size, odd / size, shape, self.basis(shape))

    # Least squares describes a layer by angles and shape parameters: an angle for its linear share, and one for how
    # the rest splits into even and odd. Signs are fixed by the ranges of the angles.

    def angles(self, odd_only: bool) -> int:
        """Number of angles of a layer: one if it has no even or no odd part, else two."""
        return 1 if odd_only or not self.has_odd else 2

    def coordinate_bounds(self, odd_only: bool) -> list[tuple[float, float]]:
        """Bounds of the angles and of the shape parameters."""
        quarter = math.pi / 2
        tilt = (-quarter, quarter) if odd_only else (_CORNER, quarter - _CORNER)
        return [*[tilt, (-quarter, quarter)][: self.angles(odd_only)], *self.bounds]

    def from_coordinates(self, values: Sequence[float], odd_only: bool) -> UnitLayer:
        """The layer with these angles and shape parameters."""
        count = self.angles(odd_only)
        linear, side, shape = math.cos(values[0]), math.sin(values[0]), tuple(values[count:])
        if odd_only:
            return self.layer(linear, 0.0, side, shape)
        turn = values[1] if count == 2 else 0.0
        return self.layer(linear, side * math.cos(turn), side * math.sin(turn), shape)

    def obstruction(self, equations: Equations, layers: int) -> str:
        """What keeps networks of this kind from meeting the equations; empty if only `shortage` can be said."""
        return ""


@dataclass(frozen=True)
class UnitNetwork:
    """A network without units: layers of one kind, and the energy of its output."""

    kind: LayerKind
    layers: tuple[UnitLayer, ...]
    energy: float

    def network(self, tau0: float) -> Explicit:
        """The network at the scale of the data; every hidden layer keeps τ̃ = τ0, docs/theory.md (7.7)."""
        outputs = [tau0] * (len(self.layers) - 1) + [math.sqrt(self.energy)]
        parts = zip(self.layers, outputs, strict=True)
        return Explicit([self.kind.activation(layer, tau0, output) for layer, output in parts]).centred(tau0)

    def energies(self, *, tangent: bool) -> Array:
        """The left-hand sides of the equations, docs/theory.md (4.14) and (4.15), in the order of `EQUATIONS`."""
        linear, norm, trace, slope = 1.0, 0.0, 0.0, 1.0
        tangent_linear, tangent_norm, tangent_trace, tangent_diagonal = 1.0, 0.0, 0.0, 1.0
        for layer in self.layers:
            first, second = layer.slope2, layer.curvature2
            tangent_trace = first * tangent_trace + 2.0 * second * tangent_linear * linear
            linear, before = first * linear, linear
            norm = first * norm + second * slope**2
            trace = first * trace + second * before**2
            tangent_linear = linear + first * tangent_linear
            tangent_norm = norm + first * tangent_norm
            tangent_trace += trace
            tangent_diagonal = 1.0 + layer.roughness * tangent_diagonal
            slope *= layer.energy_slope
        if tangent:
            energies = np.array([tangent_diagonal, tangent_linear, tangent_norm, tangent_trace])
        else:
            energies = np.array([1.0, linear, norm, trace])
        return np.asarray(self.energy * energies)
