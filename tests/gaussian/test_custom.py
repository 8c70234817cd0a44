"""Any callable: nine digits if smooth, declared kinks honoured, an undeclared one never silently wrong."""

from __future__ import annotations

import math
import re
from collections.abc import Callable

import mpmath
import numpy as np
import oracles
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from oracles import Reference
from scipy import special
from tolerances import Oracle, assert_close, tolerance

import notsodeep as nsd
from notsodeep.errors import InputError
from notsodeep.gaussian import activation, custom_activation, moments

RELATIVE = tolerance(Oracle.CUSTOM_CALLABLE).rtol
VARIANCES = (1e-4, 0.09, 1.0, 16.0, 100.0)


def _bump(x: np.ndarray) -> np.ndarray:
    return np.tanh(2 * x) + 0.2 * np.exp(-((x - 0.5) ** 2))


# Smooth, neither odd nor even, and not in the list of built-ins.
BUMP = Reference(
    "bump",
    lambda x: mpmath.tanh(2 * x) + 0.2 * mpmath.exp(-((x - 0.5) ** 2)),
    lambda x: 2 * mpmath.sech(2 * x) ** 2 - 0.4 * (x - 0.5) * mpmath.exp(-((x - 0.5) ** 2)),
    _bump,
    lambda x: 2 / np.cosh(np.clip(2 * x, -300, 300)) ** 2 - 0.4 * (x - 0.5) * np.exp(-((x - 0.5) ** 2)),
)


@pytest.mark.slow
@pytest.mark.parametrize("slope_given", [False, True], ids=["values only", "with derivative"])
def test_a_smooth_callable_has_nine_digits(slope_given: bool) -> None:
    made = custom_activation(_bump, derivative=BUMP.np_slope if slope_given else None)
    for q in VARIANCES:
        exact = oracles.mp_quadrature(BUMP, q, 20)
        size = math.sqrt(exact.second)
        assert moments.second_moment(made, q) == pytest.approx(float(exact.second), rel=RELATIVE)
        assert moments.second_moment_slope(made, q) == pytest.approx(float(exact.second_slope), rel=RELATIVE)
        assert moments.derivative_second_moment(made, q) == pytest.approx(
            float(exact.slope_second), rel=RELATIVE
        )
        assert moments.mean_derivative(made, q, 0) == pytest.approx(float(exact.mean[0]), abs=RELATIVE * size)
        for k in (1, 2):
            expected = float(exact.mean[k])
            assert moments.mean_derivative(made, q, k) == pytest.approx(expected, rel=RELATIVE, abs=RELATIVE)
        expected_row = np.array([float(a) for a in exact.mehler])
        np.testing.assert_allclose(
            moments.mehler(made, q, 20).ravel(), expected_row, rtol=0, atol=RELATIVE * size
        )


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((lambda x: np.where(x > 0.3, 1.0, 0.0),), "kink"),
        ((lambda x: np.where(x > 1, np.nan, x),), "finite"),
        ((lambda x: np.exp(x * x),), "finite"),
        ((np.tanh, np.tanh), "derivative"),
    ],
    ids=["a jump", "NaN", "not integrable", "a wrong derivative"],
)
def test_unusable_callables_are_refused(arguments: tuple[Callable[..., np.ndarray], ...], words: str) -> None:
    with pytest.raises(InputError, match=words):
        custom_activation(*arguments)


# --- features that could hide ----------------------------------------------------------------------------------------

# Edges of the first panels on which a callable is resolved.
PANEL_EDGES = [0.0871, *(0.0871 + side * 0.9134 * 2.0**k for side in (-1, 1) for k in range(6))]
# A kink may stand on an edge of the panels, or of their halves, as well as anywhere else.
PLACES = st.one_of(
    st.floats(-50.0, 50.0),
    st.floats(-1.0, 1.0),
    st.sampled_from(PANEL_EDGES),
    st.integers(1, 63).map(lambda part: 0.0871 + 0.9134 * part / 64.0),
)


def normal_density(x: np.ndarray) -> np.ndarray:
    return np.exp(-0.5 * x**2) / math.sqrt(2.0 * math.pi)


def advised_kinks(refusal: InputError) -> tuple[float, ...]:
    """The kinks that an error advises to declare."""
    found = re.search(r"kinks=\(([^)]*)\)", str(refusal))
    assert found, refusal
    return tuple(float(kink) for kink in found[1].split(",") if kink.strip())


