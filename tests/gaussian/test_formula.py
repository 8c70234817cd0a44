"""Activations typed as formulas: equal to the built-in ones, exact derivatives, and nothing executed."""

from __future__ import annotations

import copy
import pickle
import sys
from collections.abc import Callable
from typing import Any

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tolerances import Oracle, assert_close

import notsodeep as nsd
from notsodeep.designs import Design
from notsodeep.errors import InputError
from notsodeep.gaussian import Activation, activation
from notsodeep.gaussian.formula import MAX_LENGTH, read_formula
from notsodeep.gaussian.shapes import NUMPY


def formula(text: str) -> Activation:
    return activation("formula", expression=text)


# --- equal to what is built in ---------------------------------------------------------------------------------------

BUILT_IN = {
    "tanh(x)": activation("tanh"),
    "1 - 2 / (exp(2*x) + 1)": activation("tanh"),
    "x * sigmoid(x)": activation("swish"),
    "relu(x)": activation("relu"),
    "max(x, 0.1*x)": activation("leaky_relu", a=1.0, b=0.1),
    "0.8 * clip(x, -1.2, 1.2)": activation("hard_tanh", a=0.8, c=1.2),
    "x * (1 + erf(x / sqrt(2))) / 2": activation("gelu"),
    "log(1 + e**x)": activation("softplus"),
    "max(x, 0) + expm1(min(x, 0))": activation("elu"),
    "x / (1 + abs(x))": activation("softsign"),
    "x * tanh(softplus(x))": activation("mish"),
    "0.3 - x + x**3 / 20": activation("polynomial", coefficients=(0.3, -1.0, 0.0, 0.05)),
}
EVERY = pytest.mark.parametrize("text", BUILT_IN)


@pytest.mark.slow
@EVERY
def test_values_derivatives_and_kinks(text: str) -> None:
    phi, known = formula(text), BUILT_IN[text]
    assert phi.kinks == known.kinks
    x = np.linspace(-12.0, 12.0, 481) + 0.00317
    assert_close(phi(x), known(x), Oracle.CLOSED_FORM)
    for order in (1, 2):
        assert_close(phi.derivative(x, order), known.derivative(x, order), Oracle.CUSTOM_CALLABLE, scale=10.0)


# --- derivatives by other routes -------------------------------------------------------------------------------------

# Text, and the same function for mpmath, which differentiates it numerically with 60 digits.
IN_MPMATH: dict[str, Callable[[Any], Any]] = {
    "exp(-x**2) * sin(3*x)": lambda x: mpmath.exp(-(x**2)) * mpmath.sin(3 * x),
    "arctan(x) + log1p(x**2) / cosh(x / 4)": lambda x: (
        mpmath.atan(x) + mpmath.log(1 + x**2) / mpmath.cosh(x / 4)
    ),
    "(1 + x**2)**-0.5 + sinh(x / 9)": lambda x: 1 / mpmath.sqrt(1 + x**2) + mpmath.sinh(x / 9),
    "2**x - cos(pi*x)": lambda x: mpmath.mpf(2) ** x - mpmath.cos(mpmath.pi * x),
    "tanh(x)**3 + erf(x)": lambda x: mpmath.tanh(x) ** 3 + mpmath.erf(x),
    "log(1 + sqrt(1 + x**2)) + sigmoid(x)": lambda x: (
        mpmath.log(1 + mpmath.sqrt(1 + x**2)) + 1 / (1 + mpmath.exp(-x))
    ),
}


@pytest.mark.parametrize("text", IN_MPMATH)
def test_values_and_derivatives_against_mpmath(text: str) -> None:
    phi = formula(text)
    for x in (-2.3, -0.4, 0.7, 3.1):
        with mpmath.workdps(60):
            exact = [float(mpmath.diff(IN_MPMATH[text], mpmath.mpf(x), k)) for k in range(3)]
        assert_close(phi(x), exact[0], Oracle.CLOSED_FORM, scale=1.0)
        found = [float(phi.derivative(x, order)) for order in (1, 2)]
        assert_close(found, exact[1:], Oracle.CUSTOM_CALLABLE, scale=1.0)


# --- random formulas -------------------------------------------------------------------------------------------------

NAMES = {
    "tanh": np.tanh, "sin": np.sin, "cos": np.cos, "arctan": np.arctan, "abs": np.abs, "max": np.maximum,
    "relu": lambda x: np.maximum(x, 0.0), "sigmoid": lambda x: 1.0 / (1.0 + np.exp(-x)),
}  # fmt: skip
_NUMBERS = st.integers(1, 40).map(lambda n: repr(n / 8))
_TREES = st.recursive(
    st.just("x") | _NUMBERS,
    lambda inner: st.one_of(
        st.builds("({1}) {0} ({2})".format, st.sampled_from("+-*"), inner, inner),
        st.builds("{}({})".format, st.sampled_from(sorted(NAMES.keys() - {"max"})), inner),
        st.builds("max({}, {})".format, inner, _NUMBERS),
        st.builds("-({})**2".format, inner),
    ),
    max_leaves=6,
).map("{} + x".format)


