"""Mehler series in strips of positions: their sums, what they leave out, and where they do not serve."""

from __future__ import annotations

import numpy as np
import pytest
from tolerances import Oracle, assert_close

import notsodeep as nsd
from notsodeep.gaussian.bivariate import shape_dual
from notsodeep.gaussian.shapes import Shape
from notsodeep.pairs.compiled_powers import LANES, power_sums
from notsodeep.pairs.field_series import TRUNCATION, FieldSeries, field_series, strip_places


def shape_of(name: str) -> Shape:
    return nsd.activation(name).shape


def sums(name: str, truncation: float) -> tuple[np.ndarray, np.ndarray]:
    """Errors of F, F' and F'' relative to √(S S') and √(E1 E1'), F'' against central differences of F'."""
    shape = shape_of(name)
    rng = np.random.default_rng(0)
    q = np.exp(rng.uniform(np.log(1e-3), np.log(3.0), (2, 2 * LANES + 5)))
    rho = np.concatenate([[1.0, -1.0, 0.0], rng.uniform(-1.0, 1.0, q.shape[1] - 3)])
    over = 1.0 / np.sqrt(q[0] * q[1])
    energy, steep = (
        np.sqrt(shape.second_moment(q.ravel())),
        np.sqrt(shape.derivative_second_moment(q.ravel())),
    )
    series = FieldSeries(shape, q)
    assert series.complete
    strips = series.in_strips(np.stack([q, energy.reshape(q.shape), steep.reshape(q.shape)]), LANES)
    found = np.zeros((3, q.shape[1]))
    power_sums(
        rho / over, over, np.zeros_like(over), strips.of(0), strips.of(1), strips.powers, truncation, *found
    )
    scales = [part.reshape(q.shape).prod(axis=0) for part in (energy, steep)]
    wanted = shape_dual(shape, q[0], q[1], rho / over)
    errors = [np.abs(one - two) / size for one, two, size in zip(found, wanted, scales, strict=False)]
    inner = np.abs(rho) < 0.99
    step = 1e-5 / over
    ahead, behind = (shape_dual(shape, q[0], q[1], rho / over + sign * step)[1] for sign in (1.0, -1.0))
    assert_close(
        found[2][inner], ((ahead - behind) / (2.0 * step))[inner], Oracle.FINITE_DIFFERENCE, scale=1.0
    )
    return np.array(errors), rho


@pytest.mark.parametrize("name", ["tanh", "gelu", "cos", "softplus"])
def test_sums_are_right_to_what_they_may_leave_out(name: str) -> None:
    errors, _ = sums(name, TRUNCATION)
    assert errors.max() <= 10 * TRUNCATION


def test_fewer_terms_leave_out_more_and_not_more_than_they_may() -> None:
    errors, _ = sums("gelu", 1e-4)
    assert 1e-12 < errors.max() <= 1e-4


def test_kinked_and_saturated_functions_are_refused() -> None:
    assert field_series(shape_of("elu"), np.ones(1)) is None
    assert field_series(shape_of("tanh"), np.array([0.1, 1e4])) is None
    assert field_series(shape_of("tanh"), np.array([0.1, 1.0])) is not None


def test_strips_end_with_rows() -> None:
    assert strip_places(6, 2, 3).tolist() == [0, 1, 2, 2, 3, 4, 5, 5]
