"""Public functions that take samples or labels, with arrays as people have them: the right answer or an InputError.

Masked arrays, tensors of 16 bits or with gradients, tables, arrays of Python objects, sparse and complex matrices,
labels that mix words and numbers: none may end in another exception, or in an answer that ignores what was said.
"""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from scipy import sparse

import notsodeep as nsd
from notsodeep import convergence, nets
from notsodeep.data import MixtureStatistics, Preprocessing
from notsodeep.errors import InputError
from notsodeep.estimators import (
    DEQKernel,
    DEQKernelClassifier,
    DEQKernelRidge,
    RowScaler,
)
from notsodeep.validation import as_labels, label_codes

torch = pytest.importorskip("torch")

N, P = 24, 6
MODEL = nsd.DEQ("relu", 0.2)
MIXTURE = nsd.GaussianMixture(np.zeros((2, P)), [1.0, 2.0])


def distinct():
    """Rows of which no two are parallel; every entry is exact in bfloat16, so that no form of them loses anything."""
    return np.round(8.0 * np.random.default_rng(1).standard_normal((N, P))) / 8.0


LABELS = np.arange(N) % 2
TARGETS = np.linspace(-1.0, 1.0, N)


def deq_net():
    return nets.DEQNet(nsd.DEQ("tanh", 0.1), P, 16, 2, seed=0)


def trained(X, y):
    net = deq_net()
    nets.fit(net, (X, y), epochs=1, batch_size=8)
    return net.readout.detach().numpy()


OF_SAMPLES = {
    "conjugate_kernel": lambda X: nsd.conjugate_kernel(MODEL, X),
    "conjugate_kernel, second": lambda X: nsd.conjugate_kernel(MODEL, distinct(), X),
    "tangent_kernel": lambda X: nsd.tangent_kernel(MODEL, X),
    "tangent_kernel in blocks": lambda X: np.asarray(nsd.tangent_kernel(MODEL, X, max_memory="8 GB")),
    "MixtureStatistics.estimate": lambda X: MixtureStatistics.estimate(X, LABELS).psi,
    "MixtureStatistics.of": lambda X: MixtureStatistics.of(MIXTURE, X, LABELS).psi,
    "Preprocessing.fit": lambda X: Preprocessing.fit(X).shift,
    "Preprocessing.apply": lambda X: Preprocessing.fit(distinct()).apply(X),
    "GaussianMixture": lambda X: nsd.GaussianMixture(X, 1.0).mean_gram,
    "equivalent": lambda X: nsd.equivalent(MODEL, X, form="refined").to_dense(),
    "equivalence_error": lambda X: float(nsd.equivalence_error(MODEL, X, form="refined")),
    "DEQKernelRidge": lambda X: DEQKernelRidge().fit(X, TARGETS).dual_coef_,
    "DEQKernelRidge.predict": lambda X: DEQKernelRidge().fit(distinct(), TARGETS).predict(X),
    "DEQKernelClassifier": lambda X: DEQKernelClassifier().fit(X, LABELS).dual_coef_,
    "DEQKernel": lambda X: DEQKernel()(X),
    "DEQKernel.diag": lambda X: DEQKernel().diag(X),
    "RowScaler": lambda X: RowScaler().fit(X).scaling_.shift,
    "nets.fit": lambda X: trained(X, LABELS),
    "nets.compute_features": lambda X: nets.compute_features(deq_net(), X).numpy(),
    "explicit_twin": lambda X: tuple(nets.explicit_twin(deq_net(), X))[1].residual,
    "population_gram": lambda X: convergence.population_gram(X, 0.05, normalise=True).matrix,
    "certificate": lambda X: (
        convergence.certificate(X, TARGETS, 64, 0.02, normalise=True).measured.least.estimate
    ),
}


def masked(X):
    mask = np.zeros(np.shape(X), dtype=bool)
    mask.flat[3] = True
    return np.ma.masked_array(X, mask)


