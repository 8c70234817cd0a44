"""Learning curves on mixtures, without data, against exact kernels on drawn samples."""

from __future__ import annotations

import numpy as np
import pytest
from oracles import ridge_with_intercept
from scipy import stats
from scipy.optimize import brentq
from tolerances import Oracle, assert_close

import notsodeep as nsd
from notsodeep.kernels import random_features
from notsodeep.learning import best_ridge, learning_curve
from notsodeep.learning.mixture_features import ClassFeatures, _Inputs
from notsodeep.learning.mixture_ridge import chance_of_largest, mean_square_error, mixture_scores
from notsodeep.learning.trained_kernel import expected_error


def two_classes(p: int, weights: tuple[float, float] = (0.5, 0.5)) -> nsd.GaussianMixture:
    return nsd.GaussianMixture(1.5 * np.eye(2, p), [1.0, 1.0 + 6.0 / np.sqrt(p)], weights)


def three_classes(p: int) -> nsd.GaussianMixture:
    rng = np.random.default_rng(5)
    bases = [np.linalg.qr(rng.standard_normal((p, p)))[0] for _ in range(3)]
    covariances = [(basis * np.linspace(0.3, 1.7, p)) @ basis.T for basis in bases]
    return nsd.GaussianMixture(2.0 * np.eye(3, p), covariances, [0.5, 0.3, 0.2])


def measured(model, mixture, n, ridge, kernel, seed, width=None):
    """Accuracy and squared error of one regression with the exact kernel, or with one random network."""
    X, y = mixture.sample(n, seed=seed)
    Z, t = mixture.sample(2000, seed=1000 + seed)
    targets = np.array([[-1.0], [1.0]]) if mixture.classes == 2 else np.eye(mixture.classes)
    if width is None:
        compute = nsd.conjugate_kernel if kernel == "ck" else nsd.tangent_kernel
        gram, cross = compute(model, X), compute(model, Z, X)
    else:
        features = random_features(model, np.vstack([X, Z]), width, np.random.default_rng(7000 + seed))
        gram, cross = (part @ features[:n].T for part in np.split(features, [n]))
    dual, constant = ridge_with_intercept(gram, targets[y], ridge)
    scores = cross @ dual + constant
    found = (scores[:, 0] > 0).astype(int) if mixture.classes == 2 else scores.argmax(axis=1)
    return np.mean(found == t), np.mean((scores - targets[t]) ** 2)


# Classes that only a readout with a bias tells apart by a kernel that is homogeneous.
NORMS = nsd.GaussianMixture(np.zeros((2, 400)), [1.0, 1.5])
CASES = {
    "tanh": (nsd.DEQ("tanh", 0.2), two_classes(160), "ck", None),
    "relu, not centred": (nsd.DEQ("relu", 0.2), two_classes(160), "ck", None),
    "relu, centred, unequal": (nsd.DEQ("relu", 0.2).centred(1.0), two_classes(160, (0.7, 0.3)), "ck", None),
    "swish, tangent kernel, bias": (nsd.DEQ("swish", 0.3, bias2=0.1), two_classes(160), "ntk", None),
    "three classes, own covariances": (nsd.DEQ("tanh", 0.3), three_classes(80), "ck", None),
    "width 120": (nsd.Explicit(["relu"]), two_classes(160), "ck", 120),
    "width 400, bias, unequal": (nsd.Explicit(["tanh"], bias2=0.3), two_classes(160, (0.8, 0.2)), "ck", 400),
    "norms alone": (nsd.DEQ("relu", 0.2), NORMS, "ck", None),
}


@pytest.mark.parametrize(("model", "mixture", "kernel", "width"), CASES.values(), ids=list(CASES))
def test_against_simulation(model, mixture, kernel, width):
    n, ridge = 250, 0.1
    curve = learning_curve(model, mixture, n, ridge, width, kernel)
    draws = np.array([measured(model, mixture, n, ridge, kernel, seed, width) for seed in range(8)])
    accuracy, mse = draws.mean(axis=0)
    # Noise of eight draws, and what n = 250 is away from infinity.
    assert abs(curve.accuracy[0] - accuracy) < 0.015
    assert curve.mse[0] == pytest.approx(mse, rel=0.05)


