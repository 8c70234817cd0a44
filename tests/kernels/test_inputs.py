"""Inputs: any array that makes sense works and is left alone; anything else is refused with what to do."""

from __future__ import annotations

import importlib.util
import math
from collections.abc import Callable

import numpy as np
import pytest

import notsodeep as nsd
from notsodeep.errors import ConvergenceError, InputError

MODEL = nsd.DEQ("tanh", 0.2)
FUNCTIONS = (nsd.conjugate_kernel, nsd.tangent_kernel)
X = np.random.default_rng(0).normal(size=(6, 5)).round(2)


def read_only(array: np.ndarray) -> np.ndarray:
    copy = array.copy()
    copy.setflags(write=False)
    return copy


def strided(array: np.ndarray) -> np.ndarray:
    """The same entries as every second column of a wider array, rows reversed twice."""
    wide = np.empty((len(array), 2 * array.shape[1]))
    wide[:, ::2] = array[::-1]
    return wide[::-1, ::2]


@pytest.mark.slow
@pytest.mark.parametrize("function", FUNCTIONS)
@pytest.mark.parametrize(
    "form",
    [np.asfortranarray, strided, read_only, np.ndarray.tolist, lambda a: a.astype(">f8"), np.ma.asarray],
    ids=["fortran", "strided", "read-only", "lists", "big-endian", "masked"],
)
def test_the_layout_does_not_matter(
    function: Callable[..., np.ndarray], form: Callable[[np.ndarray], object]
) -> None:
    np.testing.assert_allclose(function(MODEL, form(X)), function(MODEL, X), rtol=1e-13)
    np.testing.assert_allclose(function(MODEL, form(X), form(X[:2])), function(MODEL, X, X[:2]), rtol=1e-13)


@pytest.mark.parametrize("function", FUNCTIONS)
@pytest.mark.parametrize("dtype", ["float32", "float16", "int64", "int8", "uint8", "bool"])
def test_other_types_are_computed_in_double_precision(
    function: Callable[..., np.ndarray], dtype: str
) -> None:
    """An int8 product would overflow at 127, a float32 one lose half the digits."""
    given = (np.abs(20 * X)).astype(dtype)
    kernel = function(MODEL, given)
    assert kernel.dtype == np.float64
    np.testing.assert_allclose(kernel, function(MODEL, given.astype(np.float64)), rtol=1e-13)


@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch is an extra")
@pytest.mark.parametrize("grad", [False, True])
def test_torch_tensors(grad: bool) -> None:
    import torch

    tensor = torch.tensor(X, requires_grad=grad)
    np.testing.assert_allclose(
        nsd.conjugate_kernel(MODEL, tensor), nsd.conjugate_kernel(MODEL, X), rtol=1e-13
    )


@pytest.mark.parametrize("function", FUNCTIONS)
def test_the_input_is_left_alone(function: Callable[..., np.ndarray]) -> None:
    given, other = X.copy(), X[:3].copy()
    function(MODEL, given, other)
    function(MODEL, given)
    np.testing.assert_array_equal(given, X)
    np.testing.assert_array_equal(other, X[:3])


def test_one_row_and_one_feature_are_enough() -> None:
    assert nsd.conjugate_kernel(MODEL, [[0.5]]).shape == (1, 1)
    assert nsd.tangent_kernel(MODEL, X, X[:1]).shape == (6, 1)


def with_entry(value: float) -> np.ndarray:
    bad = X.copy()
    bad[2, 1] = value
    return bad


BAD_ROWS = {
    "NaN": (with_entry(math.nan), "NaN"),
    "infinite": (with_entry(math.inf), "infinite"),
    "minus infinite": (with_entry(-math.inf), "infinite"),
    "one dimension": (X[0], r"\(5,\)"),
    "three dimensions": (X[None], "shape"),
    "no rows": (X[:0], "empty"),
    "no features": (X[:, :0], "empty"),
    "text": (np.array([["a", "b"]]), "number"),
    "complex": (X + 1j, "complex"),
    "ragged": ([[1.0, 2.0], [3.0]], "array"),
    "None": (None, "X"),
    "overflow": (X * 1e200, "overflow"),
}


