"""Independent oracles of kernels: every number here comes from the definitions, none from the package.

From the slowest and surest to the quickest:

- `moment_oracles.mp_moments`: one-dimensional Gaussian moments in mpmath, 30 digits and more;
- `brute_dual`: E[phi(u)phi(v)] and E[phi'(u)phi'(v)] by composite Gauss-Legendre in float64, 13 digits, any
  variances and any correlation, `closed_dual` where a closed form exists;
- `brute_pair`: the fixed point of a deep equilibrium model for one pair, from `brute_dual`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import lru_cache
from itertools import pairwise
from operator import mul
from typing import Any, NamedTuple

import moment_oracles
import mpmath
import numpy as np
import reference_activations
from moment_oracles import mp_legendre, mp_moments, mp_pieces, mp_wave
from mpmath import mp, mpf
from reference_activations import Array, Reference, at_zero, density

# One module for the tests to import from.
Moments, mp_quadrature = moment_oracles.Moments, moment_oracles.mp_quadrature
ALL, reference = reference_activations.ALL, reference_activations.reference
mp_derivative = reference_activations.mp_derivative

_REACH = 9.5  # exp(-9.5^2/2) < 1e-19: enough for float64, also against polynomial growth
_PANELS = 12  # number of edges over [-reach, reach], at least, for the Gaussian itself


class Dual(NamedTuple):
    """F = E[phi(u)phi(v)] and F' = E[phi'(u)phi'(v)]."""

    value: float
    slope: float


def brute_dual(
    phi: Reference, q1: float, q2: float, rho: float, *, nodes: int = 12, width: float | None = None
) -> Dual:
    """F and F' by two-dimensional quadrature.

    u = s1 x with x on panels graded around every kink and around 0, at the scale of phi(u) and at the scale
    of the inner integral; v given u is N(rho s2 x, (s2 w)^2), w^2 = 1 - rho^2, on panels in y uniting those
    of phi(v) with those of the Gaussian. |rho| = 1 leaves one integral. Who knows w better than from rho gives it.
    """
    s1, s2 = math.sqrt(q1), math.sqrt(q2)
    width = math.sqrt((1 - rho) * (1 + rho)) if width is None else width
    x, weights = _panel_rule(_outer_edges(phi, s1, s2, rho, width), nodes)
    weights = weights * density(x)
    if width == 0:
        inner, inner_slope = phi.np_value(rho * s2 * x), phi.np_slope(rho * s2 * x)
    else:
        inner, inner_slope = _conditional(phi, rho * s2 * x, s2 * width, s2, nodes)
    value = weights @ (phi.np_value(s1 * x) * inner)
    return Dual(float(value), float(weights @ (phi.np_slope(s1 * x) * inner_slope)))


def _doubling(start: float, stop: float) -> Array:
    """start, 2 start, ... past stop."""
    count = max(1, math.ceil(math.log2(max(stop / start, 2.0))) + 1)
    return start * 2.0 ** np.arange(count)


def _around(centres: Sequence[float], steps: Array) -> Array:
    if not centres:
        return np.empty(0)
    return np.concatenate([[c, *(c - steps), *(c + steps)] for c in centres])


def _marks(phi: Reference, reach: float) -> Array:
    """Where panels of phi(u) end for |u| up to reach: kinks and, unless phi is linear between, a grading."""
    if phi.pieces is not None:
        return np.array(phi.kinks)
    return _around(sorted({0.0, *phi.kinks}), _doubling(0.5, reach))


def _outer_edges(phi: Reference, s1: float, s2: float, rho: float, width: float) -> Array:
    """Panel edges in x; the inner integral is phi smoothed over s2 width: grade kinks at width/|rho|."""
    parts = [np.linspace(-_REACH, _REACH, _PANELS), _marks(phi, _REACH * s1) / s1]
    if rho != 0:
        own = s2 * rho
        parts.append(_marks(phi, _REACH * s2) / own)
        if width > 0:
            steps = _doubling(width / abs(rho), 2 * _REACH)
            parts.append(_around([kink / own for kink in phi.kinks], np.concatenate([steps, 1.5 * steps])))
    edges = np.unique(np.concatenate(parts))
    return edges[np.abs(edges) <= _REACH]


@lru_cache(maxsize=16)
def _legendre_rule(nodes: int) -> tuple[Array, Array]:
    points, weights = np.polynomial.legendre.leggauss(nodes)
    return points, weights


def _panel_rule(edges: Array, nodes: int) -> tuple[Array, Array]:
    points, weights = _legendre_rule(nodes)
    half, middle = np.diff(edges) / 2, (edges[1:] + edges[:-1]) / 2
    return (middle[:, None] + half[:, None] * points).ravel(), (half[:, None] * weights).ravel()


