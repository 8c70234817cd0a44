"""Predicted spectra against closed forms (Marchenko–Pastur, BBP), sampled matrices and log-determinants."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import integrate
from tolerances import Oracle, assert_close

from notsodeep.data import ClassStatistics, GaussianMixture, MixtureStatistics, UnitSphere
from notsodeep.equivalents.mixture_covariances import shapes_of
from notsodeep.equivalents.resolvent import Noise, solve_on_axis
from notsodeep.equivalents.spectrum import LimitingSpectrum, limiting_density
from notsodeep.errors import InputError
from notsodeep.gaussian.activations import activation
from notsodeep.kernels import conjugate_kernel, tangent_kernel
from notsodeep.models import DEQ, Explicit

Array = NDArray[np.float64]

# The kernel of one identity layer is XXᵀ itself: α₁ = 1, α₂ = α₃ = 0, γ² = τ0².
GRAM = Explicit(["identity"])


def centred(name: str, gmm: GaussianMixture, n: int) -> DEQ:
    return DEQ(name, 0.2).centred(ClassStatistics.of_mixture(gmm, gmm.class_sizes(n)).tau0)


def exact_eigenvalues(model: DEQ | Explicit, X: Array, kernel: str = "ck") -> Array:
    return np.linalg.eigvalsh((conjugate_kernel if kernel == "ck" else tangent_kernel)(model, X))


def one_class(p: int, mean: float = 0.0, variance: float = 1.0) -> GaussianMixture:
    return GaussianMixture(mean * np.eye(1, p), [variance])


def random_covariance(p: int, seed: int) -> Array:
    factor = np.random.default_rng(seed).standard_normal((p, 2 * p))
    return np.asarray(factor @ factor.T / (2 * p))


def equivalent_matrix(
    spectrum: LimitingSpectrum, gmm: GaussianMixture, X: Array, y: NDArray[np.intp]
) -> Array:
    """α₁XXᵀ + V𝒞Vᵀ + cI written out."""
    stats, scalars = MixtureStatistics.of(gmm, X, y), spectrum.scalars
    fluctuation = stats.psi + (stats.t / np.sqrt(gmm.p))[stats.labels]
    classes = stats.one_hot @ stats.T @ stats.one_hot.T / gmm.p
    return (
        scalars.linear * X @ X.T
        + scalars.norm * np.outer(fluctuation, fluctuation)
        + scalars.trace * classes
        + scalars.identity * np.eye(len(X))
    )


def kolmogorov(left: Array, right: Array) -> float:
    points = np.concatenate([left, right])
    shares = [np.searchsorted(np.sort(one), points, side="right") / len(one) for one in (left, right)]
    return float(np.abs(shares[0] - shares[1]).max())


class TestMarchenkoPastur:
    """One class with covariance s²I: everything is known."""

    @pytest.mark.slow
    @pytest.mark.parametrize(("n", "p"), [(500, 400), (300, 900), (1000, 10), (20, 3000), (401, 400)])
    @pytest.mark.parametrize("variance", [1.0, 0.04])
    def test_density_edges_and_atom(self, n: int, p: int, variance: float) -> None:
        spectrum = limiting_density(GRAM, one_class(p, variance=variance), n)
        ratio = n / p
        low, high = variance * (1 - np.sqrt(ratio)) ** 2, variance * (1 + np.sqrt(ratio)) ** 2
        assert_close(spectrum.edges, [[low, high]], Oracle.QUADRATURE)
        x = np.linspace(low, high, 50)[1:-1]
        expected = np.sqrt((x - low) * (high - x)) / (2 * np.pi * ratio * variance * x)
        np.testing.assert_allclose(spectrum.density_at(x), expected, rtol=1e-8)
        inside = spectrum.grid[1:-1]
        on_grid = np.sqrt((inside - low) * (high - inside)) / (2 * np.pi * ratio * variance * inside)
        np.testing.assert_allclose(spectrum.density[1:-1], on_grid, rtol=1e-5, atol=1e-8 * on_grid.max())
        atom = (pytest.approx(0.0, abs=1e-14), pytest.approx(1 - p / n, abs=1e-15))
        assert spectrum.atoms == ((atom,) if p < n else ())
        assert not len(spectrum.isolated)

    def test_infinite_density_at_zero(self) -> None:
        spectrum = limiting_density(GRAM, one_class(300), 300)
        assert_close(spectrum.edges, [[0.0, 4.0]], Oracle.QUADRATURE)
        assert spectrum.atoms == ()
        x = np.geomspace(1e-8, 3.9, 40)
        np.testing.assert_allclose(spectrum.density_at(x), np.sqrt((4 - x) / x) / (2 * np.pi), rtol=1e-8)
        # The distribution function in closed form, by x = 4 sin² φ.
        phi = np.arcsin(np.sqrt(x / 4))
        np.testing.assert_allclose(spectrum.cdf(x), (2 * phi + np.sin(2 * phi)) / np.pi, atol=1e-10)

    def test_pushed_through_a_kernel(self) -> None:
        gmm, n = one_class(300), 200
        spectrum = limiting_density(DEQ("tanh", 0.2), gmm, n)
        scalars = spectrum.scalars
        ends = np.array([(1 - np.sqrt(n / 300)) ** 2, (1 + np.sqrt(n / 300)) ** 2])
        assert_close(spectrum.edges, [scalars.linear * ends + scalars.identity], Oracle.QUADRATURE)


MIXTURES = {
    "paper": (GaussianMixture.paper(400), 500),
    "two bulks": (GaussianMixture(np.zeros((2, 400)), [1.0, 20.0]), 150),
    "diagonal": (
        GaussianMixture(np.zeros((2, 200)), [np.linspace(0.1, 3, 200), np.linspace(2, 0.5, 200)]),
        300,
    ),
    "one large direction": (GaussianMixture(np.zeros((1, 300)), [np.r_[np.ones(299), 60.0]]), 900),
    "disjoint ranges": (
        GaussianMixture(
            np.zeros((2, 200)), [np.repeat([1.0, 0.0], 100), np.repeat([0.0, 1.0], 100)], [0.2, 0.8]
        ),
        300,
    ),
    "any matrix": (GaussianMixture(np.zeros((1, 40)), [random_covariance(40, 0)]), 70),
}


@pytest.fixture(scope="module", params=list(MIXTURES))
def case(request: pytest.FixtureRequest) -> tuple[LimitingSpectrum, GaussianMixture, int]:
    gmm, n = MIXTURES[request.param]
    return limiting_density(GRAM, gmm, n), gmm, n


@pytest.mark.slow
class TestBulk:
    def test_mass_is_one(self, case: tuple[LimitingSpectrum, GaussianMixture, int]) -> None:
        spectrum, _, _ = case
        atoms = sum(mass for _, mass in spectrum.atoms)
        assert integrate.trapezoid(spectrum.density, spectrum.grid) + atoms == pytest.approx(1.0, abs=1e-6)
        # The equations count tr XXᵀ/n = τ0² rightly: the first moment of the density.
        moment = integrate.trapezoid(spectrum.density * spectrum.grid, spectrum.grid)
        assert moment == pytest.approx(spectrum.scalars.tau0**2, rel=1e-5)
        assert spectrum.mass_error < 1e-9
        assert spectrum.residual < 1e-12
        assert_close(spectrum.cdf([1e9, -1e9]), [1.0, 0.0], Oracle.IDENTITY)

    def test_distribution_function_by_the_log_determinant(
        self, case: tuple[LimitingSpectrum, GaussianMixture, int]
    ) -> None:
        """nF(x) = -Im[-Σ n_a log g_a + log det(I + Σ (n_b/p) g_b C_b) - x Σ n_a g_a]/π: no integration."""
        spectrum, gmm, n = case
        stats = ClassStatistics.of_mixture(gmm, gmm.class_sizes(n))
        noise = Noise.of_classes(shapes_of(gmm, stats.tau0), stats.sizes)
        x = np.concatenate([np.linspace(low, high, 7)[1:-1] for low, high in spectrum.edges])
        g = solve_on_axis(noise, x / stats.tau0**2).g / stats.tau0**2
        covariances = np.stack([c.to_dense() for c in gmm.covariances])
        inner = np.eye(gmm.p) + np.tensordot(g * stats.sizes / gmm.p, covariances, axes=1)
        angles = np.angle(np.linalg.eigvals(inner)).sum(axis=1)
        count = -(angles - np.angle(g) @ stats.sizes - x * (g.imag @ stats.sizes)) / np.pi
        np.testing.assert_allclose(spectrum.cdf(x), count / n, atol=1e-9)

    def test_against_a_sampled_matrix(self, case: tuple[LimitingSpectrum, GaussianMixture, int]) -> None:
        spectrum, gmm, n = case
        X, _ = gmm.sample(n, seed=1)
        eigenvalues = np.linalg.eigvalsh(X @ X.T)
        above = eigenvalues[eigenvalues > 1e-10]
        assert len(above) == sum(spectrum.counts) + len(spectrum.isolated)
        # Eigenvalues are rigid: their distribution is within O(1/n) of the limit.
        predicted = spectrum.quantiles()
        assert kolmogorov(predicted[predicted > 1e-10], above) < 4.0 / np.sqrt(n * np.sqrt(n))


@pytest.mark.slow
@pytest.mark.parametrize("large", [2.0, 2.8434, 2.8438, 3.0, 20.0])
def test_edges_of_two_eigenvalues_by_polynomial_roots(large: float) -> None:
    """C with eigenvalues 1 and c in equal parts, n = 4p; at c = 2.84375… the two bulks touch.

    z(g) = -1/g + ½[1/(1+4g) + c/(1+4cg)], and z' = 0 times g²(1+4g)²(1+4cg)² is a polynomial.
    """
    gmm = GaussianMixture(np.zeros((1, 200)), [np.repeat([1.0, large], 100)])
    spectrum = limiting_density(GRAM, gmm, 800)
    g, one, other = (np.polynomial.Polynomial(c) for c in ([0.0, 1.0], [1.0, 4.0], [1.0, 4.0 * large]))
    roots = (one**2 * other**2 - 2 * g**2 * (other**2 + large**2 * one**2)).roots()
    real = roots[np.abs(roots.imag) < 1e-9].real
    edges = np.sort(-1 / real + 0.5 / (1 + 4 * real) + 0.5 * large / (1 + 4 * large * real))
    assert_close(spectrum.edges.ravel(), edges, Oracle.QUADRATURE)


@pytest.mark.slow
def test_covariances_that_commute_are_found_and_cheap() -> None:
    basis, _ = np.linalg.qr(np.random.default_rng(0).standard_normal((30, 30)))
    values = np.stack([np.repeat([1.0, 2.0], 15), np.tile([0.5, 1.5, 3.0], 10)], axis=1)
    matrices = [basis @ np.diag(column) @ basis.T for column in values.T]
    means = np.random.default_rng(1).standard_normal((2, 30))
    rotated = limiting_density(GRAM, GaussianMixture(means, matrices), 50)
    plain = limiting_density(GRAM, GaussianMixture(means @ basis, list(values.T)), 50)
    assert_close(rotated.edges, plain.edges, Oracle.QUADRATURE)
    assert_close(rotated.isolated, plain.isolated, Oracle.QUADRATURE)
    np.testing.assert_allclose(rotated.alignment, plain.alignment, rtol=1e-8)


def test_covariances_without_a_common_eigenbasis_are_refused() -> None:
    gmm = GaussianMixture(np.zeros((2, 20)), [random_covariance(20, 0), random_covariance(20, 1)])
    with pytest.raises(InputError, match=r"no common eigenbasis.*exact kernel"):
        limiting_density(GRAM, gmm, 50)


def test_the_square_of_inner_products_alone_is_a_semicircle() -> None:
    """x² - 1 on a sphere: α₃ c_ij² with α₃ = 2, of variance 2 α₃²/p² off the diagonal."""
    n, p = 80, 100
    model = Explicit([activation("polynomial", coefficients=[-1.0, 0.0, 1.0])])
    (low, high), *_ = limiting_density(model, UnitSphere(p), n, form="refined").edges
    assert high - low == pytest.approx(4.0 * np.sqrt(2.0 * n) * 2.0 / p, rel=1e-6)


def test_the_spike_of_the_norms_is_a_root() -> None:
    """One isotropic class: α₂ ψψᵀ stands out at 1 + (2n/p) α₂ g(z) = 0 with Marchenko and Pastur's g.

    One layer has 2α₂ = α₃, so that α₃T stands out at the same place.
    """
    n, p = 300, 200
    model = Explicit([activation("polynomial", coefficients=[-1.0, 0.5, 1.0])])
    spectrum = limiting_density(model, one_class(p), n)
    scalars = spectrum.scalars
    g = -p * scalars.linear / (2.0 * n * scalars.norm)
    z = -1.0 / g + 1.0 / (1.0 + n / p * g)
    expected = scalars.linear * z + scalars.identity
    np.testing.assert_allclose(spectrum.isolated, [expected, expected], rtol=1e-8)


def test_means_of_the_squared_inner_products_stretch_the_bulk() -> None:
    """x + x² - 1 with |μ|²/p = ½: of α₃c² = 2c² the slope 2α₃/2 adds to α₁ = 1, and three times XXᵀ is the bulk."""
    p, n = 20000, 5000
    model = Explicit([activation("polynomial", coefficients=[-1.0, 1.0, 1.0])])
    gmm = GaussianMixture(np.full((1, p), np.sqrt(0.5)), [1.0])
    ((low, high),) = limiting_density(model, gmm, n, form="refined").edges
    # Marchenko and Pastur's law from (1 - ½)² to (1 + ½)²; norms and the noise of c² widen it by p^{-1/2}.
    assert high - low == pytest.approx(3.0 * 2.0, rel=5e-3)


@pytest.mark.parametrize("mean", [1.0, 1.02, 1.1])
def test_an_eigenvalue_that_noise_alone_may_have_is_no_isolated_one(mean: float) -> None:
    """Just above the transition (or at it) the spike is nearer to the edge than the bulk's outermost eigenvalue."""
    n = p = 60
    spectrum = limiting_density(GRAM, one_class(p, mean), n)
    high = spectrum.edges[0, 1]
    assert not len(spectrum.isolated)
    assert "no isolated eigenvalue" in spectrum.explain()
    assert spectrum.counts == (n,)
    margin = high - spectrum.quantiles()[-1]
    assert limiting_density(GRAM, one_class(p, 1.6), n).isolated[0] > high + margin
    rng = np.random.default_rng(0)
    tops = [np.linalg.norm(rng.standard_normal((p, n)) / np.sqrt(p), 2) ** 2 for _ in range(200)]
    assert np.mean(np.array(tops) > high + margin) < 0.03


