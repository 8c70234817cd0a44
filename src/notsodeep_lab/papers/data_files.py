"""Data sets of the papers from a local folder, in the formats in which they are published.

The folder is `data_dir`, or else the environment variable NOTSODEEP_DATA, and holds

    mnist/, fashion_mnist/            the four IDX .gz files
    cifar10/cifar10_subset.npz        x_train, y_train, x_test, y_test: images (n, 32, 32, 3), unsigned bytes
    cifar10_vgg19/features.npz        the same names: features (n, 512)

Without a folder the library downloads what OpenML has.
"""

from __future__ import annotations

import gzip
import os
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from notsodeep import data
from notsodeep.data.datasets import DataSplit, choose
from notsodeep.errors import InputError

DATA_VARIABLE = "NOTSODEEP_DATA"
# Files below the folder, and the value that becomes 1.
_NPZ = {"cifar10": ("cifar10_subset.npz", 255.0), "cifar10_vgg19": ("features.npz", 1.0)}


def load(
    name: str, *, split: DataSplit = "train", data_dir: str | Path | None = None, **chosen: Any
) -> data.Samples:
    """Load a data set as `notsodeep.data.load` does, from the local folder if there is one."""
    folder = Path(data_dir or os.environ.get(DATA_VARIABLE) or "") / name
    if name == "digits" or folder == Path(name):
        if name == "cifar10_vgg19":
            raise InputError(
                "The VGG-19 features of CIFAR-10 are not on OpenML: give the folder that holds "
                f"cifar10_vgg19/features.npz (--data-dir or {DATA_VARIABLE}), or use cifar10 for raw pixels."
            )
        return data.load(name, split=split, **chosen)
    try:
        if name in _NPZ:
            file, full_scale = _NPZ[name]
            with np.load(folder / file, allow_pickle=False) as archive:
                X, y = archive[f"x_{split}"], archive[f"y_{split}"]
        else:
            part, full_scale = "train" if split == "train" else "t10k", 255.0
            X, y = (
                _idx(folder / f"{part}-images-idx3-ubyte.gz"),
                _idx(folder / f"{part}-labels-idx1-ubyte.gz"),
            )
        if len(X) != len(y):
            raise ValueError(f"{len(X)} samples and {len(y)} labels")
        return choose(X, y, name, full_scale=full_scale, **chosen)
    except InputError:
        raise
    # Damage has no common type.
    except Exception as error:
        raise InputError(
            f"{name} cannot be read from {folder} ({type(error).__name__}: {error}). Put its files there, or give "
            f"another folder (--data-dir or {DATA_VARIABLE}), or none to download it."
        ) from error


def _idx(path: Path) -> NDArray[np.uint8]:
    """Read a gzipped IDX file: 0, 0, type (8: unsigned bytes), number of axes, then sizes and entries, big-endian."""
    content = gzip.decompress(path.read_bytes())
    if content[:3] != bytes([0, 0, 8]):
        raise ValueError(f"{path.name} is not an IDX file of unsigned bytes")
    axes = content[3]
    shape = np.frombuffer(content, ">u4", axes, offset=4)
    return np.frombuffer(content, np.uint8, offset=4 + 4 * axes).reshape(shape.astype(int))
