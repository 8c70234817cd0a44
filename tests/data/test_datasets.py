from __future__ import annotations

import numpy as np
import pytest
import sklearn.datasets
from hypothesis import given
from hypothesis import strategies as st

from notsodeep.data import NAMES, datasets, load, parse_spec
from notsodeep.errors import InputError

# --- classes and numbers --------------------------------------------------------------------------------


def test_classes_are_selected_in_the_published_order():
    whole, data = load("digits"), load("digits", classes=(3, 1))
    kept = np.isin(whole.y, (1, 3))
    assert data.y.tolist() == whole.y[kept].tolist()
    assert np.array_equal(data.X, whole.X[kept])
    assert load("digits", dtype="float32").X.dtype == np.float32


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
def test_data_come_from_openml_in_their_published_parts(openml):
    train, test = load("fashion_mnist"), load("fashion_mnist", split="test")
    assert openml == ["Fashion-MNIST", "Fashion-MNIST"]
    assert (len(train.y), len(test.y)) == (12, 10_000)
    assert np.array_equal(train.X[:, 0] * 255, 100.0 + np.arange(12))


@pytest.mark.slow
def test_colours_from_openml_stand_last(openml):
    pixel = load("cifar10", n=1).X[0, :3] * 255
    assert pixel[0] == pixel[1] + 100 == pixel[2] + 100


def test_openml_rows_in_another_order_are_noticed(openml):
    # The real MNIST does not have 1000 test images of each digit; here it does.
    with pytest.raises(InputError, match="cannot be separated"):
        load("mnist")


def test_no_network_is_an_error_that_says_what_to_do(monkeypatch):
    def fetch(name, **options):
        raise OSError("network is unreachable")

    monkeypatch.setattr(sklearn.datasets, "fetch_openml", fetch)
    with pytest.raises(InputError, match=r"mnist_784.*network is unreachable.*file with samples"):
        load("mnist")
