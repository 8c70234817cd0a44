"""Workers in processes of their own: the same numbers, and nothing lost or doubled when some of them die."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import dask.array
import numpy as np
import pytest
from distributed import Client, LocalCluster, get_worker
from tolerances import Oracle, assert_close

import notsodeep as nsd
from notsodeep import kernels
from notsodeep.scale import open_kernel
from notsodeep.scale.sample_sources import MappedRows
from notsodeep.scale.store import JOURNAL

pytestmark = pytest.mark.slow

DEQ = nsd.DEQ("relu", 0.2)
BLOCK = 50


@pytest.fixture(scope="module")
def expected(samples: np.ndarray) -> np.ndarray:
    return kernels.conjugate_kernel(DEQ, samples)


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    with LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as made:
        yield made


@contextmanager
def two_workers(cluster: LocalCluster) -> Iterator[Client]:
    """A client of the cluster when both workers are there, again if a test before has killed one."""
    with Client(cluster) as client:
        client.wait_for_workers(2, timeout=120)
        yield client


def journal(path: Path) -> list[str]:
    return [line.split(" ", 1)[1].split("]")[0] for line in (path / JOURNAL).read_text().splitlines()]


def test_two_processes_give_the_same_kernel(samples, expected, cluster, tmp_path: Path) -> None:
    with two_workers(cluster) as client:
        kernel = nsd.conjugate_kernel(DEQ, samples, out=tmp_path / "G.zarr", block=BLOCK, client=client)
        here = nsd.conjugate_kernel(DEQ, samples, out=tmp_path / "H.zarr", block=BLOCK)
        # Rows arrive elsewhere in memory, and BLAS adds up in another order where they are aligned otherwise.
        assert_close(np.asarray(kernel), np.asarray(here), Oracle.IDENTITY)
        assert kernel.info == here.info
        assert kernel.run == here.run
        # In memory, from rows in a file, between two sets of samples.
        np.save(tmp_path / "X.npy", samples)
        mapped = np.load(tmp_path / "X.npy", mmap_mode="r")
        found = nsd.tangent_kernel(DEQ, mapped, samples[:70], client=client, block=100)
        assert_close(found, kernels.tangent_kernel(DEQ, samples, samples[:70]), Oracle.IDENTITY)
        assert client.status == "running"
    assert_close(np.asarray(kernel), expected, Oracle.IDENTITY)


def test_an_error_on_a_worker_is_the_error_it_is(samples, cluster, tmp_path: Path) -> None:
    with two_workers(cluster) as client:
        with pytest.raises(nsd.ConvergenceError, match="sigma_a2") as caught:
            nsd.tangent_kernel(nsd.DEQ("relu", 2.5, 1.0), samples, client=client, block=100)
        assert "sigma_a2" in caught.value.remedy
        nsd.conjugate_kernel(DEQ, samples, client=client, block=100, out=tmp_path / "G.zarr")
        with pytest.raises(nsd.InputError, match="another run"):
            nsd.conjugate_kernel(DEQ, 2 * samples, client=client, block=100, out=tmp_path / "G.zarr")


@pytest.mark.parametrize("deaths", [1, 2])
def test_killed_workers_are_survived(samples, expected, cluster, tmp_path: Path, deaths: int) -> None:
    """With two deaths all copies of the samples are lost and sent again."""
    with two_workers(cluster) as client:
        victims = sorted(client.run(os.getpid).values())[:deaths]
        killed: list[int] = []

        def kill(done: int, total: int, message: object) -> None:
            if done == 4 and not killed:
                for victim in victims:
                    os.kill(victim, signal.SIGKILL)
                    killed.append(victim)

        kernel = nsd.conjugate_kernel(
            DEQ, samples, out=tmp_path / "G.zarr", block=BLOCK, client=client, progress=kill
        )
    assert killed == victims
    assert_close(np.asarray(kernel), expected, Oracle.IDENTITY)
    cells = journal(tmp_path / "G.zarr")
    assert len(cells) == len(set(cells)) == kernel.grid.count == 21


@pytest.fixture
def distant(tmp_path: Path) -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    """A scheduler and a worker in processes of their own, as on a real cluster."""
    file = tmp_path / "scheduler.json"
    command = [sys.executable, "-m", "dask"]
    options = ["--scheduler-file", str(file)]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    scheduler = subprocess.Popen([*command, "scheduler", *options, "--port", "0", "--no-dashboard"], **quiet)
    worker = subprocess.Popen(
        [*command, "worker", *options, "--no-dashboard", "--no-nanny", "--nthreads", "1"], **quiet
    )
    try:
        deadline = time.monotonic() + 60
        while not file.exists() or not file.read_text().strip():
            assert time.monotonic() < deadline, "the scheduler did not start"
            time.sleep(0.05)
        yield json.loads(file.read_text())["address"], scheduler
    finally:
        for process in (worker, scheduler):
            process.kill()
            process.wait()


def test_a_scheduler_that_goes_away(samples, expected, distant, tmp_path: Path) -> None:
    address, scheduler = distant

    def kill(done: int, total: int, news: object) -> None:
        if done == 5:
            scheduler.kill()
            scheduler.wait()

    with pytest.raises(nsd.InputError, match="is gone") as caught:
        nsd.conjugate_kernel(
            DEQ, samples, out=tmp_path / "G.zarr", block=BLOCK, client=address, progress=kill
        )
    kept = len(journal(tmp_path / "G.zarr"))
    assert 5 <= kept < 21
    assert f"{kept} of 21 blocks are finished and kept" in str(caught.value)
    with pytest.raises(nsd.InputError, match="not finished"):
        open_kernel(tmp_path / "G.zarr")
    computed: list[int] = []
    kernel = nsd.conjugate_kernel(
        DEQ, samples, out=tmp_path / "G.zarr", progress=lambda done, total, news: computed.append(done)
    )
    assert len(computed) - 1 == 21 - kept
    assert_close(np.asarray(kernel), expected, Oracle.IDENTITY)


def on_a_worker() -> bool:
    try:
        return get_worker() is not None
    except ValueError:
        return False


@pytest.mark.parametrize("use", ["kernel", "rectangle", "no store"])
def test_rows_of_dask_are_stored_where_workers_read_them(
    samples, expected, tmp_path: Path, monkeypatch, use: str
) -> None:
    """Next to the store, not in a temporary folder of one machine; without a store they are sent."""
    read, paths = MappedRows.read, []

    def recorded(self: MappedRows, rows: slice) -> np.ndarray:
        paths.extend([self.path] if on_a_worker() else [])
        return read(self, rows)

    monkeypatch.setattr(MappedRows, "read", recorded)
    rows, options = dask.array.from_array(samples, chunks=(110, 9)), {"block": BLOCK, "client": "threads"}
    sides = (samples, rows) if use == "rectangle" else (rows,)
    out = None if use == "no store" else tmp_path / "shared" / "G.zarr"
    kernel = np.asarray(nsd.conjugate_kernel(DEQ, *sides, out=out, **options))
    assert_close(kernel, expected, Oracle.IDENTITY)
    assert bool(paths) == (use != "no store")
    assert all(Path(path).is_relative_to(tmp_path / "shared") for path in paths)


def test_rows_that_workers_do_not_see_are_named(samples, tmp_path: Path, monkeypatch) -> None:
    read = MappedRows.read

    def only_here(self: MappedRows, rows: slice) -> np.ndarray:
        return read(replace(self, path=str(tmp_path / "unmounted.npy")) if on_a_worker() else self, rows)

    monkeypatch.setattr(MappedRows, "read", only_here)
    np.save(tmp_path / "X.npy", samples)
    mapped = np.load(tmp_path / "X.npy", mmap_mode="r")
    with pytest.raises(
        nsd.InputError, match=r"unmounted.npy cannot be read.*file system that all workers share"
    ):
        nsd.conjugate_kernel(DEQ, mapped, block=BLOCK, client="threads")
