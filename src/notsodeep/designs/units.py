"""Layers at unit scale, split into what the scalars of a kernel see.

A centred layer whose input has variance 1 and whose output has variance 1 is, in one of the families here,

    ρ(u) = linear · u + even · E(u) + odd · O(u),      linear² + even² + odd² = 1,

with E an even and O an odd function of unit variance, O orthogonal to u. In these coordinates the moments of
docs/theory.md section 2 are polynomials in the three weights, and a few numbers of E and O (`Basis`) are all that
depends on the family. docs/designs.md derives this.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from notsodeep.gaussian.activations import Activation, activation

Array = NDArray[np.float64]

SQRT2, SQRT3, SQRT6 = math.sqrt(2.0), math.sqrt(3.0), math.sqrt(6.0)


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
class Layer:
    """One layer at unit scale: its weights, and the moments that enter docs/theory.md (4.14) and (4.15).

    Attributes:
        linear, even, odd: the weights of u, E and O; squares sum to one.
        knots: the shape parameters of the basis.
        basis: the numbers of E and O.
    """

    linear: float
    even: float
    odd: float
    knots: tuple[float, ...]
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
        return (
            self.linear**2
            + self.even**2 * b.even_slope
            + self.odd**2 * b.odd_slope
            + self.linear * self.odd * b.odd_third
        )

    @property
    def roughness(self) -> float:
        """E1 for a layer that keeps variance 1."""
        b = self.basis
        return self.linear**2 + self.even**2 * b.even_roughness + self.odd**2 * b.odd_roughness


class Unit(ABC):
    """A family of layers: its shape parameters with bounds, its basis, and the activation that a layer is."""

    name: str
    bounds: tuple[tuple[float, float], ...] = ()
    # Values at which closed-form reductions are tried, best first.
    grid: tuple[tuple[float, ...], ...] = ((),)
    has_even: bool = True
    has_odd: bool = True

    @abstractmethod
    def basis(self, knots: tuple[float, ...]) -> Basis:
        """The numbers of E and O."""

    @abstractmethod
    def activation(self, layer: Layer, input_scale: float, output_scale: float) -> Activation:
        """output_scale · ρ(x/input_scale), up to a constant."""

    def layer(self, linear: float, even: float, odd: float, knots: tuple[float, ...]) -> Layer:
        """A layer with these weights, brought to unit length, at these shape parameters."""
        size = math.sqrt(linear**2 + even**2 + odd**2)
        return Layer(linear / size, even / size, odd / size, knots, self.basis(knots))


def _upper(k: float) -> float:
    return 0.5 * math.erfc(k / SQRT2)


def _bell(k: float) -> float:
    return math.exp(-0.5 * k * k) / math.sqrt(2.0 * math.pi)


@dataclass(frozen=True)
class _Knots:
    """Moments of (|u| - k)₊ and clip(u, -k, k), docs/theory.md (2.8)–(2.10) at q = 1."""

    even_mean: float
    even_size: float
    inside: float
    odd_size: float


@lru_cache(maxsize=4096)
def _knot_moments(k: float) -> _Knots:
    tail, bell = _upper(k), _bell(k)
    mean = 2.0 * (bell - k * tail)
    even_variance = 2.0 * ((1.0 + k * k) * tail - k * bell) - mean**2
    inside = 1.0 - 2.0 * tail
    # S - M_1² of docs/theory.md (2.8), written in the tail so that a far clip keeps its digits.
    odd_variance = 2.0 * (tail * (inside + k * k) - k * bell)
    return _Knots(mean, math.sqrt(even_variance), inside, math.sqrt(odd_variance))


def _hinge_basis(k: float, *, has_odd: bool) -> Basis:
    """E = (|u| - k)₊ less its mean, O = clip(u, -k, k) less its linear part, both at unit variance."""
    m, tail, bell = _knot_moments(k), _upper(k), _bell(k)
    even_variance = m.even_size**2
    second = 2.0 * bell**2 / even_variance
    even = (second, (2.0 * tail - 2.0 * m.even_mean * bell) / even_variance, 2.0 * tail / even_variance)
    if not has_odd:
        return Basis(*even)
    odd_variance = m.odd_size**2
    return Basis(
        *even,
        odd_third=-2.0 * k * bell / m.odd_size,
        odd_slope=2.0 * tail * (m.inside - 2.0 * k * bell) / odd_variance,
        odd_roughness=2.0 * tail * m.inside / odd_variance,
    )


class TwoKnots(Unit):
    """Piecewise linear with knots ±k and three free slopes: bounded growth, cheap."""

    name = "piecewise_linear"
    bounds = ((0.25, 2.5),)
    grid = ((0.6,), (1.0,), (0.4,), (1.5,), (0.8,), (2.0,))

    def basis(self, knots: tuple[float, ...]) -> Basis:
        """The numbers of E and O."""
        return _hinge_basis(knots[0], has_odd=True)

    def slopes(self, layer: Layer) -> tuple[float, float, float]:
        """Left, middle and right slope of ρ."""
        m = _knot_moments(layer.knots[0])
        outside = layer.linear - layer.odd * m.inside / m.odd_size
        bend = layer.even / m.even_size
        return outside - bend, outside + layer.odd / m.odd_size, outside + bend

    def activation(self, layer: Layer, input_scale: float, output_scale: float) -> Activation:
        """output_scale · ρ(x/input_scale), up to a constant."""
        ratio, knot = output_scale / input_scale, layer.knots[0] * input_scale
        slopes = [ratio * slope for slope in self.slopes(layer)]
        return activation("piecewise_linear", knots=(-knot, knot), slopes=slopes)


class LeakyReLU(Unit):
    """max(a x, b x), docs/theory.md (7.5): no odd part."""

    name = "leaky_relu"
    has_odd = False

    def basis(self, knots: tuple[float, ...]) -> Basis:
        """The numbers of E and O."""
        return _hinge_basis(0.0, has_odd=False)

    def activation(self, layer: Layer, input_scale: float, output_scale: float) -> Activation:
        """output_scale · ρ(x/input_scale), up to a constant."""
        ratio, bend = output_scale / input_scale, layer.even / _knot_moments(0.0).even_size
        return activation("leaky_relu", a=ratio * (layer.linear + bend), b=ratio * (layer.linear - bend))


class HardTanh(TwoKnots):
    """a · clip(x, -c, c), docs/theory.md (2.8): one shape parameter k = c/τ0, no even part, flat outside."""

    name = "hard_tanh"
    has_even = False
    bounds = ((1e-3, 8.0),)

    def at(self, knot: float) -> Layer:
        """The layer whose clip stands at `knot`: outside slope zero fixes the weights."""
        m = _knot_moments(knot)
        return self.layer(m.inside, 0.0, m.odd_size, (knot,))

    def activation(self, layer: Layer, input_scale: float, output_scale: float) -> Activation:
        """output_scale · ρ(x/input_scale), up to a constant."""
        m = _knot_moments(layer.knots[0])
        inside = (output_scale / input_scale) * layer.linear / m.inside
        return activation("hard_tanh", a=inside, c=layer.knots[0] * input_scale)


class Cubic(Unit):
    """Polynomials of degree 3: E and O are He₂/√2 and He₃/√6. They grow without bound."""

    name = "cubic"

    def basis(self, knots: tuple[float, ...]) -> Basis:
        """The numbers of E and O."""
        return Basis(1.0, 2.0, 2.0, SQRT6, 3.0, 3.0)

    def activation(self, layer: Layer, input_scale: float, output_scale: float) -> Activation:
        """output_scale · ρ(x/input_scale), up to a constant."""
        at_unit = (
            0.0,
            layer.linear - SQRT3 * layer.odd / SQRT2,
            layer.even / SQRT2,
            layer.odd / SQRT6,
        )
        degrees = 4 if self.has_odd else 3
        scaled = [output_scale * at_unit[j] / input_scale**j for j in range(degrees)]
        return activation("polynomial", coefficients=scaled)


class Quadratic(Cubic):
    """Polynomials of degree 2 (ICLR, Corollary 1)."""

    name = "quadratic"
    has_odd = False


# The trapezoidal rule on analytic functions under a Gaussian converges like exp(-2π·strip/step); tanh(2u) has
# a strip of π/4, which a step of 1/10 resolves to 1e-21.
_STEP = 0.1
_NODES = np.arange(-120, 121) * _STEP
_WEIGHTS = np.exp(-0.5 * _NODES**2) * (_STEP / math.sqrt(2.0 * math.pi))


@dataclass(frozen=True)
class _SmoothMoments:
    even_size: float
    odd_slope: float
    odd_size: float
    basis: Basis


@lru_cache(maxsize=4096)
def _smooth_moments(sharpness: float, clip: float) -> _SmoothMoments:
    u, weights = _NODES, _WEIGHTS
    even = np.logaddexp(0.0, sharpness * u) - 0.5 * sharpness * u
    even = even - weights @ even
    even_size = math.sqrt(float(weights @ even**2))
    even, even_rate = even / even_size, 0.5 * sharpness * np.tanh(0.5 * sharpness * u) / even_size
    bounded = np.tanh(clip * u)
    projection = float(weights @ (bounded * u))
    odd = bounded - projection * u
    odd_size = math.sqrt(float(weights @ odd**2))
    odd, odd_rate = odd / odd_size, (clip * (1.0 - bounded**2) - projection) / odd_size
    basis = Basis(
        even_second=float(weights @ (even * u**2)) ** 2 / 2.0,
        even_slope=float(weights @ (even * even_rate * u)),
        even_roughness=float(weights @ even_rate**2),
        odd_third=float(weights @ (odd * u**3)),
        odd_slope=float(weights @ (odd * odd_rate * u)),
        odd_roughness=float(weights @ odd_rate**2),
    )
    return _SmoothMoments(even_size, projection, odd_size, basis)


class SmoothSum(Unit):
    """a x + b softplus(k x) + c tanh(k' x): smoother than any kink, linear growth."""

    name = "smooth"
    bounds = ((0.3, 2.0), (0.4, 2.0))
    grid = ((1.0, 1.0), (0.5, 1.0), (1.0, 0.6), (0.5, 0.6), (1.5, 1.5), (0.3, 0.5))

    def basis(self, knots: tuple[float, ...]) -> Basis:
        """The numbers of E and O."""
        return _smooth_moments(*knots).basis

    def activation(self, layer: Layer, input_scale: float, output_scale: float) -> Activation:
        """output_scale · ρ(x/input_scale), up to a constant."""
        sharpness, clip = layer.knots
        m = _smooth_moments(sharpness, clip)
        bend, bounded = layer.even / m.even_size, layer.odd / m.odd_size
        linear = layer.linear - bounded * m.odd_slope - 0.5 * sharpness * bend
        made = activation(
            "smooth_sum", linear=linear, bend=bend, sharpness=sharpness, bounded=bounded, clip=clip
        )
        return made.scaled(amplitude=output_scale, gain=1.0 / input_scale)
