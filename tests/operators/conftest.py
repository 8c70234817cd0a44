from __future__ import annotations

import numpy as np
import pytest
from kernel_samples import rows_of_many_norms


@pytest.fixture(scope="session")
def samples() -> np.ndarray:
    return rows_of_many_norms()
