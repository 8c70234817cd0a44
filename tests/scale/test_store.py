"""A kernel on disk: whatever ends a run, finished blocks are kept, and nothing that is not ours is touched."""

from __future__ import annotations

import errno
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import zarr
from tolerances import Oracle, assert_close
from zarr.storage import LocalStore

import notsodeep as nsd
from notsodeep import kernels
from notsodeep.scale import open_kernel
from notsodeep.scale.store import JOURNAL, remove_store

DEQ = nsd.DEQ("relu", 0.2)


def compute(X: np.ndarray, path: Path, **more: object) -> object:
    return nsd.conjugate_kernel(DEQ, X, out=path, **{"block": 64, **more})


def counted(X: np.ndarray, path: Path, **more: object) -> tuple[object, int]:
    """The kernel, and how many blocks were computed for it."""
    seen: list[int] = []
    kernel = compute(X, path, progress=lambda done, total, news: seen.append(done), **more)
    return kernel, len(seen) - 1


def contents(folder: Path) -> dict[str, bytes]:
    """All files but the lock, which says to the second who held it last."""
    files = (path for path in folder.rglob("*") if path.is_file() and path.name != ".lock")
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


@pytest.fixture(scope="module")
def expected(samples: np.ndarray) -> np.ndarray:
    return kernels.conjugate_kernel(DEQ, samples)


def test_the_lower_half_is_stored_and_the_whole_is_read(samples, expected, tmp_path: Path) -> None:
    kernel, info = compute(samples, tmp_path / "G.zarr", return_info=True)
    assert len(list((tmp_path / "G.zarr" / "c").rglob("[0-9]*/[0-9]*"))) == 15
    assert_close(np.asarray(kernel), expected, Oracle.IDENTITY)
    assert_close(kernel[100:130, :], expected[100:130], Oracle.IDENTITY)
    assert_close(kernel[5], expected[5:6][0], Oracle.IDENTITY)
    assert kernel[-1, 3] == pytest.approx(expected[-1, 3], rel=1e-13)
    assert_close(kernel[290:10:-7, ::50], expected[290:10:-7, ::50], Oracle.IDENTITY)
    assert kernel[3:3].shape == (0, 300)
    assert_close(kernel.diagonal(), expected.diagonal(), Oracle.IDENTITY)
    assert 0 < info.error_bound < 1e-12
    with pytest.raises(nsd.InputError, match="not valid for 300"):
        kernel[300]
    with pytest.raises(nsd.InputError, match="no kernel"):
        open_kernel(tmp_path / "nothing.zarr")
    # To other programs it is a zarr array; what is not there is not a number.
    plain = zarr.open_array(tmp_path / "G.zarr", mode="r")
    assert np.isnan(plain[0, 299])
    assert plain[299, 0] == kernel[0, 299]


def test_a_rectangle_on_disk(samples, tmp_path: Path) -> None:
    kernel = nsd.tangent_kernel(
        DEQ, samples, samples[:90], out=tmp_path / "T.zarr", block=64, storage="float32"
    )
    assert_close(np.asarray(kernel), kernels.tangent_kernel(DEQ, samples, samples[:90]), Oracle.IDENTITY)


def test_images_with_a_tolerance_of_their_own(tmp_path: Path) -> None:
    model, images = nsd.ConvDEQ("tanh", 0.2), np.random.default_rng(0).standard_normal((6, 1, 4, 4))
    kernel = nsd.conjugate_kernel(model, images, out=tmp_path / "G.zarr", tolerance=1e-4)
    np.testing.assert_allclose(np.asarray(kernel), nsd.conjugate_kernel(model, images), rtol=1e-4)
    with pytest.raises(nsd.InputError, match="another tolerance"):
        nsd.conjugate_kernel(model, images, out=tmp_path / "G.zarr")


def test_a_finished_run_is_not_computed_again(samples, tmp_path: Path) -> None:
    compute(samples, tmp_path / "G.zarr")
    before = contents(tmp_path)
    # The block size of the store serves a call that leaves it open.
    assert counted(samples, tmp_path / "G.zarr", block=None)[1] == 0
    assert contents(tmp_path) == before