@pytest.mark.slow
class TestIsolated:
    """One spiked mean, C = I, for XXᵀ: rank one plus noise, where Baik, Ben Arous and Péché's formulas hold.

    X = √(n ||μ||²/p) u vᵀ + W with |u| = |v| = 1 and W of variance 1/p; with c = n/p and θ² = c ||μ||² the
    squared singular value is (1 + θ²)(c + θ²)/θ² and the squared projection on u is
    1 - c(1 + θ²)/(θ²(θ² + c)), if θ⁴ > c.
    """

    @pytest.mark.parametrize(("n", "p"), [(500, 400), (200, 500)])
    @pytest.mark.parametrize("strength", [1.05, 1.5, 4.0])
    def test_eigenvalue_and_alignment(self, n: int, p: int, strength: float) -> None:
        ratio = n / p
        theta2 = strength * np.sqrt(ratio)
        # So near to the edge it stands out of many samples only.
        times = 400 if strength < 1.1 else 1
        spectrum = limiting_density(GRAM, one_class(times * p, np.sqrt(theta2 / ratio)), times * n)
        expected = (1 + theta2) * (ratio + theta2) / theta2
        projection = 1 - ratio * (1 + theta2) / (theta2 * (theta2 + ratio))
        np.testing.assert_allclose(spectrum.isolated, [expected], rtol=1e-10)
        np.testing.assert_allclose(spectrum.alignment, [[projection]], rtol=1e-8)

    def test_multiplicity(self) -> None:
        """Three orthogonal means of one length in equal classes: one eigenvalue, three eigenvectors."""
        gmm = GaussianMixture(6.0 * np.eye(3, 300), 1.0)
        spectrum = limiting_density(GRAM, gmm, 240)
        assert len(spectrum.isolated) == 3
        assert np.ptp(spectrum.isolated) < 1e-9
        # Each eigenspace is as far in the space of the classes as the single spike of one class is.
        theta2, ratio = 36.0 * 80 / 300, 240 / 300
        expected = 1 - ratio * (1 + theta2) / (theta2 * (theta2 + ratio))
        np.testing.assert_allclose(spectrum.alignment.sum(axis=1), np.full(3, expected), rtol=1e-6)

    @pytest.mark.parametrize(("name", "kernel"), [("tanh", "ntk"), ("relu", "ck")])
    def test_against_the_sampled_equivalent(self, name: str, kernel: str) -> None:
        """Means, t, T and ψ together, two classes."""
        n, p = 600, 900
        gmm = GaussianMixture.paper(p, mean=4.0)
        spectrum = limiting_density(centred(name, gmm, n), gmm, n, kernel)
        exact, shares = [], []
        for seed in range(3):
            X, y = gmm.sample(n, seed)
            values, vectors = np.linalg.eigh(equivalent_matrix(spectrum, gmm, X, y))
            number = len(spectrum.isolated)
            indicators = np.eye(2)[y] / np.sqrt(np.bincount(y))
            exact.append(values[-number:])
            shares.append(((indicators.T @ vectors[:, -number:]) ** 2).sum())
        np.testing.assert_allclose(np.mean(exact, axis=0), spectrum.isolated, rtol=0.04)
        assert np.mean(shares) == pytest.approx(spectrum.alignment.sum(), rel=0.03)


