from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tolerances import Oracle, assert_close

from notsodeep.data import Preprocessing
from notsodeep.errors import InputError

RNG = np.random.default_rng(5)
TRAIN = 3.0 + RNG.standard_normal((30, 4))
TEST = 5.0 + RNG.standard_normal((10, 4))


def test_the_test_part_gets_the_shift_and_scale_of_the_training_part():
    fitted = Preprocessing.fit(TRAIN)
    scale = np.sqrt(np.mean(np.sum((TRAIN - TRAIN.mean(axis=0)) ** 2, axis=1)))
    assert_close(fitted.apply(TEST), (TEST - TRAIN.mean(axis=0)) / scale, Oracle.CLOSED_FORM)
    assert np.array_equal(fitted.apply(TEST)[:3], fitted.apply(TEST[:3]))


@given(st.floats(1e-3, 1e3), st.floats(-10, 10))
def test_units_and_origin_of_the_data_do_not_matter(unit, origin):
    expected = Preprocessing.fit(TRAIN).apply(TEST)
    moved = Preprocessing.fit(unit * (TRAIN + origin)).apply(unit * (TEST + origin))
    # The shifted data are up to 15 in size, and scaling magnifies their rounding by little.
    np.testing.assert_allclose(moved, expected, rtol=1e-12, atol=1e-13)


def test_single_precision_stays_single():
    fitted = Preprocessing.fit(TRAIN)
    assert fitted.apply(TEST.astype(np.float32)).dtype == np.float32
    assert fitted.apply(TEST.tolist()).dtype == np.float64


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Preprocessing.fit(np.full((5, 3), 0.1)), "all equal"),
        (lambda: Preprocessing.fit(np.zeros((5, 3))), "all zero"),
        (lambda: Preprocessing.fit(TRAIN[:1]), "more than one sample"),
        (lambda: Preprocessing.fit([[np.nan]]), "NaN"),
        (lambda: Preprocessing.fit(TRAIN).apply(TEST[:, :2]), "2 columns where 4"),
    ],
)
def test_what_cannot_be_scaled_is_refused_in_words(make, message):
    with pytest.raises(InputError, match=message):
        make()
