"""A mean that is not quite zero: its effect on the kernel is bounded as derived, and only what shows is refused."""

from __future__ import annotations

import numpy as np
import pytest

import notsodeep as nsd
from notsodeep.data import ClassStatistics
from notsodeep.equivalents.centring import mean_effect

N, P = 400, 300
MIXTURE = nsd.GaussianMixture(np.outer([0.0, 1.5], np.eye(P)[0]), [1.0, 1.2], [0.5, 0.5])
X, Y = MIXTURE.sample(N, seed=0)
TRUE = ClassStatistics.of_mixture(MIXTURE, MIXTURE.class_sizes(N)).tau0


@pytest.mark.parametrize(
    ("model", "kernel", "off"),
    [(nsd.DEQ("relu", 0.2), "ck", 1.003), (nsd.Explicit(["relu", "gelu"]), "ntk", 0.99)],
    ids=str,
)
def test_the_exact_kernel_moves_by_about_the_bound(model: nsd.Model, kernel: str, off: float) -> None:
    stats = nsd.MixtureStatistics.of(MIXTURE, X, Y)
    exact = nsd.conjugate_kernel if kernel == "ck" else nsd.tangent_kernel
    right, near = (exact(model.centred(tau), X) for tau in (stats.tau0, off * stats.tau0))
    moved = np.linalg.norm(near - right, 2)
    bound = mean_effect(model.centred(off * stats.tau0), stats, kernel)
    # The bound is to first order in the mean, and of two terms it adds the norms.
    assert moved <= 1.1 * bound
    assert bound <= 3.0 * moved


@pytest.mark.slow
def test_estimated_statistics_do_for_a_model_centred_at_the_true_norm() -> None:
    """The case of an estimate of τ0 that is 0.3 % off; the equivalent is as good as that of the model centred there."""
    stats = nsd.MixtureStatistics.estimate(X, Y)
    model = nsd.DEQ("relu", 0.2)
    near, right = model.centred(1.003 * stats.tau0), model.centred(stats.tau0)
    assert (
        abs(nsd.equivalent(near, X, stats) @ np.ones(N) - nsd.equivalent(right, X, stats) @ np.ones(N)).max()
        < 0.01
    )
    errors = [float(nsd.equivalence_error(one, X, stats)) for one in (near, right)]
    assert errors[0] <= 1.1 * errors[1]
    assert nsd.limiting_density(model.centred(1.003 * TRUE), MIXTURE, N).n == N


@pytest.mark.slow
def test_a_mean_that_shows_is_refused_and_the_remedy_works() -> None:
    stats = nsd.MixtureStatistics.of(MIXTURE, X, Y)
    model = nsd.DEQ("relu", 0.2).centred(1.05 * stats.tau0)
    with pytest.raises(nsd.InputError, match=r"model\.centred\("):
        nsd.equivalent(model, X, stats)
    with pytest.raises(nsd.InputError, match=r"model\.centred\("):
        nsd.limiting_density(model, MIXTURE, N)
    nsd.equivalent(model.centred(stats.tau0), X, stats)
    nsd.limiting_density(model.centred(TRUE), MIXTURE, N)