@pytest.mark.slow
@settings(max_examples=30, deadline=None)
@given(PLACES)
@example(1.0005)
def test_a_kink_is_refused_undeclared_and_right_declared(at: float) -> None:
    def f(x: np.ndarray) -> np.ndarray:
        return np.abs(x - at)

    with pytest.raises(InputError, match="kink") as refusal:
        custom_activation(f)
    assert advised_kinks(refusal.value) == (pytest.approx(at, rel=1e-9, abs=1e-9),)
    q = np.array([0.3, 1.0, 40.0])
    made, place = custom_activation(f, kinks=[at]), at / np.sqrt(q)
    assert_close(moments.second_moment(made, q), q + at**2, Oracle.CUSTOM_CALLABLE)
    mean = 2.0 * np.sqrt(q) * normal_density(place) + at * special.erf(place / math.sqrt(2.0))
    assert_close(moments.mean_derivative(made, q, 0), mean, Oracle.CUSTOM_CALLABLE)
    curvature = 2.0 * normal_density(place) / np.sqrt(q)
    assert_close(moments.mean_derivative(made, q, 2), curvature, Oracle.CUSTOM_CALLABLE, scale=1.0)


@pytest.mark.slow
@settings(max_examples=30, deadline=None)
@given(st.floats(-20.0, 20.0), st.floats(-9.0, 0.0))
@example(0.3, -9.0)
def test_a_small_kink_is_refused(at: float, magnitude: float) -> None:
    """x + size |x - at| down to size = 1e-9 of the largest |x| on the panel: the misfit falls too slowly."""
    size = 10.0**magnitude * max(1.0, abs(at))
    with pytest.raises(InputError, match="kink"):
        custom_activation(lambda x: x + size * np.abs(x - at))


@pytest.mark.parametrize("order", [2, 3])
def test_a_jump_of_a_higher_derivative_is_refused_undeclared_and_right_declared(order: int) -> None:
    """(x - 0.3)_+^order / order!, whose derivative of that order is a step."""

    def f(x: np.ndarray) -> np.ndarray:
        return np.maximum(x - 0.3, 0.0) ** order / math.factorial(order)

    with pytest.raises(InputError, match="kink"):
        custom_activation(f)
    q = np.array([0.25, 1.0, 9.0])
    step = 0.5 * special.erfc(0.3 / np.sqrt(2.0 * q))
    ramp = np.sqrt(q) * normal_density(0.3 / np.sqrt(q)) - 0.3 * step
    made = custom_activation(f, kinks=[0.3])
    curvature = step if order == 2 else ramp
    assert_close(moments.mean_derivative(made, q, 2), curvature, Oracle.CUSTOM_CALLABLE)


@pytest.mark.slow
@settings(max_examples=30, deadline=None)
@given(st.floats(-3.0, 3.0), st.floats(-4.0, 0.0), st.floats(-3.0, 1.0))
@example(0.37, -4.0, 0.0)
def test_a_narrow_bump_is_found_and_integrated(at: float, log_width: float, log_height: float) -> None:
    """x + height exp(-((x - at)/width)²), of which every moment is closed."""
    width, height, q = 10.0**log_width, 10.0**log_height, 1.0
    made = custom_activation(lambda x: x + height * np.exp(-(((x - at) / width) ** 2)))

    def mean_of_bump(square: float) -> float:
        return math.sqrt(square / (square + 2.0 * q)) * math.exp(-(at**2) / (square + 2.0 * q))

    once, twice = mean_of_bump(width**2), mean_of_bump(width**2 / 2.0)
    cross = 2.0 * at * q / (width**2 + 2.0 * q) * once
    exact = q + 2.0 * height * cross + height**2 * twice
    found = moments.second_moment(made, q)
    assert found == pytest.approx(exact, rel=RELATIVE)
    assert moments.mean_derivative(made, q, 0) == pytest.approx(height * once, rel=RELATIVE, abs=RELATIVE)


@pytest.mark.slow
def test_what_cannot_be_excluded_is_said_with_every_error_bound() -> None:
    made, rows = custom_activation(_bump), np.random.default_rng(0).standard_normal((5, 4))
    assert "cannot be excluded" in made.caveat
    for kernel in (nsd.conjugate_kernel, nsd.tangent_kernel):
        _, evidence = kernel(nsd.DEQ(made, 0.2), rows, return_info=True)
        assert evidence.caveat == made.caveat
        assert evidence.error_bound > 1e-13
        _, both = kernel(nsd.Explicit(["tanh", made, made]), rows, return_info=True)
        assert both.caveat == made.caveat
        _, evidence = kernel(nsd.DEQ("tanh", 0.2), rows, return_info=True)
        assert evidence.caveat == activation("tanh").caveat == ""
    assert "cannot be excluded" in activation("formula", expression="x * sigmoid(x)").caveat


