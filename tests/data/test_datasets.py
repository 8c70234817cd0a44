from __future__ import annotations

import gzip
import os
import struct

import numpy as np
import pytest
import sklearn.datasets
from hypothesis import given
from hypothesis import strategies as st

from notsodeep.data import NAMES, Preprocessing, datasets, load, parse_spec
from notsodeep.errors import InputError

real_data = pytest.mark.skipif(
    not os.environ.get(datasets.DATA_VARIABLE),
    reason=f"{datasets.DATA_VARIABLE} names no folder of real data",
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
    monkeypatch.delenv(datasets.DATA_VARIABLE, raising=False)
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


# --- local files ----------------------------------------------------------------------------------------


def test_idx_files_become_rows_between_zero_and_one(folder):
    data = load("mnist", data_dir=folder)
    assert np.array_equal(data.X, IMAGES.reshape(40, 6) / 255)
    assert np.array_equal(data.y, LABELS)
    assert (data.name, data.split) == ("mnist", "train")
    assert data.X.dtype == np.float64
    assert load("mnist", data_dir=folder, dtype="float32").X.dtype == np.float32


def test_the_folder_may_come_from_the_environment(folder, monkeypatch):
    monkeypatch.setenv(datasets.DATA_VARIABLE, str(folder))
    assert load("fashion_mnist", split="test").source == str(folder / "fashion_mnist")


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
        (lambda path: path.unlink(), "is missing"),
        (cut_in_half, "not a complete gzip file"),
        (damage_checksum_of_gzip, "not a complete gzip file"),
        (lambda path: path.write_bytes(b"<html>not found</html>"), "not a complete gzip file"),
        (lambda path: path.write_bytes(b""), "not an IDX file"),
        (lambda path: path.write_bytes(gzip.compress(b"\0\0")), "not an IDX file"),
        (lambda path: path.write_bytes(idx(LABELS)), "not an IDX file"),
        (drop_last_entries, r"should have 240 entries .* and has 235"),
        (lambda path: path.write_bytes(idx(IMAGES[:7])), "7 samples and labels of shape"),
    ],
)
def test_damaged_idx_files_are_named_with_what_is_wrong(folder, damage, message):
    damage(folder / "mnist" / TRAIN_IMAGES)
    with pytest.raises(InputError, match=message) as caught:
        load("mnist", data_dir=folder)
    assert "mnist" in str(caught.value)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda path: path.unlink(), "is missing"),
        (cut_in_half, "not a complete npz file"),
        (lambda path: path.write_bytes(b""), "not a complete npz file"),
        (lambda path: path.write_bytes(b"text"), "not a complete npz file"),
        (lambda path: np.savez(path, x_train=np.zeros((2, 4))), r"missing are \['y_train'\]"),
        (
            lambda path: np.savez(path, x_train=np.zeros((2, 4)), y_train=np.zeros(3)),
            "one for each is needed",
        ),
        (
            lambda path: np.savez(path, x_train=np.array([{}, None]), y_train=np.zeros(2)),
            "allow_pickle=False",
        ),
    ],
)
def test_damaged_npz_files_are_named_with_what_is_wrong(folder, damage, message):
    damage(folder / "cifar10" / "cifar10_subset.npz")
    with pytest.raises(InputError, match=message) as caught:
        load("cifar10", data_dir=folder)
    assert "cifar10_subset.npz" in str(caught.value)


def test_a_folder_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(InputError, match=r"data folder .* does not exist"):
        load("mnist", data_dir=tmp_path / "nowhere")


# --- classes and numbers --------------------------------------------------------------------------------


def test_classes_are_selected_in_the_published_order(folder):
    data = load("mnist", data_dir=folder, classes=(3, 1))
    assert data.y.tolist() == [1, 3] * 10
    assert np.array_equal(data.X * 255, IMAGES.reshape(40, 6)[np.isin(LABELS, (1, 3))])


def test_a_number_of_samples_is_shared_by_the_classes_and_repeatable():
    data = load("digits", classes=(6, 8), n=101, seed=1)
    assert sorted(np.bincount(data.y)[[6, 8]].tolist()) == [50, 51]
    assert np.array_equal(data.X, load("digits", classes=(6, 8), n=101, seed=1).X)
    assert not np.array_equal(data.X, load("digits", classes=(6, 8), n=101, seed=2).X)


@given(st.lists(st.integers(1, 30), min_size=1, max_size=6), st.data())
def test_shares_are_as_equal_as_the_classes_allow(sizes, data):
    n = data.draw(st.integers(1, sum(sizes)))
    shares = datasets._equal_shares(np.array(sizes), n)
    assert shares.sum() == n
    assert np.all(shares <= sizes)
    # Whoever got two less than another had no more to give.
    short = shares < shares.max() - 1
    assert np.array_equal(shares[short], np.array(sizes)[short])


