"""The protocol of a model: anything that can compute tiles of its kernel matrix.

A model is a frozen specification. To add one, write a class with the methods of `Model` (a model of plain rows inherits
two of them from `RowModel`) and a `Program` that computes tiles; every function that takes a kernel then takes it: in
memory, on disk, on a cluster, as an operator, as an estimator. A model that is to be read back from a file is named in
`models.stored_models` as well.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

import numpy as np

from notsodeep.errors import InputError
from notsodeep.gaussian.activations import Activation
from notsodeep.kernel_names import Kernel
from notsodeep.results import KernelInfo
from notsodeep.validation import Array, as_rows


@dataclass(frozen=True, eq=False)
class Samples:
    """A set of samples with its squared norms.

    Attributes:
        values: the samples, the first axis counting them.
        squares: squared norms as `Model.squared_norms` gives them, if they were computed before.
        anchors: squared norms that span those of all samples of a run; these may be a part of them. What depends on
            one sample is interpolated between the smallest and the largest norm: with the same anchors all parts of a
            run interpolate over the same range and agree to rounding.
    """

    values: Array
    squares: Array | None = None
    anchors: Array = field(default_factory=lambda: np.empty(0))


class Tile(Protocol):
    """The kernels of a rectangle of pairs of samples."""

    @property
    def info(self) -> KernelInfo:
        """How the numbers were obtained."""

    def kernel(self, name: Kernel) -> Array:
        """The tile of this kernel, which must be one of those that the program was prepared for."""


class Program(Protocol):
    """A model prepared for two sets of samples. Its methods are called from several threads.

    A program may also have `checks`, a sequence of `SpotCheck`, and `integrate_all_pairs()`: then a few of its pairs
    are recomputed, and all of them by quadrature if these are not confirmed.
    """

    def start(self) -> Array:
        """The (n, k) array that the computation starts from, and that the first kernel overwrites.

        Models of rows give the Gram matrix, so that nothing of size n² stands beside the result; others an empty array.
        """

    def tile(self, start: Array, rows: slice, columns: slice, *, diagonal: bool) -> Tile:
        """The kernels of these pairs.

        Args:
            start: a copy of this rectangle of `start()`.
            rows: which samples of the first set.
            columns: which samples of the second set.
            diagonal: the rectangle is on the diagonal of a symmetric matrix: `start` and the result are symmetric.
        """


@runtime_checkable
class Model(Protocol):
    """A network at infinite width whose kernels can be computed."""

    def check_samples(self, X: Any, name: str = "X") -> Array:
        """The samples as a C-contiguous float64 array, or an InputError that says what is wrong with them."""

    def squared_norms(self, samples: Array) -> Array:
        """For each sample (first axis) its squared norm, or whatever numbers fix what depends on that sample alone."""

    def prepare(self, left: Samples, right: Samples | None, kernels: tuple[Kernel, ...]) -> Program:
        """The program that fills tiles with these kernels; `right` is None for the kernel of `left` with itself."""

    def centred(self, tau0: float) -> Model:
        """The same model with its activations shifted to mean zero at inputs of norm tau0."""

    def to_dict(self) -> dict[str, Any]:
        """Everything that defines the model, as JSON would have it; with a key "kind" that names the class."""


# Gives the serial form of an activation; by default one from which it can be read again.
WriteActivation = Callable[[Activation], dict[str, Any]]


@runtime_checkable
class HasActivations(Protocol):
    """A model whose activations may be callables, which have no serial form but can be compared by their values."""

    @property
    def activations(self) -> tuple[Activation, ...]:
        """The activations of the model."""

    def to_dict(self, write: WriteActivation = ...) -> dict[str, Any]:
        """Everything that defines the model, each activation in the form that `write` gives it."""

    def largest_variance(self, norm: float) -> float:
        """The largest variance of a pre-activation for inputs of norms up to `norm`."""


class RowModel:
    """Base class of models of plain rows (n, p)."""

    def check_samples(self, X: Any, name: str = "X") -> Array:
        """Samples in rows as a C-contiguous float64 array."""
        return as_rows(X, name)

    def squared_norms(self, samples: Array) -> Array:
        """||x_i||² of every row."""
        return np.asarray(np.einsum("ij,ij->i", samples, samples))

    def centred(self, tau0: float) -> Any:
        """The model itself: this base class knows of no activation to shift."""
        return self


def as_tau(tau0: float) -> float:
    """The norm of a typical input: a finite positive number."""
    if np.ndim(tau0):
        raise InputError(
            f"tau0 is one number, the norm of a typical row, and came with shape {np.shape(tau0)}. Of samples in "
            "rows it is np.sqrt(np.mean(np.sum(X**2, axis=1)))."
        )
    value = float(tau0)
    if not np.isfinite(value) or value <= 0:
        raise InputError(
            f"tau0 is the root of a variance (the norm of a typical row) and must be positive; got {tau0}."
        )
    return value


def as_model(model: Any, depth: int | None = None) -> Model:
    """The model, cut at a finite depth if one is given; an InputError for anything that is not a model."""
    # A class has the methods of its instances, and is no model itself.
    if isinstance(model, type) or not isinstance(model, Model):
        raise InputError(
            f"model must be a network specification such as DEQ('tanh', 0.2) or Explicit(['relu']), "
            f"not {type(model).__name__}."
        )
    whole: Model = model
    if depth is None:
        return whole
    if isinstance(depth, bool) or not isinstance(depth, int | np.integer) or depth < 1:
        raise InputError(f"depth must be a whole number of at least 1, got {depth}.")
    if not isinstance(model, Unrollable):
        raise InputError(
            f"depth cuts a model of infinite depth, such as a DEQ; {type(model).__name__} has a depth of its own."
        )
    return model.unrolled(int(depth))


@runtime_checkable
class Unrollable(Protocol):
    """A model of infinite depth, which can be cut at a finite one."""

    def unrolled(self, depth: int) -> Model:
        """The model cut after this many layers, whose weights are not tied."""


__all__ = [
    "HasActivations", "Model", "Program", "RowModel", "Samples", "Tile", "WriteActivation", "as_model", "as_tau",
]  # fmt: skip
