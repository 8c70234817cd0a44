"""The samples grouped by class and norm: how finite n and p change the spectrum of a kernel.

The asymptotic form (4.7) gives every sample the scale τ0. Its largest errors are of order p^{-1/2} and known:

- A sample of squared norm τ² has its own α₁(τ) and γ²(τ) (docs/theory.md (5.2), linearised): row and column
  are scaled by √α₁(τ), and the diagonal has γ²(τ) - α₁(τ) τ² in the place of γ² - α₁ τ0². Where XXᵀ has an
  atom this spreads it. Within a class τ² is Gaussian with mean tr C_a/p + ||μ_a||²/p and variance
  2T_aa/p + 4 μ_aᵀC_aμ_a/p²; groups of equal probability stand for it, and then ψ is known in each group.
- The entrywise square α₃ c_ij² has the mean α₃(T_ab/p + (μ_aᵀμ_b/p)²) of (5.6), a slope at the means that
  adds to α₁, and fluctuations of variance 2 α₃² (T_ab/p)², which act on the spectrum like a symmetric matrix
  with independent entries, free of XXᵀ.

On a sphere all norms are equal and the first of them is absent.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import ndtri

from notsodeep.data import ClassStatistics, GaussianMixture
from notsodeep.data.mixtures import largest_remainder
from notsodeep.equivalents.coefficients import Coefficients, coefficients
from notsodeep.equivalents.mixture_covariances import shapes_of
from notsodeep.equivalents.resolvent import Noise
from notsodeep.equivalents.spectral_gaps import Perturbation
from notsodeep.errors import InputError
from notsodeep.models import DEQ, Explicit
from notsodeep.validation import Array, IntArray

# Groups of all classes together, and of one at least.
_GROUPS, _LEAST_GROUPS = 24, 4
# The least radius, in units of XXᵀ's own spread, of the independent entries that smooth over the groups.
_SMOOTH = 1e-3
# The radius of that smoothing, in steps from group to group, where the diagonal rules the spectrum.
_UNCOUPLED_STEPS = 2.0
# The smallest squared norm of a group, relative to its class: in few dimensions a Gaussian reaches below 0.
_SMALLEST_NORM = 0.1
# Parts of a kernel below this fraction of its diagonal are rounding.
_NO_WIDTH = 1e-12
# Room below the lowest offset, in units of the spread that XXᵀ gives to the spectrum.
_MARGIN = 0.01


@dataclass(frozen=True, eq=False)
class Groups:
    """Classes cut into parts of equal norm."""

    member: IntArray  # the class of each group
    sizes: IntArray  # the number of samples in each group
    squares: Array  # the squared norm ||x||² of the samples of each group
    noise_squares: Array  # the part of that which does not come from the mean of the class

    @classmethod
    def of(cls, gmm: GaussianMixture, stats: ClassStatistics, *, one_norm: bool = False) -> Groups:
        """Groups of equal probability in every class; with `one_norm` all samples of a class have the same norm."""
        member, sizes, squares, noise_squares = [], [], [], []
        traces = gmm.traces / gmm.p
        for label in range(gmm.classes):
            mean = gmm.means[label]
            fixed, noise = float(mean @ mean) / gmm.p, float(traces[label])
            along = float(mean @ (gmm.covariances[label] @ mean[:, None])[:, 0])
            deviation = np.sqrt(2.0 * stats.T[label, label] / gmm.p + 4.0 * along / gmm.p**2) * (not one_norm)
            size = int(stats.sizes[label])
            number = min(size, max(_LEAST_GROUPS, _GROUPS // gmm.classes))
            counts = largest_remainder(np.full(number, 1.0 / number), size)
            norms = np.maximum(noise + deviation * _centres(len(counts)), _SMALLEST_NORM * noise)
            member.append(np.full(len(counts), label))
            sizes.append(counts)
            noise_squares.append(norms)
            squares.append(norms + fixed)
        return cls(*(np.concatenate(part) for part in (member, sizes, squares, noise_squares)))


def _centres(number: int) -> Array:
    """The means of a standard normal variable on intervals of equal probability."""
    bounds = ndtri(np.arange(number + 1) / number)
    return np.asarray(-number * np.diff(np.exp(-(bounds**2) / 2.0)) / np.sqrt(2.0 * np.pi))


@dataclass(frozen=True, eq=False)
class FiniteKernel:
    """A kernel on a mixture with the corrections of finite n and p, in units of `stretch`."""

    noise: Noise  # the samples without their means, in groups
    perturbation: Perturbation  # what the means, t, T and the norms of the groups add
    origin: float  # the place of z = 0 on the scale of the kernel
    stretch: float  # the length of a unit of z there


def refined(
    model: DEQ | Explicit,
    gmm: GaussianMixture,
    stats: ClassStatistics,
    scalars: Coefficients,
    *,
    one_norm: bool = False,
) -> FiniteKernel:
    """The finite-n form of a kernel on a mixture.

    The unit is that of XXᵀ, α₁ τ0². Where XXᵀ acts less than the other two do (even activations, whose α₁ is zero, and
    others at the scale where M_1 = 0) it is the width that the diagonal and the independent entries give the spectrum.

    Raises:
        InputError: where neither XXᵀ nor c_ij² acts, M_1 = M_2 = 0.
    """
    groups = Groups.of(gmm, stats, one_norm=one_norm)
    square = stats.tau0**2
    semicircle = 4.0 * np.sqrt(2.0 * float(((scalars.trace * stats.T / stats.p) ** 2 @ stats.sizes).max()))
    if max(scalars.linear * square, semicircle) <= _NO_WIDTH * scalars.diagonal:
        raise InputError(
            f"At τ0 = {stats.tau0:.4g} this kernel has no linear part (M_1 = 0) and no part in c_ij² (M_2 = 0): its "
            "spectrum is decided by terms of third order, which the refined form does not have. Use "
            "the eigenvalues of the exact kernel."
        )
    norms = np.sqrt(np.maximum(groups.squares, _SMALLEST_NORM * square))
    linear, diagonal = _at_norms(model, norms, scalars.kernel)
    stretch = max(scalars.linear * square, semicircle + float(np.ptp(diagonal - linear * groups.squares)))
    own = linear * square / stretch
    # Without XXᵀ there is no α₁ for a slope to add to, and one of negative sign has no root.
    gain = np.maximum(own + _tilt(gmm, stats, scalars, stretch)[groups.member], 0.0)
    diagonal = diagonal - gain * stretch / square * groups.squares
    noise, room = _noise(gmm, stats, scalars, groups, gain, diagonal, stretch)
    # What α₃ c_ij² is at the means stands beside T, not in their scale.
    between = np.ix_(groups.member, groups.member)
    second = scalars.trace * (stats.T + gmm.mean_gram**2 / gmm.p) / stretch
    surplus = np.outer(noise.mean_scale, noise.mean_scale) - np.sqrt(np.outer(own, own))
    perturbation = Perturbation(
        noise=noise,
        trace_part=second[between] - surplus * gmm.mean_gram[between] / square,
        norm_part=np.sqrt(scalars.norm * gmm.p / stretch) * (groups.squares - square),
        norm_weights=np.zeros(len(groups.sizes)),
    )
    return FiniteKernel(noise, perturbation, float(diagonal.min() - stretch * room), stretch)


def _noise(
    gmm: GaussianMixture,
    stats: ClassStatistics,
    scalars: Coefficients,
    groups: Groups,
    gain: Array,
    diagonal: Array,
    stretch: float,
) -> tuple[Noise, float]:
    """The noise, and how far above z = 0 its lowest offset stands."""
    between = np.ix_(groups.member, groups.member)
    offset = (diagonal - diagonal.min()) / stretch
    scatter = 2.0 / gmm.p * (scalars.trace * stats.T[between] / stretch) ** 2
    # A semicircle as wide as the step from group to group: the norms are continuous, only the groups are not. Where
    # XXᵀ does not couple the groups, that of a single one is narrower, and more is needed to reach the next.
    steps = 1.0 if stretch == scalars.linear * stats.tau0**2 else _UNCOUPLED_STEPS
    radius = max(_SMOOTH, steps * float(offset.max()) * gmm.classes / len(groups.sizes))
    scatter = np.maximum(scatter, radius**2 / 4.0 * gmm.p / stats.n)
    room = _MARGIN + 2.0 * float(np.sqrt((scatter @ groups.sizes).max() / gmm.p))
    traces = gmm.traces / gmm.p
    noise = Noise(
        shapes=shapes_of(gmm, stats.tau0),
        sizes=groups.sizes,
        member=groups.member,
        scale=gain * groups.noise_squares / np.where(traces > 0, traces, 1.0)[groups.member],
        mean_scale=np.sqrt(gain),
        offset=offset + room,
        scatter=scatter,
    )
    return noise, room


def _tilt(gmm: GaussianMixture, stats: ClassStatistics, scalars: Coefficients, stretch: float) -> Array:
    """What the means add to α₁ in each class, in units: α₃ c_ij² has the slope 2 α₃ μ_aᵀμ_b/p at the means.

    A matrix α₁ + ε_ab between classes acts on the bulk, to first order, like α₁ + e_a + e_b with the same
    averages over the partners b: e_a = ε̄_a - ε̄/2.
    """
    slopes = 2.0 * scalars.trace * gmm.mean_gram / gmm.p
    rows = slopes @ stats.weights
    return np.asarray((2.0 * rows - stats.weights @ rows) * stats.tau0**2 / stretch)


def _at_norms(model: DEQ | Explicit, norms: Array, kernel: str) -> tuple[Array, Array]:
    """The scalars α₁ and γ² at each norm.

    To first order in τ² - τ0² it is the same whether the activation stays centred at τ0 or moves along:
    docs/theory.md (2.11).
    """
    distinct = np.unique(norms)
    local = [coefficients(model.centred(tau), tau, kernel) for tau in map(float, distinct)]
    table = np.array([(one.linear, one.diagonal) for one in local])[np.searchsorted(distinct, norms)]
    return table[:, 0], table[:, 1]
