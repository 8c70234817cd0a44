"""Real data by name: scikit-learn's digits, and images that scikit-learn downloads from OpenML once and keeps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from notsodeep.data.table_files import Samples
from notsodeep.errors import InputError
from notsodeep.validation import as_count, one_of

DataSplit = Literal["train", "test"]
Precision = Literal["float64", "float32"]

_PIXEL = 255.0
_DIGIT_LEVELS = 16.0
# Neighbouring rows of the digits are alike (the nearest neighbour of a row is 85 rows away in the median; in
# random order it would be 520), so the test part is one block at the end, not rows spread among the others.
_DIGITS_TEST = 360
_OPENML_TEST = 10_000


# Data sets on OpenML: the name there, and the number of test samples of each class.
OPENML = {
    "mnist": ("mnist_784", (980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009)),
    "fashion_mnist": ("Fashion-MNIST", (1000,) * 10),
    "cifar10": ("CIFAR_10", (1000,) * 10),
}
NAMES = ("digits", *OPENML)
# Height, width and colours of images; a row has the colours of a pixel beside each other.
IMAGES = {"digits": (8, 8, 1), "mnist": (28, 28, 1), "fashion_mnist": (28, 28, 1), "cifar10": (32, 32, 3)}


def load(
    name: str,
    *,
    classes: Sequence[int] | None = None,
    split: DataSplit = "train",
    n: int | None = None,
    seed: int = 0,
    dtype: Precision = "float64",
) -> Samples:
    """Load a data set by name: pixels between 0 and 1, with the published labels.

    Args:
        name: one of `NAMES`.
        classes: the labels to keep; all if None.
        split: the published training or test part; of the digits, published in one, the last 360 rows test.
        n: number of samples to draw without replacement, as equally from the classes as their sizes allow; all if
            None. The published order of the rows is kept.
        seed: random seed of that draw.
        dtype: precision of X.
    """
    one_of(split, get_args(DataSplit), "split")
    _known(name)
    chosen: dict[str, Any] = {"classes": classes, "n": n, "seed": seed, "dtype": dtype}
    if name == "digits":
        from sklearn.datasets import load_digits

        X, y = load_digits(return_X_y=True)
        part = slice(None, -_DIGITS_TEST) if split == "train" else slice(-_DIGITS_TEST, None)
        return choose(X[part], y[part], name, full_scale=_DIGIT_LEVELS, **chosen)
    X, y = _from_openml(*OPENML[name], split)
    if name == "cifar10":
        # OpenML keeps the published layout, a plane of 32 × 32 per colour.
        X = X.reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)
    return choose(X, y, name, **chosen)


def choose(
    X: NDArray[Any],
    y: NDArray[Any],
    name: str,
    *,
    classes: Sequence[int] | None = None,
    n: int | None = None,
    seed: int = 0,
    dtype: Precision = "float64",
    full_scale: float = _PIXEL,
) -> Samples:
    """Choose samples as `load` does from all of a part; the value `full_scale` becomes 1."""
    labels = y.astype(np.intp)
    rows = _draw(labels, _of_classes(labels, classes, name), n, seed)
    samples = X[rows].reshape(len(rows), -1).astype(one_of(dtype, get_args(Precision), "dtype"))
    samples /= full_scale
    return Samples(samples, labels[rows], total=len(labels))


def as_images(name: str, rows: NDArray[Any]) -> NDArray[Any]:
    """Reshape the rows of a data set of images to (n, channels, height, width)."""
    if name not in IMAGES:
        raise InputError(f"{name} has no images; choose one of {', '.join(IMAGES)}.")
    return np.ascontiguousarray(rows.reshape(-1, *IMAGES[name]).transpose(0, 3, 1, 2))


def parse_spec(spec: str) -> tuple[str, tuple[int, ...] | None]:
    """Split a text such as "mnist:6,8" or "digits" into the name and the classes that `load` takes."""
    name, colon, listed = spec.partition(":")
    _known(name)
    if not colon:
        return name, None
    try:
        classes = tuple(int(label) for label in listed.split(","))
    except ValueError:
        raise InputError(
            f"Separate the classes of {name} by commas, as in {name}:6,8; got {listed!r}."
        ) from None
    return name, classes


def _of_classes(labels: NDArray[np.intp], classes: Sequence[int] | None, name: str) -> NDArray[np.intp]:
    """Return the indices of the rows whose label is one of the classes."""
    if classes is None:
        return np.arange(len(labels))
    kept = np.asarray(classes)
    present = np.unique(labels)
    if kept.ndim != 1 or kept.size == 0 or len(np.unique(kept)) < kept.size:
        raise InputError(f"classes must list different labels, at least one; got {classes!r}.")
    if not np.isin(kept, present).all():
        raise InputError(f"{name} has the labels {present.tolist()}; got classes={kept.tolist()}.")
    return np.flatnonzero(np.isin(labels, kept))


def _draw(labels: NDArray[np.intp], pool: NDArray[np.intp], n: int | None, seed: int) -> NDArray[np.intp]:
    """Draw n rows of the pool, as equally from the classes as their sizes allow, in the order of the pool."""
    if n is None:
        return pool
    if as_count(n, "n") > len(pool):
        raise InputError(f"n={n} is more than the {len(pool)} samples of the chosen classes. Lower n.")
    _, codes, sizes = np.unique(labels[pool], return_inverse=True, return_counts=True)
    rng = np.random.default_rng(seed)
    shares = _equal_shares(sizes, n)
    drawn = [rng.permutation(pool[codes == a])[:share] for a, share in enumerate(shares)]
    return np.sort(np.concatenate(drawn))


def _equal_shares(sizes: NDArray[np.intp], n: int) -> NDArray[np.intp]:
    """Split n as equally as the sizes of the classes allow."""
    shares = np.zeros_like(sizes)
    order = np.argsort(sizes, kind="stable")
    for rank, a in enumerate(order):
        # Smallest class first: what it cannot take goes to the larger ones.
        shares[a] = min(sizes[a], (n - shares.sum()) // (len(sizes) - rank))
    return shares


def _from_openml(
    openml_name: str, test_counts: tuple[int, ...], split: DataSplit
) -> tuple[NDArray[Any], NDArray[Any]]:
    """Download the published training or test part; OpenML keeps them one after the other."""
    from sklearn.datasets import fetch_openml

    try:
        X, y = fetch_openml(openml_name, version=1, return_X_y=True, as_frame=False, parser="auto")
    # scikit-learn lets through whatever the network, the server, the parser or the cache raise.
    except Exception as reason:
        raise InputError(
            f"{openml_name} could not be downloaded from OpenML ({type(reason).__name__}: {reason}). Check the "
            "network, or give a file with samples of your own; digits needs no network."
        ) from reason
    labels = y.astype(np.intp)
    if tuple(np.bincount(labels[-_OPENML_TEST:], minlength=len(test_counts))) != test_counts:
        raise InputError(
            f"The last {_OPENML_TEST} rows of {openml_name} on OpenML do not have the class counts of the "
            "published test part, so the two parts cannot be separated; give a file with samples of your own."
        )
    part = slice(None, -_OPENML_TEST) if split == "train" else slice(-_OPENML_TEST, None)
    return X[part], labels[part]


def _known(name: str) -> None:
    if name not in NAMES:
        raise InputError(f"Unknown data set {name!r}; choose one of {', '.join(NAMES)}.")
