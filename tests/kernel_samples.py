"""Samples for the tests of kernels on disk and of operators."""

from __future__ import annotations

import numpy as np


def rows_of_many_norms() -> np.ndarray:
    """300 samples in 20 dimensions, of norms that vary by a factor of three; two of them are parallel."""
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((300, 20)) / np.sqrt(20)
    rows[7] = rows[200]
    return np.asarray(rows * rng.uniform(0.6, 1.8, 300)[:, None])