def stop_at(blocks: int) -> Callable[[int, int, object], None]:
    """A progress callback that interrupts the run."""

    def progress(done: int, total: int, message: object) -> None:
        if done == blocks:
            raise KeyboardInterrupt

    return progress


def test_an_interrupted_run_goes_on_where_it_stopped(samples, expected, tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        compute(samples, tmp_path / "G.zarr", progress=stop_at(6))
    # What was being written when it died.
    (tmp_path / "G.zarr" / "c" / "4").mkdir(parents=True, exist_ok=True)
    (tmp_path / "G.zarr" / "c" / "4" / "0.0.partial").write_bytes(b"half a block")
    with pytest.raises(nsd.InputError, match="9 of its 15 blocks are missing"):
        open_kernel(tmp_path / "G.zarr")
    kernel, computed = counted(samples, tmp_path / "G.zarr")
    assert computed == 9
    assert kernel.repaired == ()
    assert_close(np.asarray(kernel), expected, Oracle.IDENTITY)
    assert not list((tmp_path / "G.zarr").rglob("*.partial"))


def cut(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:1000])


def flip(file: Path) -> None:
    content = bytearray(file.read_bytes())
    content[1234] ^= 1
    file.write_bytes(content)


@pytest.mark.parametrize("damage", [Path.unlink, cut, flip], ids=["missing", "cut", "one bit"])
def test_a_damaged_block_is_refused_and_repaired(samples, expected, tmp_path: Path, damage) -> None:
    compute(samples, tmp_path / "G.zarr")
    damage(tmp_path / "G.zarr" / "c" / "3" / "1")
    kernel = open_kernel(tmp_path / "G.zarr")
    assert_close(kernel[:64, :64], expected[:64, :64], Oracle.IDENTITY)
    with pytest.raises(nsd.InputError, match="damaged"):
        kernel[200, 100]
    kernel, computed = counted(samples, tmp_path / "G.zarr")
    assert computed == 1
    assert kernel.repaired == ((3, 1),)
    assert_close(np.asarray(kernel), expected, Oracle.IDENTITY)


def test_a_damaged_journal_costs_its_blocks_and_no_more(samples, expected, tmp_path: Path) -> None:
    compute(samples, tmp_path / "G.zarr")
    journal = tmp_path / "G.zarr" / JOURNAL
    lines = journal.read_bytes().splitlines(keepends=True)
    journal.write_bytes(b"".join([*lines[:4], lines[4].replace(b"0", b"1"), *lines[5:-1], lines[-1][:20]]))
    kernel, computed = counted(samples, tmp_path / "G.zarr")
    assert computed == 2
    assert_close(np.asarray(kernel), expected, Oracle.IDENTITY)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"model": nsd.DEQ("relu", 0.3)}, "another model"),
        ({"of": "preactivations"}, "another kernel"),
        ({"depth": 3}, "another model"),
        ({"X": 0.5}, "other rows X"),
        ({"storage": "float32"}, "another precision"),
        ({"block": 128}, "another block size"),
    ],
    ids=lambda value: str(value)[:20],
)
def test_a_store_of_another_run_is_refused_and_left_alone(
    samples, tmp_path: Path, change, words: str
) -> None:
    compute(samples, tmp_path / "G.zarr")
    before = contents(tmp_path)
    call = {"model": DEQ, "X": 1.0, "block": 64, **change}
    with pytest.raises(nsd.InputError, match=f"{words}.*Nothing was changed"):
        nsd.conjugate_kernel(call.pop("model"), call.pop("X") * samples, out=tmp_path / "G.zarr", **call)
    assert contents(tmp_path) == before


