"""Gaussian moments of the reference activations in mpmath, 30 digits and more: closed forms and quadrature."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import pairwise
from typing import Any, NamedTuple

import mpmath
import numpy as np
from mpmath import mp, mpf
from reference_activations import Reference, pieces_value

_DIGITS = 40
_MP_NODES = 28
_MP_REACH = 18  # exp(-18^2/2) < 1e-70: enough for 60 Hermite polynomials at 30 digits


class Moments(NamedTuple):
    """Gaussian moments at one variance, as mpf.

    `mean[k]` is M_k, `second` S, `second_slope` S', `slope_second` E1, `mehler[k]` a_k.
    """

    mean: tuple[Any, ...]
    second: Any
    second_slope: Any
    slope_second: Any
    mehler: tuple[Any, ...]


@lru_cache(maxsize=1024)
def mp_moments(phi: Reference, q: float, terms: int = 5) -> Moments:
    """Moments of `phi` at variance `q` (theory, section 2): closed where `phi` allows, else by quadrature."""
    with mp.workdps(_DIGITS):
        variance = mpf(q)
        if phi.pieces is not None:
            return mp_pieces(phi.pieces, variance, max(terms, 5))
        if phi.wave:
            return mp_wave(phi.name, variance, max(terms, 5))
        return mp_quadrature(phi, q, terms)


def mp_quadrature(
    phi: Reference, q: float, terms: int = 5, *, digits: int = _DIGITS, nodes: int = _MP_NODES
) -> Moments:
    """The same by composite Gauss-Legendre on the half line, even and odd parts apart (zeros stay zeros)."""
    with mp.workdps(digits):
        s = mpmath.sqrt(mpf(q))
        edges = tuple(_mp_edges(s, phi.kinks))
        x, weights = zip(*mp_rule(edges, nodes, digits), strict=True)
        table = _mp_hermite(edges, nodes, digits, max(terms, 5))
        up, down = ([phi.mp_value(sign * s * t) for t in x] for sign in (1, -1))
        parts = [a + b for a, b in zip(up, down, strict=True)], [a - b for a, b in zip(up, down, strict=True)]
        mehler = [mp.fdot(parts[k % 2], row) for k, row in enumerate(table)]
        squares = [a * a + b * b for a, b in zip(up, down, strict=True)]
        slopes = [phi.mp_slope(s * t) ** 2 + phi.mp_slope(-s * t) ** 2 for t in x]
        second = mp.fdot(squares, weights)
        # x^2 - 1 is He_2, and the table has it divided by the root of 2!
        second_slope = mp.fdot(squares, table[2]) * mpmath.sqrt(2) / (2 * s * s)
        return _finish(mehler, s, second, second_slope, mp.fdot(slopes, weights))


@lru_cache(maxsize=16)
def _mp_hermite(edges: tuple[Any, ...], nodes: int, digits: int, terms: int) -> list[list[Any]]:
    """Row k holds weight times He_k(x)/sqrt(k!) at the nodes of the rule, by the normalised recurrence."""
    x, weights = zip(*mp_rule(edges, nodes, digits), strict=True)
    rows = [[mpf(0)] * len(x), list(weights)]
    for k in range(terms - 1):
        low, high = mpmath.sqrt(k), 1 / mpmath.sqrt(k + 1)
        rows.append([(t * now - low * old) * high for t, now, old in zip(x, rows[-1], rows[-2], strict=True)])
    return rows[1:]


def _finish(mehler: Sequence[Any], s: Any, second: Any, slope: Any, slope_second: Any) -> Moments:
    """The means follow from the coefficients: M_k = sqrt(k!) a_k / s^k."""
    mean = tuple(mehler[k] * mpmath.sqrt(mpmath.factorial(k)) / s**k for k in range(5))
    return Moments(mean, second, slope, slope_second, tuple(mehler))


def _mp_edges(s: Any, kinks: Sequence[float]) -> list[Any]:
    """Panels on [0, reach], at most 2 wide, doubling in u = s x from 1/2: poles of phi lie about 1 from 0."""
    edges = {mpf(x) for x in range(0, _MP_REACH + 1, 2)}
    edges |= {abs(mpf(kink)) / s for kink in kinks}
    step = mpf(1) / 2
    while step / s < _MP_REACH:
        edges |= {step / s}
        step *= 2
    return sorted(edge for edge in edges if edge <= _MP_REACH)


@lru_cache(maxsize=64)
def mp_rule(edges: tuple[Any, ...], nodes: int, digits: int) -> tuple[tuple[Any, Any], ...]:
    """Nodes and weights of the Gaussian measure restricted to [edges[0], edges[-1]]."""
    points, weights = mp_legendre(nodes, digits)
    rule = []
    for left, right in pairwise(edges):
        half, middle = (right - left) / 2, (right + left) / 2
        for t, weight in zip(points, weights, strict=True):
            x = middle + half * t
            rule.append((x, half * weight * mpmath.npdf(x)))
    return tuple(rule)


@lru_cache(maxsize=16)
def mp_legendre(nodes: int, digits: int) -> tuple[list[Any], list[Any]]:
    """Gauss-Legendre by Newton from NumPy's nodes: three steps turn 16 digits into over 100."""
    points, weights = [], []
    for start in np.polynomial.legendre.leggauss(nodes)[0]:
        x = mpf(float(start))
        for _ in range(4):
            value, slope = _legendre(nodes, x)
            x -= value / slope
        points.append(x)
        weights.append(2 / ((1 - x * x) * _legendre(nodes, x)[1] ** 2))
    return points, weights


