"""Concentration: the split adds up, its bounds hold, and the exponent of the width is -1/2."""

from __future__ import annotations

import numpy as np
import pytest

from notsodeep.convergence import concentration
from notsodeep.errors import InputError

X = np.random.default_rng(0).standard_normal((8, 12))


@pytest.fixture(scope="module")
def found():
    return concentration(X, [64, 128, 256, 512, 1024], 0.08, seeds=range(8), normalise=True)


@pytest.mark.slow
def test_the_split_is_a_triangle_inequality(found):
    for deviation in found.deviations:
        assert deviation.operator <= deviation.frobenius * (1 + 1e-12)
        for split in deviation.splits:
            assert deviation.frobenius <= (split.tied + split.width + split.untied) * (1 + 1e-12)


@pytest.mark.slow
def test_the_parts_in_depth_stay_below_their_bounds(found):
    rounding = 1e-12
    for deviation in found.deviations:
        for split in deviation.splits:
            assert split.tied <= split.tied_bound + rounding
            assert split.untied <= split.untied_bound + rounding


@pytest.mark.slow
def test_rates_are_no_slower_than_proved(found):
    assert found.tied_rate() < found.proved_tied_rate
    # The bound is met with equality on the diagonal, so that its rate is the rate.
    assert found.untied_rate() == pytest.approx(found.proved_untied_rate, rel=0.05)


@pytest.mark.parametrize("norm", ["frobenius", "operator"])
def test_the_error_falls_like_the_root_of_the_width(found, norm):
    fit = found.exponent(norm)
    assert fit.low < -0.5 < fit.high
    assert fit.high - fit.low < 0.3


def test_an_exponent_needs_several_networks():
    with pytest.raises(InputError, match="two widths"):
        concentration(X, 20, 0.05, normalise=True).exponent()


@pytest.mark.parametrize("options", [{"seeds": ()}, {"depths": ()}, {"depths": (0,)}])
def test_nothing_to_do(options):
    with pytest.raises(InputError, match="At least one"):
        concentration(X, 20, 0.05, normalise=True, **options)
