"""Same numbers: a kernel does not depend on how it is cut, where its rows are or who computes it."""

from __future__ import annotations

import subprocess
import sys
from functools import reduce
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tolerances import Oracle, assert_close

import notsodeep as nsd
from notsodeep import kernels
from notsodeep.results import KernelInfo
from notsodeep.scale.kernel_jobs import Grid, block_bytes, choose_block

MODELS = {
    "tanh": nsd.DEQ("tanh", 0.3),
    "relu": nsd.DEQ("relu", 0.2),
    "hard_tanh with a bias": nsd.DEQ("hard_tanh", 0.2, bias2=0.1),
    "swish, shifted": nsd.DEQ("swish", 0.2).centred(1.0),
    "explicit": nsd.Explicit(["relu", "tanh"]),
    "cubed": nsd.DEQ(nsd.custom_activation(lambda x: np.tanh(x) ** 3), 0.2),
}


def assert_same_kernel(model: nsd.Model, X: np.ndarray, kernel: str, block: int) -> KernelInfo:
    """Blocks and whole agree to rounding; where both come from tables, each within the error that it states."""
    compute = kernels.conjugate_kernel if kernel in ("ck", "features") else kernels.tangent_kernel
    found, info = compute(model, X, of=kernel, block=block, return_info=True)
    whole, known = compute(model, X, of=kernel, return_info=True)
    if "table" in {*info.methods, *known.methods}:
        root = np.sqrt(whole.diagonal())
        assert np.all(np.abs(found - whole) <= (info.error_bound + known.error_bound) * np.outer(root, root))
    else:
        assert_close(found, whole, Oracle.IDENTITY)
    np.testing.assert_array_equal(found, found.T)
    return info


def evidence_of_parts(model: nsd.Model, X: np.ndarray, of: str, block: int) -> KernelInfo:
    """The evidence of the same three blocks, each computed as a kernel of its own."""
    parts = (X[:block], None), (X[block:], X[:block]), (X[block:], None)
    found = (kernels.tangent_kernel(model, *part, of=of, return_info=True)[1] for part in parts)
    return reduce(KernelInfo.merge, found)


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_blocks_have_the_numbers_of_the_whole(name: str, samples: np.ndarray) -> None:
    model = MODELS[name]
    # A callable is slow; its blocks are as independent of each other as those of the others.
    samples, block = (samples[180:240], 40) if name == "cubed" else (samples, 170)
    assert_same_kernel(model, samples, "ck", block)
    for of in ("network", "paper", "preactivations") if name == "relu" else ("network",):
        info = assert_same_kernel(model, samples, of, block)
        parts = evidence_of_parts(model, samples, of, block)
        # Where few pairs are left to a table they are integrated, each to its own error.
        alike = info.methods == parts.methods
        assert (
            info.error_bound == pytest.approx(parts.error_bound, rel=0.5)
            if alike
            else info.error_bound <= 1e-10
        )


@pytest.mark.slow
def test_rectangles_and_finite_depth(samples: np.ndarray) -> None:
    model = MODELS["tanh"]
    X, Y = samples[:170], samples[100:]
    found = nsd.conjugate_kernel(model, X, Y, of="preactivations", depth=4, block=128)
    assert found.shape == (170, 200)
    assert_close(found, kernels.conjugate_kernel(model, X, Y, of="preactivations", depth=4), Oracle.IDENTITY)


@pytest.mark.slow
@settings(max_examples=6)
@given(
    block=st.integers(7, 60),
    n=st.integers(1, 40),
    kind=st.sampled_from(["tanh", "relu"]),
    seed=st.integers(0, 99),
)
def test_the_blocking_does_not_matter(block: int, n: int, kind: str, seed: int) -> None:
    rng = np.random.default_rng(seed)
    rows = rng.standard_normal((n, 3)) * np.exp(rng.standard_normal((n, 1)))
    assert_same_kernel(nsd.DEQ(kind, 0.2), rows, "ck", block)


@pytest.mark.slow
def test_a_kernel_in_memory_loads_neither_zarr_nor_dask() -> None:
    code = (
        "import sys, numpy as np, notsodeep as nsd; nsd.conjugate_kernel(nsd.DEQ('relu', 0.2), np.eye(3)); "
        "print(*[name for name in ('zarr', 'dask', 'distributed', 'notsodeep.equivalents') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"storage": "float16"}, "float32"),
        ({"max_memory": "lots"}, "amount of memory"),
        ({"max_memory": "1MB"}, "before any block"),
        ({"block": 0}, "whole number"),
        ({"client": 0}, "number of processes"),
        ({"client": "somewhere"}, "tcp://"),
        ({"client": "tcp://127.0.0.1:1"}, "No scheduler answers"),
        ({"block": 8, "of": "colours"}, "colours"),
        ({"block": 8, "depth": 0}, "depth"),
    ],
)
def test_arguments_that_cannot_be_used(arguments: dict[str, object], words: str) -> None:
    with pytest.raises(nsd.InputError, match=words):
        nsd.conjugate_kernel(nsd.DEQ("tanh", 0.2), np.eye(4), **arguments)


def test_a_kernel_that_does_not_fit_is_sent_to_the_disk() -> None:
    rows = np.broadcast_to(np.ones((1, 2)), (200_000, 2))
    with pytest.raises(nsd.InputError, match=r"out='G\.zarr'"):
        nsd.conjugate_kernel(nsd.DEQ("tanh", 0.2), rows, max_memory="2GB")


@given(n=st.integers(1, 50), m=st.integers(1, 50), block=st.integers(1, 60), symmetric=st.booleans())
def test_a_grid_covers_every_entry_once(n: int, m: int, block: int, symmetric: bool) -> None:
    grid = Grid(n, n if symmetric else m, block, symmetric)
    times = np.zeros((grid.rows, grid.columns), dtype=int)
    for cell in grid.cells():
        rows, columns = grid.slices(cell)
        times[rows, columns] += 1
        if grid.mirrored(cell):
            times[columns, rows] += 1
    assert np.all(times == 1)
    assert len(list(grid.cells())) == grid.count


def test_blocks_fill_the_memory_there_is() -> None:
    block = choose_block(None, 10**9, 60_000, 784, "float32")
    assert block_bytes(block, 784, "float32") <= 10**9
    assert choose_block(None, 10**12, 60_000, 784, "float32") == 4096
    assert choose_block(None, 10**12, 100, 784, "float32") == 256
    # Each of 16 workers gets several blocks.
    assert (20_000 / choose_block(None, 10**12, 20_000, 784, "float32", workers=16)) ** 2 >= 8 * 16
    with pytest.raises(nsd.InputError, match="Raise max_memory"):
        choose_block(None, 10**6, 60_000, 784, "float32")


PEAK = """
import numpy as np, notsodeep as nsd
X = np.load("X.npy", mmap_mode="r")
K = nsd.conjugate_kernel(nsd.DEQ("relu", 0.2), X, out="G.zarr", max_memory="{limit}MB")
K @ np.ones((len(X), 4))
lines = open("/proc/self/status").read().splitlines()
print(next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM")))
"""


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="the peak is read from /proc")
def test_the_limit_is_kept_and_the_matrix_never_held(tmp_path: Path) -> None:
    n, limit = 8192, 480
    assert n * n * 8 > limit * 1e6
    np.save(tmp_path / "X.npy", np.random.default_rng(0).standard_normal((n, 30)) / np.sqrt(30))
    command = [sys.executable, "-c", PEAK.format(limit=limit)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) <= limit * 1e6
