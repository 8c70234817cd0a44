"""Convolutional models against a brute-force recursion, random networks, dense models, and themselves in other ways."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from conv_oracles import DUALS, FEEDBACK, brute, images, shifts
from hypothesis import given, settings
from hypothesis import strategies as st
from tolerances import Oracle, assert_close

import notsodeep as nsd

CASES = [
    ("relu", "flatten", "zeros", 3, (3, 2, 4, 5)),
    ("relu", "pool", "zeros", 3, (3, 1, 3, 4)),
    ("relu", "flatten", "circular", 5, (2, 3, 7)),
    ("relu", "pool", "circular", 3, (3, 2, 3, 3)),
    ("relu", "flatten", "zeros", 5, (2, 1, 5, 6)),
    ("erf", "flatten", "zeros", 3, (3, 3, 3, 5)),
    ("erf", "pool", "circular", 5, (3, 1, 5)),
    ("erf", "pool", "zeros", 1, (3, 2, 2, 3)),
    ("erf", "flatten", "circular", 1, (3, 2, 4)),
    ("tanh", "flatten", "zeros", 3, (2, 2, 3)),
    ("tanh", "pool", "circular", 3, (2, 1, 3)),
    ("hard_tanh", "flatten", "zeros", 3, (2, 2, 3, 4)),
    ("hard_tanh", "pool", "circular", 3, (2, 1, 3)),
]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "readout", "padding", "filter_size", "shape"), CASES)
def test_kernels_follow_the_recursion(
    name: str, readout: str, padding: str, filter_size: int, shape: tuple[int, ...]
) -> None:
    model = nsd.ConvDEQ(name, FEEDBACK, bias2=0.05, filter_size=filter_size, padding=padding, readout=readout)
    samples = images(*shape)
    features, tangent = nsd.both_kernels(model, samples)
    expected = brute(model, samples, name)
    for found, wanted in zip((features, tangent), expected, strict=True):
        assert_close(found, wanted, Oracle.QUADRATURE, scale=float(np.abs(wanted).max()))
    rectangle = nsd.tangent_kernel(model, samples[1:], samples)
    assert_close(rectangle, tangent[1:], Oracle.QUADRATURE)


@pytest.mark.parametrize("name", ["relu", "erf"])
@pytest.mark.parametrize("readout", ["flatten", "pool"])
def test_positions_without_signal(name: str, readout: str) -> None:
    model = nsd.ConvDEQ(name, FEEDBACK, filter_size=1, readout=readout)
    samples = images(3, 2, 4, 3, dead=True)
    found = nsd.both_kernels(model, samples)
    for one, wanted in zip(found, brute(model, samples, name), strict=True):
        assert np.isfinite(one).all()
        assert_close(one, wanted, Oracle.QUADRATURE)


@pytest.mark.parametrize("name", ["relu", "hard_tanh"])
@pytest.mark.parametrize("readout", ["flatten", "pool"])
def test_variances_that_fall_towards_the_border(name: str, readout: str) -> None:
    """Nothing but zeros around a small figure: variances from 1 to 1e-7, and covariances that are as accurate."""
    samples = np.zeros((3, 1, 9, 9))
    samples[:, :, 4:6, 4:6] = images(3, 1, 2, 2)
    model = nsd.ConvDEQ(name, FEEDBACK, readout=readout)
    *found, info = nsd.both_kernels(model, samples, return_info=True)
    assert info.residual <= 1e-12
    for one, other in zip(found, nsd.both_kernels(model, samples, depth=30), strict=True):
        assert_close(one, other, Oracle.QUADRATURE)


# --- dense models -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "oracle"),
    [("relu", Oracle.CLOSED_FORM), ("abs", Oracle.CLOSED_FORM), ("erf", Oracle.CLOSED_FORM),
     ("tanh", Oracle.CLOSED_FORM), ("gelu", Oracle.CLOSED_FORM), ("elu", Oracle.QUADRATURE)],
)  # fmt: skip
@pytest.mark.parametrize("readout", ["flatten", "pool"])
def test_one_position_or_constant_images_are_the_dense_model(name: str, oracle: Oracle, readout: str) -> None:
    rows = images(4, 6)
    dense = nsd.both_kernels(nsd.DEQ(name, FEEDBACK, bias2=0.1), rows)
    model = nsd.ConvDEQ(name, FEEDBACK, bias2=0.1, filter_size=1, readout=readout)
    around = nsd.ConvDEQ(name, FEEDBACK, bias2=0.1, filter_size=3, padding="circular", readout=readout)
    constant = np.repeat(np.repeat(rows[:, :, None, None], 3, 2), 4, 3)
    for found in (
        nsd.both_kernels(model, rows[:, :, None]),
        nsd.both_kernels(model, constant),
        nsd.both_kernels(around, constant),
    ):
        for one, wanted in zip(found, dense, strict=True):
            assert_close(one, wanted, oracle)


# --- explicit networks --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["erf", "relu", "shifted"])
def test_two_layers_by_hand(name: str) -> None:
    """Two layers with input injected again: (10.5) and (10.6), the tangent kernel as a sum over layers."""
    samples = images(3, 2, 3, 4)
    weights, inject, both = (0.8, 0.5), 0.4, DUALS[name]
    phi = nsd.activation("relu").scaled(0.8).shifted(-0.2) if name == "shifted" else nsd.activation(name)
    values = samples.reshape(3, 2, -1).transpose(0, 2, 1)
    taps = shifts((3, 4), 3, "zeros")

    def mix(field: np.ndarray) -> np.ndarray:
        return sum(tap @ field @ tap.T for tap in taps) / 9

    for readout, R in (("flatten", np.eye(12) / 12), ("pool", np.full((12, 12), 1 / 144))):
        model = nsd.ConvExplicit([phi, phi], weights=weights, inject=[inject], bias2=0.1, readout=readout)
        found = nsd.both_kernels(model, samples)
        for i, j in itertools.product(range(3), repeat=2):
            mixed = {pair: mix(values[pair[0]] @ values[pair[1]].T) for pair in ((i, i), (i, j), (j, j))}
            first = {pair: weights[0] * field + 0.1 for pair, field in mixed.items()}
            q, r = np.diag(first[i, i]), np.diag(first[j, j])
            sides = {(i, i): (q, q), (i, j): (q, r), (j, j): (r, r)}
            seen = {pair: both(sides[pair][0][:, None], sides[pair][1][None], first[pair]) for pair in first}
            second = {pair: weights[1] * mix(seen[pair][0]) + inject * mixed[pair] + 0.1 for pair in first}
            q, r = np.diag(second[i, i]), np.diag(second[j, j])
            value, slope = both(q[:, None], r[None], second[i, j])
            # Forward: the tangent kernel of the pre-activations of layer 2, then the readout.
            entering = second[i, j] + weights[1] * mix(seen[i, j][1] * first[i, j])
            expected = np.sum(R * value), np.sum(R * (value + slope * entering))
            assert_close([one[i, j] for one in found], expected, Oracle.QUADRATURE)


# --- invariants ---------------------------------------------------------------------------------------------------


@pytest.mark.slow
@settings(max_examples=12, deadline=None)
@given(
    seed=st.integers(0, 1000),
    name=st.sampled_from(["relu", "abs", "tanh", "gelu"]),
    readout=st.sampled_from(["flatten", "pool"]),
    padding=st.sampled_from(["zeros", "circular"]),
    feedback=st.floats(0.0, 0.45),
)
def test_symmetric_positive_and_blind_to_order(
    seed: int, name: str, readout: str, padding: str, feedback: float
) -> None:
    model = nsd.ConvDEQ(name, feedback, padding=padding, readout=readout)
    samples = images(5, 2, 3, 4, seed=seed)
    order = np.random.default_rng(seed).permutation(5)
    for kernel, moved in zip(
        nsd.both_kernels(model, samples), nsd.both_kernels(model, samples[order]), strict=True
    ):
        assert np.array_equal(kernel, kernel.T)
        assert np.linalg.eigvalsh(kernel)[0] > -1e-12 * np.linalg.norm(kernel)
        assert_close(moved, kernel[np.ix_(order, order)], Oracle.QUADRATURE)


def test_circular_images_may_be_shifted_together() -> None:
    samples = images(4, 2, 5, 6)
    moved = np.roll(samples, (2, 3), (2, 3))
    turned = np.ascontiguousarray(samples.transpose(0, 1, 3, 2))
    for readout in ("flatten", "pool"):
        model = nsd.ConvDEQ("tanh", FEEDBACK, padding="circular", readout=readout)
        expected = nsd.both_kernels(model, samples)
        for others in (moved, turned):
            for one, wanted in zip(nsd.both_kernels(model, others), expected, strict=True):
                assert_close(one, wanted, Oracle.QUADRATURE)


def test_pooled_circular_images_may_be_shifted_each() -> None:
    samples = images(3, 1, 4, 5)
    moved = np.stack([np.roll(one, (k, 2 * k), (1, 2)) for k, one in enumerate(samples)])
    model = nsd.ConvDEQ("relu", FEEDBACK, padding="circular", readout="pool")
    assert_close(nsd.tangent_kernel(model, moved), nsd.tangent_kernel(model, samples), Oracle.QUADRATURE)


@pytest.mark.slow
def test_a_callable_has_the_kernel_of_the_activation_it_is() -> None:
    samples, phi = images(3, 1, 3, 3), nsd.custom_activation(np.tanh)
    found, info = nsd.tangent_kernel(nsd.ConvDEQ(phi, FEEDBACK), samples, return_info=True)
    assert_close(found, nsd.tangent_kernel(nsd.ConvDEQ("tanh", FEEDBACK), samples), Oracle.CUSTOM_CALLABLE)
    assert info.caveat
    _, info = nsd.conjugate_kernel(nsd.ConvExplicit([phi, "relu"]), samples, return_info=True)
    assert info.caveat


@pytest.mark.parametrize("readout", ["flatten", "pool"])
def test_amplitude_and_offset(readout: str) -> None:
    phi, samples = nsd.activation("relu").scaled(0.8).shifted(-0.2), images(3, 1, 3, 4)
    model = nsd.ConvDEQ(phi, FEEDBACK, readout=readout)
    for one, wanted in zip(nsd.both_kernels(model, samples), brute(model, samples, "shifted"), strict=True):
        assert_close(one, wanted, Oracle.QUADRATURE)


# --- evidence -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "way"),
    [
        ("relu", "closed form"),
        ("tanh", "series"),
        ("gelu", "closed form"),
        ("elu", "table"),
        ("hard_tanh", "closed form"),
    ],
)
def test_evidence(name: str, way: str) -> None:
    for readout in ("flatten", "pool"):
        model = nsd.ConvDEQ(name, FEEDBACK, readout=readout)
        # A handful of pairs is not worth a table.
        samples = images(6 if way == "table" else 2, 1, 3, 3)
        _, info = nsd.conjugate_kernel(model, samples, return_info=True)
        assert way in info.methods
        assert set(info.methods) <= {way, "series"}
        assert 1 <= info.iterations < 20
        assert info.residual <= 1e-12
        assert info.residual <= info.error_bound < 1e-10


def test_a_signal_that_grows_is_refused() -> None:
    with pytest.raises(nsd.ConvergenceError, match="Lower sigma_a2"):
        nsd.conjugate_kernel(nsd.ConvDEQ("relu", 2.5, 1.0, padding="circular"), images(2, 1, 3, 3))
    with pytest.raises(nsd.ConvergenceError, match=r"tangent kernel diverges.*Lower sigma_a2 below"):
        nsd.tangent_kernel(nsd.ConvDEQ(nsd.activation("tanh").scaled(2.0), 0.9), 0.01 * images(2, 1, 3, 3))


def test_a_conjugate_kernel_may_exist_where_the_tangent_kernel_does_not() -> None:
    """σ_a² E[φ'²] = 1.3: as for rows, what counts is the slope at the correlations that occur."""
    phi, rows = nsd.activation("tanh").scaled(2.0), images(5, 3)
    expected = nsd.conjugate_kernel(nsd.DEQ(phi, 0.9, 0.1), rows)
    model = nsd.ConvDEQ(phi, 0.9, 0.1, filter_size=1)
    found, info = nsd.conjugate_kernel(model, rows[:, :, None], return_info=True)
    assert_close(found, expected, Oracle.QUADRATURE)
    assert info.error_bound < 1e-10
    with pytest.raises(nsd.ConvergenceError, match="may not be unique"):
        nsd.conjugate_kernel(nsd.ConvDEQ(phi, 0.9, 0.1), images(3, 1, 4, 4))


# --- to a tolerance -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["relu", "leaky_relu", "abs", "tanh", "elu", "hard_tanh", "cos"])
@pytest.mark.parametrize("readout", ["flatten", "pool"])
def test_a_tolerance_is_kept_and_stated(name: str, readout: str) -> None:
    samples = images(4, 2, 5, 4)
    exact = nsd.both_kernels(nsd.ConvDEQ(name, FEEDBACK, readout=readout), samples)
    for tolerance in (1e-8, 1e-5, 1e-4):
        model = nsd.ConvDEQ(name, FEEDBACK, readout=readout)
        *found, info = nsd.both_kernels(model, samples, tolerance=tolerance, return_info=True)
        assert info.residual <= tolerance
        assert info.error_bound < 10.0 * tolerance
        # The bound is relative to the diagonal of the flattened kernel, also where pooling leaves less.
        flat = np.diag(nsd.conjugate_kernel(nsd.ConvDEQ(name, FEEDBACK), samples))
        size = np.sqrt(np.multiply.outer(flat, flat))
        assert np.all(np.abs(found[0] - exact[0]) <= (info.error_bound + 1e-11) * size)
        assert np.abs(found[1] - exact[1]).max() <= 10.0 * tolerance * np.abs(exact[1]).max()


def test_a_loose_tolerance_of_samples_that_are_zero_or_equal() -> None:
    samples = images(4, 1, 5, 5)
    samples[1], samples[2] = 0.0, samples[0]
    samples[3, :, :, :2] = 0.0
    for readout in ("flatten", "pool"):
        models = nsd.ConvDEQ("relu", 0.3, readout=readout), nsd.ConvExplicit(["relu"] * 2, readout=readout)
        for model in models:
            exact, found = nsd.both_kernels(model, samples), nsd.both_kernels(model, samples, tolerance=1e-5)
            for one, other in zip(found, exact, strict=True):
                assert np.abs(one - other).max() <= 1e-5 * np.abs(other).max()
                assert np.all(one[1] == 0.0)


@pytest.mark.parametrize("name", ["sigmoid", "tanh", "gelu", "softsign"])
def test_the_first_guess_spares_newton_steps(name: str) -> None:
    model = nsd.ConvDEQ(name, FEEDBACK, readout="pool")
    _, _, info = nsd.both_kernels(model, images(3, 2, 6, 6), tolerance=1e-8, return_info=True)
    assert info.iterations <= 2


def test_a_tolerance_of_layers() -> None:
    samples = images(4, 2, 5, 4)
    for name in ("tanh", "softsign", "hard_tanh"):
        exact = nsd.both_kernels(nsd.ConvExplicit([name] * 3), samples)
        for tolerance in (1e-8, 1e-5):
            network = nsd.ConvExplicit([name] * 3)
            *found, info = nsd.both_kernels(network, samples, tolerance=tolerance, return_info=True)
            for one, other in zip(found, exact, strict=True):
                assert np.abs(one - other).max() <= 3.0 * tolerance * np.abs(other).max()
            size = np.sqrt(np.multiply.outer(np.diag(exact[0]), np.diag(exact[0])))
            assert np.all(np.abs(found[0] - exact[0]) <= (info.error_bound + 1e-11) * size)


def test_a_tolerance_belongs_to_the_computation_not_to_the_model() -> None:
    samples, rows = images(3, 2, 4, 4), np.eye(3)
    for model in (nsd.ConvDEQ("relu", 0.3), nsd.ConvExplicit(["relu"])):
        assert "tolerance" not in model.to_dict()
        for wrong in (0.0, -1.0, 1e-15, 0.1, "small"):
            with pytest.raises(nsd.InputError, match="tolerance"):
                nsd.conjugate_kernel(model, samples, tolerance=wrong)
    with pytest.raises(nsd.InputError, match="no tolerance"):
        nsd.tangent_kernel(nsd.DEQ("relu"), rows, tolerance=1e-5)