@pytest.mark.parametrize("commuting", [True, False])
def test_covariances_of_quadratic_forms(commuting):
    p, a = 12, 1
    mixture = three_classes(p)
    if commuting:
        spread = np.linspace(0.4, 1.6, p)
        mixture = nsd.GaussianMixture(mixture.means, [spread, spread[::-1], 1.0], mixture.weights)
    inputs = _Inputs.of(mixture)
    with_norm, between = inputs.form_covariances(a)
    # Isserlis' theorem on dense matrices: Cov(xᵀFx, xᵀGx) = 2 tr CFCG + 4 mᵀFCGm.
    means = mixture.means / np.sqrt(p)
    dense = [covariance.to_dense() / p for covariance in mixture.covariances]
    forms = [np.eye(p), *(C + np.outer(m, m) for C, m in zip(dense, means, strict=True))]
    C, m = dense[a], means[a]
    expected = np.array(
        [[2.0 * np.trace(C @ F @ C @ G) + 4.0 * m @ F @ C @ G @ m for G in forms] for F in forms]
    )
    assert_close(with_norm, expected[0, 1:], Oracle.CLOSED_FORM)
    assert_close(between, expected[1:, 1:], Oracle.CLOSED_FORM)
    # Cov(x, xᵀFx) = 2 CFm, in a basis of the core: lengths agree.
    links = inputs.times(a, inputs.moments_times(inputs.means[a]))
    expected = np.array([C @ F @ m for F in forms[1:]])
    assert_close(links @ links.T, expected @ expected.T, Oracle.CLOSED_FORM)


def test_products_of_coordinates_repeat_what_coordinates_say():
    # Few dimensions and means that stand out: (x·m)² tells the classes apart, but with the noise of x·m.
    model, p, n = nsd.DEQ("swish", 0.2), 60, 200
    mixture = nsd.GaussianMixture(2.0 * np.eye(3, p), [1.0] * 3, [0.5, 0.3, 0.2])
    curve = learning_curve(model, mixture, n, 0.001)
    draws = np.array([measured(model, mixture, n, 0.001, "ck", seed) for seed in range(24)])
    accuracy, mse = draws.mean(axis=0)
    # Taken as new information they would promise 5 points more.
    assert abs(curve.accuracy[0] - accuracy) < 0.015
    assert curve.mse[0] == pytest.approx(mse, rel=0.05)


def test_class_sizes_that_are_fixed_matter_for_a_constant_part():
    # A large ridge and a kernel with a large constant part: residuals add up to 0 over classes of fixed sizes.
    model, mixture = nsd.DEQ("swish", 0.2), two_classes(400)
    curve = learning_curve(model, mixture, 200, 10.0)
    draws = [measured(model, mixture, 200, 10.0, "ck", seed)[0] for seed in range(8)]
    assert abs(curve.accuracy[0] - np.mean(draws)) < 0.01


def test_one_class_of_features_is_the_spectrum():
    rng = np.random.default_rng(0)
    values = rng.uniform(0.1, 2.0, 12)
    mean = rng.standard_normal(12)
    # Two classes ±m with one covariance: S is the same for both, and the target is linear plus noise.
    features = ClassFeatures(
        means=np.stack([-mean, mean]),
        diagonals=np.zeros((2, 12)),
        basis=np.eye(12),
        inner=np.stack([np.diag(values)] * 2),
        rest=np.zeros((0, 2)),
        multiplicity=np.zeros(0),
        tails=np.full(2, 0.3),
        free=np.zeros(12),
    )
    moment = np.diag(values) + np.outer(mean, mean)
    sizes, vectors = np.linalg.eigh(moment)
    correlation = vectors.T @ mean
    target = correlation**2 / sizes

    def degrees(kappa):
        return np.sum(sizes / (sizes + kappa)) + 0.3 / kappa

    def excess(kappa, m):
        return kappa * (1.0 - degrees(kappa) / m) * (4000 - degrees(kappa)) - 0.2

    for width in (None, 40):
        scores = mixture_scores(features, np.array([0.5, 0.5]), 4000.0, 0.2, width, intercept=False)
        m = np.inf if width is None else width
        kappa = brentq(excess, 0.3 / min(m, 4000), 10.0, args=(m,), xtol=1e-15)
        missed = kappa / (sizes + kappa)
        bias = target @ missed**2 + 1.0 - target.sum()
        mse = expected_error(
            bias, target @ (missed * (1.0 - missed)), degrees(kappa), np.sum((1.0 - missed) ** 2), 4000, width
        )
        # Equal up to what fixed class sizes take away, of order 1/n.
        assert mean_square_error(np.array([0.5, 0.5]), scores) == pytest.approx(mse, rel=1e-3)
        assert scores.effective_ridge == pytest.approx(kappa, rel=1e-9)


