"""Kernel ridge with the exact kernels of a DEQ: what the regressor and the classifier share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator
from sklearn.utils import gen_batches
from sklearn.utils.validation import check_is_fitted

from notsodeep.errors import ConvergenceError, InputError
from notsodeep.estimators.scaling import RowScaler, checked_rows, checked_weights
from notsodeep.gaussian.activations import Activation
from notsodeep.kernels import exact_kernel
from notsodeep.linalg.dense import solve_definite
from notsodeep.linalg.leave_one_out import leave_one_out_residuals
from notsodeep.models import DEQ, Model, as_model
from notsodeep.validation import Array, IntArray, as_number, one_of

KERNELS = ("ck", "ntk")
# Entries of a kernel held at once while predicting: 128 MB.
_BLOCK = 1 << 24
# A factorisation with a smaller reciprocal condition number has no digits left to give.
_SINGULAR = 1e-15


@dataclass(eq=False, repr=False)
class KernelMachine(BaseEstimator):
    """f(x) = intercept + k(x, X)(K + alpha I)⁻¹(t - intercept); the parameters are those of `DEQKernelRidge`."""

    _: KW_ONLY
    kernel: str = "ntk"
    activation: str | Activation = "relu"
    sigma_a2: float = 0.2
    sigma_b2: float | None = None
    bias2: float = 0.0
    alpha: float = 1e-2
    fit_intercept: bool = True
    center: bool = True
    scale: float | str | None = "auto"
    model: Model | None = None
    image_shape: tuple[int, ...] | None = None

    def _fit_machine(
        self, X: Array, targets: Array, sample_weight: ArrayLike | None, held_out: IntArray | None = None
    ) -> Array:
        """Solve for the dual coefficients; returns the outputs for the rows `held_out`, each without that row itself.

        A row of weight w > 1 stands for w equal rows, of which one is left out: B_ii of B = (K + alpha W⁻¹)⁻¹ becomes
        (w - 1)/alpha + B_ii/w. The intercept is that of the others; the scaling of the rows is that of all rows.
        """
        alpha = as_number(self.alpha, "alpha")
        self._prepare()
        weights = checked_weights(sample_weight, X)
        self.rows_ = RowScaler(center=self.center, scale=self.scale).fit(X, sample_weight=weights)
        self.X_fit_ = self.rows_.transform(X)
        self.intercept_ = mean_target(targets, weights, self.fit_intercept)
        centred = targets - self.intercept_
        held = np.zeros(0, dtype=np.intp) if held_out is None else held_out
        # Unit vectors as further right sides give columns of the inverse, for a small part of the factorisation's cost.
        columns = centred.reshape(len(X), -1)
        outputs, units = columns.shape[1], np.zeros((len(X), len(held)))
        units[held, np.arange(len(held))] = 1.0
        right = np.concatenate([columns, np.ones((len(X), 1)), units], axis=1)
        solution = solve_ridge(self._between(self.X_fit_), right, alpha, weights)
        self.dual_coef_ = solution[:, :outputs].reshape(centred.shape).copy()
        mass = np.ones((len(held), 1)) if weights is None else weights[held, None]
        inverse = solution[held, outputs + 1 + np.arange(len(held))][:, None]
        with np.errstate(divide="ignore", invalid="ignore"):
            diagonal = np.where(mass > 1.0, (mass - 1.0) / alpha + inverse / mass, inverse)
        own = np.minimum(mass, 1.0)
        residuals = leave_one_out_residuals(
            columns[held],
            solution[held, :outputs],
            diagonal,
            solution[held, outputs : outputs + 1] if self.fit_intercept else None,
            ((len(X) if weights is None else float(weights.sum())) - own) / own,
        )
        return np.asarray(targets[held] - residuals.reshape(len(held), *centred.shape[1:]))

    def _prepare(self) -> None:
        """Resolve the parameters of the kernel, so that bad ones are refused before any work."""
        self.kernel_ = one_of(self.kernel, KERNELS, "kernel")
        if self.model is None:
            self.model_: Model = DEQ(self.activation, self.sigma_a2, self.sigma_b2, self.bias2)
        else:
            self.model_ = as_model(self.model)

    def _between(self, X: Array, Y: Array | None = None) -> Array:
        """The kernel between scaled rows."""
        first, second = (None if rows is None else self._as_images(rows) for rows in (X, Y))
        return exact_kernel(self.model_, first, second, kernel=self.kernel_)

    def _flattened(self, X: Any, *, fit: bool = False) -> Any:
        """Images as rows, which everything but the model works with; `fit` remembers their shape."""
        shape = tuple(getattr(X, "shape", ()))[1:]
        images = self.model is not None and len(shape) > 1
        if fit:
            given = self.image_shape
            self.image_shape_ = tuple(map(int, given)) if given is not None else shape if images else None
        if not images:
            return X
        if shape != self.image_shape_:
            raise InputError(f"Images of the shape {self.image_shape_} are needed; X has images of {shape}.")
        return X.reshape(len(X), -1)

    def _as_images(self, rows: Array) -> Array:
        """Scaled rows in the shape of the samples; with scale="auto" of |x(s)|² = 1 on average over positions."""
        shape = getattr(self, "image_shape_", None)
        if shape is None:
            return rows
        if int(np.prod(shape)) != rows.shape[1]:
            raise InputError(
                f"X has {rows.shape[1]} features, and image_shape {shape} needs {int(np.prod(shape))}."
            )
        root = np.sqrt(np.prod(shape[1:])) if self.scale == "auto" else 1.0
        return rows.reshape(-1, *shape) * root

    def _machine_output(self, X: Any) -> Array:
        check_is_fitted(self)
        rows = self.rows_.transform(checked_rows(self, self._flattened(X)))
        return np.asarray(kernel_times(self._between, rows, self.X_fit_, self.dual_coef_) + self.intercept_)


def kernel_times(between: Callable[[Array, Array], Array], rows: Array, centres: Array, dual: Array) -> Array:
    """The product k(rows, centres) @ dual, with a bounded part of the kernel in memory at once."""
    output = np.empty((len(rows), *dual.shape[1:]))
    for part in gen_batches(len(rows), max(1, _BLOCK // len(centres))):
        output[part] = between(rows[part], centres) @ dual
    return output


def mean_target(targets: Array, weights: Array | None, wanted: bool) -> Any:
    """The (weighted) mean of each target, or zeros."""
    return np.average(targets, axis=0, weights=weights) if wanted else np.zeros(targets.shape[1:])


def solve_ridge(kernel: Array, targets: Array, alpha: float, weights: Array | None = None) -> Array:
    """Give c with (K + alpha W⁻¹) c = t for symmetric K, which is overwritten; weights of zero leave a row out.

    In the form √W (√W K √W + alpha I)⁻¹ √W t, which stays sound as a weight vanishes.
    """
    right = np.array(targets)
    if weights is not None:
        root = np.sqrt(weights)
        kernel *= root[:, None]
        kernel *= root
        right *= root.reshape(-1, *[1] * (right.ndim - 1))
    np.fill_diagonal(kernel, kernel.diagonal() + alpha)
    solution, rcond = solve_definite(kernel, right, overwrite=True)
    if solution is None or not rcond > _SINGULAR:
        raise ConvergenceError(
            f"The kernel matrix of {len(kernel)} samples with alpha = {alpha:g} is singular to working precision.",
            "Raise alpha: 1e-8 is enough for rows that occur twice.",
        )
    return solution if weights is None else solution * root.reshape(-1, *[1] * (right.ndim - 1))
