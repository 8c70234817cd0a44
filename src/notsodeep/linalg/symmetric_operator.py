"""The base of operators that are symmetric: they define the product with a block of columns."""

from __future__ import annotations

from typing import Self

import numpy as np
from scipy.sparse.linalg import LinearOperator

from notsodeep.validation import Array


class SymmetricOperator(LinearOperator):
    """A symmetric n × n matrix; `_matmat` gives its product with an (n, m) block."""

    def __init__(self, n: int) -> None:
        super().__init__(np.float64, (n, n))

    @property
    def n(self) -> int:
        """The number of rows and columns."""
        return int(self.shape[0])

    def _matvec(self, vector: Array) -> Array:
        return np.asarray(self._matmat(np.reshape(vector, (-1, 1)))[:, 0])

    def _adjoint(self) -> Self:
        return self

    _transpose = _adjoint