def table(X):
    return pytest.importorskip("pandas").DataFrame(X, columns=[f"c{i}" for i in range(np.shape(X)[1])])


# What means the same numbers must give the same answer.
GOOD = {
    "a list": lambda X: X.tolist(),
    "float32": lambda X: X.astype(np.float32),
    "objects": lambda X: X.astype(object),
    "by columns": np.asfortranarray,
    "a masked array without a mask": lambda X: np.ma.masked_array(X),
    "a table": table,
    "a table of objects": lambda X: table(X).astype(object),
    "a tensor": torch.tensor,
    "a tensor of float16": lambda X: torch.tensor(X, dtype=torch.float16),
    "a tensor of bfloat16": lambda X: torch.tensor(X, dtype=torch.bfloat16),
    "a tensor that requires gradients": lambda X: torch.tensor(X, requires_grad=True),
}
BAD = {
    "masked entries": (masked, "masked"),
    "rows with masked entries": (lambda X: list(masked(X)), "masked"),
    "a sparse matrix": (sparse.csr_matrix, "[Ss]parse"),
    "a sparse tensor": (lambda X: torch.tensor(X).to_sparse(), "[Ss]parse"),
    "complex numbers": (lambda X: X + 1j, "[Cc]omplex"),
    "words": (lambda X: X.astype(str), ""),
    "objects that are no numbers": (lambda X: np.full(X.shape, object()), ""),
    "missing values": (lambda X: np.where(X > 0, X, None), ""),
    "dates": (lambda X: X.astype("datetime64[s]"), ""),
    "ragged rows": (lambda X: [*X.tolist(), [1.0]], ""),
    "a number": (lambda X: 3.0, ""),
    "nothing": (lambda X: None, ""),
    "NaN": (lambda X: np.where(X > 0, X, np.nan), ""),
    "one row": (lambda X: X[0], ""),
    "three axes": (lambda X: X[None], ""),
    "no rows": (lambda X: X[:0], ""),
}


def assert_same(found, expected):
    """Equal to rounding of single precision, in which networks are trained."""
    size = float(np.abs(np.asarray(expected, dtype=np.float64)).max())
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5 * size)


