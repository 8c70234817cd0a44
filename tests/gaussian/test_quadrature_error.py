"""The estimate of the quadrature error is small where the rule is right and speaks up where it is not."""

import numpy as np
import pytest

import notsodeep as nsd
from notsodeep.gaussian import moments
from notsodeep.gaussian.smooth import Tanh

SCALES = np.array([1e-6, 1e-2, 1.0, 30.0, 1e4])


@pytest.mark.parametrize(
    "name", ["tanh", "erf", "swish", "gelu", "softplus", "elu", "mish", "arctan", "softsign"]
)
def test_built_in_activations_are_resolved_at_every_scale(name: str) -> None:
    assert moments.quadrature_error(nsd.activation(name), SCALES).max() < 1e-13


@pytest.mark.parametrize("name", ["relu", "hard_tanh", "sin", "cos"])
def test_closed_forms_have_none(name: str) -> None:
    np.testing.assert_array_equal(moments.quadrature_error(nsd.activation(name), SCALES), 0.0)


@pytest.mark.slow
def test_a_smooth_callable_is_resolved() -> None:
    phi = nsd.custom_activation(lambda x: np.tanh(x) + 0.1 * np.sin(3.0 * x))
    assert moments.quadrature_error(phi, SCALES).max() < 1e-11


def test_panels_that_are_too_coarse_are_found_out() -> None:
    class Coarse(Tanh):
        feature = 200.0

    assert Coarse().quadrature_error(np.array([1e4])).max() > 1e-6
