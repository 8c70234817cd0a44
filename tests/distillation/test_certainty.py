"""Intervals of agreement, the choice that is certain, and the estimate of where a student is wrong."""

from __future__ import annotations

import time

import pytest
import torch
from scipy.stats import binom, t
from torch import Tensor, nn

import notsodeep as nsd
from notsodeep.distillation import Candidate, distill
from notsodeep.distillation.certainty import (
    agreement_interval,
    risk_of_claim,
    seconds_per_call,
)
from notsodeep.distillation.distilled import choose, rows_to_certify
from notsodeep.distillation.guard import ErrorEstimate, chance_of_another_class
from notsodeep.distillation.teachers import rows_for_tests
from notsodeep.intervals import share_interval
from notsodeep.nets import DEQNet


def candidate(seconds: float, expected_error: float, risk: float, agreement: float = 0.99) -> Candidate:
    interval = (agreement - 0.01, agreement + 0.005)
    return Candidate("", "cut", nn.Module(), agreement, interval, risk, 0.0, seconds, expected_error)


def test_the_fastest_certain_candidate_is_chosen() -> None:
    front = [
        candidate(1, 0.3, 0.9),
        candidate(2, 0.1, 0.03),
        candidate(3, 0.12, 0.0),
        candidate(4, 0.01, 0.02),
    ]
    chosen = choose(front)
    assert (chosen.place, chosen.certain) == (1, True)
    # The first test has four fifths of the risk, the others share the rest; a test that is passed hands its risk on.
    assert chosen.risks == pytest.approx((0.05, 0.045, None, 0.04), nan_ok=True)
    # One that a faster candidate equals is not tested, so that its failure does not matter.
    assert choose([front[1], candidate(3, 0.1, 0.9), front[3]])[:2] == (0, True)
    # A failure does not end the tests: what comes after it needs a smaller risk, here 0.05 · 0.2/2.
    assert choose([candidate(1, 0.3, 0.004), candidate(2, 0.1, 0.9), front[3]]).place == 0
    assert choose([candidate(1, 0.3, 0.006), candidate(2, 0.1, 0.9), front[3]]).place == 2
    # The first test has all of the risk if there is no other.
    assert choose([front[0], candidate(4, 0.01, 0.045)]).certain is False
    assert choose([candidate(4, 0.01, 0.045)]).certain is True


def test_where_nothing_is_certain_ties_are_broken_by_speed() -> None:
    slow, fast = candidate(4, 0.10, 0.5, 0.98), candidate(2, 0.12, 0.6, 0.979)
    assert choose([candidate(1, 0.3, 0.9, 0.978), fast, slow])[:2] == (1, False)
    # The test rows tell them apart.
    assert choose([candidate(2, 0.12, 0.6, 0.96), slow])[:2] == (1, False)


def test_the_risk_of_a_claim_is_that_at_which_the_bound_reaches_it() -> None:
    generator = torch.Generator().manual_seed(5)
    target = torch.randn(200, 3, generator=generator, dtype=torch.float64)
    for outputs, goal in ((target + 0.2, target), (target, target)):
        for columns in (slice(0, 1), slice(0, 3)):
            noise = 0.1 * torch.randn(target.shape, generator=generator, dtype=torch.float64)
            claimed, _ = agreement_interval((outputs + noise)[:, columns], goal[:, columns], 0.03)
            assert risk_of_claim((outputs + noise)[:, columns], goal[:, columns], claimed) == pytest.approx(
                0.03
            )
    assert risk_of_claim(target, target, 1.0) == 1.0
    assert risk_of_claim(target[:, :1], target[:, :1], 1.0) == 0.0
    assert risk_of_claim(target, target.roll(1, dims=1), 0.5) == 1.0


def test_rows_needed_for_certainty() -> None:
    """As many as are said suffice, a tenth fewer do not, and more are needed where not all agree."""
    for agreement in (1.0, 0.996):
        needed = rows_to_certify(0.99, agreement)
        assert needed is not None
        for rows, suffices in ((needed, True), (int(0.8 * needed), False)):
            tests = rows_for_tests(rows, 0.99)
            assert (binom.sf(round(agreement * tests) - 1, tests, 0.99) <= 0.045) == suffices
    assert 1000 <= (rows_to_certify(0.99) or 0) <= 1200 < (rows_to_certify(0.99, 0.996) or 0)
    assert rows_to_certify(1.0) is None
    assert rows_to_certify(0.99, 0.985) is None
    assert (rows_to_certify(0.98, 0.999, rows=3000) or 0) > 3000


def test_candidates_that_are_all_too_bad_are_rarely_called_certain() -> None:
    """Twenty candidates whose true agreement is just below the target: certain in one case of twenty, not more."""
    generator = torch.Generator().manual_seed(13)
    wrong, rows = 0, 300
    for _ in range(300):
        shares = (torch.rand(20, rows, generator=generator) < 0.949).sum(1)
        front = [
            candidate(place, 3.0**-place, float(binom.sf(int(share) - 1, rows, 0.95)))
            for place, share in enumerate(shares)
        ]
        wrong += choose(front).certain
    assert wrong / 300 < 0.09


