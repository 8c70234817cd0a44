"""Every way to evaluate F over the positions of samples against quadrature, and which activations take which way."""

from __future__ import annotations

import numpy as np
import pytest
from tolerances import Oracle, assert_close

import notsodeep as nsd
from notsodeep.gaussian.bivariate import dual
from notsodeep.pairs.field_layout import Layout
from notsodeep.pairs.field_methods import method_for
from notsodeep.pairs.field_series import field_series
from notsodeep.pairs.pair_fields import PairFields
from notsodeep.pairs.positions import MomentTable, Positions

POSITIONS = (3, 4)


class Case:
    """Two samples with variances of many sizes, and correlations that include -1, 0 and 1."""

    def __init__(
        self,
        phi: nsd.Activation,
        *,
        pairs: bool,
        variances: tuple[float, float] = (0.01, 3.0),
        most: float = 1.2,
        allowed: float = 0.0,
    ) -> None:
        rng = np.random.default_rng(0)
        self.phi, self.layout = phi, Layout(POSITIONS, radius=1, circular=False, pairs=pairs)
        self.variances = np.exp(rng.uniform(*np.log(variances), (2, 12)))
        method = method_for(phi, self.variances.reshape(-1), self.layout, allowed)
        self.method, moments = method, MomentTable(phi, self.variances.reshape(-1))
        left, right = (Positions(moments, self.variances[i : i + 1], self.layout) for i in (0, 1))
        self.fields = PairFields(self.layout, method, 1)
        one = slice(0, 1)
        sides = method.side(left, right=False), method.side(right, right=True)
        self.fields.between(sides, (left, right), one, one, np.zeros((0, 2), dtype=np.int64))
        self.inside = np.flatnonzero(self.layout.valid)
        rho = np.clip(rng.uniform(-most, most, len(self.fields.scale)), -1.0, 1.0)
        rho[self.inside[0]] = 0.0
        self.rho, self.covariance = rho[self.inside], rho * self.fields.scale

    def evaluate(self, level: int = -1) -> PairFields:
        self.fields.evaluate(np.arange(len(self.fields.starts) - 1), self.covariance, level)
        return self.fields

    def expected(self, step: float = 0.0) -> tuple[np.ndarray, np.ndarray]:
        """F and F' by quadrature at correlations that are a step further."""
        squares = [np.zeros_like(self.covariance) for _ in range(2)]
        ones = np.ones((1, self.layout.side(self.variances[:1]).shape[1]))
        self.layout.combine(self.layout.side(self.variances[:1]), ones, squares[0])
        self.layout.combine(ones, self.layout.side(self.variances[1:]), squares[1])
        q, r = (square[self.inside] for square in squares)
        rho = np.clip(self.rho + step, -1.0, 1.0)
        value, slope = dual(self.phi, q, r, rho * np.sqrt(q) * np.sqrt(r))
        return np.asarray(value), np.asarray(slope)


WAYS = [
    ("relu", "closed form"),
    ("abs", "closed form"),
    ("hard_tanh", "closed form"),
    ("tanh", "series"),
    ("gelu", "series"),
    ("cos", "series"),
    ("softplus", "series"),
    ("elu", "table"),
]


@pytest.mark.parametrize("pairs", [False, True])
@pytest.mark.parametrize(("name", "way"), WAYS)
def test_fields_against_quadrature(name: str, way: str, pairs: bool) -> None:
    case = Case(nsd.activation(name), pairs=pairs)
    fields, wanted = case.evaluate(), case.expected()
    assert case.method.name == way
    for found, right in zip((fields.value, fields.slope), wanted, strict=True):
        assert_close(found[case.inside], right, Oracle.QUADRATURE, scale=float(np.abs(right).max()))
        assert not found[case.layout.valid == 0.0].any(), "borders are zero"
    if case.method.carries:
        # dF'/dρ by central differences, away from the ends.
        inner = np.abs(case.rho) < 0.99
        ahead, behind = (case.expected(step)[1] for step in (1e-5, -1e-5))
        assert_close(
            fields.bend[case.inside][inner],
            ((ahead - behind) / 2e-5)[inner],
            Oracle.FINITE_DIFFERENCE,
            scale=1.0,
        )


