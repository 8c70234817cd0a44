"""scikit-learn's own checks, and what its users do: pipelines, searches, clones, saved files."""

from __future__ import annotations

import io

import joblib
import numpy as np
import pytest
from sklearn.base import clone
from sklearn.datasets import load_digits
from sklearn.exceptions import FitFailedWarning
from sklearn.gaussian_process import GaussianProcessClassifier, GaussianProcessRegressor
from sklearn.model_selection import GridSearchCV, train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.utils.estimator_checks import parametrize_with_checks

import notsodeep as nsd
from notsodeep.cli.scenario import Data
from notsodeep.data import SCALES, Preprocessing
from notsodeep.errors import ConvergenceError, InputError
from notsodeep.estimators import (
    DEQKernel,
    DEQKernelClassifier,
    DEQKernelRidge,
    RowScaler,
)

ESTIMATORS = [
    DEQKernelRidge(),
    DEQKernelRidge(kernel="ck", activation="tanh", bias2=0.1, scale="standard"),
    DEQKernelClassifier(),
    RowScaler(),
]


@pytest.mark.slow
@parametrize_with_checks(ESTIMATORS)
def test_scikit_learn_accepts(estimator, check):
    check(estimator)


@pytest.fixture(scope="module")
def digits():
    X, y = load_digits(return_X_y=True)
    return train_test_split(X, y, train_size=400, test_size=400, stratify=y, random_state=0)


def small(n=40, p=12, targets=2, seed=0):
    rng = np.random.default_rng(seed)
    return rng.standard_normal((n, p)), rng.standard_normal((n, targets))


@pytest.mark.parametrize("kernel", ["ck", "ntk"])
def test_digits_out_of_the_box(digits, kernel):
    X, X_test, y, y_test = digits
    assert DEQKernelClassifier(kernel=kernel).fit(X, y).score(X_test, y_test) > 0.95


@pytest.mark.slow
def test_a_search_over_the_recurrent_variance_and_the_activation(digits):
    X, _, y, _ = digits
    pipeline = make_pipeline(RowScaler(), DEQKernelClassifier(kernel="ck", scale="none"))
    grid = {
        "deqkernelclassifier__sigma_a2": [0.05, 0.5, 3.0],
        "deqkernelclassifier__activation": ["relu", nsd.activation("hard_tanh", c=1.5)],
    }
    # 3.0 leaves nothing for 1 - sigma_a2: the search goes on without it, as with any error in a fit.
    with pytest.warns(FitFailedWarning, match="sigma_a2"), pytest.warns(UserWarning, match="non-finite"):
        search = GridSearchCV(pipeline, grid, cv=2).fit(X[:200], y[:200])
    assert np.isnan(search.cv_results_["mean_test_score"]).sum() == 2
    assert search.best_params_["deqkernelclassifier__sigma_a2"] in (0.05, 0.5)
    assert search.best_score_ > 0.85


SAVED = [
    DEQKernelRidge(activation="tanh"),
    DEQKernelRidge(activation=nsd.activation("leaky_relu", b=0.3).shifted(-0.1), kernel="ck"),
    make_pipeline(RowScaler(), GaussianProcessRegressor(DEQKernel("tanh"), optimizer=None)),
]


@pytest.mark.slow
@pytest.mark.parametrize("model", SAVED, ids=lambda model: type(model).__name__)
def test_saved_with_joblib_and_with_skops_which_runs_no_code(model):
    skops = pytest.importorskip("skops.io")
    X, y = small()
    fitted = clone(model).fit(X, y)
    file = io.BytesIO()
    joblib.dump(fitted, file)
    file.seek(0)
    np.testing.assert_array_equal(joblib.load(file).predict(X), fitted.predict(X))
    stored = skops.dumps(fitted)
    unknown = skops.get_untrusted_types(data=stored)
    assert all(name.startswith(("notsodeep.", "sklearn.")) for name in unknown)
    np.testing.assert_array_equal(skops.loads(stored, trusted=unknown).predict(X), fitted.predict(X))


def test_probabilities_from_a_gaussian_process(digits):
    X, X_test, y, y_test = digits
    ones, ones_test = np.isin(y, (3, 8)), np.isin(y_test, (3, 8))
    model = make_pipeline(RowScaler(), GaussianProcessClassifier(25.0 * DEQKernel("relu"), optimizer=None))
    model.fit(X[ones], y[ones])
    probabilities = model.predict_proba(X_test[ones_test])
    assert model.score(X_test[ones_test], y_test[ones_test]) > 0.9
    np.testing.assert_allclose(probabilities.sum(axis=1), 1.0)