def test_intervals_of_shares_are_exact() -> None:
    """Clopper and Pearson's interval at 0 and 1 in closed form, and by the binomial distribution elsewhere."""
    assert share_interval(100, 100) == (pytest.approx(0.025**0.01), 1.0)
    assert share_interval(0, 50) == (0.0, pytest.approx(1.0 - 0.025**0.02))
    low, high = share_interval(290, 300)
    assert binom.sf(289, 300, low) == pytest.approx(0.025)
    assert binom.cdf(290, 300, high) == pytest.approx(0.025)


def test_intervals_of_explained_variance_hold_as_often_as_stated() -> None:
    generator = torch.Generator().manual_seed(12)
    held = 0
    for _ in range(400):
        target = torch.randn(200, 1, generator=generator, dtype=torch.float64)
        noise = torch.randn(target.shape, generator=generator, dtype=torch.float64)
        low, high = agreement_interval(target + 0.05 * (1.0 + target.abs()) * noise, target)
        # E(1 + |g|)² = 2 + 2 √(2/π) for a standard normal g.
        held += low <= 1.0 - 0.05**2 * (2.0 + 2.0 * (2.0 / torch.pi) ** 0.5) <= high
    assert 0.85 <= held / 400 <= 0.94


@pytest.mark.slow
def test_stated_intervals_hold_and_certainty_is_right() -> None:
    """Many distillations from a few rows each, beside the agreement on very many fresh rows."""
    generator = torch.Generator().manual_seed(14)
    teacher = DEQNet(nsd.DEQ("tanh", 0.5), 10, 40, 3, seed=1, dtype=torch.float64)

    def draw(count: int) -> Tensor:
        return torch.randn(count, 10, generator=generator, dtype=torch.float64) / 10**0.5

    fresh = draw(20_000)
    with torch.no_grad():
        truth = teacher(fresh).argmax(1)
    repetitions, held, certain, wrong = 24, 0, 0, 0
    for seed in range(repetitions):
        small = distill(teacher, draw(250), steps=(1,), epochs=0, target_agreement=0.93, seed=seed)
        with torch.no_grad():
            share = float((small.network(fresh).argmax(1) == truth).double().mean())
        low, high = small.agreement_interval
        held += low <= share <= high
        assert not small.certain or low >= small.target_agreement
        certain, wrong = certain + small.certain, wrong + (small.certain and share < 0.93)
    # Of 24 intervals of 90 % fewer than 18 hold in one case of a hundred.
    assert held >= 18
    assert certain >= 6
    assert wrong <= 3


def test_where_nothing_is_certain_the_most_faithful_is_given_and_the_remedy_named() -> None:
    teacher = DEQNet(nsd.DEQ("tanh", 0.2), 10, 40, 3, seed=1, dtype=torch.float64)
    rows = torch.randn(100, 10, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    small = distill(teacher, rows, epochs=0)
    assert not small.certain
    assert "No candidate is certain to reach 99 %" in small.explain()
    assert not any(one.certain for one in small.candidates)
    assert small.chosen.expected_error <= 1.25 * min(one.expected_error for one in small.candidates)


def test_the_estimated_risk_is_the_share_of_changed_classes() -> None:
    """Outputs with independent errors: the estimate is scaled until it expects what happened."""
    generator = torch.Generator().manual_seed(11)
    X = torch.randn(20_000, 3, generator=generator, dtype=torch.float64)
    target = X + 0.1 * torch.randn(X.shape, generator=generator, dtype=torch.float64)
    estimate = ErrorEstimate.of(X, X, target)
    changed = float((X.argmax(1) != target.argmax(1)).double().mean())
    assert float(estimate.risk(X, X).mean()) == pytest.approx(changed, rel=0.02)
    assert float((estimate.seen > estimate.threshold(0.1)).double().mean()) == pytest.approx(0.1, abs=1e-3)


def test_the_risk_has_heavy_tails_and_no_ties() -> None:
    """Against scipy's Student distribution, and in the order of the errors where nothing differs."""
    generator = torch.Generator().manual_seed(3)
    target = 30.0 * torch.randn(200, 2, generator=generator, dtype=torch.float64)
    outputs = target[:5]
    gaps = (outputs[:, 0] - outputs[:, 1]).abs()
    chances = chance_of_another_class(outputs, 0.7)
    assert torch.allclose(chances, torch.as_tensor(t(4).sf((gaps / (0.7 * 2**0.5)).numpy())))
    noise = torch.randn(target.shape, generator=generator, dtype=torch.float64)
    sizes = (1e-9, 1e-6, 1e-3, 1.0)
    expected = [float(ErrorEstimate.of(target, target + size * noise, target).seen.mean()) for size in sizes]
    assert expected == sorted(set(expected))


def test_times_are_those_of_the_work() -> None:
    class Busy(nn.Module):
        def __init__(self, seconds: float) -> None:
            super().__init__()
            self.seconds = seconds

        def forward(self, X: Tensor) -> Tensor:
            end = time.thread_time() + self.seconds
            while time.thread_time() < end:
                pass
            return X

    times = seconds_per_call({"slow": Busy(4e-3), "fast": Busy(1e-3)}, torch.zeros(2, 3))
    assert times["fast"] == pytest.approx(1e-3, rel=0.1)
    assert times["slow"] == pytest.approx(4e-3, rel=0.1)