@pytest.mark.slow
class TestPrediction:
    """The exact kernels of DEQs on the papers' mixture, whose eigenvalues no formula here has seen."""

    @pytest.mark.parametrize("name", ["tanh", "relu"])
    def test_refined_eigenvalues(self, name: str) -> None:
        n = 500
        gmm = GaussianMixture.paper(400)
        model = centred(name, gmm, n)
        X, _ = gmm.sample(n, seed=0)
        exact = np.linalg.eigvalsh(conjugate_kernel(model, X))
        spectrum = limiting_density(model, gmm, n, form="refined")
        assert kolmogorov(spectrum.quantiles(), exact) < 0.04
        np.testing.assert_allclose(spectrum.isolated[-2:], exact[-2:], rtol=0.06)

    @pytest.mark.parametrize("kernel", ["ck", "ntk"])
    @pytest.mark.parametrize("name", ["cos", "abs"])
    def test_refined_eigenvalues_without_a_linear_part(self, name: str, kernel: str) -> None:
        """Even activations, M_1 = 0: the limit is one atom; at finite n the norms and c_ij² spread it."""
        gmm = GaussianMixture.paper(400, mean=3.0, gap=2.0)
        model = centred(name, gmm, 500)
        exact = exact_eigenvalues(model, gmm.sample(500, seed=0)[0], kernel)
        refined = limiting_density(model, gmm, 500, kernel, form="refined")
        assert not refined.atoms
        assert kolmogorov(refined.quantiles(), exact) < 0.04
        with pytest.raises(InputError, match="form='refined'"):
            limiting_density(model, gmm, 500, kernel)
        np.testing.assert_allclose(refined.isolated[-1], exact[-1], rtol=0.06)
        assert sum(refined.counts) + len(refined.isolated) == 500

    def test_refined_refuses_a_kernel_of_third_order(self) -> None:
        """x³ - 3x at norm 1: M_1 = M_2 = 0."""
        model = Explicit([activation("polynomial", coefficients=[0.0, -3.0, 0.0, 1.0])])
        with pytest.raises(InputError, match="third order"):
            limiting_density(model, UnitSphere(100), 80, form="refined")


