"""Equivalents and twins of neural ODEs."""

import numpy as np
import pytest

import notsodeep as nsd
from notsodeep.equivalents.expansion import expand


@pytest.mark.parametrize("kernel", ["ck", "ntk"])
@pytest.mark.parametrize("name", ["tanh", "softplus"])
def test_the_series_is_that_of_the_exact_kernel(name, kernel):
    model, squares, order = (
        nsd.NeuralODE(name, 1.2, 1.1, 0.8, sigma_b2=0.3, decay=0.2),
        np.array([0.9, 1.2]),
        3,
    )
    series = expand(model, squares, squares, kernel, order, 0.1)[:, 0, 1]
    errors = []
    for step in (0.1, 0.05):
        c = 0.1 * np.sqrt(squares[0] * squares[1]) + step
        X = np.array([[np.sqrt(squares[0]), 0.0], [c / np.sqrt(0.9), np.sqrt(squares[1] - c**2 / 0.9)]])
        exact = (nsd.conjugate_kernel if kernel == "ck" else nsd.tangent_kernel)(model, X)[0, 1]
        errors.append(abs(exact - np.polyval(series[::-1], step)))
    assert errors[0] < 1e-5
    # What is left out is of fourth order.
    assert errors[0] / errors[1] == pytest.approx(16.0, rel=0.15)


def test_what_is_not_centred_is_refused_with_a_remedy():
    with pytest.raises(nsd.InputError, match=r"model\.centred"):
        nsd.coefficients(nsd.NeuralODE("relu"), 1.0)
    centred = nsd.coefficients(nsd.NeuralODE("relu").centred(1.0), 1.0)
    assert centred.norm > 0.0
    assert centred.trace > 0.0


def test_a_twin_is_closer_than_euler_steps_and_plain_layers():
    X = np.random.default_rng(0).normal(size=(80, 12)) / np.sqrt(12)
    model = nsd.NeuralODE("tanh", 4.0)
    made = nsd.design(model, X=X[:40], kernel="both", layers=3)
    assert made.fitted_to == 40
    networks = {"twin": made.network, "euler": model.unrolled(3), "plain": nsd.Explicit(["tanh"] * 3)}
    for kernel in (nsd.conjugate_kernel, nsd.tangent_kernel):
        target = kernel(model, X[40:])
        errors = {name: nsd.kernel_distance(target, kernel(net, X[40:])) for name, net in networks.items()}
        assert errors["twin"].relative < 0.01
        assert errors["twin"].relative < 0.3 * errors["euler"].relative
        assert errors["twin"].relative < 0.3 * errors["plain"].up_to_factor
    with pytest.raises(nsd.InputError, match="2 to 4 layers"):
        nsd.design(model, 1.0, layers=5)
    with pytest.raises(nsd.InputError, match="family='injected'"):
        nsd.design(model, 1.0, family="hard_tanh")
