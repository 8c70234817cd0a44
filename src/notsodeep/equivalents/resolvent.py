"""The deterministic resolvent of the noise: docs/theory.md (6.1) and (6.2), solved for g on the real line.

With g_a = -1/(z(1+δ_a)) in place of δ_a and R = (I + Σ_b (n_b/p) g_b C_b)^{-1} = -z Q̄ the equations read

    z = -1/g_a + (1/p) tr(C_a R(g)),        a = 1 … K,

in which z stands alone. By three facts a solution can be proved to be the right one. Let P have the entries
|g_a|² (1/p) tr(C_a R C_b R*) n_b/p, which are not negative.

1. The imaginary part of the equations is (I - P) Im g = |g|² Im z. So for Im z > 0 and Im g > 0 the spectral
   radius of P is below 1; by the Cauchy–Schwarz inequality two such solutions differ by a vector that a
   matrix of spectral radius below 1 reproduces: they are equal.
2. The same holds at a real z for a real g whose P has radius below 1: it is the limit of the solution above,
   and z lies outside the support, since dg/dz = (I - P)^{-1} g² is positive.
3. A solution at a real z with Im g > 0 excludes one of the second kind, again by 1: z is inside the support.

So whatever a Newton iteration on the real line finds can be checked, and no imaginary part is left in z.

The same holds for WWᵀ + diag(offsets) + a symmetric matrix with independent entries, free of W, of variances
v_ab: the equations become z = offset_a - 1/g_a + (1/p) tr(C_a R) - Σ_b n_b v_ab g_b, and |g_a|² n_b v_ab is
added to P.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from notsodeep.equivalents.mixture_covariances import Commuting, Mask, Values
from notsodeep.errors import ConvergenceError
from notsodeep.validation import Array, IntArray

#: Largest residual |1 + z g_a - g_a (1/p) tr C_a R| that is accepted; Newton's last step leaves about 1e-15.
RESIDUAL = 1e-10

# From a good guess Newton needs five steps; a poor one is better improved otherwise.
_NEWTON_STEPS = 15
_MOST_ITERATIONS = 1024
# Newton's error after a step is of the order of the square of the step.
_LAST_STEP = 1e-9
# Relative imaginary part below which a number is real up to rounding.
_REAL = 1e-9


@dataclass(frozen=True, eq=False)
class Noise:
    """WWᵀ + diag(offsets) + independent entries, for groups of samples, in units where τ0 = 1.

    A group is a class, or a part of one whose samples have the same size.
    """

    shapes: Commuting  # the covariances and means of the classes
    sizes: IntArray  # the number of samples of each group
    member: IntArray  # the class of each group
    scale: Array  # what multiplies the covariance of the class in the group
    mean_scale: Array  # what multiplies its mean
    offset: Array  # what is added on the diagonal, not negative
    scatter: Array  # p times the variances of the independent entries, between groups

    @classmethod
    def of_classes(cls, shapes: Commuting, sizes: IntArray) -> Noise:
        """WWᵀ itself, one group for each class."""
        groups = len(sizes)
        one, none = np.ones(groups), np.zeros(groups)
        return cls(shapes, sizes, np.arange(groups), one, one, none, np.zeros((groups, groups)))

    @property
    def p(self) -> int:
        """The dimension p of the samples."""
        return self.shapes.p

    @property
    def n(self) -> int:
        """The number of samples."""
        return int(self.sizes.sum())

    @cached_property
    def ratios(self) -> Array:
        """The ratios n_a/p."""
        return np.asarray(self.sizes / self.p)

    @property
    def bound(self) -> float:
        """A number above the support: max ||C_a|| (1 + √(n/p))², with offsets and independent entries."""
        linear = self.shapes.largest * float(self.scale.max()) * (1.0 + np.sqrt(self.n / self.p)) ** 2
        return float(linear + self.offset.max() + 2.0 * np.sqrt((self.scatter @ self.ratios).max()))

    @cached_property
    def _spread(self) -> Array:
        """The factor n_a/p · scale with which g of each group enters R, in the column of its class."""
        table = np.zeros((len(self.sizes), int(self.member.max()) + 1))
        table[np.arange(len(self.sizes)), self.member] = self.ratios * self.scale
        return table

    def _collapsed(self, g: Values) -> Values:
        """The weight of the covariance of each class in R."""
        return np.asarray(g @ self._spread)

    def self_energy(self, g: Values) -> tuple[Values, Values]:
        """The part e_a of the equations z = -1/g_a + e_a(g), shape (Z, K), and -∂e_a/∂g_b · p/n_b."""
        first, second = self.shapes.traces(self._collapsed(g))
        second = (
            second[:, self.member[:, None], self.member] * self.scale[:, None] * self.scale + self.scatter
        )
        energy = self.scale * first[:, self.member] + self.offset - (g * self.ratios) @ self.scatter
        return energy, second

    def mean_form(self, g: Array) -> Array:
        """The matrix 𝓜ᵀR𝓜 of docs/theory.md (6.7), between groups."""
        return self._between_groups(self.shapes.mean_form(self._collapsed(g)))

    def mean_form_slope(self, g: Array, rates: Array) -> Array:
        """The derivative of -𝓜ᵀR𝓜 when g moves at these rates."""
        return self._between_groups(self.shapes.mean_form_slope(self._collapsed(g), self._collapsed(rates)))

    def _between_groups(self, form: Array) -> Array:
        return np.asarray(
            form[self.member[:, None], self.member] * self.mean_scale[:, None] * self.mean_scale
        )

    def above(self, g: Array) -> int:
        """How many eigenvalues are larger than a real z outside the support, from its g: exact separation.

        log det(WWᵀ - z) has the equivalent -Σ n_a log g_a + log det(I + Σ (n_b/p) g_b C_b) - z Σ n_a g_a,
        which is stationary in g and has the derivative -n m(z) in z. Its imaginary part at z + i0 counts
        the eigenvalues below z.
        """
        return self.shapes.negative(self._collapsed(g)) + int(self.sizes[g > 0].sum())

    def rank(self) -> int:
        """How many eigenvalues are not 0, with probability 1.

        Rows in general position in the ranges of their classes have the rank
        min over sets A of classes of dim(Σ_{a∈A} range C_a) + Σ_{a∉A} n_a (Rado's theorem).
        """
        if self.offset.min() > 0.0:
            return self.n
        singles = np.eye(len(self.sizes), dtype=bool)
        if all(self.shapes.spanned(alone) == self.p for alone in singles):
            return min(self.p, self.n)
        codes = np.arange(2 ** len(self.sizes))[:, None] >> np.arange(len(self.sizes))
        return min(
            self.shapes.spanned(inside) + int(self.sizes[~inside].sum())
            for inside in (codes & 1).astype(bool)
        )


# --- the equations -----------------------------------------------------------------------------------
def equations(noise: Noise, z: Values, g: Values) -> tuple[Values, Values]:
    """The residuals 1 + (z - e_a) g_a and their Jacobian in g, for Z pairs (z, g).

    The equations are multiplied by g_a, which makes Newton's iteration reach further.
    """
    # A wild step may divide by zero or overflow; the solvers look for what is not finite.
    with np.errstate(all="ignore"):
        first, second = noise.self_energy(g)
    residual = 1.0 + (z[:, None] - first) * g
    jacobian = g[:, :, None] * second * noise.ratios
    every = np.arange(g.shape[1])
    jacobian[:, every, every] += z[:, None] - first
    return residual, jacobian


def slope(noise: Noise, z: float, g: Array) -> Array:
    """The derivative dg/dz at one point."""
    _, jacobian = equations(noise, np.array([z]), g[None])
    return np.asarray(np.linalg.solve(jacobian[0], -g))


def radius(noise: Noise, g: Values) -> Array:
    """The spectral radius of P for each g, over the classes whose g_a is real; 0 where none is."""
    _, second = noise.self_energy(np.real(g))
    product = np.real(g)[:, :, None] ** 2 * second * noise.ratios
    real = np.abs(np.imag(g)) <= _REAL * np.abs(g)
    product = product * real[:, :, None] * real[:, None, :]
    return np.asarray(np.abs(np.linalg.eigvals(product)).max(axis=1, initial=0.0))


# --- solving -----------------------------------------------------------------------------------------
@dataclass(frozen=True, eq=False)
class AxisSolution:
    """Solutions at real points."""

    g: Values  # shape (Z, K), complex; the imaginary part is 0 outside the support
    outside: Mask  # which of the points lie outside the support
    residual: float  # the largest residual of any of them


def solve_on_axis(noise: Noise, x: Array, guess: Values | None = None) -> AxisSolution:
    """Solve at real points x > 0, from a guess where it leads to a solution, else down from large Im z.

    Raises:
        ConvergenceError: where no certified solution is found.
    """
    g = np.zeros((len(x), len(noise.sizes)), dtype=np.complex128)
    solved = np.zeros(len(x), dtype=bool)
    if guess is not None:
        g, solved = _land(noise, x, guess.astype(np.complex128))
    pending = np.flatnonzero(~solved)
    if len(pending):
        g[pending] = _descend(noise, x[pending])
    return _axis_solution(noise, x, g)


def _axis_solution(noise: Noise, x: Array, g: Values) -> AxisSolution:
    residual, _ = equations(noise, x.astype(np.complex128), g)
    return AxisSolution(g, np.asarray((g.imag == 0).all(axis=1)), float(np.abs(residual).max(initial=0.0)))


def solve_line(noise: Noise, x: Array) -> AxisSolution:
    """Solve at many ascending points without a guess: a few from large Im z, the others guided by those."""
    g = np.zeros((len(x), len(noise.sizes)), dtype=np.complex128)
    known = np.zeros(len(x), dtype=bool)
    for stride in (8, 4, 2, 1):
        fresh = np.flatnonzero(~known & (np.arange(len(x)) % stride == 0))
        guess = interpolated(x[fresh], x[known], g[known]) if known.any() else None
        g[fresh] = solve_on_axis(noise, x[fresh], guess).g
        known[fresh] = True
    return _axis_solution(noise, x, g)


def interpolated(x: Array, known_x: Array, known_g: Values) -> Values:
    """Linear interpolation of complex vectors, column by column."""
    columns = [
        np.interp(x, known_x, column.real) + 1j * np.interp(x, known_x, column.imag) for column in known_g.T
    ]
    return np.stack(columns, axis=1)


def solve_real(noise: Noise, z: Array, guess: Values) -> tuple[Values, Mask]:
    """Newton's iteration in real numbers; the mask says which results prove their z outside the support."""
    g, converged = _newton(noise, z, np.array(guess.real), upper=False)
    stable = np.zeros(len(z), dtype=bool)
    stable[converged] = radius(noise, g[converged]) < 1.0
    return g, stable


def _land(noise: Noise, x: Array, guess: Values) -> tuple[Values, Mask]:
    """Certified solutions at real x near a guess, of the kind that the guess suggests first."""
    g = np.array(guess)
    solved = np.zeros(len(x), dtype=bool)
    complex_first = (guess.imag > 0.03 * np.abs(guess)).any(axis=1)
    for attempt in (complex_first, ~complex_first):
        for land, wanted in ((_land_inside, attempt), (solve_real, ~attempt)):
            rows = np.flatnonzero(wanted & ~solved)
            if len(rows):
                g[rows], solved[rows] = land(noise, x[rows], guess[rows])
    return g, solved


def _land_inside(noise: Noise, x: Array, guess: Values) -> tuple[Values, Mask]:
    lifted = guess.real + 1j * np.maximum(guess.imag, 1e-3 * np.abs(guess))
    g, inside = _newton(noise, x.astype(np.complex128), lifted, upper=True)
    inside &= (g.imag > _REAL * np.abs(g)).any(axis=1)
    inside[inside] = radius(noise, g[inside]) < 1.0
    return g, inside


def _descend(noise: Noise, x: Array) -> Values:
    """Follow the solution from large Im z down to the real line, trying to land at each level."""
    height = 4.0 * (noise.bound + float(x.max()))
    g = -1.0 / (x + 1j * height)[:, None] * np.ones(len(noise.sizes))
    landed = np.array(g)
    pending = np.arange(len(x))
    while height > 1e-16:
        g[pending] = _at_height(noise, x[pending] + 1j * height, g[pending])
        if height < 1.0:
            found, solved = _land(noise, x[pending], g[pending])
            landed[pending[solved]] = found[solved]
            pending = pending[~solved]
        if not len(pending):
            return landed
        height /= 4.0
    raise ConvergenceError(
        f"The spectral equation was not solved at z = {x[pending[0]]:.6g} (in units of τ0²) and "
        f"{len(pending) - 1} other points.",
        "Check the covariances for eigenvalues that differ by more than 12 orders of magnitude.",
    )


def _at_height(noise: Noise, z: Values, guess: Values) -> Values:
    """The solution at Im z > 0 near a guess; where Newton fails, the fixed-point map brings it closer first.

    The map g_a ← 1/((1/p) tr C_a R - z) keeps Im g > 0 and has the solution as its only fixed point.
    """
    g, converged = _newton(noise, z, np.array(guess), upper=True)
    iterations = 4
    while not converged.all() and iterations <= _MOST_ITERATIONS:
        slow = np.flatnonzero(~converged)
        nearer = guess[slow]
        for _ in range(iterations):
            nearer = 0.5 * (nearer + 1.0 / (noise.self_energy(nearer)[0] - z[slow, None]))
        g[slow], converged[slow] = _newton(noise, z[slow], nearer, upper=True)
        iterations *= 4
    return g


def _newton(noise: Noise, z: Values, g: Values, *, upper: bool) -> tuple[Values, Mask]:
    """Newton's iteration for Z points at once; `upper` keeps Im g ≥ 0 by shortening steps."""
    active = np.arange(len(z))
    converged = np.zeros(len(z), dtype=bool)
    for _ in range(_NEWTON_STEPS):
        residual, jacobian = equations(noise, z[active], g[active])
        step, usable = _solve_systems(jacobian, residual)
        small = np.abs(step).max(axis=1) <= _LAST_STEP * np.abs(g[active]).max(axis=1)
        g[active] = _moved(g[active], step, upper=upper)
        converged[active] = small & usable & (np.abs(residual).max(axis=1) <= RESIDUAL)
        active = active[usable & ~small]
        if not len(active):
            break
    return g, converged


def _moved(g: Values, step: Values, *, upper: bool) -> Values:
    if not upper:
        return np.asarray(g - step)
    length = np.ones(len(g))
    # Classes that share no direction with the others may be on their way to a real value: let those go.
    complex_yet = g.imag > 1e-6 * np.abs(g)
    for _ in range(6):
        low = (complex_yet & ((g - length[:, None] * step).imag < 0.1 * g.imag)).any(axis=1)
        length[low] *= 0.5
    moved = g - length[:, None] * step
    return np.asarray(moved.real + 1j * np.maximum(moved.imag, 0.0))


def _solve_systems(matrices: Values, right: Values) -> tuple[Values, Mask]:
    """Small linear systems at once; the mask is False where one is singular or not finite."""
    usable: Mask = np.asarray(np.isfinite(matrices).all(axis=(1, 2)) & np.isfinite(right).all(axis=1))
    solution = np.zeros_like(right)
    try:
        solution[usable] = np.linalg.solve(matrices[usable], right[usable][:, :, None])[:, :, 0]
    except np.linalg.LinAlgError:
        for row in np.flatnonzero(usable):
            try:
                solution[row] = np.linalg.solve(matrices[row], right[row])
            except np.linalg.LinAlgError:
                usable[row] = False
    usable &= np.isfinite(solution).all(axis=1)
    solution[~usable] = 0.0
    return solution, usable
