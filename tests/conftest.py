"""One BLAS thread per process (pytest-xdist has the other cores), and hypothesis runs that repeat."""

from __future__ import annotations

import os
import signal

# A shell starts what runs in its background with Ctrl-C ignored, and processes hand that down: tests of Ctrl-C, which
# start processes of their own, should not depend on how they were started.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Before NumPy is imported: the numerical libraries read these once.
for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(variable, "1")

import numpy as np  # noqa: E402
import pytest  # noqa: E402
from hypothesis import HealthCheck, settings  # noqa: E402

# No deadline: the first call of a compiled kernel may compile. Derandomised: a seed from the clock makes a
# red build that nobody can repeat; `--hypothesis-profile=explore` searches anew.
settings.register_profile(
    "notsodeep",
    deadline=None,
    derandomize=True,
    max_examples=15,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile("explore", deadline=None, max_examples=500)
settings.load_profile("notsodeep")


@pytest.fixture(scope="session")
def samples() -> np.ndarray:
    """300 samples in 20 dimensions, of norms that vary by a factor of three; two of them are parallel."""
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((300, 20)) / np.sqrt(20)
    rows[7] = rows[200]
    return np.asarray(rows * rng.uniform(0.6, 1.8, 300)[:, None])
