"""Confidence intervals: against scipy, and by how often they hold."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from notsodeep.intervals import RISK, paired_difference, share_interval


@given(rows=st.integers(1, 400), share=st.floats(0.0, 1.0))
def test_the_interval_of_a_share_is_exact(rows: int, share: float) -> None:
    successes = round(share * rows)
    found = stats.binomtest(successes, rows).proportion_ci(1.0 - RISK, method="exact")
    assert share_interval(successes, rows) == pytest.approx((found.low, found.high), abs=1e-12)


@pytest.mark.parametrize("chances", [(0.05, 0.03), (0.01, 0.0), (0.2, 0.25)])
def test_bounds_of_a_paired_difference_hold_as_often_as_they_say(chances: tuple[float, float]) -> None:
    generator, truth, missed = np.random.default_rng(0), chances[0] - chances[1], np.zeros(2)
    for _ in range(2000):
        lost, won, _ = generator.multinomial(400, [*chances, 1.0 - sum(chances)])
        both = 100  # wrong in both, so that the first is not always right
        first = np.concatenate([np.ones(lost), np.zeros(won), np.zeros(both), np.ones(300 - lost - won)])
        second = np.concatenate([np.zeros(lost), np.ones(won), np.zeros(both), np.ones(300 - lost - won)])
        low, high = paired_difference(first, second)
        missed += np.array([low > truth, high < truth])
    # Five standard deviations of a count of 2000.
    assert (missed / 2000 <= RISK + 5.0 * np.sqrt(RISK * (1.0 - RISK) / 2000)).all()


def test_differences_of_errors_have_the_normal_interval() -> None:
    first, second = np.random.default_rng(0).standard_normal((2, 50))
    low, high = paired_difference(first, second)
    expected = stats.norm(np.mean(first - second), np.std(first - second, ddof=1) / np.sqrt(50))
    assert (low, high) == pytest.approx((expected.ppf(RISK), expected.ppf(1.0 - RISK)))
