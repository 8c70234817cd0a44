"""The spectrum of a kernel on a Gaussian mixture, predicted without data: docs/theory.md, section 6.

    spectrum = limiting_density(DEQ("tanh", 0.2), GaussianMixture.paper(1600), n=2000)
    spectrum.edges, spectrum.atoms, spectrum.isolated
    spectrum.quantiles()                                # a prediction of the n eigenvalues
    print(spectrum)

The bulk is solved on the real line itself (`resolvent`, `bulk`), its edges are folds of the equation
(`spectral_gaps`), the isolated eigenvalues are zeros of a matrix that grows along the line, and
`form="refined"` adds what is known of finite n and p (`groups`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from notsodeep.data import ClassStatistics, GaussianMixture, UnitSphere
from notsodeep.equivalents.bulk import Bulk, find_bulks
from notsodeep.equivalents.centring import refuse_large_mean
from notsodeep.equivalents.coefficients import Coefficients, coefficients
from notsodeep.equivalents.equivalent import FORMS
from notsodeep.equivalents.groups import FiniteKernel, refined
from notsodeep.equivalents.mixture_covariances import shapes_of
from notsodeep.equivalents.resolvent import Noise
from notsodeep.equivalents.spectral_gaps import Perturbation, SpectralGap
from notsodeep.errors import InputError
from notsodeep.models import DEQ, Explicit
from notsodeep.progress import Report, reported
from notsodeep.results import Result
from notsodeep.validation import Array, as_count, frozen, one_of

#: Points of the published grid on each interval of the bulk.
POINTS = 2049
# Points of it in every panel of the series: panels are small where the density is not smooth.
_PER_PANEL = 16
# Below this share of the diagonal XXᵀ does not act: M_1 = 0 up to rounding, as for even activations.
_NO_LINEAR = 1e-20


@dataclass(frozen=True, eq=False, repr=False)
class LimitingSpectrum(Result):
    """The predicted spectrum of a kernel on a mixture.

    Attributes:
        grid: points on the bulk in ascending order, closer together towards the edges.
        density: the limiting density there; with the atoms it has mass 1.
        atoms: pairs (location, mass) of the limit.
        edges: the intervals of the bulk, shape (number, 2).
        isolated: eigenvalues outside the bulk in ascending order, each as often as it occurs; in the limit they
            carry no mass. One nearer to an edge than the bulk's outermost eigenvalue is expected to be is counted to
            the bulk: at this n the two are indistinguishable.
        alignment: squared projections of their eigenvectors on the normalised indicators of the classes,
            shape (number, K). A row sums to the squared projection on the space of the classes. Of
            eigenvalues closer than their fluctuations, of order n^{-1/2}, only the sum means anything.
        counts: number of the n eigenvalues in each interval of the bulk, without the isolated ones.
        atom_counts: number of eigenvalues at each atom.
        scalars: the coefficients of the kernel.
        n: the number of samples.
        p: the dimension.
        residual: the largest residual of the equations at the points where they were solved.
        mass_error: how far the integrals of the density are from the masses that the equation counts.
        origin: the eigenvalue of the kernel that belongs to z = 0 of the noise, docs/theory.md (6.4).
        stretch: the length of a unit of z there.
    """

    _figure = "plot_spectrum"

    grid: Array
    density: Array
    atoms: tuple[tuple[float, float], ...]
    edges: Array
    isolated: Array
    alignment: Array
    counts: tuple[int, ...]
    atom_counts: tuple[int, ...]
    scalars: Coefficients
    n: int
    p: int
    residual: float
    mass_error: float
    origin: float
    stretch: float
    _bulks: tuple[Bulk, ...] = field(repr=False)

    def density_at(self, x: ArrayLike) -> Array:
        """The limiting density at any points."""
        points = np.asarray(x, dtype=np.float64)
        z = (points.ravel() - self.origin) / self.stretch
        total = sum((bulk.density(z) for bulk in self._bulks), np.zeros_like(z))
        return np.asarray(total.reshape(points.shape) / self.stretch)

    def cdf(self, x: ArrayLike) -> Array:
        """The limiting distribution function, atoms included: the share of eigenvalues up to x."""
        points = np.asarray(x, dtype=np.float64)
        z = (points.ravel() - self.origin) / self.stretch
        total = sum((bulk.below(z) for bulk in self._bulks), np.zeros_like(z)).reshape(points.shape)
        for location, mass in self.atoms:
            total = total + mass * (points >= location)
        return np.asarray(total)

    def quantiles(self, number: int | None = None) -> Array:
        """A deterministic prediction of the eigenvalues, in ascending order: atoms, bulk and isolated ones.

        Args:
            number: number of quantiles, spread evenly through the distribution of the n eigenvalues; n when left out,
                and then every isolated eigenvalue is among them once.
        """
        count = self.n if number is None else as_count(number, "number")
        parts = [self.isolated]
        for (location, _), size in zip(self.atoms, self.atom_counts, strict=True):
            parts.append(np.full(size, location))
        for bulk, size in zip(self._bulks, self.counts, strict=True):
            parts.append(self.stretch * bulk.quantile((np.arange(size) + 0.5) / max(size, 1)) + self.origin)
        every = np.sort(np.concatenate(parts))
        if count == self.n:
            return every
        return np.asarray(np.quantile(every, (np.arange(count) + 0.5) / count, method="hazen"))

    def explain(self) -> str:
        """The prediction in words."""
        lines = [
            f"Spectrum of the {self.scalars.kernel} of {self.n} samples in {self.p} dimensions, predicted:"
        ]
        for (location, mass), size in zip(self.atoms, self.atom_counts, strict=True):
            lines.append(f"  {size} eigenvalues at {location:.6g} (mass {mass:.6g})")
        for (low, high), bulk, size in zip(self.edges, self._bulks, self.counts, strict=True):
            lines.append(f"  {size} eigenvalues between {low:.6g} and {high:.6g} (mass {bulk.mass:.6g})")
        for value, shares in zip(self.isolated, self.alignment, strict=True):
            each = ", ".join(f"{share:.3f}" for share in shares)
            share = f"{shares.sum():.1%} of its eigenvector in the space of the classes"
            lines.append(f"  an isolated eigenvalue at {value:.6g}, {share} ({each})")
        if not len(self.isolated):
            lines.append("  no isolated eigenvalue: nothing of the classes stands out of the bulk")
        lines.append(
            f"  residual of the equations {self.residual:.1e}, error of the masses {self.mass_error:.1e}"
        )
        return "\n".join(lines)

    def _facts(self) -> dict[str, Any]:
        return {
            "kernel": self.scalars.kernel,
            "n": self.n,
            "p": self.p,
            "bulk": [tuple(edge) for edge in self.edges.tolist()],
            "isolated": self.isolated,
            "atoms": self.atoms,
            "mass_error": self.mass_error,
        }


def limiting_density(
    model: DEQ | Explicit,
    gmm: GaussianMixture | UnitSphere,
    n: int,
    kernel: str = "ck",
    *,
    form: str = "asymptotic",
    points: int = POINTS,
    progress: bool | Report = True,
) -> LimitingSpectrum:
    """Predict the spectrum of a model's kernel on n samples of a mixture: docs/theory.md (6.1)–(6.8).

    The classes have the sizes of `gmm.class_sizes(n)`, and covariances with a common eigenbasis.

    Args:
        model: a `DEQ` or an `Explicit`, centred: `model.centred(tau0)`.
        gmm: the mixture, or `UnitSphere(p)`: one isotropic class whose samples all have norm 1.
        n: the number of samples.
        kernel: as in `coefficients`.
        form: "asymptotic" is the limit itself. "refined" adds the corrections that are known without data:
            each sample's own norm, the means and the noise in c_ij² (`groups`). An atom then becomes a
            narrow bulk, also the one at γ² that is the whole limit where XXᵀ does not act (even activations).
        points: points of the grid on each interval of the bulk, besides some where it is not smooth.
        progress: a bar on a terminal after two seconds; False for none.

    Raises:
        InputError: for a mixture without variance, covariances without a common eigenbasis, a class without samples,
            what `coefficients` refuses.
        ConvergenceError: where the equations are not solved; the message says where.
    """
    one_of(form, FORMS, "form")
    points = as_count(points, "points", least=3)
    on_sphere = isinstance(gmm, UnitSphere)
    if isinstance(gmm, UnitSphere):
        gmm = GaussianMixture(np.zeros((1, gmm.p)), 1.0)
    stats = _statistics(gmm, n)
    with reported(progress, "spectrum"):
        scalars = coefficients(model, stats.tau0, kernel)
        refuse_large_mean(model, stats, scalars)
        if form == "refined":
            return _assembled(refined(model, gmm, stats, scalars, one_norm=on_sphere), scalars, points)
        noise = Noise.of_classes(shapes_of(gmm, stats.tau0), stats.sizes)
        stretch = scalars.linear * stats.tau0**2
        if stretch <= _NO_LINEAR * scalars.diagonal:
            raise InputError(
                f"At τ0 = {stats.tau0:.4g} this kernel has no linear part (M_1 = 0, as for even activations): in the "
                "limit all its eigenvalues are equal. Use form='refined', which predicts how they spread at finite n."
            )
        limit = FiniteKernel(noise, Perturbation.of(noise, stats, scalars), scalars.identity, stretch)
        return _assembled(limit, scalars, points)


def _statistics(gmm: GaussianMixture, n: int) -> ClassStatistics:
    if not isinstance(gmm, GaussianMixture):
        raise InputError(f"gmm must be a GaussianMixture or a UnitSphere, not {type(gmm).__name__}.")
    sizes = gmm.class_sizes(n)
    if sizes.min() == 0:
        raise InputError(
            f"Class {int(np.argmin(sizes))} gets none of n = {n} samples (sizes {sizes.tolist()}). "
            "Raise n, or leave the class out of the mixture."
        )
    stats = ClassStatistics.of_mixture(gmm, sizes)
    if not stats.tau0 > 0.0:
        raise InputError(
            "All covariances are zero: without noise there is no bulk. Give a class some variance."
        )
    return stats


def _assembled(parts: FiniteKernel, scalars: Coefficients, points: int) -> LimitingSpectrum:
    noise, perturbation, origin, stretch = parts.noise, parts.perturbation, parts.origin, parts.stretch
    rank = noise.rank()
    bulks, gaps = find_bulks(noise, rank)
    at_zero, counts = _populations(perturbation, gaps, bulks, rank)
    sizes, isolated, alignment = list(counts), [], []
    for gap in gaps:
        for root, times in perturbation.roots(gap):
            place = _bulk_of(root, bulks, noise)
            if place is None:
                isolated += [stretch * root + origin] * times
                alignment += perturbation.aligned(gap, root, times)
            else:
                sizes[place] += times
    z = np.concatenate([_grid(bulk, points) for bulk in bulks])
    density = sum((bulk.density(z) for bulk in bulks), np.zeros_like(z)) / stretch
    edges = np.array([(bulk.low, bulk.high) for bulk in bulks])
    return LimitingSpectrum(
        grid=frozen(stretch * z + origin),
        density=frozen(density),
        atoms=((origin, (noise.n - rank) / noise.n),) if rank < noise.n else (),
        edges=frozen(stretch * edges + origin),
        isolated=frozen(np.array(isolated, dtype=np.float64)),
        alignment=frozen(np.array(alignment, dtype=np.float64).reshape(-1, noise.member.max() + 1)),
        counts=tuple(sizes),
        atom_counts=(at_zero,) if rank < noise.n else (),
        scalars=scalars,
        n=noise.n,
        p=noise.p,
        residual=max(bulk.residual for bulk in bulks),
        mass_error=sum(bulk.error for bulk in bulks),
        origin=origin,
        stretch=stretch,
        _bulks=tuple(bulks),
    )


def _bulk_of(z: float, bulks: list[Bulk], noise: Noise) -> int | None:
    """The bulk from which an eigenvalue outside it cannot be told at this n; None if it is isolated.

    It cannot if it is nearer to an edge than the outermost of the bulk's own eigenvalues is expected to be,
    docs/theory.md (6.13), or in a gap that exists only because norms were grouped, which counts to the bulk below.
    """
    for index, bulk in enumerate(bulks):
        low, high = bulk.margins(noise.n)
        if 0.0 <= bulk.low - z < low or 0.0 <= z - bulk.high < high:
            return index
    below = [index for index, bulk in enumerate(bulks) if bulk.high < z]
    return below[-1] if below and noise.offset.min() < z < noise.offset.max() else None


def _grid(bulk: Bulk, points: int) -> Array:
    """Equal steps in θ and some in every panel, edges included; an edge of infinite density is left out."""
    panels = len(bulk.breaks) - 1
    places = np.arange(_PER_PANEL * panels + 1) / _PER_PANEL
    inner = np.interp(places, np.arange(panels + 1), bulk.breaks)
    z = bulk.position(np.union1d(np.linspace(0.0, np.pi, points), inner))
    z[0], z[-1] = bulk.low, bulk.high
    return z[1:] if bulk.low == 0.0 else z


def _populations(
    perturbation: Perturbation, gaps: list[SpectralGap], bulks: list[Bulk], rank: int
) -> tuple[int, tuple[int, ...]]:
    """The numbers of eigenvalues of the whole kernel at the atom and in each bulk, counted in the gaps."""
    n = perturbation.noise.n
    below = [[n - gap.above + perturbation.shift(end.g) for end in perturbation.ends(gap)] for gap in gaps]
    if len(below) == len(bulks):
        below = [[n - rank, n - rank], *below]
    return below[0][0], tuple(after[0] - before[1] for before, after in pairwise(below))