@pytest.mark.parametrize("pairs", [False, True])
@pytest.mark.parametrize("name", ["hard_tanh", "hard_sigmoid", "softsign", "elu"])
def test_moderate_correlations_of_every_activation_have_a_series(name: str, pairs: bool) -> None:
    case = Case(nsd.activation(name), pairs=pairs, most=0.6)
    fields, wanted = case.evaluate(), case.expected()
    assert set(case.method.ways) == {"series", case.method.name} != {"series"}
    assert fields.left.other is None, "the closed form or the table was not needed"
    for found, expected in zip((fields.value, fields.slope), wanted, strict=True):
        assert_close(found[case.inside], expected, Oracle.QUADRATURE)
    close = Case(nsd.activation(name), pairs=pairs)
    assert close.evaluate().left.other is not None


@pytest.mark.parametrize("name", ["hard_tanh", "softsign"])
def test_only_what_is_allowed_is_left_out(name: str) -> None:
    for most in (0.7, 1.2):
        case = Case(nsd.activation(name), pairs=True, most=most, allowed=1e-9)
        left_out, fields, wanted = case.method.levels[-1], case.evaluate(), case.expected()
        assert left_out <= 1e-9
        for found, expected in zip((fields.value, fields.slope), wanted, strict=True):
            assert np.abs(found[case.inside] - expected).max() <= max(left_out, 1e-12) * 3.0


def test_an_activation_with_amplitude_gain_and_offset() -> None:
    phi = nsd.activation("tanh", gain=1.3).scaled(0.7).shifted(0.2)
    case = Case(phi, pairs=False)
    fields = case.evaluate()
    for found, right in zip((fields.value, fields.slope), case.expected(), strict=True):
        assert_close(found[case.inside], right, Oracle.QUADRATURE, scale=1.0)


def test_fewer_terms_leave_out_more_and_not_more_than_they_may() -> None:
    for name in ("gelu", "hard_tanh", "elu"):
        case = Case(nsd.activation(name), pairs=False)
        levels = case.method.levels
        errors = [
            [
                float(np.abs(part[case.inside] - wanted).max())
                for part, wanted in zip(
                    (case.evaluate(level).value, case.fields.slope), case.expected(), strict=True
                )
            ]
            for level in range(len(levels))
        ]
        # Of GELU's short series every level takes all terms where |ρ| is 1.
        assert max(errors[0]) > 1e3 * max(errors[2]) or name == "gelu"
        for found, allowed in zip(errors[:2], levels, strict=False):
            assert max(found) <= 10.0 * allowed, name
        assert max(errors[2]) <= 2e-11, name


@pytest.mark.slow
@pytest.mark.parametrize("name", ["tanh", "gelu", "softsign"])
def test_raw_images_have_a_table(name: str) -> None:
    """Pixels from 0 to 255 have variances up to 1e5, where a saturated function is all but a step."""
    case = Case(nsd.activation(name), pairs=False, variances=(5.0, 1.2e5))
    assert case.method.name == "table"
    fields = case.evaluate()
    for found, right in zip((fields.value, fields.slope), case.expected(), strict=True):
        size = float(np.abs(right).max())
        assert np.abs(found[case.inside] - right).max() <= 4e-11 * size


def test_kinked_and_saturated_functions_have_no_series() -> None:
    shapes = {name: nsd.activation(name).shape for name in ("elu", "tanh")}
    assert field_series(shapes["elu"], np.ones(1)) is None
    assert field_series(shapes["tanh"], np.array([0.1, 1e6])) is None
    assert field_series(shapes["tanh"], np.array([0.1, 1.0])) is not None
