"""Real data by name, from a local folder or OpenML; only scikit-learn's digits need neither.

The folder is `data_dir`, or else the environment variable NOTSODEEP_DATA, and holds

    mnist/, fashion_mnist/            the four IDX .gz files, as published
    cifar10/cifar10_subset.npz        x_train, y_train, x_test, y_test: images (n, 32, 32, 3), unsigned bytes
    cifar10_vgg19/features.npz        the same names: features (n, 512)
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from notsodeep.data.dataset_files import check_md5, md5, parse_idx, read_bytes, read_npz
from notsodeep.errors import InputError
from notsodeep.validation import Array, as_count, one_of

Split = Literal["train", "test"]
Precision = Literal["float64", "float32"]
DATA_VARIABLE = "NOTSODEEP_DATA"

_PIXEL = 255.0
_DIGIT_LEVELS = 16.0
# Neighbouring rows of the digits are alike (the nearest neighbour of a row is 85 rows away in the median; in
# random order it would be 520), so the test part is one block at the end, not rows spread among the others.
_DIGITS_TEST = 360
_OPENML_TEST = 10_000


@dataclass(frozen=True, eq=False)
class Dataset:
    """Samples in rows with their labels, and where they came from.

    Attributes:
        X: shape (n, p): pixels between 0 and 1, or features as stored.
        y: the published labels, shape (n,).
        source: "scikit-learn", "openml" or the local folder of the data set.
        checksums: MD5 of each file read, by file name.
        verified: whether those were compared with published ones.
    """

    X: NDArray[np.floating[Any]]
    y: NDArray[np.intp]
    name: str
    split: Split
    source: str
    checksums: Mapping[str, str]
    verified: bool


@dataclass(frozen=True)
class _Raw:
    """What a reader hands over: images or features as stored, and the value that stands for 1."""

    X: NDArray[Any]
    y: NDArray[Any]
    full_scale: float
    source: str
    checksums: Mapping[str, str] = field(default_factory=dict)
    verified: bool = False


@dataclass(frozen=True)
class _Idx:
    """A data set of four IDX files, with their MD5 by split (images, labels), and its name on OpenML."""

    checksums: Mapping[Split, tuple[str, str]]
    openml: str
    openml_test_counts: tuple[int, ...]


_IDX = {
    "mnist": _Idx(
        {
            "train": ("f68b3c2dcbeaaa9fbdd348bbdeb94873", "d53e105ee54ea40749a09fcbcd1e9432"),
            "test": ("9fb629c4189551a2d022fa330f9573f3", "ec29112dd5afa0611ce80d1b7f02629c"),
        },
        "mnist_784",
        (980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009),
    ),
    "fashion_mnist": _Idx(
        {
            "train": ("8d4fb7e6c68d591d4c3dfef9ec88bf0d", "25c81989df183df01b3e8a0aad5dffbe"),
            "test": ("bef4ecab320f06d8554ea6380940ec79", "bb300cfdad3c16e7a12a480ee83cd310"),
        },
        "Fashion-MNIST",
        (1000,) * 10,
    ),
}
# Height, width and colours of images; a row has the colours of a pixel beside each other.
IMAGES = {"digits": (8, 8, 1), "mnist": (28, 28, 1), "fashion_mnist": (28, 28, 1), "cifar10": (32, 32, 3)}
_IDX_KINDS = (("images-idx3", 3), ("labels-idx1", 1))
_IDX_PREFIX: Mapping[Split, str] = {"train": "train", "test": "t10k"}


def load(
    name: str,
    *,
    classes: Sequence[int] | None = None,
    split: Split = "train",
    data_dir: str | Path | None = None,
    n: int | None = None,
    seed: int = 0,
    dtype: Precision = "float64",
    verify: bool = True,
) -> Dataset:
    """Read a data set.

    Args:
        name: one of `NAMES`.
        classes: the labels to keep; all when left out.
        split: the published training or test part; of the digits, published in one, the last 360 rows test.
        data_dir: the local folder; if left out, the environment variable NOTSODEEP_DATA; without it, OpenML.
        n: how many samples to draw, without replacement and as equally from the classes as their sizes allow;
            all when left out. The published order of the rows is kept.
        seed: of that draw.
        dtype: of X.
        verify: compare the IDX files with their published checksums.
    """
    one_of(split, get_args(Split), "split")
    one_of(dtype, get_args(Precision), "dtype")
    raw = _reader(name)(name, split, _folder(data_dir), verify)
    labels = raw.y.astype(np.intp)
    chosen = _draw(labels, _of_classes(labels, classes, name), n, seed)
    samples = raw.X[chosen].reshape(len(chosen), -1).astype(dtype)
    samples /= raw.full_scale
    return Dataset(samples, labels[chosen], name, split, raw.source, dict(raw.checksums), raw.verified)


def as_images(name: str, rows: Array) -> Array:
    """The rows of a data set of images as images (n, channels, height, width)."""
    if name not in IMAGES:
        raise InputError(f"{name} has no images; {', '.join(IMAGES)} have.")
    return np.ascontiguousarray(rows.reshape(-1, *IMAGES[name]).transpose(0, 3, 1, 2))


def parse_spec(spec: str) -> tuple[str, tuple[int, ...] | None]:
    """The name and the classes in a text such as "mnist:6,8" or "digits": what `load` takes."""
    name, colon, listed = spec.partition(":")
    _reader(name)
    if not colon:
        return name, None
    try:
        classes = tuple(int(label) for label in listed.split(","))
    except ValueError:
        raise InputError(
            f"The classes of {name} are listed with commas, as in {name}:6,8; they came as {listed!r}."
        ) from None
    return name, classes


def _folder(data_dir: str | Path | None) -> Path | None:
    named = data_dir if data_dir is not None else os.environ.get(DATA_VARIABLE) or None
    if named is None:
        return None
    folder = Path(named).expanduser()
    if not folder.is_dir():
        raise InputError(f"The data folder {folder} is not there (named by data_dir or {DATA_VARIABLE}).")
    return folder


def _of_classes(labels: NDArray[np.intp], classes: Sequence[int] | None, name: str) -> NDArray[np.intp]:
    """The rows whose label was asked for."""
    if classes is None:
        return np.arange(len(labels))
    wanted = np.asarray(classes)
    present = np.unique(labels)
    if wanted.ndim != 1 or wanted.size == 0 or len(np.unique(wanted)) < wanted.size:
        raise InputError(f"classes must list different labels, at least one; it came as {classes!r}.")
    if not np.isin(wanted, present).all():
        raise InputError(f"{name} has the labels {present.tolist()}; asked for were {wanted.tolist()}.")
    return np.flatnonzero(np.isin(labels, wanted))


def _draw(labels: NDArray[np.intp], pool: NDArray[np.intp], n: int | None, seed: int) -> NDArray[np.intp]:
    """Take n rows of the pool, as equally from the classes as their sizes allow, in the order of the pool."""
    if n is None:
        return pool
    if as_count(n, "n") > len(pool):
        raise InputError(f"{n} samples were asked for; the chosen classes have {len(pool)}. Ask for fewer.")
    _, codes, sizes = np.unique(labels[pool], return_inverse=True, return_counts=True)
    rng = np.random.default_rng(seed)
    shares = _equal_shares(sizes, n)
    drawn = [rng.permutation(pool[codes == a])[:share] for a, share in enumerate(shares)]
    return np.sort(np.concatenate(drawn))


def _equal_shares(sizes: NDArray[np.intp], n: int) -> NDArray[np.intp]:
    """Deal n out one by one, in turns, to classes that still have samples."""
    shares = np.zeros_like(sizes)
    order = np.argsort(sizes, kind="stable")
    for rank, a in enumerate(order):
        # Smallest class first: what it cannot take is shared among those still waiting.
        shares[a] = min(sizes[a], (n - shares.sum()) // (len(sizes) - rank))
    return shares


def _read_digits(name: str, split: Split, folder: Path | None, verify: bool) -> _Raw:
    from sklearn.datasets import load_digits

    X, y = load_digits(return_X_y=True)
    part = slice(None, -_DIGITS_TEST) if split == "train" else slice(-_DIGITS_TEST, None)
    return _Raw(X[part], y[part], _DIGIT_LEVELS, "scikit-learn")


def _read_idx(name: str, split: Split, folder: Path | None, verify: bool) -> _Raw:
    known = _IDX[name]
    if folder is None:
        return _from_openml(known.openml, split, known.openml_test_counts)
    checksums, arrays = {}, []
    for (kind, axes), published in zip(_IDX_KINDS, known.checksums[split], strict=True):
        path = folder / name / f"{_IDX_PREFIX[split]}-{kind}-ubyte.gz"
        content = read_bytes(path)
        checksums[path.name] = md5(content)
        arrays.append(parse_idx(content, path, axes=axes))
        if verify:
            check_md5(path, checksums[path.name], published)
    images, labels = arrays
    _refuse_unequal(images, labels, folder / name)
    return _Raw(images, labels, _PIXEL, str(folder / name), checksums, verify)


def _read_cifar10(name: str, split: Split, folder: Path | None, verify: bool) -> _Raw:
    if folder is not None:
        return _from_npz(folder / "cifar10" / "cifar10_subset.npz", split, _PIXEL)
    raw = _from_openml("CIFAR_10", split, (1000,) * 10)
    # OpenML keeps the published layout, a plane of 32 × 32 per colour; the local images have colours last.
    return _Raw(raw.X.reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1), raw.y, raw.full_scale, raw.source)


def _read_cifar10_vgg19(name: str, split: Split, folder: Path | None, verify: bool) -> _Raw:
    if folder is None:
        raise InputError(
            "The VGG-19 features of CIFAR-10 are not on OpenML: name the folder that holds "
            f"cifar10_vgg19/features.npz (data_dir or {DATA_VARIABLE}), or use cifar10 for raw pixels."
        )
    return _from_npz(folder / "cifar10_vgg19" / "features.npz", split, 1.0)


def _from_npz(path: Path, split: Split, full_scale: float) -> _Raw:
    arrays = read_npz(path, [f"x_{split}", f"y_{split}"])
    samples, labels = arrays[f"x_{split}"], arrays[f"y_{split}"]
    _refuse_unequal(samples, labels, path)
    return _Raw(samples, labels, full_scale, str(path.parent), {path.name: md5(read_bytes(path))})


def _refuse_unequal(samples: NDArray[Any], labels: NDArray[Any], where: Path) -> None:
    if labels.ndim != 1 or len(samples) != len(labels):
        raise InputError(
            f"{where} holds {len(samples)} samples and labels of shape {labels.shape}: not one for each."
        )


def _from_openml(openml_name: str, split: Split, test_counts: tuple[int, ...]) -> _Raw:
    """The published training and test parts, which OpenML keeps one after the other."""
    from sklearn.datasets import fetch_openml

    try:
        X, y = fetch_openml(openml_name, version=1, return_X_y=True, as_frame=False, parser="auto")
    # scikit-learn lets through whatever the network, the server, the parser or the cache raise.
    except Exception as reason:
        raise InputError(
            f"{openml_name} could not be fetched from OpenML ({type(reason).__name__}: {reason}). Check the "
            f"network, or name a folder with a copy (data_dir or {DATA_VARIABLE}); digits needs neither."
        ) from reason
    labels = y.astype(np.intp)
    if tuple(np.bincount(labels[-_OPENML_TEST:], minlength=len(test_counts))) != test_counts:
        raise InputError(
            f"The last {_OPENML_TEST} rows of {openml_name} on OpenML do not have the class counts of the "
            "published test part, so the parts cannot be told apart; name a folder with a copy "
            f"(data_dir or {DATA_VARIABLE})."
        )
    part = slice(None, -_OPENML_TEST) if split == "train" else slice(-_OPENML_TEST, None)
    return _Raw(X[part], labels[part], _PIXEL, "openml")


_READERS: Mapping[str, Callable[[str, Split, Path | None, bool], _Raw]] = {
    "digits": _read_digits,
    "mnist": _read_idx,
    "fashion_mnist": _read_idx,
    "cifar10": _read_cifar10,
    "cifar10_vgg19": _read_cifar10_vgg19,
}
NAMES = tuple(_READERS)


def _reader(name: str) -> Callable[[str, Split, Path | None, bool], _Raw]:
    if name not in _READERS:
        raise InputError(f"No data set is called {name!r}; there are {', '.join(NAMES)}.")
    return _READERS[name]