@pytest.mark.slow
@settings(deadline=None, max_examples=60)
@given(_TREES)
def test_random_formulas_are_read_as_python_means_them(text: str) -> None:
    if len(text) > MAX_LENGTH:
        return
    function_read, _, tidy = read_formula(text)
    x = np.linspace(-2.0, 2.0, 41) + 0.0123
    found, expected = function_read(x, NUMPY), eval(text, NAMES | {"x": x})
    bounded = np.abs(expected) < 1e6
    np.testing.assert_allclose(found[bounded], expected[bounded], rtol=1e-9, atol=1e-9)
    np.testing.assert_array_equal(read_formula(tidy)[0](x, NUMPY), found)


# --- kinks -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "kinks"),
    [
        ("abs(x**2 - 1)", (-1.0, 1.0)),
        ("max(2*x - 1, 0.5 - x)", (0.5,)),
        ("min(abs(x), 3)", (-3.0, 0.0, 3.0)),
        ("relu(relu(x))", (0.0,)),
        ("abs(x**2)", ()),
        ("relu(x)**2 + abs(3*x - 1)", (0.0, 1.0 / 3.0)),
        ("relu(exp(x) - 2)", (float(np.log(2.0)),)),
        ("clip(x, -pi, e)", (-float(np.pi), float(np.e))),
    ],
)
def test_kinks_are_found(text: str, kinks: tuple[float, ...]) -> None:
    np.testing.assert_allclose(formula(text).kinks, kinks, rtol=4e-16, atol=0)


def test_jumps_are_those_of_the_branches() -> None:
    # Slopes of |x² - 1| at ±1 turn from -2 to 2 and back.
    shape = formula("abs(x**2 - 1)").shape
    assert_close(shape.jumps(1), [4.0, 4.0], Oracle.CUSTOM_CALLABLE)
    # The root of cos x = 0.3 is no floating-point number, and the branch beside it is known all the same.
    bent = formula("relu(cos(x) - 0.3)")
    roots = np.array(bent.kinks)
    assert len(roots) > 10
    assert_close(
        np.abs(bent.shape.jumps(1)), np.full(len(roots), np.sqrt(1.0 - 0.09)), Oracle.CUSTOM_CALLABLE
    )


# --- what is refused -------------------------------------------------------------------------------------------------

# What the error says, and the texts that it is said of.
HOSTILE: dict[str, list[str]] = {
    "no place": [
        "__import__('os').system('true')", "lambda: x", "f'{x}'", '"' + "x" * 50 + '"', "(y := x)", "x; x", "x\nx",
        "x\x00", "#", "x \\\n", "ｘ", "tanh(\u0445)", "x @ x", "x[0]", "[x for x in x]", "{x}", "x < 1", "x = 1",
        "max(x, key=x)", "x²", "x^2",
    ],
    "not part of a formula": [
        "x.__class__", "().__class__", "x if x else 1", "not x", "x or x", "x, x", "max(*x)", "True", "None + x", "...",
        "1j * x", "x // 2",
    ],
    "no function": ["__import__(x)", "eval(x)"],
    "the variable is x": ["open", "y", "X", "tanh"],
    "as large as": ["9**9**9", "9**9**9**9**9", "1e7*x", "x**21"],
    "exponent": ["x**x", "(-2)**x"],
    "must be finite": ["1e400 * x", "9" * 290 + "*x", "x/0", "log(0) + x", "sqrt(-1) * x"],
    "2 arguments": ["max(x)"],
    "1 argument": ["tanh()", "tanh(x, x)"],
    "needs its *": ["2x", "2(x)", "x(x)"],
    "never closed": ["(x", "(" * 145 + "x" + ")" * 140],
    "unmatched": ["x)"],
    "at its end": ["x +"],
    "invalid syntax": ["x + *x"],
    "empty": ["", "  "],
    "same number": ["7"],
    "low < high": ["clip(x, 1, -1)"],
    "characters": ["(" * 10_000 + "x" + ")" * 10_000, "sin(" * 61 + "x" + ")" * 61],
    "deep": ["-" * 250 + "x", "-(" * 90 + "x" + ")" * 90, "+".join("x" * 130)],
    "every x": ["sqrt(x)", "log(x)", "exp(exp(x))", "max(sqrt(x), 0)", "x/abs(x)"],
    "not smooth": ["1/x", "sqrt(abs(x))", "relu(x)**1.5", "relu(x)**2.5"],
    "too fast": ["sin(1e5*x)"],
    "kinks": ["abs(sin(50*x))"],
}  # fmt: skip
HOSTILE_TEXTS = [(text, words) for words, texts in HOSTILE.items() for text in texts]