BAD = {
    "an unknown kernel": (DEQKernelRidge(kernel="rbf"), "kernel='rbf'"),
    "an unknown activation": (DEQKernelRidge(activation="tan"), "no activation 'tan'"),
    "an activation that is a number": (DEQKernelRidge(activation=3), "An activation is a name, .* not int"),
    "a negative ridge": (DEQKernelRidge(alpha=-1.0), "alpha must be finite and not negative"),
    "an unknown scale": (DEQKernelRidge(scale="big"), "scale='big'"),
    "too large a variance": (DEQKernelRidge(sigma_a2=1.5), "give sigma_b2 as well"),
}


@pytest.mark.parametrize(("model", "message"), BAD.values(), ids=list(BAD))
def test_refused_with_the_reason(model, message):
    X, y = small()
    with pytest.raises(InputError, match=message.replace("(", r"\(")):
        model.fit(X, y)


def test_what_cannot_be_learnt_from_is_refused():
    X, y = small()
    with pytest.raises(InputError, match="one class"):
        DEQKernelClassifier().fit(X, np.zeros(len(X)))
    with pytest.raises(InputError, match="overflow"):
        DEQKernelRidge().fit(1e200 * X, y)
    with pytest.raises(ConvergenceError, match="Raise alpha"):
        DEQKernelRidge(alpha=0.0).fit(np.vstack([X, X]), np.vstack([y, y]))
    with pytest.raises(InputError, match="leave Y out"):
        DEQKernel()(X, X, eval_gradient=True)
    with pytest.raises(InputError, match="length_scale"):
        DEQKernel(length_scale=0.0)(X)
    with pytest.raises(ValueError, match="features"):
        DEQKernelRidge().fit(X, y).predict(X[:, :5])


@pytest.mark.parametrize("how", SCALES)
def test_rows_are_scaled_as_everywhere_else(how):
    X, y = small()
    X[:, 0] *= 1e4  # decides all distances: "auto" is "standard"
    expected = Preprocessing.fit(X, "standard" if how == "auto" else how).apply(X)
    np.testing.assert_array_equal(RowScaler(scale=how).fit(X).transform(X), expected)
    np.testing.assert_array_equal(DEQKernelRidge(scale=how, alpha=1.0).fit(X, y).X_fit_, expected)
    with pytest.raises(InputError, match="all equal"):
        RowScaler().fit(np.full((3, 2), 0.1))


def test_the_estimator_is_as_accurate_as_the_command_on_columns_of_many_units(tmp_path):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((400, 9))
    y = (X[:, 4] + X[:, 5] > 0).astype(int)
    units = 10.0 ** np.arange(9)
    np.savetxt(tmp_path / "X.csv", np.column_stack([X * units, y]), delimiter=",")
    read = Data(str(tmp_path / "X.csv"), label_column="-1").samples()
    np.testing.assert_allclose(read.X, DEQKernelClassifier().fit(X * units, y).X_fit_)
    scores = {
        how: DEQKernelClassifier(scale=how).fit(X[:300] * units, y[:300]).score(X[300:] * units, y[300:])
        for how in ("auto", "factor")
    }
    assert scores["auto"] > scores["factor"] + 0.25  # one factor leaves only the last column
    equal = DEQKernelClassifier().fit(X[:300], y[:300]).score(X[300:], y[300:])
    assert scores["auto"] == pytest.approx(equal, abs=0.03)


@pytest.mark.parametrize("units", [(100, 80, 1), (1, 100, 100, 100, 1), (20, 30, 25, 0.5)])
def test_columns_of_another_unit_count_among_a_few(units):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((400, len(units)))
    y = (X[:, -1] + 0.3 * X[:, 1] > 0).astype(int)
    fitted = DEQKernelClassifier().fit(X[:300] * units, y[:300])
    equal = DEQKernelClassifier().fit(X[:300], y[:300])
    assert fitted.score(X[300:] * units, y[300:]) == pytest.approx(equal.score(X[300:], y[300:]), abs=0.03)


def test_one_factor_for_columns_of_one_unit(digits):
    X = digits[0]
    np.testing.assert_array_equal(Preprocessing.fit(X).scale, Preprocessing.fit(X, "factor").scale)
    letters = np.random.default_rng(0).standard_normal((50, 4)) * [1.0, 1.5, 2.0, 3.0]
    np.testing.assert_array_equal(
        Preprocessing.fit(letters).scale, Preprocessing.fit(letters, "factor").scale
    )
