"""Which preconditioner a linear system with a kernel is solved with."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from notsodeep.equivalents.operators import StructuredOperator
from notsodeep.errors import InputError
from notsodeep.linalg.conjugate_gradients import Nystrom, Preconditioner, Unpreconditioned
from notsodeep.operators.streamed_equivalent import StreamedEquivalent
from notsodeep.validation import Array, one_of

# Defaults of `rank`: columns of Nyström's approximation, and eigenvectors added to the equivalent.
NYSTROM_COLUMNS, ADDED_EIGENVECTORS = 500, 100


class KernelMatrix(Protocol):
    """What preconditioners are made from; a `KernelOperator` has it."""

    @property
    def shape(self) -> tuple[int, int]:
        """The shape (n, n)."""

    def columns(self, chosen: NDArray[np.intp]) -> Array:
        """Some columns of the matrix."""

    def equivalent(self, rank: int = 0, seed: int = 0) -> StreamedEquivalent:
        """The high-dimensional equivalent of the kernel."""


def make_preconditioner(
    kernel: KernelMatrix, wanted: Any, ridge: float, *, rank: int | None, seed: int
) -> Preconditioner:
    """The preconditioner of kernel + ridge·I; see `KernelOperator.solve` for the arguments."""
    if wanted is None:
        return Unpreconditioned()
    if isinstance(wanted, StructuredOperator):
        wanted = StreamedEquivalent.of(wanted)
    if isinstance(wanted, StreamedEquivalent):
        if wanted.shape != kernel.shape:
            raise InputError(f"The preconditioner is {wanted.shape}, the kernel {kernel.shape}.")
        return wanted.inverse(ridge)
    one_of(wanted, ("equivalent", "nystrom"), "preconditioner")
    if wanted == "equivalent":
        return kernel.equivalent(ADDED_EIGENVECTORS if rank is None else rank, seed).inverse(ridge)
    n = kernel.shape[0]
    count = min(NYSTROM_COLUMNS if rank is None else rank, n)
    chosen = np.sort(np.random.default_rng(seed).choice(n, count, replace=False))
    return Nystrom(kernel.columns(chosen), chosen, ridge)
