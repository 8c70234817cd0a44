"""The data sets of the papers in a local folder."""

from __future__ import annotations

import gzip
import os
import struct

import numpy as np
import pytest

from notsodeep.data.datasets import OPENML
from notsodeep.errors import InputError
from notsodeep_lab.papers.data_files import DATA_VARIABLE, load

real_data = pytest.mark.skipif(
    not os.environ.get(DATA_VARIABLE),
    reason=f"{DATA_VARIABLE} names no folder of real data",
)


def idx(array):
    """The bytes of an IDX file."""
    header = bytes([0, 0, 8, array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape)
    return gzip.compress(header + array.astype(np.uint8).tobytes())


IMAGES = np.arange(40 * 6).reshape(40, 2, 3) % 256
LABELS = np.arange(40) % 4
TRAIN_IMAGES = "train-images-idx3-ubyte.gz"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A tiny data folder in the layout of the real one."""
    monkeypatch.delenv(DATA_VARIABLE, raising=False)
    for part in ("train", "t10k"):
        for name in ("mnist", "fashion_mnist"):
            (tmp_path / name).mkdir(exist_ok=True)
            (tmp_path / name / f"{part}-images-idx3-ubyte.gz").write_bytes(idx(IMAGES))
            (tmp_path / name / f"{part}-labels-idx1-ubyte.gz").write_bytes(idx(LABELS))
    for name, file, shape in (
        ("cifar10", "cifar10_subset", (32, 32, 3)),
        ("cifar10_vgg19", "features", (512,)),
    ):
        (tmp_path / name).mkdir()
        x = np.random.default_rng(0).integers(0, 255, (12, *shape)).astype(np.uint8)
        np.savez(
            tmp_path / name / file,
            x_train=x,
            y_train=np.arange(12) % 3,
            x_test=x[:6],
            y_test=np.zeros(6, int),
        )
    return tmp_path


def test_idx_files_become_rows_between_zero_and_one(folder):
    data = load("mnist", data_dir=folder)
    assert np.array_equal(data.X, IMAGES.reshape(40, 6) / 255)
    assert np.array_equal(data.y, LABELS)
    assert data.X.dtype == np.float64
    assert load("mnist", data_dir=folder, dtype="float32").X.dtype == np.float32


def test_the_folder_may_come_from_the_environment(folder, monkeypatch):
    monkeypatch.setenv(DATA_VARIABLE, str(folder))
    assert np.array_equal(load("fashion_mnist", split="test").y, LABELS)


def test_npz_files_become_rows(folder):
    pixels, features = load("cifar10", data_dir=folder), load("cifar10_vgg19", data_dir=folder, split="test")
    assert pixels.X.shape == (12, 3072)
    assert 0.9 < pixels.X.max() <= 1.0
    assert features.X.shape == (6, 512)
    assert features.X.max() > 1.0


def cut_in_half(path):
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2])


def damage_checksum_of_gzip(path):
    content = bytearray(path.read_bytes())
    content[-6] ^= 0xFF
    path.write_bytes(content)


def drop_last_entries(path):
    path.write_bytes(gzip.compress(gzip.decompress(path.read_bytes())[:-5]))


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda path: path.unlink(), "FileNotFoundError"),
        (cut_in_half, "EOFError|error"),
        (damage_checksum_of_gzip, "CRC check failed"),
        (lambda path: path.write_bytes(b"<html>not found</html>"), "Not a gzipped file"),
        (lambda path: path.write_bytes(gzip.compress(b"\0\0")), "not an IDX file"),
        (drop_last_entries, "cannot reshape"),
        (lambda path: path.write_bytes(idx(IMAGES[:7])), "7 samples and 40 labels"),
    ],
)
def test_damaged_files_are_named_with_what_is_wrong(folder, damage, message):
    damage(folder / "mnist" / TRAIN_IMAGES)
    with pytest.raises(InputError, match=rf"mnist cannot be read from .*{message}"):
        load("mnist", data_dir=folder)


def test_damaged_npz_files_are_named_and_nothing_is_unpickled(folder):
    file = folder / "cifar10" / "cifar10_subset.npz"
    np.savez(file, x_train=np.array([{}, None]), y_train=np.zeros(2))
    with pytest.raises(InputError, match=r"cifar10 cannot be read .*allow_pickle=False"):
        load("cifar10", data_dir=folder)
    cut_in_half(file)
    with pytest.raises(InputError, match="cifar10 cannot be read"):
        load("cifar10", data_dir=folder)


def test_features_are_only_local(monkeypatch):
    monkeypatch.delenv(DATA_VARIABLE, raising=False)
    with pytest.raises(InputError, match="not on OpenML"):
        load("cifar10_vgg19")


# --- the real files -------------------------------------------------------------------------------------


@real_data
def test_the_openml_guard_knows_the_real_class_counts():
    for name in ("mnist", "fashion_mnist"):
        counts = OPENML[name][1]
        assert tuple(np.bincount(load(name, split="test", dtype="float32").y)) == counts
