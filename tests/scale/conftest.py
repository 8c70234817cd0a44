"""What the tests of this room share."""

from __future__ import annotations

import numpy as np
import pytest


@pytest.fixture(scope="session")
def samples() -> np.ndarray:
    """300 samples in 20 dimensions, of norms that vary by a factor of three."""
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((300, 20)) / np.sqrt(20)
    rows[7] = rows[200]
    return np.asarray(rows * rng.uniform(0.6, 1.8, 300)[:, None])