def quietly(function, X):
    """The answer without warnings of ours about data that are not high-dimensional, which these are not."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        return function(X)


# Every form of samples goes through the kernel, and every function takes the forms that others stumble over.
ALWAYS = ("a table of objects", "a tensor of bfloat16", "a tensor that requires gradients")


@pytest.mark.slow
@pytest.mark.parametrize("name", OF_SAMPLES)
def test_the_same_samples_in_another_form(name):
    X = distinct()
    expected = quietly(OF_SAMPLES[name], X)
    for form in GOOD if name in ("conjugate_kernel", "DEQKernelRidge") else ALWAYS:
        assert_same(quietly(OF_SAMPLES[name], GOOD[form](X)), expected)


# scikit-learn has errors of its own for these, which its checks demand.
OF_SCIKIT_LEARN = ("DEQKernelRidge", "DEQKernelClassifier", "RowScaler")


@pytest.mark.slow
@pytest.mark.parametrize("name", OF_SAMPLES)
def test_what_is_no_matrix_of_numbers_is_refused(name):
    for kind, (make, message) in BAD.items():
        if (name, kind) == ("conjugate_kernel, second", "nothing"):
            continue  # None says that there is no second set of samples
        own = name.startswith(OF_SCIKIT_LEARN) and "mask" not in kind
        with pytest.raises((ValueError, TypeError) if own else InputError, match=message or "."):
            quietly(OF_SAMPLES[name], make(distinct()))


# --- labels -----------------------------------------------------------------------------------------------------

OF_LABELS = {
    "MixtureStatistics.estimate": lambda y: MixtureStatistics.estimate(distinct(), y).psi,
    "DEQKernelClassifier": lambda y: DEQKernelClassifier().fit(distinct(), y).dual_coef_,
}
GOOD_LABELS = {
    "a list": lambda y: y.tolist(),
    "words": lambda y: np.where(y == 0, "cat", "dog"),
    "a list of words": lambda y: np.where(y == 0, "cat", "dog").tolist(),
    "truth values": lambda y: y == 1,
    "numbers as objects": lambda y: y.astype(object),
    "a tensor": torch.tensor,
    "a tensor of bfloat16": lambda y: torch.tensor(y, dtype=torch.bfloat16),
    "a series": lambda y: pytest.importorskip("pandas").Series(y),
    "categories": lambda y: pytest.importorskip("pandas").Categorical(np.where(y == 0, "cat", "dog")),
}


def mixed(y):
    return ["cat" if label == 0 else 1 for label in y]


BAD_LABELS = {
    "a list of words and numbers": (mixed, "two kinds"),
    "an array of words and numbers": (lambda y: np.array(mixed(y), dtype=object), "two kinds"),
    "masked labels": (masked, "masked"),
    "missing labels": (lambda y: np.where(y == 0, None, "dog"), ""),
    "NaN": (lambda y: np.where(y == 0, np.nan, 1.0), ""),
    "complex": (lambda y: y + 1j, ""),
    "tuples": (lambda y: [(int(label), 1) for label in y], ""),
    "two columns": (lambda y: np.column_stack([y, y]), ""),
    "too few": (lambda y: y[:-1], ""),
    "a sparse vector": (lambda y: sparse.csr_matrix(y), ""),
    "a number": (lambda y: 1, ""),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", OF_LABELS)
def test_the_same_labels_in_another_form(name):
    expected = OF_LABELS[name](LABELS)
    for form in GOOD_LABELS.values():
        assert_same(OF_LABELS[name](form(LABELS)), expected)


@pytest.mark.parametrize("name", OF_LABELS)
def test_what_are_no_labels_is_refused(name):
    for make, message in BAD_LABELS.values():
        allowed = (ValueError, TypeError) if name == "DEQKernelClassifier" and not message else InputError
        with pytest.raises(allowed, match=message or "."):
            OF_LABELS[name](make(LABELS))


def test_targets_are_numbers():
    for bad in (mixed(LABELS), masked(TARGETS), TARGETS + 1j, TARGETS[:-1], np.full(N, np.nan), None):
        with pytest.raises(InputError):
            convergence.certificate(distinct(), bad, 64, 0.02, normalise=True)
        with pytest.raises((ValueError, TypeError)):
            DEQKernelRidge().fit(distinct(), bad)
    half = convergence.certificate(
        distinct(), torch.tensor(np.sign(TARGETS), dtype=torch.bfloat16), 64, 0.02, normalise=True
    )
    full = convergence.certificate(distinct(), np.sign(TARGETS), 64, 0.02, normalise=True)
    assert half.measured.residual == full.measured.residual


def test_words_are_not_looked_up_among_numbers():
    for y in (np.where(LABELS == 0, "0", "1"), ["cat"] * N, mixed(LABELS)):
        with pytest.raises(InputError, match=r"not among the classes|two kinds"):
            MixtureStatistics.of(MIXTURE, distinct(), y)
    np.testing.assert_array_equal(label_codes(["b", "a"], np.array(["a", "b"]), 2), [1, 0])
    assert as_labels(["a", "b"], 2).tolist() == ["a", "b"]


def test_right_sides():
    operator = nsd.equivalent(MODEL, distinct(), form="refined")
    half = torch.tensor(np.sign(TARGETS), dtype=torch.bfloat16, requires_grad=True)
    solved, expected = (np.asarray(operator.solve(b, 1.0)) for b in (half, np.sign(TARGETS)))
    assert_same(solved, expected)
    for bad in (masked(TARGETS), TARGETS + 1j, TARGETS.astype(str), TARGETS[:-1], None):
        with pytest.raises(InputError):
            operator.solve(bad, 1.0)
