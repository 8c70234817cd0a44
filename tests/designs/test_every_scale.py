"""Designs over the whole range of models: a design that keeps its word, or an error that says why there is none."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from notsodeep.designs import Design, design
from notsodeep.equivalents.coefficients import Coefficients, coefficients
from notsodeep.errors import ConvergenceError, InputError
from notsodeep.gaussian import Activation, activation
from notsodeep.gaussian.activations import BUILDERS
from notsodeep.models import DEQ, Explicit

KERNELS = ["ck", "ntk", "ntk_paper", "both"]
# Parameters of the activations that have none by default.
PARAMETERS = {
    "piecewise_linear": {"knots": [-1.0, 0.5], "slopes": [0.2, 0.9, 0.1]},
    "polynomial": {"coefficients": [0.1, 0.5, 0.2, -0.02]},
    "formula": {"expression": "x * exp(-x**2 / 2) + 0.3 * x"},
}
NAMES = sorted(BUILDERS)


def built_in(name: str) -> Activation:
    return activation(name, **PARAMETERS.get(name, {}))


def relative_errors(wanted: Coefficients, found: Coefficients) -> np.ndarray:
    """Of each scalar, or relative to the diagonal where the wanted one is rounding."""
    square = wanted.tau0**2
    units = wanted.diagonal / np.array([1.0, square, square**2, square**2])
    numbers, others = wanted.as_array(), found.as_array()
    return np.abs(others - numbers) / np.where(np.abs(numbers) > 1e-13 * units, np.abs(numbers), units)


def check_exactness(made: Design, model: DEQ | Explicit, tau0: float, kernel: str) -> None:
    """`exact` is what the scalars computed here say, from the model and the network alone."""
    if made.misfit is not None:
        # Where the papers' families have no answer a closer injected network stands in, which promises a distance.
        assert made.residual == made.misfit
        assert made.exact == (made.misfit <= 1e-9)
        assert made.explain()
        return
    centred = model.centred(tau0)
    errors = relative_errors(coefficients(centred, tau0, kernel), coefficients(made.network, tau0, kernel))
    assert made.exact == (errors.max() <= 1e-9), made
    assert made.exact or made.reason
    assert made.explain()


deqs = st.builds(
    lambda name, sigma_a2: DEQ(built_in(name), sigma_a2), st.sampled_from(NAMES), st.floats(1e-6, 0.999)
)
# Without terms of first or second order.
layers = st.lists(st.sampled_from(["cos", "abs", "sin", "identity", "gelu"]), min_size=1, max_size=3)
norms = st.floats(np.log(1e-3), np.log(50.0)).map(np.exp)
FAMILIES = ["hard_tanh", "leaky_relu", "polynomial", "quadratic"]


@pytest.mark.slow
@settings(max_examples=25)
@given(
    st.tuples(deqs, st.just("auto")) | st.tuples(layers.map(Explicit), st.sampled_from(FAMILIES)),
    norms,
    st.sampled_from(KERNELS),
)
@example((DEQ("sin", 0.2), "auto"), 10.0, "both")
@example((DEQ("sin", 1e-6), "auto"), 50.0, "both")
@example((DEQ("cos", 0.5), "auto"), 50.0, "both")
@example((DEQ("cos", 0.8), "auto"), 1e-3, "ck")
@example((DEQ("erf", 0.999), "auto"), 0.4376, "ck")
@example((Explicit(["sin"]), "polynomial"), 10.0, "ntk")
@example((Explicit(["cos", "cos"]), "polynomial"), 1.0, "ck")
@example((Explicit(["abs", "abs"]), "hard_tanh"), 1.0, "ntk")
@example((Explicit(["identity", "cos", "abs"]), "quadratic"), 1e-3, "ntk_paper")
def test_a_design_keeps_its_word_or_an_error_says_why_there_is_none(
    case: tuple[DEQ | Explicit, str], tau0: float, kernel: str
) -> None:
    model, family = case
    try:
        made = design(model, tau0, kernel, family)
    except (InputError, ConvergenceError):
        return
    check_exactness(made, model, tau0, kernel)


@pytest.mark.parametrize(("name", "tau0", "kernel"), [("sin", 10.0, "ck"), ("cos", 50.0, "ntk")])
def test_a_kernel_that_is_a_multiple_of_the_identity_has_an_exact_design(
    name: str, tau0: float, kernel: str
) -> None:
    assert design(DEQ(name, 0.2), tau0, kernel, "papers").exact


def test_a_target_without_a_trace_term_gets_a_reason() -> None:
    made = design(Explicit(["cos", "cos"]), 1.0, family="hard_tanh")
    assert "∞ in place of ½" in made.reason
    assert "∞" in design(Explicit(["cos", "cos"]), 1.0, "ntk", "leaky_relu").reason


def test_a_conjugate_kernel_has_a_design_where_the_tangent_kernel_diverges() -> None:
    deq = DEQ("erf", 0.999)
    with pytest.raises(ConvergenceError, match="diverges"):
        design(deq, 0.4376, "ntk")
    assert design(deq, 0.4376, family="papers").exact
