"""Kernels of images in single precision, for activations with one kink at zero: all of a pair in one compiled loop.

Where six digits are enough, as for ridge regression, nothing has to leave the cache: a pair of samples is solved system
by system (`field_layout`) in arrays of a few kilobytes, by Chebyshev's iteration of (10.1) with F itself, (3.20).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numba import njit
from numpy.typing import NDArray

from notsodeep.gaussian.activations import Activation
from notsodeep.pairs.bent_fields import bent_polynomial, bent_slopes
from notsodeep.pairs.compiled_mixing import OPTIONS, average, clear, outer, taps
from notsodeep.pairs.compiled_newton import sweep
from notsodeep.pairs.field_layout import Layout
from notsodeep.validation import Array, IntArray

Singles = NDArray[np.float32]

# The smallest tolerance that is left to single precision, and what rounding adds to a residual, relative to √(q q'):
# about 30 roundings of 2^-24 in the longest chain of operations.
LOOSE, ROUNDED = 1e-5, 2e-6
# Closer to ±1 than this, a correlation is ±1: equal surroundings have 1 but for rounding.
SNAP = np.float32(1.0 - 1e-6)
MOST_SWEEPS = 200
# In parts of the tolerance: how well the adjoint, whose entries are about 1, is solved.
ADJOINT = 0.1
ZERO, ONE, QUARTER = np.float32(0.0), np.float32(1.0), np.float32(0.5 * np.pi)
# Rows of the workspace: two of `average`, five of `sweep`, then those of the fields.
OVER, SCALE, GUESS, SOURCE, ROOM = 7, 8, 9, 10, 11
# Both are right to 2e-8 on [0, 1].
ANGLE = tuple(np.float32(c) for c in bent_polynomial(9, False))
LAG = tuple(np.float32(c) for c in bent_polynomial(8, True))


def serves(activations: list[Activation], tolerance: float) -> bool:
    """Whether layers of these activations may be computed here."""
    return tolerance >= LOOSE and all(
        phi.shape.is_homogeneous and phi.shape.pieces is not None and phi.offset == 0.0 for phi in activations
    )


@dataclass(frozen=True)
class SingleSide:
    """Some samples in single precision, as the layout of fields has them.

    Attributes:
        values: (samples, channels, positions).
        roots, inverses: √q and 1/√q in each layer, (layers, samples, positions); both zero where there is no signal.
        growth: √(q over what the input alone gives), (samples, positions).
    """

    values: Singles
    roots: Singles
    inverses: Singles
    growth: Singles

    @classmethod
    def of(
        cls, values: Array, variances: list[Array], layout: Layout, alone: Array | None = None
    ) -> SingleSide:
        """From samples (n, channels, positions) and the variances (n, positions) of each layer."""
        roots = np.sqrt(np.stack(variances))
        inverses = np.divide(1.0, roots, out=np.zeros_like(roots), where=roots > 0.0)
        growth = np.ones_like(roots[0])
        if alone is not None:
            np.sqrt(np.divide(variances[0], alone, out=growth, where=alone > 0.0), out=growth)
        return cls(
            *(layout.side(part).astype(np.float32) for part in (values, roots, inverses, growth)),
        )


@dataclass(frozen=True)
class SingleTile:
    """Sums over positions of the kernels of pairs.

    Attributes:
        features, tangents: ΣF and Σ(F + BΛ), (rows, columns).
        residual: the largest, with what rounding may add.
        sweeps: of the slowest system.
    """

    features: Array
    tangents: Array
    residual: float
    sweeps: int


class SinglePrecision:
    """Kernels of convolutional models in single precision.

    Args:
        layout: the layout of fields.
        activations: of each layer; of an equilibrium the one that is repeated.
    """

    def __init__(self, layout: Layout, activations: list[Activation]) -> None:
        self.layout = layout
        self.slopes = np.array([bent_slopes(phi) for phi in activations])

    def equilibria(
        self,
        left: SingleSide,
        right: SingleSide,
        layer: tuple[float, float, float],
        rate: float,
        spectrum: tuple[float, float],
        tolerance: float,
        *,
        lower: bool,
        tangent: bool,
    ) -> SingleTile:
        """Solutions of (10.1) for all pairs; `layer` has σ_a², σ_b² and the variance of a bias.

        `rate` bounds σ_a² |F'|, `spectrum` is where the eigenvalues of I - σ_a² 𝒜F' are: middle and half of the length.
        """
        features, tangents, ends = self._results(left, right)
        _equilibria(
            *self._of(left), *self._of(right), left.growth, right.growth, *self._layout(), layer, rate, spectrum,
            self.slopes[0], tolerance - ROUNDED, ADJOINT * tolerance, lower, tangent,
            self.layout.workspace(ROOM, np.float32), features, tangents, ends,
        )  # fmt: skip
        return SingleTile(features, tangents, float(ends[0]) + ROUNDED, int(ends[1]))

    def recursion(
        self, left: SingleSide, right: SingleSide, layers: Array, *, lower: bool, tangent: bool
    ) -> SingleTile:
        """The recursion (10.5) for all pairs; `layers` (layers, 3) has what each reads with: weight, inject, bias."""
        features, tangents, ends = self._results(left, right)
        _recursion(
            *self._of(left), *self._of(right), *self._layout(), layers, self.slopes, lower, tangent,
            self.layout.workspace(ROOM, np.float32), features, tangents,
        )  # fmt: skip
        return SingleTile(features, tangents, float(ends[0]), 0)

    def _layout(self) -> tuple[IntArray, IntArray, tuple[int, ...]]:
        return self.layout.lines, self.layout.starts(1), self.layout.geometry

    @staticmethod
    def _of(side: SingleSide) -> tuple[Singles, Singles, Singles]:
        return side.values, side.roots, side.inverses

    @staticmethod
    def _results(left: SingleSide, right: SingleSide) -> tuple[Array, Array, Array]:
        shape = len(left.values), len(right.values)
        return np.zeros(shape), np.zeros(shape), np.zeros(2)


@njit(**OPTIONS, inline="always")
def _arccos_over_root(y):  # type: ignore[no-untyped-def]
    """arccos(1 - y)/√y."""
    p = ANGLE[9]
    p = p * y + ANGLE[8]
    p = p * y + ANGLE[7]
    p = p * y + ANGLE[6]
    p = p * y + ANGLE[5]
    p = p * y + ANGLE[4]
    p = p * y + ANGLE[3]
    p = p * y + ANGLE[2]
    p = p * y + ANGLE[1]
    return p * y + ANGLE[0]


@njit(**OPTIONS, inline="always")
def _lag(y):  # type: ignore[no-untyped-def]
    """(√(1-ρ²) - ρ arccos ρ)/y^{3/2} at ρ = 1 - y."""
    p = LAG[8]
    p = p * y + LAG[7]
    p = p * y + LAG[6]
    p = p * y + LAG[5]
    p = p * y + LAG[4]
    p = p * y + LAG[3]
    p = p * y + LAG[2]
    p = p * y + LAG[1]
    return p * y + LAG[0]


@njit(**OPTIONS)
def _value(covariance, over, scale, linear, bent, found):  # type: ignore[no-untyped-def]
    """F = √(q q') (linear · ρ + bent · J(ρ)), zero at borders."""
    for k in range(len(found)):
        rho = covariance[k] * over[k]
        near = min(abs(rho), ONE)
        near = near if near < SNAP else ONE
        y = ONE - near
        found[k] = scale[k] * (linear * rho + bent * (QUARTER * near + y * np.sqrt(y) * _lag(y)))


@njit(**OPTIONS)
def _slope(covariance, over, linear, bent, found):  # type: ignore[no-untyped-def]
    """F', zero where there is no signal."""
    for k in range(len(found)):
        rho = covariance[k] * over[k]
        near = min(abs(rho), ONE)
        near = near if near < SNAP else ONE
        y = ONE - near
        angle = QUARTER - np.sqrt(y) * _arccos_over_root(y)
        rises = linear + bent * np.copysign(angle, rho)
        found[k] = rises if over[k] > ZERO else ZERO


@njit(**OPTIONS)
def _total(field, line):  # type: ignore[no-untyped-def]
    """The sum over a system, line by line, so that no digits are lost."""
    total = 0.0
    for begin in range(0, len(field), line):
        part, some = field[begin : begin + line], ZERO
        for k in range(len(part)):
            some += part[k]
        total += float(some)
    return total


@njit(**OPTIONS)
def _largest(sizes):  # type: ignore[no-untyped-def]
    """The largest of numbers that are not negative: their bits are in the same order."""
    bits, most = sizes.view(np.int32), np.int32(0)
    for k in range(len(bits)):
        most = max(most, bits[k])
    found = np.empty(1, dtype=np.int32)
    found[0] = most
    return found.view(np.float32)[0]


@njit(**OPTIONS)
def _solve(count, linear, bent, share, rate, spectrum, aim, geometry, room):  # type: ignore[no-untyped-def]
    """Chebyshev's iteration for Λ, which stands in the row GUESS; returns the residual and the number of sweeps.

    After a move m the residual is at most |gap - m| + rate |m|; moves are bounded by the residuals before them.
    """
    guard = geometry[4] * geometry[2] + geometry[5] * geometry[3]
    over, scale, guess, source = (
        room[OVER, :count], room[SCALE, :count], room[GUESS, :count], room[SOURCE, :count],
    )  # fmt: skip
    mixed, size, move = room[0, guard : guard + count], room[1, guard : guard + count], room[6, :count]
    # Numbers of this precision: others would make double precision of every product.
    factors = np.empty(3, dtype=np.float32)
    middle, half = spectrum
    last = half / middle
    factors[0], factors[1], factors[2] = 0.0, 1.0 / middle, share
    for k in range(count):
        move[k] = ZERO
    clear(room, count, guard)
    residual, done, longest = 1.0, 0, 0.0
    while done < MOST_SWEEPS:
        done += 1
        _value(guess, over, scale, linear, bent, mixed)
        average(room, count, geometry)
        for k in range(count):
            mixed[k] = source[k] + factors[2] * mixed[k] - guess[k]
        for k in range(count):
            size[k] = abs(mixed[k]) * over[k]
        residual = float(_largest(size))
        if residual <= aim:
            break
        for k in range(count):
            moved = factors[0] * move[k] + factors[1] * mixed[k]
            move[k] = moved
            guess[k] += moved
        left = (abs(1.0 - factors[1]) + rate * factors[1]) * residual + (1.0 + rate) * factors[0] * longest
        longest = factors[0] * longest + factors[1] * residual
        residual = left
        if residual <= aim:
            break
        factor = 1.0 / (2.0 * middle - half * last)
        factors[0], factors[1] = half * factor * last, 2.0 * factor
        last = half * factor
    return residual, done


@njit(**OPTIONS)
def _equilibria(  # type: ignore[no-untyped-def]
    left, left_roots, left_inverses, right, right_roots, right_inverses, left_growth, right_growth, lines, starts,
    geometry, layer, rate, spectrum, slopes, aim, goal, lower, tangent, room, features, tangents, ends,
):  # fmt: skip
    """ΣF and Σ(F + BΛ), (10.2) and (10.3), of all pairs, or of those on and below the diagonal."""
    line = geometry[2]
    guard, share = geometry[4] * line + geometry[5] * geometry[3], layer[0] / taps(geometry)
    linear, bent = np.float32(slopes[0]), np.float32(slopes[1])
    gain, constant = np.float32(layer[1] / taps(geometry)), np.float32(layer[2])
    for i in range(len(left)):
        for j in range(i + 1 if lower else len(right)):
            for system in range(len(starts) - 1):
                count = starts[system + 1] - starts[system]
                met = lines[starts[system] // line : starts[system + 1] // line]
                over, scale, guess, source = (
                    room[OVER, :count], room[SCALE, :count], room[GUESS, :count], room[SOURCE, :count],
                )  # fmt: skip
                mixed = room[0, guard : guard + count]
                outer(left[i], right[j], met, geometry, mixed)
                clear(room, count, guard)
                average(room, count, geometry)
                outer(left_roots[:, i], right_roots[:, j], met, geometry, scale)
                outer(left_inverses[:, i], right_inverses[:, j], met, geometry, over)
                outer(left_growth[i : i + 1], right_growth[j : j + 1], met, geometry, guess)
                for k in range(count):
                    entering = gain * mixed[k] + constant
                    source[k] = entering if over[k] > ZERO else ZERO
                for k in range(count):
                    guess[k] = min(max(guess[k] * source[k], -scale[k]), scale[k])
                residual, sweeps = _solve(count, linear, bent, share, rate, spectrum, aim, geometry, room)
                ends[0], ends[1] = max(ends[0], residual), max(ends[1], sweeps)
                value = room[1, guard : guard + count]
                _value(guess, over, scale, linear, bent, value)
                total = _total(value, line)
                features[i, j] += total
                if not tangent:
                    continue
                # The adjoint C = 1 + σ_a² 𝒜(F' ∘ C) by `sweep`, whose rows these are.
                rises, wanted, weight, adjoint = (
                    room[2, :count], room[3, :count], room[4, :count], room[5, :count],
                )  # fmt: skip
                _slope(guess, over, linear, bent, rises)
                for k in range(count):
                    wanted[k] = ONE if over[k] > ZERO else ZERO
                for k in range(count):
                    weight[k] = wanted[k]
                sweep(count, spectrum[0], spectrum[1], share, goal, geometry, room)
                for k in range(count):
                    adjoint[k] *= rises[k] * guess[k]
                tangents[i, j] += total + _total(adjoint, line)


@njit(**OPTIONS)
def _recursion(  # type: ignore[no-untyped-def]
    left, left_roots, left_inverses, right, right_roots, right_inverses, lines, starts, geometry, layers, slopes,
    lower, tangent, room, features, tangents,
):  # fmt: skip
    """ΣF and Σ(F + F'P) after the last layer, with P = Λ + w 𝒜(F'P) of the layer before: (10.6) from the first on."""
    line = geometry[2]
    guard, share = geometry[4] * line + geometry[5] * geometry[3], 1.0 / taps(geometry)
    for i in range(len(left)):
        for j in range(i + 1 if lower else len(right)):
            for system in range(len(starts) - 1):
                count = starts[system + 1] - starts[system]
                met = lines[starts[system] // line : starts[system + 1] // line]
                over, scale, known, source = (
                    room[OVER, :count], room[SCALE, :count], room[GUESS, :count], room[SOURCE, :count],
                )  # fmt: skip
                mixed, value, rises, product = (
                    room[0, guard : guard + count], room[2, :count], room[3, :count], room[4, :count],
                )  # fmt: skip
                outer(left[i], right[j], met, geometry, mixed)
                clear(room, count, guard)
                average(room, count, geometry)
                for k in range(count):
                    source[k] = mixed[k]
                for number in range(len(layers)):
                    linear, bent = np.float32(slopes[number, 0]), np.float32(slopes[number, 1])
                    weight = np.float32(layers[number, 0] * share)
                    inject, constant = np.float32(layers[number, 1] * share), np.float32(layers[number, 2])
                    outer(
                        left_roots[number : number + 1, i],
                        right_roots[number : number + 1, j],
                        met,
                        geometry,
                        scale,
                    )
                    outer(
                        left_inverses[number : number + 1, i], right_inverses[number : number + 1, j], met, geometry,
                        over,
                    )  # fmt: skip
                    if number == 0:
                        for k in range(count):
                            known[k] = weight * source[k] + constant
                    else:
                        for k in range(count):
                            mixed[k] = value[k]
                        average(room, count, geometry)
                        for k in range(count):
                            known[k] = weight * mixed[k] + inject * source[k] + constant
                    for k in range(count):
                        known[k] = min(max(known[k], -scale[k]), scale[k])
                    if tangent:
                        if number > 0:
                            for k in range(count):
                                mixed[k] = product[k]
                            average(room, count, geometry)
                            for k in range(count):
                                product[k] = known[k] + weight * mixed[k]
                        else:
                            for k in range(count):
                                product[k] = known[k]
                        _slope(known, over, linear, bent, rises)
                        for k in range(count):
                            product[k] *= rises[k]
                    _value(known, over, scale, linear, bent, value)
                total = _total(value, line)
                features[i, j] += total
                if tangent:
                    tangents[i, j] += total + _total(product, line)


__all__ = ["LOOSE", "ROUNDED", "SinglePrecision", "SingleSide", "serves"]