def _conditional(phi: Reference, mean: Array, deviation: float, s2: float, nodes: int) -> tuple[Array, Array]:
    """E[phi(v)] and E[phi'(v)], v ~ N(mean, deviation^2): one row of panels per mean, empty ones left out."""
    marks = _marks(phi, 2 * _REACH * s2)
    edges = (marks[None, :] - mean[:, None]) / deviation
    fixed = np.broadcast_to(np.linspace(-_REACH, _REACH, _PANELS), (mean.size, _PANELS))
    edges = np.sort(np.clip(np.concatenate([edges, fixed], axis=1), -_REACH, _REACH), axis=1)
    half = np.diff(edges, axis=1) / 2
    rows, columns = np.nonzero(half > 0)
    half = half[rows, columns]
    points, weights = _legendre_rule(nodes)
    y = edges[rows, columns][:, None] + half[:, None] * (1 + points)
    v = mean[rows][:, None] + deviation * y
    weight = half[:, None] * weights * density(y)
    totals = [np.einsum("ij,ij->i", weight, f(v)) for f in (phi.np_value, phi.np_slope)]
    value, slope = (np.bincount(rows, weights=total, minlength=mean.size) for total in totals)
    return value, slope


def closed_dual(phi: Reference, q1: float, q2: float, rho: float) -> Dual | None:
    """F and F' in closed form where one is known (arc-cosine, arcsine, waves), else None."""
    if phi.name == "erf":
        return _arcsine(q1, q2, rho)
    if phi.wave:
        return _wave_dual(phi.name, q1, q2, rho)
    if phi.pieces is not None and phi.kinks == (0.0,):
        return _arc_cosine(phi.pieces[1], q1, q2, rho)
    return None


def _angle(rho: float) -> float:
    """The angle whose cosine is rho, without the loss of digits of arccos near +-1."""
    return 2 * math.atan2(math.sqrt(1 - rho), math.sqrt(1 + rho))


def _arc_cosine(slopes: Sequence[float], q1: float, q2: float, rho: float) -> Dual:
    """Slopes (b, a): phi = (a+b)/2 x + (a-b)/2 |x|; E|x||y| and E sign sign are classical."""
    mean, gap = (slopes[1] + slopes[0]) / 2, (slopes[1] - slopes[0]) / 2
    theta, scale = _angle(rho), math.sqrt(q1 * q2)
    sine = math.sqrt((1 - rho) * (1 + rho))
    absolute = (2 * sine + rho * (math.pi - 2 * theta)) / math.pi
    return Dual(scale * (mean**2 * rho + gap**2 * absolute), mean**2 + gap**2 * (1 - 2 * theta / math.pi))


def _arcsine(q1: float, q2: float, rho: float) -> Dual:
    """Williams' kernel, as an arctangent: arcsin loses half the digits at |rho| = 1 and large variance."""
    cross = 2 * rho * math.sqrt(q1 * q2)
    rest = math.sqrt(1 + 2 * (q1 + q2) + 4 * q1 * q2 * (1 - rho) * (1 + rho))
    return Dual(2 / math.pi * math.atan2(cross, rest), 4 / math.pi / rest)


def _wave_dual(name: str, q1: float, q2: float, rho: float) -> Dual:
    cross = rho * math.sqrt(q1 * q2)
    near = math.exp(abs(cross) - (q1 + q2) / 2) / 2
    # expm1, so that two small angles keep their relative accuracy
    minus = -math.copysign(near, cross) * math.expm1(-2 * abs(cross))
    plus = near * (1 + math.exp(-2 * abs(cross)))
    return Dual(minus, plus) if name == "sin" else Dual(plus, minus)


def exact_dual(phi: Reference, q1: float, q2: float, rho: float) -> Dual:
    """The oracle for the tests: closed form or brute force; a variance of 0 makes that factor constant."""
    if min(q1, q2) == 0:
        return _degenerate_dual(phi, max(q1, q2))
    closed = closed_dual(phi, q1, q2, rho)
    return closed if closed is not None else brute_dual(phi, q1, q2, rho)


def _degenerate_dual(phi: Reference, q: float) -> Dual:
    rise = float(phi.np_slope(np.zeros(1))[0])
    means = mp_moments(phi, q).mean if q > 0 else (at_zero(phi), rise)
    return Dual(at_zero(phi) * float(means[0]), rise * float(means[1]))


# --- the fixed point of a deep equilibrium model, one pair at a time ---------------------------------------