def test_digits_have_disjoint_parts_with_all_classes():
    train, test = load("digits"), load("digits", split="test")
    assert (len(train.y), len(test.y)) == (1437, 360)
    assert np.unique(test.y).tolist() == list(range(10))
    assert (train.X.min(), train.X.max()) == (0.0, 1.0)
    whole, _ = sklearn.datasets.load_digits(return_X_y=True)
    assert np.array_equal(np.vstack([train.X, test.X]) * 16, whole)


def test_specs_name_a_data_set_and_its_classes():
    assert parse_spec("mnist:6,8") == ("mnist", (6, 8))
    assert parse_spec("digits") == ("digits", None)
    for spec, message in (
        ("mnist:6;8", "mnist:6,8"),
        ("mnist:", "mnist:6,8"),
        ("nist:1", "choose one of digits"),
    ):
        with pytest.raises(InputError, match=message):
            parse_spec(spec)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"name": "imagenet"}, ", ".join(NAMES)),
        ({"split": "validation"}, "one of: train, test"),
        ({"dtype": "float16"}, "one of: float64, float32"),
        ({"classes": (1, 11)}, r"got classes=\[1, 11\]"),
        ({"classes": ()}, "at least one"),
        ({"classes": (1, 1)}, "different labels"),
        ({"n": 0}, "whole number of at least 1"),
        ({"n": 10_000}, "more than the 1437 samples"),
    ],
)
def test_requests_that_make_no_sense_are_refused_in_words(arguments, message):
    with pytest.raises(InputError, match=message):
        load(**{"name": "digits", **arguments})


# --- OpenML ---------------------------------------------------------------------------------------------


@pytest.fixture
def openml(monkeypatch):
    """OpenML with 12 training rows before 10 000 test rows, its labels texts as OpenML's are."""
    monkeypatch.delenv(datasets.DATA_VARIABLE, raising=False)
    asked = []

    def fetch(name, **options):
        asked.append(name)
        y = np.concatenate([np.arange(12) % 10, np.repeat(np.arange(10), 1000)]).astype(str)
        X = np.zeros((len(y), 3072 if name == "CIFAR_10" else 784))
        X[:12] = np.arange(12)[:, None]
        X[:, :1024] += 100
        return X, y.astype(object)

    monkeypatch.setattr(sklearn.datasets, "fetch_openml", fetch)
    return asked


@pytest.mark.slow
def test_without_a_folder_data_come_from_openml_in_their_published_parts(openml):
    train, test = load("fashion_mnist"), load("fashion_mnist", split="test")
    assert openml == ["Fashion-MNIST", "Fashion-MNIST"]
    assert (len(train.y), len(test.y)) == (12, 10_000)
    assert np.array_equal(train.X[:, 0] * 255, 100.0 + np.arange(12))
    assert train.source == "openml"


@pytest.mark.slow
def test_colours_from_openml_stand_last_as_in_the_local_images(openml):
    pixel = load("cifar10", n=1).X[0, :3] * 255
    assert pixel[0] == pixel[1] + 100 == pixel[2] + 100


def test_openml_rows_in_another_order_are_noticed(openml):
    # The real MNIST does not have 1000 test images of each digit; here it does.
    with pytest.raises(InputError, match="cannot be separated"):
        load("mnist")


def test_no_network_is_an_error_that_says_what_to_do(monkeypatch):
    def fetch(name, **options):
        raise OSError("network is unreachable")

    monkeypatch.delenv(datasets.DATA_VARIABLE, raising=False)
    monkeypatch.setattr(sklearn.datasets, "fetch_openml", fetch)
    with pytest.raises(InputError, match=r"mnist_784.*network is unreachable.*NOTSODEEP_DATA"):
        load("mnist")


def test_features_are_only_local(monkeypatch):
    monkeypatch.delenv(datasets.DATA_VARIABLE, raising=False)
    with pytest.raises(InputError, match="not on OpenML"):
        load("cifar10_vgg19")


# --- the real files -------------------------------------------------------------------------------------


@real_data
@pytest.mark.parametrize(
    ("name", "columns", "train", "test"),
    [
        ("mnist", 784, 60_000, 10_000),
        ("fashion_mnist", 784, 60_000, 10_000),
        ("cifar10", 3072, 10_000, 2_000),
        ("cifar10_vgg19", 512, 20_000, 5_000),
    ],
)
def test_real_files_have_their_published_size(name, columns, train, test):
    for split, expected in (("train", train), ("test", test)):
        data = load(name, split=split, dtype="float32")
        assert data.X.shape == (expected, columns)
        assert np.unique(data.y).tolist() == list(range(10))


@real_data
def test_real_mnist_sixes_and_eights():
    data = load("mnist", classes=(6, 8))
    assert np.bincount(data.y)[[6, 8]].tolist() == [5918, 5851]
    X = Preprocessing.fit(data.X).apply(data.X)
    assert abs(np.mean(np.sum(X**2, axis=1)) - 1) < 1e-12


@real_data
def test_the_openml_guard_knows_the_real_class_counts():
    for name, (_, counts) in datasets._IDX.items():
        assert tuple(np.bincount(load(name, split="test", dtype="float32").y)) == counts
