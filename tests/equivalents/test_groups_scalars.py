"""The scalars of the groups: a few computed norms give them all."""

from __future__ import annotations

import numpy as np
import pytest

from notsodeep.data import ClassStatistics, GaussianMixture
from notsodeep.equivalents import groups
from notsodeep.equivalents.coefficients import coefficients
from notsodeep.models import DEQ


@pytest.mark.slow
@pytest.mark.parametrize("kernel", ["ck", "ntk"])
@pytest.mark.parametrize("name", ["tanh", "relu", "swish", "cos"])
@pytest.mark.parametrize("p", [20, 100, 800])
def test_interpolated_scalars_are_those_of_each_norm(name: str, kernel: str, p: int):
    mixture = GaussianMixture.paper(p)
    stats = ClassStatistics.of_mixture(mixture, mixture.class_sizes(2 * p))
    norms = np.sqrt(groups.Groups.of(mixture, stats).squares)
    model = DEQ(name, 0.2).centred(stats.tau0)
    each = [coefficients(model.centred(float(norm)), float(norm), kernel) for norm in norms]
    linear, diagonal = groups._at_norms(model, norms, kernel)
    assert np.allclose(linear, [one.linear for one in each], rtol=1e-9, atol=1e-12)
    assert np.allclose(diagonal, [one.diagonal for one in each], rtol=1e-9)
