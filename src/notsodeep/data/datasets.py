"""Real data by name, from a local folder or OpenML; only scikit-learn's digits need neither.

The folder is `data_dir`, or else the environment variable NOTSODEEP_DATA, and holds

    mnist/, fashion_mnist/            the four IDX .gz files, as published
    cifar10/cifar10_subset.npz        x_train, y_train, x_test, y_test: images (n, 32, 32, 3), unsigned bytes
    cifar10_vgg19/features.npz        the same names: features (n, 512)
"""

from __future__ import annotations

import gzip
import os
import struct
import zipfile
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from notsodeep.errors import InputError
from notsodeep.validation import as_count, one_of

DataSplit = Literal["train", "test"]
Precision = Literal["float64", "float32"]
DATA_VARIABLE = "NOTSODEEP_DATA"

_PIXEL = 255.0
_DIGIT_LEVELS = 16.0
# Neighbouring rows of the digits are alike (the nearest neighbour of a row is 85 rows away in the median; in
# random order it would be 520), so the test part is one block at the end, not rows spread among the others.
_DIGITS_TEST = 360
_OPENML_TEST = 10_000
_AGAIN = "Download the file again."
# np.load reports damage through any of these, depending on where it is; a lone .npy has no names to ask for.
_NPZ_DAMAGE = (zipfile.BadZipFile, zlib.error, EOFError, OSError, ValueError, AttributeError, TypeError)


@dataclass(frozen=True, eq=False)
class Dataset:
    """Samples in rows with their labels.

    Attributes:
        X: shape (n, p): pixels between 0 and 1, or features as stored.
        y: the published labels, shape (n,).
        name: one of `NAMES`.
        split: "train" or "test".
        source: "scikit-learn", "openml" or the local folder of the data set.
    """

    X: NDArray[np.floating[Any]]
    y: NDArray[np.intp]
    name: str
    split: DataSplit
    source: str


# What a reader returns: samples and labels as stored, the value that becomes 1, and the source.
_Raw = tuple[NDArray[Any], NDArray[Any], float, str]
# Data sets of four IDX files: the name on OpenML, and the number of test samples of each class.
_IDX = {
    "mnist": ("mnist_784", (980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009)),
    "fashion_mnist": ("Fashion-MNIST", (1000,) * 10),
}
# Height, width and colours of images; a row has the colours of a pixel beside each other.
IMAGES = {"digits": (8, 8, 1), "mnist": (28, 28, 1), "fashion_mnist": (28, 28, 1), "cifar10": (32, 32, 3)}


def load(
    name: str,
    *,
    classes: Sequence[int] | None = None,
    split: DataSplit = "train",
    data_dir: str | Path | None = None,
    n: int | None = None,
    seed: int = 0,
    dtype: Precision = "float64",
) -> Dataset:
    """Load a data set by name.

    Args:
        name: one of `NAMES`.
        classes: the labels to keep; all if None.
        split: the published training or test part; of the digits, published in one, the last 360 rows test.
        data_dir: the local folder; if None, that of the environment variable NOTSODEEP_DATA; without it, OpenML.
        n: number of samples to draw without replacement, as equally from the classes as their sizes allow; all if
            None. The published order of the rows is kept.
        seed: random seed of that draw.
        dtype: precision of X.
    """
    one_of(split, get_args(DataSplit), "split")
    one_of(dtype, get_args(Precision), "dtype")
    stored, y, full_scale, source = _reader(name)(name, split, _folder(data_dir))
    labels = y.astype(np.intp)
    chosen = _draw(labels, _of_classes(labels, classes, name), n, seed)
    samples = stored[chosen].reshape(len(chosen), -1).astype(dtype)
    samples /= full_scale
    return Dataset(samples, labels[chosen], name, split, source)


def as_images(name: str, rows: NDArray[Any]) -> NDArray[Any]:
    """Reshape the rows of a data set of images to (n, channels, height, width)."""
    if name not in IMAGES:
        raise InputError(f"{name} has no images; choose one of {', '.join(IMAGES)}.")
    return np.ascontiguousarray(rows.reshape(-1, *IMAGES[name]).transpose(0, 3, 1, 2))


def parse_spec(spec: str) -> tuple[str, tuple[int, ...] | None]:
    """Split a text such as "mnist:6,8" or "digits" into the name and the classes that `load` takes."""
    name, colon, listed = spec.partition(":")
    _reader(name)
    if not colon:
        return name, None
    try:
        classes = tuple(int(label) for label in listed.split(","))
    except ValueError:
        raise InputError(
            f"Separate the classes of {name} by commas, as in {name}:6,8; got {listed!r}."
        ) from None
    return name, classes


def _folder(data_dir: str | Path | None) -> Path | None:
    named = data_dir if data_dir is not None else os.environ.get(DATA_VARIABLE) or None
    if named is None:
        return None
    folder = Path(named).expanduser()
    if not folder.is_dir():
        raise InputError(f"The data folder {folder} does not exist (from data_dir or {DATA_VARIABLE}).")
    return folder


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


def _read_digits(name: str, split: DataSplit, folder: Path | None) -> _Raw:
    from sklearn.datasets import load_digits

    X, y = load_digits(return_X_y=True)
    part = slice(None, -_DIGITS_TEST) if split == "train" else slice(-_DIGITS_TEST, None)
    return X[part], y[part], _DIGIT_LEVELS, "scikit-learn"