class Pair(NamedTuple):
    """What the theory (section 3) says of one pair: Lambda, G, D and the three tangent kernels."""

    preactivation: float
    feature: float
    slope: float
    network: float
    paper: float
    tangent_preactivation: float


@lru_cache(maxsize=1024)
def brute_variance(phi: Reference, sigma_a2: float, drive: float) -> float:
    """The root of q = sigma_a2 S(q) + drive, drive = sigma_b2 |x|^2 + bias2, by plain iteration."""
    if drive == 0 and at_zero(phi) == 0:
        return 0.0
    q = drive if drive > 0 else sigma_a2 * at_zero(phi) ** 2
    if phi.pieces is not None and phi.kinks == (0.0,):
        # S(q) = q S(1): no iteration, which takes forever near the end of contraction.
        q = drive / (1 - sigma_a2 * exact_dual(phi, 1.0, 1.0, 1.0).value)
    for _ in range(4000):
        after = sigma_a2 * exact_dual(phi, q, q, 1.0).value + drive
        if abs(after - q) <= 1e-15 * after:
            return after
        q = after
    raise ArithmeticError(f"the oracle found no fixed point for {phi} at sigma_a2={sigma_a2}, drive={drive}")


def _certain_correlation(phi: Reference, drives: tuple[float, float], drive: float) -> float | None:
    """+-1 where the algebra says so, because F' of a phi with kinks moves like sqrt(1 - rho^2) there.

    A rounding of 1e-16 in rho is 1e-8 in F', so the oracle must not leave it to the rounding.
    """
    if drives == (drive, drive):
        return 1.0
    x = np.linspace(-4, 4, 41)
    if drives == (-drive, -drive) and np.allclose(phi.np_value(-x), -phi.np_value(x), rtol=1e-15, atol=0):
        return -1.0
    homogeneous = phi.kinks == (0.0,) and phi.pieces is not None
    return 1.0 if homogeneous and drive > 0 and drive * drive == drives[0] * drives[1] else None


def brute_pair(phi: Reference, sigma_a2: float, drives: tuple[float, float], drive: float) -> Pair:
    """Lambda_ij = sigma_a2 F(q_i, q_j, Lambda_ij) + drive, by Newton on brute force until the residual is 0."""
    q1, q2 = (brute_variance(phi, sigma_a2, one) for one in drives)
    scale = math.sqrt(q1 * q2)
    certain = _certain_correlation(phi, drives, drive)
    if certain is not None:
        return _pair(certain * scale, exact_dual(phi, q1, q2, certain), sigma_a2)
    now = min(max(drive, -scale), scale)
    for _ in range(60):
        dual = exact_dual(phi, q1, q2, min(max(now / scale, -1.0), 1.0) if scale else 0.0)
        gap = sigma_a2 * dual.value + drive - now
        if abs(gap) <= 4e-16 * max(scale, abs(now)):
            return _pair(now, dual, sigma_a2)
        before, now = now, now + gap / (1 - sigma_a2 * dual.slope)
        now = min(max(now, -scale), scale) if scale else now
        if abs(now - before) <= 1e-15 * scale:
            return _pair(now, dual, sigma_a2)
    raise ArithmeticError(f"the oracle did not converge for {phi}: residual {gap:.1e}")


def brute_kernels(
    phi: Reference, sigma_a2: float, sigma_b2: float, bias2: float, gram: Array
) -> dict[str, Array]:
    """Every field of `Pair` as a matrix."""
    drive = sigma_b2 * gram + bias2
    n = len(gram)
    pairs = [
        brute_pair(phi, sigma_a2, (float(drive[i, i]), float(drive[j, j])), float(drive[i, j]))
        for i in range(n)
        for j in range(n)
        if i <= j
    ]
    result = {name: np.empty((n, n)) for name in Pair._fields}
    upper = np.triu_indices(n)
    for index, name in enumerate(Pair._fields):
        result[name][upper] = [pair[index] for pair in pairs]
        result[name].T[upper] = result[name][upper]
    return result


def brute_depth(
    phi: Reference, sigma_a2: float, drives: tuple[float, float], drive: float, depth: int
) -> tuple[float, float]:
    """Features and tangent kernel of one pair after `depth` layers with injection, weights untied.

    Lambda_1 = drive (z_0 = 0), G_l = F(Lambda_l), Lambda_{l+1} = sigma_a2 G_l + drive; the tangent kernel of the
    pre-activations grows as T_{l+1} = Lambda_{l+1} + sigma_a2 D_l T_l, and the network's is G_L + D_L T_L.
    """
    q1, q2, now, tangent = *drives, drive, drive
    for layer in range(depth):
        scale = math.sqrt(q1 * q2)
        dual = exact_dual(phi, q1, q2, min(max(now / scale, -1.0), 1.0))
        if layer == depth - 1:
            break
        q1 = sigma_a2 * exact_dual(phi, q1, q1, 1.0).value + drives[0]
        q2 = sigma_a2 * exact_dual(phi, q2, q2, 1.0).value + drives[1]
        now = sigma_a2 * dual.value + drive
        tangent = now + sigma_a2 * dual.slope * tangent
    return dual.value, dual.value + dual.slope * tangent