def test_quantiles_invert_the_distribution_function() -> None:
    spectrum = limiting_density(GRAM, one_class(300), 200)
    np.testing.assert_allclose(spectrum.cdf(spectrum.quantiles()), (np.arange(200) + 0.5) / 200, atol=1e-6)
    grid = np.linspace(0, 5, 6).reshape(2, 3)
    assert spectrum.cdf(grid).shape == spectrum.density_at(grid).shape == (2, 3)
    with pytest.raises(InputError, match="number"):
        spectrum.quantiles(0)
    with pytest.raises(ValueError, match="read-only"):
        spectrum.grid[0] = 0.0


GMM = GaussianMixture.paper(50)
BAD = {
    "no variance": ((GRAM, GaussianMixture(np.ones((2, 10)), 0.0), 20), {}, "All covariances are zero"),
    "a class without samples": ((GRAM, GMM, 1), {}, "gets none of n = 1 samples"),
    **{f"n = {n}": ((GRAM, GMM, n), {}, "whole number") for n in (0, -3, 2.5, True)},
    "form": ((GRAM, GMM, 40), {"form": "exact"}, "form='exact' is not known"),
    "kernel": ((GRAM, GMM, 40, "cntk"), {}, "kernel='cntk' is not known"),
    "points": ((GRAM, GMM, 40), {"points": 2}, "points"),
    "not centred": ((DEQ("relu", 0.2), GMM, 40), {}, "centred"),
    "no mixture": ((GRAM, np.eye(3), 40), {}, "must be a GaussianMixture"),
}


@pytest.mark.parametrize(("arguments", "options", "message"), BAD.values(), ids=list(BAD))
def test_bad_input_is_named(arguments: tuple[Any, ...], options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        limiting_density(*arguments, **options)
