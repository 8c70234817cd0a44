"""Every golden kernel again with the code of the checkout, within the sum of both stated bounds (tools/golden.py)."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

TOOLS = Path(__file__).resolve().parents[2] / "tools"
pytestmark = pytest.mark.skipif(not TOOLS.exists(), reason="the source distribution has no tools/")

# Entries of which a stated bound is below the true error: what may be between the kernels, and why.
EXCEPTIONS: dict[str, tuple[float, str]] = {}


@pytest.fixture(scope="module")
def golden() -> Any:
    sys.path.append(str(TOOLS))
    yield importlib.import_module("golden")
    sys.path.remove(str(TOOLS))


def test_every_kernel_is_within_both_bounds(golden: Any) -> None:
    entries, samples = golden.read()
    assert list(entries) == list(golden.names())
    assert len(entries) > 300
    far = []
    for name, entry in entries.items():
        model, data, kernel = name.split(" | ")
        values, bound = golden.compute(golden.MODELS[model](), *samples[data], kernel)
        allowed = EXCEPTIONS[name][0] if name in EXCEPTIONS else bound + entry.bound
        size = np.outer(entry.rows, entry.columns)
        if not np.all(np.abs(values - entry.values) <= allowed * size):
            with np.errstate(all="ignore"):
                far.append(
                    f"{name}: {np.nanmax(np.abs(values - entry.values) / size):.1e}, allowed {allowed:.1e}"
                )
    assert not far, "\n".join(far)
