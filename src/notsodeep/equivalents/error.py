"""How far an equivalent is from the exact kernel, in operator norm."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike
from scipy.sparse.linalg import LinearOperator, aslinearoperator

from notsodeep.data.statistics import MixtureStatistics
from notsodeep.display import Shown
from notsodeep.equivalents.equivalent import equivalent
from notsodeep.equivalents.operators import StructuredOperator
from notsodeep.errors import InputError
from notsodeep.kernels import exact_kernel
from notsodeep.linalg.block_lanczos import norm_by_blocks, operator_norm
from notsodeep.models import DEQ, Explicit
from notsodeep.validation import Array, as_rows

# Rows of the exact kernel held at once.
BLOCK = 512


@dataclass(frozen=True, repr=False)
class OperatorDistance(Shown):
    """||K - K̄||₂ by Lanczos iterations; `float()` of it is the relative one.

    Attributes:
        relative: ||K - K̄||₂ / ||K||₂.
        absolute: ||K - K̄||₂.
        kernel_norm: ||K||₂.
        tolerance: relative accuracy asked of both norms.
    """

    relative: float
    absolute: float
    kernel_norm: float
    tolerance: float

    def __float__(self) -> float:
        return self.relative


def equivalence_error(
    model: DEQ | Explicit,
    X: ArrayLike,
    stats: MixtureStatistics | None = None,
    kernel: str = "ck",
    form: str = "asymptotic",
    *,
    order: int = 2,
    square: str = "mixture",
    rank: int = 100,
    seed: int = 0,
    around: float | Literal["mean"] = 0.0,
    blockwise: bool = False,
    tolerance: float = 1e-3,
) -> OperatorDistance:
    """The distance between the exact kernel and its equivalent, docs/theory.md (4.8).

    Args:
        model: as in `equivalent`, which explains stats, kernel, form, order, square, rank, seed, around.
        X: samples in rows (n, p).
        stats: statistics of the classes.
        kernel: which kernel.
        form: which equivalent.
        order: of the refined form.
        square: of the refined form.
        rank: of its sketch.
        seed: of its sketch.
        around: of the refined form.
        blockwise: never hold the n × n kernel; compute its rows in blocks at each pass (about ten of them).
        tolerance: relative accuracy of the two norms.
    """
    rows = as_rows(X)
    operator = equivalent(
        model, rows, stats, kernel, form, order=order, square=square, rank=rank, seed=seed, around=around
    )
    return distance_to_exact(model, rows, operator, kernel, blockwise=blockwise, tolerance=tolerance)


def distance_to_exact(
    model: DEQ | Explicit,
    X: ArrayLike,
    operator: StructuredOperator,
    kernel: str = "ck",
    *,
    blockwise: bool = False,
    tolerance: float = 1e-3,
) -> OperatorDistance:
    """The distance between the exact kernel on X and any operator that is meant to approximate it."""
    rows = as_rows(X)
    if operator.shape != (len(rows), len(rows)):
        raise InputError(f"The operator has shape {operator.shape}, the kernel of X {(len(rows),) * 2}.")
    if blockwise:
        exact: LinearOperator = _RowBlocks(model, rows, kernel)
        whole, apart = (norm_by_blocks(op, tolerance) for op in (exact, exact - aslinearoperator(operator)))
    else:
        exact = aslinearoperator(exact_kernel(model, rows, kernel=kernel))
        whole, apart = (operator_norm(op, tolerance) for op in (exact, exact - aslinearoperator(operator)))
    return OperatorDistance(apart / whole, apart, whole, tolerance)


class _RowBlocks(LinearOperator):
    """The exact kernel as an operator that computes its rows when they are needed."""

    def __init__(self, model: DEQ | Explicit, X: Array, kernel: str) -> None:
        self._model, self._rows, self._kernel = model, X, kernel
        super().__init__(np.float64, (len(X), len(X)))

    def _matmat(self, block: Array) -> Array:
        result = np.empty((len(self._rows), block.shape[1]))
        for start in range(0, len(self._rows), BLOCK):
            rows = slice(start, start + BLOCK)
            part = exact_kernel(self._model, self._rows[rows], self._rows, kernel=self._kernel)
            result[rows] = part @ block
        return result

    def _adjoint(self) -> _RowBlocks:
        return self