@pytest.mark.parametrize("function", FUNCTIONS)
@pytest.mark.parametrize("case", BAD_ROWS)
def test_bad_rows_are_refused(function: Callable[..., np.ndarray], case: str) -> None:
    bad, word = BAD_ROWS[case]
    with pytest.raises(InputError, match=word):
        function(MODEL, bad)


@pytest.mark.parametrize("function", FUNCTIONS)
@pytest.mark.parametrize("case", [case for case in BAD_ROWS if case != "None"])
def test_bad_second_rows_are_refused_by_their_name(function: Callable[..., np.ndarray], case: str) -> None:
    with pytest.raises(InputError, match="Y"):
        function(MODEL, X, BAD_ROWS[case][0])


@pytest.mark.parametrize("function", FUNCTIONS)
@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"Y": X[:, :4]}, r"(4.*5|5.*4)"),
        ({"of": "preactivation"}, "preactivations"),
        *(({"depth": depth}, "depth") for depth in (0, -1, 2.5, math.nan)),
        *(({"model": model}, "DEQ") for model in ("tanh", None, nsd.activation("tanh"))),
    ],
    ids=str,
)
def test_bad_arguments_are_refused(
    function: Callable[..., np.ndarray], change: dict[str, object], words: str
) -> None:
    with pytest.raises(InputError, match=words):
        function(**{"model": MODEL, "X": X, **change})


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        ({"sigma_a2": -0.1}, "sigma_a2"),
        ({"sigma_a2": math.nan}, "sigma_a2"),
        ({"sigma_a2": math.inf}, "sigma_a2"),
        ({"sigma_a2": 1.5}, "sigma_b2"),  # 1 - sigma_a2 would be negative
        ({"sigma_a2": 0.2, "sigma_b2": -1.0}, "sigma_b2"),
        ({"sigma_a2": 0.2, "bias2": -1.0}, "bias2"),
        ({"sigma_a2": "much"}, "sigma_a2"),
    ],
)
def test_impossible_models_are_refused(arguments: dict[str, object], word: str) -> None:
    with pytest.raises(InputError, match=word):
        nsd.DEQ("tanh", **arguments)


@pytest.mark.parametrize("layers", [[], ["tahn"], "tanh", [3]])
def test_impossible_networks_are_refused(layers: object) -> None:
    with pytest.raises(InputError):
        nsd.Explicit(layers)


@pytest.mark.parametrize("function", FUNCTIONS)
@pytest.mark.parametrize(
    ("name", "sigma_a2"),
    [("relu", 2.5), ("relu", 2.0), ("identity", 1.0), ("identity", 1.7), ("abs", 1.0), ("abs", 1.2)],
)
def test_a_missing_fixed_point_is_named(
    function: Callable[..., np.ndarray], name: str, sigma_a2: float
) -> None:
    """q = sigma_a2 S(q) + drive has no solution: S' = 1/2 for relu, 1 for identity and abs."""
    with pytest.raises(ConvergenceError, match=r"sigma_a2|σ_a²") as caught:
        function(nsd.DEQ(name, sigma_a2, sigma_b2=1.0), X)
    assert caught.value.remedy
    assert caught.value.remedy in str(caught.value)


def test_a_cubic_has_no_fixed_point_at_large_norms() -> None:
    model = nsd.DEQ(nsd.activation("polynomial", coefficients=[0.0, 1.0, 0.0, 0.2]), 0.3)
    assert np.all(np.isfinite(nsd.conjugate_kernel(model, 0.1 * X)))
    with pytest.raises(ConvergenceError):
        nsd.conjugate_kernel(model, 100 * X)


def test_just_inside_the_border_the_fixed_point_is_found() -> None:
    """relu at sigma_a2 = 1.99: q = drive/(1 - 0.995), 200 times the input."""
    kernel = nsd.conjugate_kernel(nsd.DEQ("relu", 1.99, sigma_b2=1.0), X, of="preactivations")
    np.testing.assert_allclose(np.diag(kernel), np.sum(X * X, axis=1) / (1 - 1.99 / 2), rtol=1e-10)


def test_a_diverging_tangent_kernel_is_refused() -> None:
    """sin at sigma_a2 = 1.8 and small inputs: sigma_a2 E[phi'^2] passes 1."""
    model, small = nsd.DEQ("sin", 1.8, sigma_b2=0.1), 0.01 * X
    with pytest.raises(ConvergenceError):
        nsd.tangent_kernel(model, small)