def test_band_holds_the_training_sets():
    model, mixture = nsd.DEQ("tanh", 0.2), two_classes(100)
    (low, high) = learning_curve(model, mixture, 150).interval[0]
    draws = np.array([measured(model, mixture, 150, 0.1, "ck", seed)[0] for seed in range(20)])
    # 2000 test samples add a standard deviation of about 0.01.
    inside = np.mean((draws > low - 0.01) & (draws < high + 0.01))
    assert inside >= 0.8
    assert high - low < 0.08


def test_best_ridge_is_best():
    model, mixture = nsd.DEQ("relu", 0.2), two_classes(100)
    best = learning_curve(model, mixture, [100, 400], ridge="best")
    assert best_ridge(model, mixture, 400) == best.ridge[1]
    for factor in (0.5, 2.0):
        for row, n in enumerate((100, 400)):
            other = learning_curve(model, mixture, n, ridge=factor * best.ridge[row])
            assert other.mse[0] >= best.mse[row]


def test_more_samples_are_better_and_wide_networks_are_kernels():
    model, mixture = nsd.Explicit(["relu"]), two_classes(100)
    kernel = learning_curve(model, mixture, [50, 200, 800], ridge="best")
    assert np.all(np.diff(kernel.accuracy) > 0.0)
    wide = learning_curve(model, mixture, 200, 0.1, width=10**8)
    assert wide.accuracy[0] == pytest.approx(learning_curve(model, mixture, 200, 0.1).accuracy[0], abs=1e-5)


def test_classes_with_equal_means():
    """Only their spreads differ: an odd activation sees nothing, the limit of small means is no other."""
    spreads = [0.85, 1.15]
    curves = [
        learning_curve(nsd.DEQ("relu", 0.2).centred(1.0), nsd.GaussianMixture(means, spreads), 300)
        for means in (np.zeros((2, 100)), 1e-6 * np.eye(2, 100))
    ]
    assert curves[0].accuracy[0] > 0.7
    np.testing.assert_allclose(curves[0].accuracy, curves[1].accuracy, atol=1e-6)
    odd = nsd.DEQ("tanh", 0.2), nsd.GaussianMixture(np.zeros((2, 100)), spreads), 300
    assert learning_curve(*odd, intercept=False).accuracy == 0.5
    # The intercept leans to the class of small spread, whose samples weigh more.
    assert 0.5 < learning_curve(*odd).accuracy < 0.51


def test_double_descent_on_a_mixture():
    model, mixture = nsd.Explicit(["relu"]), two_classes(100)
    errors = [learning_curve(model, mixture, 200, 1e-6, width=m).mse[0] for m in (60, 200, 2000)]
    assert errors[1] > 5.0 * max(errors[0], errors[2])


def test_chance_of_the_largest_score():
    rng = np.random.default_rng(1)
    mean, root = rng.standard_normal(4), rng.standard_normal((4, 4))
    chances = [chance_of_largest(mean, root @ root.T, k) for k in range(4)]
    assert sum(chances) == pytest.approx(1.0, abs=3e-4)
    contrast = np.array([[1.0, -1, 0, 0], [1, 0, -1, 0], [1, 0, 0, -1]])
    exact = stats.multivariate_normal(-contrast @ mean, contrast @ root @ root.T @ contrast.T).cdf(
        np.zeros(3)
    )
    assert chances[0] == pytest.approx(exact, abs=2e-4)
    assert chance_of_largest(np.array([1.0, 0.0]), np.eye(2), 0) == pytest.approx(
        stats.norm.cdf(np.sqrt(0.5))
    )


@pytest.mark.parametrize(
    "change",
    [
        {"n": []},
        {"n": [0]},
        {"ridge": -1.0},
        {"ridge": "good"},
        {"width": 100, "kernel": "ntk"},
        {"kernel": "rbf"},
        {"source": "mnist"},
        {"source": nsd.GaussianMixture(np.ones((1, 10)), 1.0)},
    ],
    ids=str,
)
def test_refused(change):
    arguments = {"model": nsd.DEQ("tanh", 0.2), "source": two_classes(20), "n": [10]} | change
    with pytest.raises(nsd.InputError):
        learning_curve(**arguments)