def test_the_distance_of_the_probes_is_the_one_that_the_caveat_states() -> None:
    """Of all points where the callable was called, no two neighbours are further apart than twice that."""
    seen: list[np.ndarray] = []

    def f(x: np.ndarray) -> np.ndarray:
        seen.append(x.ravel().copy())
        return np.tanh(x)

    made = custom_activation(f)
    relative, near = (float(number) for number in re.findall(r"([\d.e-]+)(?:·\|x\|| near zero)", made.caveat))
    points = np.unique(np.concatenate(seen))
    points = points[np.abs(points) < 60.0]
    assert np.all(np.diff(points) <= 2.0 * np.maximum(relative * np.abs(points[1:]), near) * (1.0 + relative))
    assert sum(map(len, seen)) < 200_000


@pytest.mark.parametrize(
    ("f", "name"),
    [
        (lambda x: 0.5 * x * (1.0 + special.erf(x / math.sqrt(2.0))), "gelu"),
        (lambda x: np.log(1.0 + np.exp(x)), "softplus"),
        (lambda x: 1.0 - 2.0 / (np.exp(2.0 * x) + 1.0), "tanh"),
        (lambda x: x / (1.0 + np.exp(-x)), "swish"),
    ],
)
def test_rounding_errors_in_the_tails_are_no_lack_of_smoothness(
    f: Callable[[np.ndarray], np.ndarray], name: str
) -> None:
    made, q = custom_activation(f), np.array([0.04, 1.0, 25.0])
    assert_close(
        moments.second_moment(made, q), moments.second_moment(activation(name), q), Oracle.CUSTOM_CALLABLE
    )


# --- callables that are not what they should be ----------------------------------------------------------------------


@pytest.mark.parametrize(
    "f",
    [
        math.tanh,
        lambda x: x if x > 0 else 0.0,
        lambda x: x.astype(str),
        lambda x: ["no number"] * len(x),
        lambda x: [math.tanh(v) for v in [*x.ravel(), 0.0]],
        lambda x: x.sum(),
        lambda x: None,
        lambda x: 1 / 0,
        lambda x: np.tanh(x.astype(np.float32)),
        np.vectorize(lambda x: x if x > 0 else 0),
    ],
    ids=[
        "math.tanh", "if", "strings", "list of strings", "list of numbers", "sum", "None", "raises", "single precision",
        "vectorize of whole numbers",
    ],
)  # fmt: skip
def test_a_callable_that_does_not_take_arrays_is_answered_with_what_to_do(f: Callable[..., object]) -> None:
    for arguments in ((f,), (np.tanh, f)):
        with pytest.raises(InputError, match=r"np\.where.*numpy\.vectorize\(f, otypes=\[float\]\)"):
            custom_activation(*arguments)


@pytest.mark.parametrize("f", [np.vectorize(math.tanh, otypes=[float]), np.frompyfunc(math.tanh, 1, 1)])
def test_the_advice_for_functions_of_one_number_works(f: Callable[..., object]) -> None:
    made, q = custom_activation(f), np.array([0.1, 4.0])
    assert_close(
        moments.second_moment(made, q), moments.second_moment(activation("tanh"), q), Oracle.CUSTOM_CALLABLE
    )
    assert_close(made(0.5), np.tanh(0.5), Oracle.CLOSED_FORM)


def test_a_callable_may_overwrite_its_argument_and_is_never_called_with_a_number() -> None:
    def f(x: np.ndarray) -> np.ndarray:
        assert isinstance(x, np.ndarray)
        assert x.ndim >= 1
        assert x.size > 0
        return np.tanh(x, out=x)

    def slope(x: np.ndarray) -> np.ndarray:
        np.cosh(x, out=x)
        return np.power(x, -2.0, out=x)

    made, known, q = custom_activation(f, slope), activation("tanh"), np.array([0.1, 4.0])
    for moment in (moments.second_moment, moments.second_moment_slope, moments.derivative_second_moment):
        assert_close(moment(made, q), moment(known, q), Oracle.CUSTOM_CALLABLE)
    x = np.array([0.5, -1.0])
    assert_close(made(x), np.tanh([0.5, -1.0]), Oracle.CLOSED_FORM)
    assert x.tolist() == [0.5, -1.0]
    assert made(0.5) == np.tanh(0.5)
    assert made(np.empty((0, 3))).shape == (0, 3)