def _read_idx(name: str, split: DataSplit, folder: Path | None) -> _Raw:
    if folder is None:
        return _from_openml(*_IDX[name], split)
    prefix = "train" if split == "train" else "t10k"
    images = _parse_idx(folder / name / f"{prefix}-images-idx3-ubyte.gz", 3)
    labels = _parse_idx(folder / name / f"{prefix}-labels-idx1-ubyte.gz", 1)
    _refuse_unequal(images, labels, folder / name)
    return images, labels, _PIXEL, str(folder / name)


def _parse_idx(path: Path, axes: int) -> NDArray[np.uint8]:
    """Read a gzipped IDX file: 0, 0, type (8: unsigned bytes), number of axes, then sizes and entries, big-endian."""
    compressed = _existing(path).read_bytes()
    try:
        content = gzip.decompress(compressed)
    except (EOFError, OSError, zlib.error) as reason:
        raise InputError(f"{path} is not a complete gzip file: {reason}. {_AGAIN}") from reason
    header = 4 + 4 * axes
    if len(content) < header or content[:4] != bytes([0, 0, 8, axes]):
        raise InputError(f"{path} is not an IDX file of unsigned bytes with {axes} axes. {_AGAIN}")
    shape = struct.unpack(f">{axes}I", content[4:header])
    if len(content) - header != prod(shape):
        raise InputError(
            f"{path} should have {prod(shape)} entries (shape {shape}) and has {len(content) - header}. {_AGAIN}"
        )
    return np.frombuffer(content, dtype=np.uint8, offset=header).reshape(shape)


def _read_cifar10(name: str, split: DataSplit, folder: Path | None) -> _Raw:
    if folder is not None:
        return _from_npz(folder / "cifar10" / "cifar10_subset.npz", split, _PIXEL)
    pixels, labels, full_scale, source = _from_openml("CIFAR_10", (1000,) * 10, split)
    # OpenML keeps the published layout, a plane of 32 × 32 per colour; the local images have colours last.
    return pixels.reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1), labels, full_scale, source


def _read_cifar10_vgg19(name: str, split: DataSplit, folder: Path | None) -> _Raw:
    if folder is None:
        raise InputError(
            "The VGG-19 features of CIFAR-10 are not on OpenML: give the folder that holds "
            f"cifar10_vgg19/features.npz (data_dir or {DATA_VARIABLE}), or use cifar10 for raw pixels."
        )
    return _from_npz(folder / "cifar10_vgg19" / "features.npz", split, 1.0)


def _from_npz(path: Path, split: DataSplit, full_scale: float) -> _Raw:
    names = [f"x_{split}", f"y_{split}"]
    try:
        with np.load(_existing(path), allow_pickle=False) as archive:
            missing = sorted(set(names) - set(archive.files))
            if missing:
                raise InputError(f"{path} has the arrays {sorted(archive.files)}; missing are {missing}.")
            samples, labels = (archive[name] for name in names)
    except InputError:
        raise
    except _NPZ_DAMAGE as reason:
        raise InputError(f"{path} is not a complete npz file: {reason}. {_AGAIN}") from reason
    _refuse_unequal(samples, labels, path)
    return samples, labels, full_scale, str(path.parent)


def _existing(path: Path) -> Path:
    if not path.is_file():
        raise InputError(
            f"{path} is missing. Put it there, give another folder (data_dir or {DATA_VARIABLE}), or none: the data "
            "set is then downloaded from OpenML if OpenML has it."
        )
    return path


def _refuse_unequal(samples: NDArray[Any], labels: NDArray[Any], where: Path) -> None:
    if labels.ndim != 1 or len(samples) != len(labels):
        raise InputError(
            f"{where} has {len(samples)} samples and labels of shape {labels.shape}; one for each is needed."
        )


def _from_openml(openml_name: str, test_counts: tuple[int, ...], split: DataSplit) -> _Raw:
    """Download the published training or test part; OpenML keeps them one after the other."""
    from sklearn.datasets import fetch_openml

    try:
        X, y = fetch_openml(openml_name, version=1, return_X_y=True, as_frame=False, parser="auto")
    # scikit-learn lets through whatever the network, the server, the parser or the cache raise.
    except Exception as reason:
        raise InputError(
            f"{openml_name} could not be downloaded from OpenML ({type(reason).__name__}: {reason}). Check the "
            f"network, or give a folder with a copy (data_dir or {DATA_VARIABLE}); digits needs neither."
        ) from reason
    labels = y.astype(np.intp)
    if tuple(np.bincount(labels[-_OPENML_TEST:], minlength=len(test_counts))) != test_counts:
        raise InputError(
            f"The last {_OPENML_TEST} rows of {openml_name} on OpenML do not have the class counts of the "
            "published test part, so the two parts cannot be separated; give a folder with a copy "
            f"(data_dir or {DATA_VARIABLE})."
        )
    part = slice(None, -_OPENML_TEST) if split == "train" else slice(-_OPENML_TEST, None)
    return X[part], labels[part], _PIXEL, "openml"


_READERS: Mapping[str, Callable[[str, DataSplit, Path | None], _Raw]] = {
    "digits": _read_digits,
    "mnist": _read_idx,
    "fashion_mnist": _read_idx,
    "cifar10": _read_cifar10,
    "cifar10_vgg19": _read_cifar10_vgg19,
}
NAMES = tuple(_READERS)


def _reader(name: str) -> Callable[[str, DataSplit, Path | None], _Raw]:
    if name not in _READERS:
        raise InputError(f"Unknown data set {name!r}; choose one of {', '.join(NAMES)}.")
    return _READERS[name]