@pytest.mark.slow
def test_the_kernel_of_a_model_that_looks_alike_is_not_handed_out(samples, tmp_path: Path) -> None:
    """Resumed with another model in the same folder: refused, and the store left alone."""
    X = 30.0 * samples[:70]
    one, other = (
        nsd.DEQ(nsd.custom_activation(lambda x, c=c: np.clip(x, -c, c), kinks=(-9, -7, 7, 9)), 0.2)
        for c in (7, 9)
    )

    with pytest.raises(KeyboardInterrupt):
        nsd.conjugate_kernel(one, X, out=tmp_path / "H.zarr", block=64, progress=stop_at(2))
    before = contents(tmp_path)
    with pytest.raises(nsd.InputError, match=r"another model.*model\.activation\.callable\.values"):
        nsd.conjugate_kernel(other, X, out=tmp_path / "H.zarr", block=64)
    assert contents(tmp_path) == before
    resumed = np.asarray(nsd.conjugate_kernel(one, X, out=tmp_path / "H.zarr", block=64))
    assert_close(resumed, kernels.conjugate_kernel(one, X), Oracle.IDENTITY)
    assert np.abs(kernels.conjugate_kernel(other, X) - resumed).max() > 1e-9 * np.abs(resumed).max()


def test_a_store_of_another_version_is_refused_and_can_be_removed(samples, tmp_path: Path) -> None:
    compute(samples, tmp_path / "G.zarr")
    file = tmp_path / "G.zarr" / "zarr.json"
    content = json.loads(file.read_text())
    content["attributes"]["notsodeep"]["format"] = 1
    file.write_text(json.dumps(content))
    before = contents(tmp_path)
    for use in (lambda: compute(samples, tmp_path / "G.zarr"), lambda: open_kernel(tmp_path / "G.zarr")):
        with pytest.raises(nsd.InputError, match="format 1 instead of 3"):
            use()
    assert contents(tmp_path) == before
    remove_store(tmp_path / "G.zarr")
    assert not (tmp_path / "G.zarr").exists()


FOREIGN = {
    "folder": lambda path: (path.mkdir(), (path / "thesis.txt").write_text("mine")),
    "download": lambda path: (path.mkdir(), (path / "film.partial").write_text("mine")),
    "file": lambda path: path.write_text("mine"),
    "zarr array": lambda path: zarr.create_array(path, shape=(300, 300), chunks=(64, 64), dtype="float64"),
    "zarr group": lambda path: zarr.open_group(path, mode="w").create_array("a", shape=(3,), dtype="float64"),
}


@pytest.mark.parametrize("make", FOREIGN.values(), ids=list(FOREIGN))
def test_what_is_not_a_kernel_is_left_alone(samples, tmp_path: Path, make) -> None:
    make(tmp_path / "G.zarr")
    before = contents(tmp_path)
    with pytest.raises(nsd.InputError, match="another folder"):
        compute(samples, tmp_path / "G.zarr")
    with pytest.raises(nsd.InputError, match="Nothing was changed"):
        remove_store(tmp_path / "G.zarr")
    assert contents(tmp_path) == before


@pytest.mark.parametrize(
    ("key", "value", "words"), [("shape", [200, 200], "shape"), ("data_type", "float32", "float32")]
)
def test_an_array_changed_behind_our_back(samples, tmp_path: Path, key: str, value, words: str) -> None:
    compute(samples, tmp_path / "G.zarr")
    described = tmp_path / "G.zarr" / "zarr.json"
    described.write_text(json.dumps({**json.loads(described.read_text()), key: value}))
    with pytest.raises(nsd.InputError, match=words):
        open_kernel(tmp_path / "G.zarr")
    noted = json.loads(described.read_text())
    for foreign in ("x", [1]):
        changed = {**noted, "attributes": {"notsodeep": foreign}}
        described.write_text(json.dumps(changed))
        with pytest.raises(nsd.InputError, match="not a kernel of notsodeep"):
            open_kernel(tmp_path / "G.zarr")
    noted["attributes"]["notsodeep"]["kernel"] = "other"
    described.write_text(json.dumps(noted))
    with pytest.raises(nsd.InputError, match="altered"):
        compute(samples, tmp_path / "G.zarr")


def test_a_disk_that_is_too_small_is_refused_at_the_start(samples, tmp_path: Path, monkeypatch) -> None:
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage._replace(free=100_000))
    with pytest.raises(nsd.InputError, match="100 kB free"):
        compute(samples, tmp_path / "G.zarr")
    assert list(tmp_path.iterdir()) == []