def _legendre(n: int, x: Any) -> tuple[Any, Any]:
    before, now = mpf(1), x
    for k in range(1, n):
        before, now = now, ((2 * k + 1) * x * now - k * before) / (k + 1)
    return now, n * (x * now - before) / (x * x - 1)


def _hermite(k: int, x: Any) -> Any:
    before, now = mpf(0), mpf(1)
    for j in range(k):
        before, now = now, x * now - j * before
    return now


def mp_pieces(pieces: tuple[Sequence[float], Sequence[float], float], q: Any, terms: int) -> Moments:
    """Closed forms: phi'' is a comb of Dirac masses at the kinks, so E[phi He_k] is a sum over them."""
    knots, slopes = [mpf(k) for k in pieces[0]], [mpf(slope) for slope in pieces[1]]
    s = mpmath.sqrt(q)
    edges = [mpf("-inf"), *(knot / s for knot in knots), mpf("inf")]
    pairs = list(zip(edges[:-1], edges[1:], slopes, strict=True))
    mass = [[_truncated(left, right, j) for j in range(5)] for left, right, _ in pairs]
    lines = [_line(knots, slopes, mpf(pieces[2]), i) for i in range(len(slopes))]
    first = sum(c * m[0] + a * s * m[1] for (a, c), m in zip(lines, mass, strict=True))
    second = sum(
        c * c * m[0] + 2 * a * c * s * m[1] + a * a * q * m[2] for (a, c), m in zip(lines, mass, strict=True)
    )
    weighted = sum(
        c * c * m[2] + 2 * a * c * s * m[3] + a * a * q * m[4] for (a, c), m in zip(lines, mass, strict=True)
    )
    slope = sum(a * m[0] for (a, _), m in zip(lines, mass, strict=True))
    mehler = [first, s * slope]
    jumps = [right - left for left, right in pairwise(slopes)]
    for k in range(2, terms):
        bumps = (w * _hermite(k - 2, x / s) * mpmath.npdf(x / s) for w, x in zip(jumps, knots, strict=True))
        mehler.append(s * sum(bumps, mpf(0)) / mpmath.sqrt(mpmath.factorial(k)))
    slope_second = sum(a * a * m[0] for (a, _), m in zip(lines, mass, strict=True))
    return _finish(mehler, s, second, (weighted - second) / (2 * q), slope_second)


def _line(knots: Sequence[Any], slopes: Sequence[Any], at_zero: Any, index: int) -> tuple[Any, Any]:
    """Slope and intercept of one piece."""
    inside = (knots[index - 1] if index else knots[0] - 1) + mpf(1) / 2**20
    if index and index < len(knots):
        inside = (knots[index - 1] + knots[index]) / 2
    return slopes[index], pieces_value(inside, knots, slopes, at_zero) - slopes[index] * inside


def _truncated(left: Any, right: Any, order: int) -> Any:
    """Integral of x^order times the normal density over [left, right], by the two-step recurrence."""
    if order == 0:
        if left >= 0:  # the tails keep their relative accuracy on the left
            left, right = -right, -left
        return mpmath.ncdf(right) - mpmath.ncdf(left)
    ends = [x ** (order - 1) * mpmath.npdf(x) if mpmath.isfinite(x) else mpf(0) for x in (left, right)]
    lower = (order - 1) * _truncated(left, right, order - 2) if order > 1 else mpf(0)
    return lower + ends[0] - ends[1]


def mp_wave(name: str, q: Any, terms: int) -> Moments:
    """phi^(k) of sin and cos run through +-sin, +-cos; E cos(u) = exp(-q/2)."""
    fade, twice = mpmath.exp(-q / 2), mpmath.exp(-2 * q)
    signs = (0, 1, 0, -1) if name == "sin" else (1, 0, -1, 0)
    s = mpmath.sqrt(q)
    mehler = [signs[k % 4] * s**k * fade / mpmath.sqrt(mpmath.factorial(k)) for k in range(terms)]
    minus, plus = (1 - twice) / 2, (1 + twice) / 2
    if name == "sin":
        return _finish(mehler, s, minus, twice, plus)
    return _finish(mehler, s, plus, -twice, minus)