@pytest.mark.slow
@pytest.mark.parametrize(("text", "words"), HOSTILE_TEXTS, ids=lambda text: ascii(text[:30]))
def test_everything_else_is_refused_by_a_sentence(text: str, words: str) -> None:
    with pytest.raises(InputError) as refused:
        formula(text)
    message = str(refused.value)
    assert words in message
    assert len(message) < 800
    assert message.endswith(".")


def test_what_is_not_text_is_refused() -> None:
    for value in (None, 3, b"x", ["x"], {"x": 1}, True):
        with pytest.raises(InputError, match="A formula is text"):
            activation("formula", expression=value)
    with pytest.raises(InputError, match="empty"):
        activation("formula")
    with pytest.raises(InputError, match="does not take"):
        activation("formula", formula="x")


def test_the_place_of_the_mistake_is_named() -> None:
    with pytest.raises(InputError, match=r"at character 5, 'foo\(x\)': there is no function 'foo'"):
        formula("x + foo(x)")


def test_reading_runs_no_python() -> None:
    """Python reports the execution of code, imports and opened files to its audit hooks."""
    seen: list[str] = []
    watching = True

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        if watching and event in ("exec", "os.system", "open", "import", "subprocess.Popen"):
            seen.append(event)

    formula("x * sigmoid(x)")
    sys.addaudithook(hook)
    try:
        for text, _ in [*HOSTILE_TEXTS, ("x * tanh(x)", "")]:
            try:
                read_formula(text)
            except InputError:
                continue
    finally:
        watching = False
    assert seen == []


# --- as any other activation -----------------------------------------------------------------------------------------


def test_equal_texts_are_equal_activations() -> None:
    one, other = formula("x*sigmoid( x )"), formula("x * sigmoid(x)")
    assert one == other
    assert hash(one) == hash(other)
    assert one != formula("x * tanh(x)")
    assert str(one) == "formula(expression='x * sigmoid(x)')"
    assert dict(one.parameters) == {"expression": "x * sigmoid(x)"}
    moved = one.scaled(2.0, gain=0.5).shifted(0.1)
    for again in (pickle.loads(pickle.dumps(moved)), copy.deepcopy(moved)):
        assert again == moved
        np.testing.assert_array_equal(again([0.3, -2.0]), moved([0.3, -2.0]))


@pytest.mark.slow
def test_a_formula_in_json_is_read_like_any_other() -> None:
    text = nsd.design(nsd.DEQ(formula("x * sigmoid(x)"), 0.2), 1.0).to_json()
    with pytest.raises(InputError, match="no function 'evil'"):
        Design.from_json(text.replace("x * sigmoid(x)", "evil(x)"))


@pytest.mark.parametrize(
    ("text", "knots", "slopes"),
    [
        ("relu(x - 2)", (2.0,), (0.0, 1.0)),
        ("relu(x - 3000)", (3000.0,), (0.0, 1.0)),
        ("relu(0.001 - abs(x))", (-0.001, 0.0, 0.001), (0.0, 1.0, -1.0, 0.0)),
        ("abs(abs(x) - 1) / 4", (-1.0, 0.0, 1.0), (-0.25, 0.25, -0.25, 0.25)),
        ("abs(x - 1) - abs(x - 1 + 2**-20)", (1.0 - 2.0**-20, 1.0), (0.0, -2.0, 0.0)),
        ("max(x, 0) - max(x, 0) + 2*x + 1", (), (2.0,)),
    ],
)
def test_straight_pieces_are_recognised(
    text: str, knots: tuple[float, ...], slopes: tuple[float, ...]
) -> None:
    phi = formula(text)
    assert phi.shape.pieces is not None
    np.testing.assert_allclose(phi.shape.pieces.knots, knots, rtol=4e-16)
    assert phi.shape.pieces.slopes == slopes
    x = np.random.default_rng(0).standard_normal(500) * np.logspace(-4, 5, 500)
    np.testing.assert_allclose(phi(x), read_formula(text)[0](x, NUMPY), rtol=1e-12, atol=1e-15)
    assert formula(text.replace(" ", "")) == phi
    assert str(phi) == f"formula(expression={phi.shape.expression!r})"


def test_curved_formulas_have_no_straight_pieces() -> None:
    for text in ("x * relu(x)", "relu(x**2 - 1)", "max(x, tanh(x))"):
        assert formula(text).shape.pieces is None


def test_a_formula_that_varies_too_fast_says_so() -> None:
    with pytest.raises(
        InputError, match=r"varies too fast to be resolved between ±32768.*Scale the samples down"
    ):
        nsd.conjugate_kernel(nsd.DEQ("x + sin(x)**2", 0.2), np.array([[2500.0]]))