def test_a_disk_that_fills_up_keeps_what_is_finished(samples, expected, tmp_path: Path, monkeypatch) -> None:
    put, room = LocalStore.set, [5]

    async def full_disk(self, key, value, *more):
        if "c/" in key:
            room[0] -= 1
            if room[0] < 0:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return await put(self, key, value, *more)

    monkeypatch.setattr(LocalStore, "set", full_disk)
    with pytest.raises(nsd.InputError, match=r"No space left.*Free some space.*kept"):
        compute(samples, tmp_path / "G.zarr")
    monkeypatch.undo()
    kernel, computed = counted(samples, tmp_path / "G.zarr")
    assert computed == 10
    assert_close(np.asarray(kernel), expected, Oracle.IDENTITY)


def test_two_runs_at_once(samples, tmp_path: Path) -> None:
    def second(done: int, total: int, news: object) -> None:
        if done == 3:
            with pytest.raises(nsd.InputError, match=f"in use by process {os.getpid()}"):
                compute(samples, tmp_path / "G.zarr")

    assert compute(samples, tmp_path / "G.zarr", progress=second).shape == (300, 300)


RACER = """
import json, pathlib, sys, time
import numpy as np, notsodeep as nsd, zarr
X, me, other = np.load("X.npy"), sys.argv[1], sys.argv[2]
deq, create = nsd.DEQ("relu", 0.2), zarr.create_array
nsd.conjugate_kernel(deq, X, out=f"warm-{me}.zarr", block=64)
def on_a_slow_disk(*given, **more):
    time.sleep(0.1)
    return create(*given, **more)
zarr.create_array = on_a_slow_disk
for number in range(6):
    pathlib.Path(f"ready-{number}-{me}").touch()
    while not pathlib.Path(f"ready-{number}-{other}").exists():
        pass
    try:
        nsd.conjugate_kernel(deq, X, out=f"G{number}.zarr", block=64)
        print(json.dumps("finished"), flush=True)
    except BaseException as error:
        print(json.dumps(f"{type(error).__name__}: {error}"), flush=True)
"""


@pytest.mark.slow
def test_two_processes_that_start_on_one_store_together(samples, expected, tmp_path: Path) -> None:
    """Six races on a slow disk: one makes the store, the other is told of it (or finds it finished)."""
    np.save(tmp_path / "X.npy", samples)
    racers = [
        subprocess.Popen(
            [sys.executable, "-c", RACER, *names], cwd=tmp_path, stdout=subprocess.PIPE, text=True
        )
        for names in (("a", "b"), ("b", "a"))
    ]
    told = [[json.loads(line) for line in racer.communicate(timeout=120)[0].splitlines()] for racer in racers]
    assert [len(lines) for lines in told] == [6, 6]
    for number, both in enumerate(zip(*told, strict=True)):
        assert "finished" in both
        lost = [words for words in both if words != "finished"]
        assert all(
            re.match(r"InputError: .* is in use by (process|another process)", words) for words in lost
        ), lost
        assert_close(np.asarray(open_kernel(tmp_path / f"G{number}.zarr")), expected, Oracle.IDENTITY)


def test_a_run_that_died_while_it_made_its_store(samples, expected, tmp_path: Path) -> None:
    (tmp_path / "G.zarr").mkdir()
    (tmp_path / "G.zarr" / ".lock").write_text("process 1 since then")
    (tmp_path / "G.zarr" / "zarr.0123456789abcdef.partial").write_text("{")
    assert_close(np.asarray(compute(samples, tmp_path / "G.zarr")), expected, Oracle.IDENTITY)
    assert not list((tmp_path / "G.zarr").rglob("*.partial"))


def test_an_array_without_a_copy_cannot_be_had(samples, expected, tmp_path: Path) -> None:
    """As NumPy's protocol has it: copy=False raises where a copy is needed."""
    kernel = compute(samples, tmp_path / "G.zarr")
    with pytest.raises(ValueError, match="on disk"):
        kernel.__array__(copy=False)
    for copy in (None, True):
        assert_close(kernel.__array__(np.dtype("float32"), copy=copy), expected, Oracle.IDENTITY)
        assert kernel.__array__(copy=copy).dtype == np.float64
