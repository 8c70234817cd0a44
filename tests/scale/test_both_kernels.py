"""Both kernels in one run, with every option of a kernel that is too large for memory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tolerances import Oracle, assert_close

import notsodeep as nsd
from notsodeep.scale.store import JOURNAL

DEQ = nsd.DEQ("relu", 0.2)
BLOCK = 100
BLOCKS = 6


@pytest.fixture(scope="module")
def expected(samples: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Each kernel from the function of its own, in memory."""
    return nsd.conjugate_kernel(DEQ, samples), nsd.tangent_kernel(DEQ, samples)


def assert_both(found: Any, expected: tuple[np.ndarray, np.ndarray], dtype: Any = np.float64) -> None:
    assert len(found) == len(expected)
    for kernel, matrix in zip(found, expected, strict=True):
        assert np.asarray(kernel).dtype == dtype
        assert_close(np.asarray(kernel), matrix, Oracle.IDENTITY, dtype=dtype)


@pytest.mark.slow
@pytest.mark.parametrize(("storage", "on_disk"), [("float64", False), ("float32", True)])
def test_both_kernels_in_blocks(samples, expected, tmp_path: Path, storage: str, on_disk: bool) -> None:
    out = tmp_path / "kernels" if on_disk else None
    *found, info = nsd.both_kernels(
        DEQ, samples, out=out, storage=storage, max_memory="4GB", block=BLOCK, return_info=True
    )
    assert_both(found, expected, np.dtype(storage))
    assert 0 < info.error_bound < 1e-12
    if on_disk:
        assert sorted(path.name for path in out.iterdir()) == ["ck.zarr", "ntk.zarr"]
        assert_both(
            [nsd.open_kernel(out / name) for name in ("ck.zarr", "ntk.zarr")], expected, np.dtype(storage)
        )
        assert info == found[0].info.merge(found[1].info)


def test_both_kernels_between_two_sets_of_samples(samples, expected, tmp_path: Path) -> None:
    found = nsd.both_kernels(DEQ, samples, samples[:70], "paper", out=tmp_path, block=BLOCK)
    paper = nsd.tangent_kernel(DEQ, samples, samples[:70], of="paper")
    assert_both(found, (expected[0][:, :70], paper))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["ck.zarr", "ntk_paper.zarr"]


def test_a_limit_too_small_for_two_matrices(samples) -> None:
    """The limit counts for both matrices together."""
    rows = np.broadcast_to(samples[:1], (12_000, 20))
    with pytest.raises(nsd.InputError, match=r"2\.3 GB.*out='G\.zarr'"):
        nsd.both_kernels(DEQ, rows, max_memory="2GB")


def stop_after(blocks: int) -> Any:
    def progress(done: int, total: int, news: object) -> None:
        if done == blocks:
            raise KeyboardInterrupt

    return progress


def test_an_interrupted_run_resumes(samples, expected, tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        nsd.both_kernels(DEQ, samples, out=tmp_path, block=BLOCK, progress=stop_after(4))
    with pytest.raises(nsd.InputError, match="2 of its 6 blocks are missing"):
        nsd.open_kernel(tmp_path / "ntk.zarr")
    # A block that only one of the stores has lost is computed again for both.
    lines = (tmp_path / "ck.zarr" / JOURNAL).read_bytes().splitlines(keepends=True)
    (tmp_path / "ck.zarr" / JOURNAL).write_bytes(b"".join(lines[1:]))
    computed: list[int] = []
    found = nsd.both_kernels(DEQ, samples, out=tmp_path, progress=lambda done, *_: computed.append(done))
    assert len(computed) - 1 == 3
    assert_both(found, expected)
