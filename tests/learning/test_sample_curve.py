"""Learning curves from labelled samples, against regressions and random networks that are really trained."""

from __future__ import annotations

import json

import numpy as np
import pytest
from oracles import ridge_with_intercept
from sklearn.datasets import load_digits
from tolerances import Oracle, assert_close

import notsodeep as nsd
from notsodeep.errors import InputError
from notsodeep.kernels import random_features
from notsodeep.learning import best_ridge, learning_curve
from notsodeep.learning.extrapolation import Extrapolation
from notsodeep.learning.sample_pool import Pool
from notsodeep.learning.trained_kernel import TrainedKernel, is_correct


def digits() -> tuple[np.ndarray, np.ndarray]:
    X, y = load_digits(return_X_y=True)
    order = np.random.default_rng(3).permutation(len(X))
    rows = X[order] - X.mean(axis=0)
    return rows / np.sqrt(np.mean(np.sum(rows**2, axis=1))), y[order]


X, Y = digits()
RELU = nsd.Explicit(["relu"])


def trained_kernel(n: int, *, intercept: bool = False) -> tuple[TrainedKernel, np.ndarray, np.ndarray]:
    kernel, targets = nsd.conjugate_kernel(RELU, X[:n]), np.eye(10)[Y[:n]]
    return TrainedKernel.of(kernel, targets, intercept=intercept), kernel, targets


@pytest.mark.parametrize("intercept", [False, True])
def test_left_out_scores_are_those_of_regressions_without_the_sample(intercept):
    trained, kernel, targets = trained_kernel(40, intercept=intercept)
    found = trained.held_out(0.05).mean
    expected = np.empty_like(targets)
    for i in range(40):
        rest = np.delete(np.arange(40), i)
        inner = kernel[np.ix_(rest, rest)]
        if intercept:
            dual, constant = ridge_with_intercept(inner, targets[rest], 0.05)
        else:
            dual, constant = np.linalg.solve(inner + 0.05 * np.eye(39), targets[rest]), 0.0
        expected[i] = kernel[i, rest] @ dual + constant
    assert_close(found, expected, Oracle.QUADRATURE)


