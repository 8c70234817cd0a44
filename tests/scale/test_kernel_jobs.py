"""A memory limit that is kept."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import notsodeep as nsd
from notsodeep.scale.kernel_jobs import block_bytes, fitting_block

PEAK = """
import numpy as np, notsodeep as nsd
X = np.load("X.npy", mmap_mode="r")
K = nsd.conjugate_kernel(nsd.DEQ("relu", 0.2), X, out="G.zarr", max_memory="{limit}MB")
operator = nsd.KernelOperator.stored(K, max_memory="{limit}MB")
operator @ np.ones((len(X), 4))
lines = open("/proc/self/status").read().splitlines()
print(next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM")))
"""


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="the peak is read from /proc")
def test_the_limit_is_kept_and_the_matrix_never_held(tmp_path: Path) -> None:
    n, limit = 8192, 480
    assert n * n * 8 > limit * 1e6
    np.save(tmp_path / "X.npy", np.random.default_rng(0).standard_normal((n, 30)) / np.sqrt(30))
    code = PEAK.format(limit=limit)
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) <= limit * 1e6


def test_blocks_fill_the_memory_there_is() -> None:
    block = fitting_block(10**9, 60_000, 784, "float32")
    assert block_bytes(block, 784, "float32") <= 10**9
    assert fitting_block(10**12, 60_000, 784, "float32") == 4096
    assert fitting_block(10**12, 100, 784, "float32") == 256
    # Enough blocks for everybody.
    assert (20_000 / fitting_block(10**12, 20_000, 784, "float32", workers=16)) ** 2 >= 8 * 16
    with pytest.raises(nsd.InputError, match="Raise max_memory"):
        fitting_block(10**6, 60_000, 784, "float32")
