"""The settings of all controls of the page, validated and frozen: everything shown is computed from them."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from functools import lru_cache

import numpy as np

from notsodeep.cli import scenario
from notsodeep.cli.scenario import PreparedSamples
from notsodeep.data import TableData, load
from notsodeep.errors import InputError
from notsodeep.validation import one_of
from notsodeep_lab.explorer.offered_networks import Network
from notsodeep_lab.explorer.uploads import Upload

SOURCES = ("mixture", "digits", "file")
KERNELS = ("ck", "ntk")
FEWEST, MOST, LARGEST_P, LARGEST = 50, 600, 500, 16.0
# Largest number of samples by network: kernels of cells take longer, and every control answers within two seconds.
MOST_SAMPLES = {"deq": MOST, "residual": 300, "gated": 300, "swiglu": 100}


@dataclass(frozen=True)
class PageData:
    """The data source of the page, with limits that keep the page fast.

    Attributes:
        source: "mixture" (the papers' two Gaussian classes), "digits" or "file".
        n: number of samples; fewer if the source has fewer.
        p: dimension of the mixture.
        mean: norm of its class means.
        gap: its covariance gap: class a has C = (1 + gap · a/√p) I.
        seed: random seed.
        scale: scaling of the rows of a file, see `Preprocessing.named`.
        upload: the uploaded file, if `source` is "file".
    """

    source: str = "mixture"
    n: int = 300
    p: int = 50
    mean: float = 2.0
    gap: float = 10.0
    seed: int = 0
    scale: str = "auto"
    upload: Upload | None = None

    def __post_init__(self) -> None:
        one_of(self.source, SOURCES, "data")
        _whole(self.n, "n", FEWEST, MOST)
        _whole(self.p, "p", 2, LARGEST_P)
        _whole(self.seed, "seed", 0, 2**31 - 1)
        _between(self.mean, "mean", 0.0, LARGEST)
        _between(self.gap, "gap", 0.0, LARGEST)
        if self.source == "file" and self.upload is None:
            raise InputError("No file yet. Upload a CSV or NPY file, or choose another data source.")

    @property
    def samples(self) -> PreparedSamples:
        """The samples, scaled; computed once."""
        return _samples(self)

    @property
    def total(self) -> int | None:
        """Number of rows of the digits or of the file; None for a mixture."""
        if self.upload is not None:
            return len(self.upload.table.rows)
        return _digits() if self.source == "digits" else None


@lru_cache(maxsize=16)
def _samples(data: PageData) -> PreparedSamples:
    if data.upload is not None:
        return scenario.scaled_samples(_some_rows(data.upload.table, data.n, data.seed), data.scale)
    n = min(data.n, data.total or data.n)
    return scenario.Data(data.source, n, data.p, mean=data.mean, gap=data.gap, seed=data.seed).samples()


def _some_rows(table: TableData, n: int, seed: int) -> TableData:
    """Choose n rows at random: the first ones of a sorted file would all have one class."""
    rows = np.sort(np.random.default_rng(seed).permutation(len(table.rows))[:n])
    return replace(table, rows=table.rows[rows], labels=None if table.labels is None else table.labels[rows])


@lru_cache(maxsize=1)
def _digits() -> int:
    return len(load("digits").y)


@dataclass(frozen=True)
class Choice:
    """The settings of all controls of the page.

    Attributes:
        network: the network.
        kernel: "ck" if the readout will be trained, "ntk" if all weights will be.
        data: the data source, with at most as many samples as `MOST_SAMPLES` has for the network.
    """

    network: Network = field(default_factory=Network)
    kernel: str = "ck"
    data: PageData = field(default_factory=PageData)

    def __post_init__(self) -> None:
        one_of(self.kernel, KERNELS, "kernel")
        _whole(self.data.n, "n", FEWEST, MOST_SAMPLES[self.network.kind])


def _whole(value: int, name: str, low: int, high: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise InputError(f"{name} must be a whole number between {low} and {high}; got {value!r}.")


def _between(value: float, name: str, low: float, high: float) -> None:
    if not math.isfinite(value) or not low <= value <= high:
        raise InputError(f"{name} must be between {low:g} and {high:g}; got {value!r}.")
