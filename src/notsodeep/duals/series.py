"""Mehler's series F = Σ_k a_k(q) a_k(q') ρ^k, as long as its error bound asks for: docs/theory.md (3.13) to (3.15).

The error of the first m terms is at most √(t t') |ρ|^m √(S S'), where t is the share of Σ a_k² beyond them at one
variance; that of F' likewise with Σ k a_k².  Each strip of pairs takes the first level whose bound is small enough.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numba import njit

from notsodeep.duals.strips import ALL, OPTIONS, SOME, WIDTH, correlations, fill, packed
from notsodeep.gaussian.interpolation import at_many
from notsodeep.gaussian.shapes import Shape
from notsodeep.validation import Array

# What the series may leave out of F and F', relative to √(S S') and √(E1 E1').
ALLOWED = 1e-14
# Numbers of nonzero terms; multiples of four, which the innermost loop takes at a time.
LEVELS = (4, 8, 12, 16, 20, 24, 32, 40, 48, 64, 80, 96, 128, 192, 256, 384, 512)
# A share of the energy below this is rounding of the sum of the others.
NOISE = 4e-15
# One over two scales, at most, where it is squared.
LARGEST = 1e150
# Work arrays of a strip: ρ, then ρ or ρ², F, F', F''.
POWER, VALUE, SLOPE, BEND, PARTS = 1, 2, 3, 4, 5


@dataclass(frozen=True)
class SeriesSide:
    """What rows or columns contribute to the series.

    Attributes:
        terms: a_k, rows (stack, n, terms) or strips of columns (stack, strips, terms, WIDTH).
        tails: logarithm of the share beyond each level, (stack, n or strips, levels).
        reach: pairs are right up to |ρ| = reach · reach', (stack, n); may exceed 1.
    """

    terms: Array
    tails: Array
    reach: Array

    def scaled(self, factor: float) -> SeriesSide:
        """The same with all coefficients multiplied by a factor."""
        return self if factor == 1.0 else replace(self, terms=factor * self.terms)

    def in_strips(self) -> SeriesSide:
        """Columns from rows; the bound of a strip is the largest of its columns."""
        # Lower than every logarithm of a share where there is no column.
        tails = packed(self.tails + 1e3).max(axis=3) - 1e3
        return replace(self, terms=packed(self.terms), tails=np.ascontiguousarray(tails))


class Series:
    """The series of a shape, with at most `most` terms that do not vanish, which may leave out `allowed`."""

    def __init__(self, shape: Shape, most: int = LEVELS[-1], allowed: float = ALLOWED) -> None:
        self.shape, self.allowed = shape, allowed
        self.first, self.stride = (1 if shape.parity == -1 else 0), (1 if shape.parity == 0 else 2)
        exact = shape.series_terms
        if exact is not None:
            most = min(most, 4 * -(-exact // 4))
        self.counts = np.array([level for level in LEVELS if level < most] + [most])
        self.finite = exact is not None
        # The order of the first term that each level leaves out.
        self.orders = self.first + self.stride * self.counts

    def coefficients(self, inner: Array) -> Array:
        """a_k of the terms that do not vanish, at flat variances of the shape, (n, terms)."""
        shape, total = self.shape, int(self.orders[-1])

        def of(q: Array) -> Array:
            return shape.mehler(q, total)[:, self.first :: self.stride]

        return at_many(of, inner, ("mehler", shape, total))

    def shares(self, inner: Array, terms: Array, energy: Array, steep: Array) -> Array:
        """The larger share of S and of q E1 beyond each level, (n, levels)."""
        shares = np.empty((len(inner), len(self.counts)))
        _shares(
            np.ascontiguousarray(terms), self.counts, self.first, self.stride, np.maximum(energy, 1e-300),
            np.maximum(inner * steep, 1e-300), self.finite, shares,
        )  # fmt: skip
        return shares

    def side(self, inner: Array, energy: Array, steep: Array) -> SeriesSide:
        """Coefficients and bounds of rows with these variances (stack, n)."""
        form, flat = inner.shape, inner.reshape(-1)
        terms = self.coefficients(flat)
        tails = np.log(self.shares(flat, terms, energy.reshape(-1), steep.reshape(-1)))
        # tail + order · log ρ ≤ log allowed for the last level, split between both sides.
        order = max(int(self.orders[-1]) - 1, 1)
        reach = np.exp(0.5 * (np.log(self.allowed) - tails[:, -1]) / order) * (1.0 + 1e-9)
        if self.finite:
            reach[:] = np.inf
        return SeriesSide(
            np.ascontiguousarray(terms).reshape(*form, -1),
            np.ascontiguousarray(tails).reshape(*form, -1),
            reach.reshape(form),
        )


@njit(**OPTIONS)
def _shares(terms, counts, first, stride, energy, steep, finite, shares):  # type: ignore[no-untyped-def]
    """The larger share of Σ a_k² in S, and of Σ k a_k² in q E1, beyond each number of terms."""
    count, most = terms.shape
    for i in range(count):
        row, whole, slopes = terms[i], 0.0, 0.0
        for k in range(most):
            square = row[k] * row[k]
            whole += square
            slopes += (first + stride * k) * square
        rest, rise = 1.0 - whole / energy[i], 1.0 - slopes / steep[i]
        # What rounding hides is about as large as the last terms.
        last = 0.0 if finite or most < 2 else row[most - 1] * row[most - 1] + row[most - 2] * row[most - 2]
        rest = rest if rest > NOISE else 10.0 * last / energy[i]
        rise = rise if rise > NOISE else 10.0 * (first + stride * most) * last / steep[i]
        whole, slopes, level = 0.0, 0.0, len(counts) - 1
        for k in range(most, -1, -1):
            if k < most:
                square = row[k] * row[k]
                whole += square
                slopes += (first + stride * k) * square
            if level >= 0 and k == min(counts[level], most):
                share = max(whole / energy[i] + rest, slopes / steep[i] + rise)
                shares[i, level] = min(max(share, 1e-300), 1.0)
                level -= 1


@njit(**OPTIONS)
def series_tiles(  # type: ignore[no-untyped-def]
    covariance, left, tails, inverse, covered, right, tails_right, inverse_right, covered_right, counts, orders,
    parity, allowed, finite, bends, lower, value, slope, bend, todo,
):  # fmt: skip
    """F, F' and, with `bends`, dF'/dc by the series.

    `todo` (stack, rows, strips) becomes ALL where the last level is not enough for some pair of a strip whose row and
    strip are covered by another method, and SOME where one of them is not.  Returns whether there is any.
    """
    stack, rows, columns = covariance.shape
    work = np.zeros(PARTS * WIDTH)
    rho = work[:WIDTH]
    last = len(counts) - 1
    any_left = False
    for t in range(stack):
        for i in range(rows):
            stop = i if lower else columns
            for strip in range((stop + WIDTH - 1) // WIDTH):
                begin = strip * WIDTH
                width = min(WIDTH, columns - begin)
                own = inverse[t, i]
                peak = correlations(
                    covariance[t, i, begin : begin + width], own, inverse_right[t, strip, 0], width, rho
                )
                size = np.log(max(peak, 1e-30))
                level = 0
                while (
                    level < last
                    and 0.5 * (tails[t, i, level] + tails_right[t, strip, level]) + (orders[level] - 1) * size
                    > allowed
                ):
                    level += 1
                beyond = (
                    not finite
                    and 0.5 * (tails[t, i, level] + tails_right[t, strip, level]) + (orders[level] - 1) * size
                    > allowed
                )
                if beyond:
                    any_left = True
                    todo[t, i, strip] = ALL if covered[t, i] and covered_right[t, strip] else SOME
                    if todo[t, i, strip] == ALL:
                        continue
                _horner(left[t, i], right[t, strip].reshape(-1), counts[level], work, parity, bends)
                others = inverse_right[t, strip, 0]
                values, slopes = value[t, i, begin : begin + width], slope[t, i, begin : begin + width]
                for j in range(width):
                    values[j] = work[j + VALUE * WIDTH]
                for j in range(width):
                    slopes[j] = work[j + SLOPE * WIDTH] * (own * others[j])
                if bends:
                    bent = bend[t, i, begin : begin + width]
                    for j in range(width):
                        # A sample without signal has a scale of 1e-100, whose fourth power would be zero.
                        factor = min(own * others[j], LARGEST)
                        bent[j] = work[j + BEND * WIDTH] * factor * factor
    return any_left


@njit(**OPTIONS)
def _horner(left, right, terms, work, parity, bends):  # type: ignore[no-untyped-def]
    """F, F' and F'' in ρ on a strip; odd and even series are polynomials in ρ².  Four terms at a time."""
    for j in range(WIDTH):
        work[j + POWER * WIDTH] = work[j] if parity == 0 else work[j] * work[j]
    fill(work[VALUE * WIDTH :], 0.0)
    for k in range(terms - 4, -1, -4):
        a0, a1, a2, a3 = left[k], left[k + 1], left[k + 2], left[k + 3]
        s = right[k * WIDTH : (k + 4) * WIDTH]
        if bends:
            for j in range(WIDTH):
                x, p, d, e = (
                    work[j + POWER * WIDTH],
                    work[j + VALUE * WIDTH],
                    work[j + SLOPE * WIDTH],
                    work[j + BEND * WIDTH],
                )
                e = e * x + d
                d = d * x + p
                p = p * x + a3 * s[j + 3 * WIDTH]
                e = e * x + d
                d = d * x + p
                p = p * x + a2 * s[j + 2 * WIDTH]
                e = e * x + d
                d = d * x + p
                p = p * x + a1 * s[j + WIDTH]
                work[j + BEND * WIDTH] = e * x + d
                work[j + SLOPE * WIDTH] = d * x + p
                work[j + VALUE * WIDTH] = p * x + a0 * s[j]
        else:
            for j in range(WIDTH):
                x, p, d = work[j + POWER * WIDTH], work[j + VALUE * WIDTH], work[j + SLOPE * WIDTH]
                d = d * x + p
                p = p * x + a3 * s[j + 3 * WIDTH]
                d = d * x + p
                p = p * x + a2 * s[j + 2 * WIDTH]
                d = d * x + p
                p = p * x + a1 * s[j + WIDTH]
                work[j + SLOPE * WIDTH] = d * x + p
                work[j + VALUE * WIDTH] = p * x + a0 * s[j]
    # With x = ρ²: d/dρ = 2ρ d/dx.
    if parity == -1:
        for j in range(WIDTH):
            rho, x = work[j], work[j + POWER * WIDTH]
            p, d, e = work[j + VALUE * WIDTH], work[j + SLOPE * WIDTH], work[j + BEND * WIDTH]
            work[j + VALUE * WIDTH] = rho * p
            work[j + SLOPE * WIDTH] = p + 2.0 * x * d
            work[j + BEND * WIDTH] = rho * (6.0 * d + 8.0 * x * e)
    elif parity == 1:
        for j in range(WIDTH):
            rho, x = work[j], work[j + POWER * WIDTH]
            d, e = work[j + SLOPE * WIDTH], work[j + BEND * WIDTH]
            work[j + SLOPE * WIDTH] = 2.0 * rho * d
            work[j + BEND * WIDTH] = 2.0 * d + 8.0 * x * e
    else:
        for j in range(WIDTH):
            work[j + BEND * WIDTH] *= 2.0


__all__ = ["ALLOWED", "Series", "SeriesSide", "series_tiles"]