def brute_layers(
    layers: Sequence[Reference], norms: tuple[float, float], inner: float
) -> tuple[float, float]:
    """Conjugate and tangent kernel of one pair in an explicit network (theory, section 3)."""
    q1, q2, now, tangent = *norms, inner, inner
    for phi in layers:
        dual = exact_dual(phi, q1, q2, min(max(now / math.sqrt(q1 * q2), -1.0), 1.0))
        q1, q2 = (exact_dual(phi, q, q, 1.0).value for q in (q1, q2))
        now, tangent = dual.value, dual.value + tangent * dual.slope
    return now, tangent


def _pair(preactivation: float, dual: Dual, sigma_a2: float) -> Pair:
    g, d = dual
    rest = 1 - sigma_a2 * d
    return Pair(preactivation, g, d, g + d * preactivation / rest, g / rest, preactivation / rest)


def mp_pair(phi: Reference, sigma_a2: float, variances: tuple[float, float], rows: Sequence[Array]) -> Pair:
    """`brute_pair` at 34 digits from the rows on, for a phi with a closed form or piecewise linear.

    Near rho = +-1 the inner product of two rows in float64 does not know their angle, and neither does any
    oracle that starts from it. `variances` are sigma_b2 and bias2.
    """
    with mp.workdps(34):
        x, y = ([mpf(float(t)) for t in row] for row in rows)
        sa, sb, bias = (mpf(t) for t in (sigma_a2, *variances))
        q1, q2 = (_mp_variance(phi, sa, sb * mp.fdot(row, row) + bias) for row in (x, y))
        drive = sb * mp.fdot(x, y) + bias
        scale = mpmath.sqrt(q1 * q2)
        # 16 digits of the answer to start from, so that two or three costly steps are left
        floats = float(sb * mp.fdot(x, x) + bias), float(sb * mp.fdot(y, y) + bias), float(drive)
        now = min(max(mpf(brute_pair(phi, sigma_a2, floats[:2], floats[2]).preactivation), -scale), scale)
        for _ in range(60):
            value, slope = _mp_closed_dual(phi, q1, q2, now)
            step = (sa * value + drive - now) / (1 - sa * slope)
            now = min(max(now + step, -scale), scale)
            if abs(step) < mpf(10) ** -26 * scale:
                return _pair(float(now), Dual(float(value), float(slope)), sigma_a2)
    raise ArithmeticError(f"the oracle did not converge for {phi}")


def mp_layers(layers: Sequence[Reference], rows: Sequence[Array]) -> tuple[float, float]:
    """`brute_layers` at 34 digits from the rows on, under the same conditions."""
    with mp.workdps(34):
        x, y = ([mpf(float(t)) for t in row] for row in rows)
        q1, q2, now = mp.fdot(x, x), mp.fdot(y, y), mp.fdot(x, y)
        tangent = now
        for phi in layers:
            value, slope = _mp_closed_dual(phi, q1, q2, now)
            q1, q2 = (_mp_second(phi, q)[0] for q in (q1, q2))
            now, tangent = value, value + tangent * slope
        return float(now), float(tangent)


def _mp_variance(phi: Reference, sigma_a2: Any, drive: Any) -> Any:
    """The root that plain iteration finds, polished by Newton: there may be others."""
    q = mpf(brute_variance(phi, float(sigma_a2), float(drive)))
    for _ in range(60):
        second, slope = _mp_second(phi, q)
        step = (sigma_a2 * second + drive - q) / (1 - sigma_a2 * slope)
        q += step
        if abs(step) < mpf(10) ** -32 * q:
            return q
    raise ArithmeticError(f"the oracle found no fixed point for {phi}")


def _mp_second(phi: Reference, q: Any) -> tuple[Any, Any]:
    """S and S' from a closed form."""
    if phi.name == "erf":
        return 2 / mp.pi * mpmath.asin(2 * q / (1 + 2 * q)), 4 / mp.pi / (
            (1 + 2 * q) * mpmath.sqrt(1 + 4 * q)
        )
    moments = mp_wave(phi.name, q, 5) if phi.wave else mp_pieces(phi.pieces or ((), (), 0), q, 5)
    return moments.second, moments.second_slope