def spheres(n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Two Gaussian classes of mean 0 and standard deviations 1 and 2 in 20 dimensions, scaled to mean norm 1."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 2, n)
    return rng.standard_normal((n, 20)) * (1.0 + y)[:, None] / np.sqrt(50.0), y


@pytest.mark.parametrize("width", [None, 512])
def test_classes_that_differ_in_scale_are_predicted_as_readouts_with_a_bias_see_them(width):
    model, (rows, labels), (new, wanted) = nsd.DEQ("relu", 0.2), spheres(500, 0), spheres(2000, 1)
    curve = learning_curve(model, (rows, labels), [250, 500], width=width)
    reached = []
    for seed in range(3):
        if width is None:
            own, cross = nsd.conjugate_kernel(model, rows), nsd.conjugate_kernel(model, new, rows)
        else:
            features = random_features(model, np.vstack([rows, new]), width, np.random.default_rng(seed))
            own, cross = (part @ features[:500].T for part in np.split(features, [500]))
        dual, constant = ridge_with_intercept(own, 2.0 * labels - 1.0, 0.1)
        reached.append(np.mean((cross @ dual + constant > 0.0) == wanted))
    assert min(reached) > 0.93
    assert abs(curve.accuracy[1] - np.mean(reached)) < 0.02
    # Without a bias a homogeneous kernel sees directions only.
    assert learning_curve(model, (rows, labels), 500, intercept=False).accuracy[0] < 0.65
    beyond = learning_curve(model, (rows[:200], labels[:200]), 500, width=width)
    assert beyond.interval[0, 0] <= np.mean(reached) <= beyond.interval[0, 1]


@pytest.mark.parametrize("width", [None, 100])
def test_a_constant_in_the_kernel_is_no_difference_beside_an_intercept(width):
    curves = []
    for constant in (0.0, 1e4):
        pool = Pool(RELU, X[:60], Y[:60], "ck")
        pool.kernel = pool.kernel + constant
        curves.append([pool.inside(n, 0.1, width).mse for n in (30, 60)])
    assert_close(curves[1], curves[0], Oracle.CUSTOM_CALLABLE)


def test_equal_samples_without_a_ridge_have_a_curve():
    rows, labels = np.repeat(X[:60], 2, axis=0), np.repeat(Y[:60], 2)
    for targets in (labels, rows[:, [3]]):
        curve = learning_curve(nsd.DEQ("relu", 0.2), (rows, targets), [40, 120, 480], ridge=0.0)
        assert np.isfinite(curve.mse).all()
        assert np.isfinite(curve.interval).all()


@pytest.mark.parametrize(("size", "message"), [(1e-200, "vary by"), (1e100, "vary by"), (0.0, "are equal")])
def test_targets_without_a_representable_variance_are_refused(size, message):
    with pytest.raises(InputError, match=message):
        learning_curve(RELU, (X[:40], size * X[:40, [3]]), [20, 80])


def test_the_unit_of_the_targets_does_not_matter():
    curves = [learning_curve(RELU, (X[:40], size * X[:40, [3]]), [20, 80], ridge=0.1) for size in (1, 1e-60)]
    for name in ("mse", "interval"):
        assert_close(1e120 * getattr(curves[1], name), getattr(curves[0], name), Oracle.QUADRATURE)


def test_labels_by_chance_are_left_out_at_chance():
    # With its own label in the mean that is taken out, a left-out sample leans to its own class.
    rng = np.random.default_rng(0)
    rows, labels = rng.standard_normal((400, 40, 5)), rng.integers(0, 4, (400, 40))
    hits = []
    for one, codes in zip(rows, labels, strict=True):
        trained = TrainedKernel.of(one @ one.T / 5.0, np.eye(4)[codes], intercept=True)
        hits.append(np.mean(is_correct(trained.held_out(10.0).mean, codes)))
    assert np.mean(hits) == pytest.approx(0.25, abs=0.02)


@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize(("width", "ridge"), [(120, 0.1), (150, 0.01), (600, 1.0)])
def test_mean_and_variance_over_random_networks(width, ridge, intercept):
    trained, _, targets = trained_kernel(150, intercept=intercept)
    others = slice(150, 400)
    cross = nsd.conjugate_kernel(RELU, X[others], X[:150])
    diagonal = nsd.conjugate_kernel(RELU, X[others]).diagonal()
    predicted = trained.at(*trained.new_samples(cross, diagonal), ridge, width)
    draws = []
    for seed in range(40):
        weights = np.random.default_rng(seed).standard_normal((64, width))
        features, new = (np.maximum(rows @ weights, 0.0) / np.sqrt(width) for rows in (X[:150], X[others]))
        if intercept:
            solved, constant = ridge_with_intercept(features @ features.T, targets, ridge)
        else:
            solved, constant = np.linalg.solve(features @ features.T + ridge * np.eye(150), targets), 0.0
        draws.append(new @ (features.T @ solved) + constant)
    draws = np.array(draws)
    errors = np.mean((draws - np.eye(10)[Y[others]]) ** 2)
    assert np.mean(predicted.squared_errors(np.eye(10)[Y[others]])) == pytest.approx(errors, rel=0.06)
    # The noise alone, which is small beside the error: the variance over networks at each sample.
    assert np.mean(predicted.variance) == pytest.approx(np.mean(draws.var(axis=0, ddof=1)), rel=0.1)


@pytest.mark.parametrize("intercept", [False, True])
def test_noise_of_neurons_is_that_of_networks(intercept):
    # Few neurons and a large ridge: noise points along the classes, which Gaussian neurons would not show.
    trained, _, targets = trained_kernel(150, intercept=intercept)
    others, width, ridge = slice(150, 450), 120, 1.0
    rng = np.random.default_rng(0)
    neurons = np.sqrt(1000.0) * random_features(RELU, X[:450], 1000, rng).astype(np.float32)
    diagonal = nsd.conjugate_kernel(RELU, X[others]).diagonal()
    rotated, diagonal = trained.new_samples(nsd.conjugate_kernel(RELU, X[others], X[:150]), diagonal)
    means = trained.at(rotated, diagonal, ridge, width).mean
    weights = rng.standard_normal((1000, 100))
    _, noise = trained.network_noise(neurons[:150], neurons[150:], rotated, weights, ridge, width)
    predicted = is_correct(means + noise, Y[others])
    measured = np.empty((100, 300))
    for seed in range(100):
        features = random_features(RELU, X[:450], width, np.random.default_rng(1 + seed))
        used, wanted = features[:150], targets
        if intercept:
            used, wanted = used - used.mean(axis=0), targets - targets.mean(axis=0)
        solved = np.linalg.solve(used.T @ used + ridge * np.eye(width), used.T @ wanted)
        constant = targets.mean(axis=0) - features[:150].mean(axis=0) @ solved if intercept else 0.0
        measured[seed] = is_correct(features[150:] @ solved + constant, Y[others])
    assert predicted.mean() == pytest.approx(measured.mean(), abs=0.008)
    # How much the accuracy differs from network to network, too.
    assert predicted.mean(axis=1).std() == pytest.approx(measured.mean(axis=1).std(), rel=0.3)


@pytest.mark.parametrize("intercept", [False, True])
def test_noise_of_samples_that_are_left_out_is_that_of_new_ones(intercept):
    trained, kernel, targets = trained_kernel(40, intercept=intercept)
    rest = np.arange(1, 40)
    without = TrainedKernel.of(kernel[np.ix_(rest, rest)], targets[rest], intercept=intercept)
    neurons = random_features(RELU, X[:40], 50, np.random.default_rng(0)).astype(np.float32)
    weights = np.random.default_rng(1).standard_normal((50, 3))
    penalty = trained.network_ridge(0.05, 30)
    ridge = penalty * (1.0 - without.degrees_of_freedom(penalty) / 30)
    left, _ = trained.network_noise(neurons, neurons[:0], kernel[:0] @ trained.vectors, weights, 0.05, 30)
    rotated, diagonal = without.new_samples(kernel[:1, 1:], kernel.diagonal()[:1])
    _, new = without.network_noise(neurons[1:], neurons[:1], rotated, weights, ridge, 30)
    # The variance, too, is that of a new sample.
    lengths = trained.held_out(0.05, 30).variance[0] / without.at(rotated, diagonal, ridge, 30).variance[0]
    assert lengths == pytest.approx(1.0, rel=0.2)
    left, new = left[:, 0], new[:, 0]
    # Equal up to 1/(m - df₂), which is that of 39 samples and of 40.
    np.testing.assert_allclose(left / np.linalg.norm(left), new / np.linalg.norm(new), atol=1e-4)
    assert np.linalg.norm(left) == pytest.approx(np.linalg.norm(new), rel=0.05)


def test_within_the_pool_and_four_times_beyond():
    model = nsd.DEQ("relu", 0.2)
    curve = learning_curve(model, (X[:300], Y[:300]), [75, 150, 300, 1200], ridge=0.1)
    assert curve.extrapolated.tolist() == [False, False, False, True]
    test = slice(1300, None)
    for row, n in enumerate(curve.n):
        solved = np.linalg.solve(
            nsd.conjugate_kernel(model, X[:n]) + 0.1 * np.eye(n), np.eye(10)[Y[:n]] - 0.1
        )
        found = (nsd.conjugate_kernel(model, X[test], X[:n]) @ solved).argmax(axis=1)
        # Pool and test set have a few hundred samples each.
        assert abs(curve.accuracy[row] - np.mean(found == Y[test])) < 0.035
    assert np.all(np.diff(curve.accuracy) > 0.0)
    assert np.all(np.diff(curve.mse) < 0.0)
    widths = curve.interval[:, 1] - curve.interval[:, 0]
    assert np.all(widths > 0.0)


def test_beyond_the_pool_two_ways_meet_for_a_kernel():
    # y = f(x) + noise, predicted from 200 rows and trained with 800 others.
    rng = np.random.default_rng(0)
    target = np.tanh(3.0 * X @ rng.standard_normal(X.shape[1]))
    y = target + 0.3 * rng.standard_normal(len(X))
    model, ridge = nsd.DEQ("relu", 0.2), 0.03
    pool = Pool(model, X[:200], y[:200], "ck")
    ahead = Extrapolation(pool, 800, ridge, None)
    theory, trend = ahead.mse_in_two_ways
    assert theory != trend
    assert ahead.mse**2 == pytest.approx(theory * trend)
    kernel = nsd.conjugate_kernel(model, X)
    train, test = slice(200, 1000), slice(1000, None)
    solved = np.linalg.solve(kernel[train, train] + ridge * np.eye(800), y[train] - y[train].mean())
    measured = np.mean((kernel[test, train] @ solved + y[train].mean() - y[test]) ** 2)
    assert ahead.mse == pytest.approx(measured, rel=0.2)
    # The power of n means nothing near the peak of a network's error.
    narrow = Extrapolation(pool, 800, ridge, 64)
    assert narrow.mse_in_two_ways == pytest.approx((narrow.mse, narrow.mse))


def test_beyond_the_pool_the_rate_follows_its_trend_and_the_squared_error():
    pool = Pool(nsd.DEQ("relu", 0.2), X[:200], Y[:200], "ck")
    ahead = Extrapolation(pool, 800, 0.1, None)
    estimates = [pool.inside(n, 0.1, None) for n in (25, 50, 100, 200)]
    rates = [1.0 - one.accuracy for one in estimates]
    power = np.polyfit(np.log([25, 50, 100, 200]), np.log(rates), 1)[0]
    by_error = rates[-1] * ahead.mse / estimates[-1].mse
    assert ahead.rate**2 == pytest.approx(by_error * rates[-1] * 4.0**power)


@pytest.mark.parametrize(("width", "ridge"), [(60, 0.01), (150, 1.0), (2000, 0.1)])
def test_beyond_the_pool_a_network_begins_where_the_pool_ends(width, ridge):
    pool = Pool(nsd.DEQ("relu", 0.2), X[:200], Y[:200], "ck")
    last = 1.0 - pool.inside(200, ridge, width).accuracy
    assert Extrapolation(pool, 201, ridge, width).rate == pytest.approx(last, rel=0.02)


def noisy(n: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Two classes by the signs of two of six coordinates; one label in ten is wrong."""
    rows = rng.standard_normal((n, 6)) / np.sqrt(6.0)
    return rows, (rows[:, 0] * rows[:, 1] > 0.0) ^ (rng.random(n) < 0.1)


def steep(n: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Two classes that differ in scale alone."""
    rows = rng.standard_normal((n, 20)) / np.sqrt(50.0)
    labels = rng.integers(0, 2, n)
    return rows * (1.0 + labels)[:, None], labels


def flat(n: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Two classes that overlap, with a straight border in 30 dimensions."""
    rows = rng.standard_normal((n, 30)) / np.sqrt(30.0)
    return rows, (3.0 * rows[:, :5].sum(axis=1) + rng.standard_normal(n)) > 0.0


def accuracies(
    train: tuple[np.ndarray, np.ndarray], test: tuple[np.ndarray, np.ndarray], sizes: list[int]
) -> np.ndarray:
    """Of regressions with the kernel of `RELU` and a bias, ridge 0.1."""
    kernel, cross = nsd.conjugate_kernel(RELU, train[0]), nsd.conjugate_kernel(RELU, test[0], train[0])
    found = []
    for n in sizes:
        dual, constant = ridge_with_intercept(kernel[:n, :n], 2.0 * train[1][:n] - 1.0, 0.1)
        found.append(np.mean((cross[:, :n] @ dual + constant > 0.0) == test[1]))
    return np.array(found)


def test_bands_hold_for_curves_that_turn_and_that_do_not():
    rng, sizes, inside = np.random.default_rng(0), [20, 40, 80, 320], []
    for task in (noisy, steep, flat):
        test = task(1500, rng)
        for _ in range(12):
            curve = learning_curve(RELU, task(80, rng), sizes, ridge=0.1)
            measured = accuracies(task(320, rng), test, sizes)
            inside.append((curve.interval[:, 0] <= measured) & (measured <= curve.interval[:, 1]))
    # Of 144 bands; nine of ten are wanted.
    assert 0.83 < np.mean(inside) < 0.98
    assert np.mean(inside, axis=0).min() > 0.77


def test_training_sets_of_one_pool_vary_as_independent_ones_do():
    rng = np.random.default_rng(1)
    test = flat(1500, rng)
    measured = np.std([accuracies(flat(25, rng), test, [25])[0] for _ in range(60)], ddof=1)
    said = [Pool(RELU, *flat(100, rng), "ck").inside(25, 0.1, None).sets_variance for _ in range(6)]
    assert np.sqrt(np.mean(said)) == pytest.approx(measured, rel=0.25)


def test_a_pool_without_errors_does_not_exclude_them():
    rows = np.random.default_rng(0).standard_normal((60, 5))
    rows[:, 0] += np.where(np.arange(60) % 2, 9.0, -9.0)
    curve = learning_curve(RELU, (rows / 9.0, np.arange(60) % 2), [60, 240])
    assert curve.accuracy[0] == 1.0
    # By the rule of three: with 60 samples right, a rate of 3/60 is still possible.
    assert np.all((curve.interval[:, 0] > 0.9) & (curve.interval[:, 0] < 0.97))
    assert curve.interval[:, 1].tolist() == [1.0, 1.0]


def test_the_best_ridge_beyond_the_pool_is_that_of_noise():
    # Few different rows: the spectrum ends, and no ridge but the noise's is good for any n.
    rng = np.random.default_rng(0)
    rows = rng.integers(0, 3, (100, 3)) - 1.0
    y = rows[:, 0] + rng.standard_normal(100)
    curve = learning_curve(nsd.DEQ("relu", 0.2), (rows, y), [100, 400], ridge="best")
    assert curve.ridge[1] == curve.ridge[0] > 0.1
    assert 0.8 < curve.mse[1] < 1.3


def test_regression_has_no_accuracy():
    target = X[:, 10] + 0.3 * X[:, 20] ** 2
    curve = learning_curve(nsd.DEQ("tanh", 0.2), (X[:120], target[:120]), [40, 120, 400], ridge="best")
    assert np.isnan(curve.accuracy).all()
    assert np.all(np.diff(curve.mse) < 0.0)
    assert json.loads(json.dumps(curve.to_dict(), allow_nan=False))["accuracy"] is None
    assert "mse" in str(curve)


def test_best_ridge_has_the_least_left_out_error():
    source = (X[:120], Y[:120])
    best = best_ridge(RELU, source)
    pool = Pool(RELU, *source, "ck")
    errors = [pool.inside(120, factor * best, None).mse for factor in (1.0, 0.3, 3.0)]
    assert errors[0] == min(errors)
    assert best_ridge(RELU, source, n=1000) > 0.0


def test_a_factor_of_the_kernel_is_no_difference():
    twice = nsd.Explicit(["relu"], weights=[4.0])
    one, other = (learning_curve(model, (X[:100], Y[:100]), 100, "best") for model in (RELU, twice))
    np.testing.assert_allclose(one.accuracy, other.accuracy, atol=1e-3)


def test_a_worse_model_is_seen():
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((600, 8)) / np.sqrt(8)
    labels = (np.sum(rows**2, axis=1) > 1.0).astype(int)
    # An odd activation has an odd predictor: it cannot see norms.
    odd, relu = (learning_curve(nsd.Explicit([phi]), (rows, labels), 600, "best") for phi in ("tanh", "relu"))
    assert odd.interval[0][1] < relu.interval[0][0]


def test_best_ridge_refuses_what_it_cannot_use():
    with pytest.raises(nsd.InputError, match="needs n"):
        best_ridge(RELU, nsd.GaussianMixture(np.eye(2, 20), 1.0))
    with pytest.raises(nsd.InputError, match="width=5"):
        best_ridge(RELU, (X[:40], Y[:40]), width=5, kernel="ntk")
    for source in ((X[:40], Y[:40]), nsd.GaussianMixture(np.eye(2, 20), 1.0)):
        with pytest.raises(nsd.InputError, match="network specification"):
            learning_curve("relu", source, 20)


@pytest.mark.parametrize(
    "source",
    [(X[:10], Y[:10]), (X[:40], np.zeros(40, dtype=int)), (X[:40], np.arange(40)), (X[:40], Y[:39]), X[:40]],
    ids=["few", "one class", "all different", "lengths", "no labels"],
)
def test_refused(source):
    with pytest.raises(nsd.InputError):
        learning_curve(RELU, source, [20])