def _mp_closed_dual(phi: Reference, q1: Any, q2: Any, c: Any) -> tuple[Any, Any]:
    """F and F' of (u, v) with covariance c: arcsine, waves, or Price's integral over the kinks."""
    if phi.name == "erf":
        rest = mpmath.sqrt((1 + 2 * q1) * (1 + 2 * q2) - 4 * c * c)
        return 2 / mp.pi * mpmath.atan2(2 * c, rest), 4 / mp.pi / rest
    if phi.wave:
        same, opposite = (mpmath.exp(-(q1 + q2) / 2 + sign * c) / 2 for sign in (1, -1))
        minus, plus = same - opposite, same + opposite
        return (minus, plus) if phi.name == "sin" else (plus, minus)
    return _mp_price(phi.pieces or ((), (), 0), q1, q2, c)


def _mp_price(
    pieces: tuple[Sequence[float], Sequence[float], float], q1: Any, q2: Any, c: Any
) -> tuple[Any, Any]:
    """Theory, section 3: start at rho = 0 and integrate over t = sqrt(q1 q2) sin(theta), kink by kink."""
    first, second = (mp_pieces(pieces, q, 5).mean for q in (q1, q2))
    scale, sign = mpmath.sqrt(q1 * q2), 1 if c >= 0 else -1
    jumps = [mpf(right) - mpf(left) for left, right in pairwise(pieces[1])]
    end = mpmath.atan2(mpmath.sqrt(max(q1 * q2 - c * c, mpf(0))), abs(c))  # the angle that is left at the end
    rule = _mp_price_rule(end, mp.prec)
    value = slope = mpf(0)
    for knot, jump in zip(pieces[0], jumps, strict=True):
        for other, weight in zip(pieces[0], jumps, strict=True):
            a, b = mpf(knot) / mpmath.sqrt(q1), sign * mpf(other) / mpmath.sqrt(q2)
            for cosine, sine2, w in rule:
                bump = w * jump * weight * mpmath.exp(-(a * a - 2 * a * b * cosine + b * b) / (2 * sine2))
                slope += bump
                value += (c - sign * scale * cosine) * bump
    turned = sign / (2 * mp.pi)
    return first[0] * second[0] + c * first[1] * second[1] + turned * value, first[1] * second[
        1
    ] + turned * slope


@lru_cache(maxsize=64)
def _mp_price_rule(end: Any, precision: int) -> list[tuple[Any, Any, Any]]:
    """Panels doubling from the angle `end` to pi/2: (cos, sin^2, weight) of the angle that is left."""
    edges = [end]
    while edges[-1] < mp.pi / 2:
        edges.append(min(max(2 * edges[-1], mpf(10) ** -14), mp.pi / 2))
    points, weights = mp_legendre(20, mp.dps)
    rule = []
    for left, right in pairwise(edges):
        half, middle = (right - left) / 2, (right + left) / 2
        angles = [middle + half * t for t in points]
        rule += [(mpmath.cos(t), mpmath.sin(t) ** 2, half * w) for t, w in zip(angles, weights, strict=True)]
    return rule


def exact_gram(rows: Array) -> Array:
    """X X^T with every inner product rounded once, so that duplicate rows have equal entries."""
    exact = [[Fraction(x) for x in row.tolist()] for row in rows]
    return np.array([[float(sum(map(mul, a, b))) for b in exact] for a in exact])


def central_difference(f: Callable[[Array], Array], x: Array, step: float = 1e-3) -> Array:
    """df/dx to sixth order in the step: about 12 digits for a function that varies over 1."""
    pairs = [(f(x + k * step) - f(x - k * step)) / (2 * k * step) for k in (1, 2, 3)]
    return 1.5 * pairs[0] - 0.6 * pairs[1] + 0.1 * pairs[2]


def ridge_with_intercept(
    kernel: np.ndarray, targets: np.ndarray, ridge: float
) -> tuple[np.ndarray, np.ndarray]:
    """Dual coefficients and intercept of kernel ridge regression, from the equations of its minimum as they stand.

    The squared error plus λ cᵀKc is least at (K + λI) c + 1 b = y, 1ᵀc = 0.
    """
    n = len(kernel)
    system = np.ones((n + 1, n + 1))
    system[:n, :n] = kernel + ridge * np.eye(n)
    system[n, n] = 0.0
    solved = np.linalg.solve(system, np.concatenate([targets, np.zeros((1, *targets.shape[1:]))]))
    return solved[:n], solved[n]
