"""A kernel as a linear operator: products, eigenvalues and linear systems without its n × n numbers in memory."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from notsodeep.equivalents.equivalent import equivalent
from notsodeep.equivalents.operators import StructuredOperator, low_rank
from notsodeep.errors import InputError
from notsodeep.kernel_names import as_kernel
from notsodeep.linalg.block_lanczos import Eigenpairs, SymmetricOperator, leading_eigenpairs, leading_part
from notsodeep.linalg.conjugate_gradients import (
    LinearSolution,
    LowRankInverse,
    Nystrom,
    Preconditioner,
    Unpreconditioned,
    conjugate_gradients,
)
from notsodeep.memory import budget
from notsodeep.models.protocol import Model, as_model
from notsodeep.operators.block_sources import (
    KEPT,
    Blocks,
    ComputedBlocks,
    KeptBlocks,
    add_products,
    stored_blocks,
    sweep,
)
from notsodeep.progress import Report, reported
from notsodeep.scale.compute import ComputeOptions, compute_kernels
from notsodeep.scale.kernel_jobs import STORAGES, Job, block_bytes, choose_block, make_job
from notsodeep.scale.sample_sources import rows_of, survey
from notsodeep.scale.stored import StoredKernel
from notsodeep.validation import Array, as_right_sides, one_of

# Error allowed to a preconditioner in the dependence on two samples' norms: it costs an iteration or two, and a smaller
# one would double or treble the columns of the inverse, on which it depends by their third power.
_SEPARATION = 0.1
# Defaults of `rank`: columns of Nyström's approximation, and eigenvectors added to the equivalent.
_NYSTROM_COLUMNS, _ADDED_EIGENVECTORS = 500, 100


class KernelOperator(SymmetricOperator):
    """A symmetric kernel matrix that is multiplied block by block; a `scipy.sparse.linalg.LinearOperator`.

        K = KernelOperator.of(deq, X, "ck")                       # blocks computed in every sweep
        K = KernelOperator.of(deq, X, "ck", out="G.zarr")         # computed once (or resumed), then read
        K = KernelOperator.stored("G.zarr")                       # read; without X there is no equivalent

    A product goes over all blocks of the lower half once, however many columns it has: give it many. As many blocks as
    fit into half of the memory allowed stay there after the first sweep.

    Attributes:
        blocks: the blocks of the matrix.
        job: the model and the samples that the kernel was computed from, if they are known.
        progress: a bar on a terminal after two seconds; False for none,
            or a function that is called for each block of a sweep.
    """

    def __init__(self, blocks: Blocks, job: Job | None = None, *, progress: bool | Report = True) -> None:
        if not blocks.grid.symmetric:
            raise InputError("A kernel between two sets of samples is no symmetric operator; leave Y out.")
        self.blocks, self.job, self.progress = blocks, job, progress
        super().__init__(blocks.grid.rows)

    @classmethod
    def of(
        cls,
        model: Model,
        X: Any,
        kernel: str = "ck",
        *,
        depth: int | None = None,
        out: str | Path | None = None,
        client: Any = None,
        max_memory: str | int | None = None,
        storage: str = "float64",
        block: int | None = None,
        progress: bool | Report = True,
    ) -> KernelOperator:
        """The kernel of a model on samples; the arguments are those of `notsodeep.conjugate_kernel`, except for these.

        `kernel` is any of "ck", "ntk", "ntk_paper", "ck_preactivations" and "ntk_preactivations". With `out` the kernel
        is first computed into that folder, by the `client` if there is one; without it blocks are computed whenever
        they are needed.
        """
        specified, name = as_model(model, depth), as_kernel(kernel)
        one_of(storage, STORAGES, "storage")
        if client is not None and out is None:
            raise InputError("A cluster computes a kernel that is kept: give out='G.zarr' as well.")
        with ExitStack() as stack:
            rows = stack.enter_context(rows_of(X, out=None if out is None else Path(out)))
            if out is not None:
                options = ComputeOptions(out, client, max_memory, storage, block, progress)
                (stored,), _ = compute_kernels(specified, rows, None, (name,), options)
            samples = survey(rows, specified)
            resources = stack.pop_all()
        spare, p = budget(max_memory), samples.size
        # One block is computed while another is used.
        share = int((1.0 - KEPT) * spare) // 2
        # In a store the size of a block is known, and memory for it is looked at when blocks are read.
        size = stored.grid.block if out is not None else choose_block(block, share, samples.count, p, storage)
        job = make_job(specified, (name,), samples, None, block=size, storage=storage)
        if out is not None:
            blocks = stored_blocks(stored, max_memory)
        else:
            blocks = KeptBlocks(ComputedBlocks(job), int(KEPT * (spare - 2 * block_bytes(size, p, storage))))
        operator = cls(blocks, job, progress=progress)
        # A temporary file of the samples is removed with the operator.
        operator._resources = resources
        return operator

    @classmethod
    def stored(
        cls,
        kernel: str | Path | StoredKernel,
        *,
        max_memory: str | int | None = None,
        progress: bool | Report = True,
    ) -> KernelOperator:
        """The operator of a kernel on disk."""
        store = kernel if isinstance(kernel, StoredKernel) else StoredKernel(kernel)
        return cls(stored_blocks(store, max_memory), progress=progress)

    # --- products -----------------------------------------------------------------------------------------

    def _matmat(self, block: Array) -> Array:
        grid, right = self.blocks.grid, np.ascontiguousarray(block, dtype=np.float64)
        result = np.zeros(right.shape)
        with reported(self.progress, "sweep over the kernel") as report:
            for number, (cell, part) in enumerate(sweep(self.blocks)):
                report(number, grid.count, lambda: "")
                rows, columns = grid.slices(cell)
                below = right[rows] if grid.mirrored(cell) else None
                add_products(part, right[columns], below, result[rows], result[columns])
            report(grid.count, grid.count, lambda: "")
        return result

    def columns(self, chosen: NDArray[np.intp]) -> Array:
        """These columns of the matrix, in one sweep."""
        grid = self.blocks.grid
        result = np.empty((self.n, len(chosen)))
        for cell, part in sweep(self.blocks):
            rows, columns = grid.slices(cell)
            for across, along, whole in ((columns, rows, part), (rows, columns, part.T)):
                inside = np.flatnonzero((chosen >= across.start) & (chosen < across.stop))
                result[along, inside] = whole[:, chosen[inside] - across.start]
        return result

    def diagonal(self) -> Array:
        """The diagonal of the matrix."""
        return np.asarray(self.blocks.diagonal(), dtype=np.float64)

    def trace(self) -> float:
        """The trace, exactly, from the diagonal alone."""
        return float(self.diagonal().sum())

    # --- eigenvalues --------------------------------------------------------------------------------------

    def eigsh(
        self, k: int = 6, *, tolerance: float = 1e-6, max_sweeps: int = 30, seed: int = 0
    ) -> Eigenpairs:
        """The k largest eigenvalues with their vectors and residuals, by a block Lanczos iteration.

        Args:
            k: number of eigenvalues.
            tolerance: largest residual ||Kv - λv|| allowed, as a fraction of λ_1. The error of a value that stands
                apart from the others is about the square of that.
            max_sweeps: passes over the kernel allowed, each with k + 8 columns.
            seed: seed of the random start.
        """
        if not 1 <= k <= self.n:
            raise InputError(f"k = {k} eigenvalues were requested from a {self.n} × {self.n} operator.")
        return leading_eigenpairs(self, k, tolerance=tolerance, max_sweeps=max_sweeps, seed=seed)

    # --- linear systems -----------------------------------------------------------------------------------

    def solve(
        self,
        b: ArrayLike,
        ridge: float,
        *,
        preconditioner: str | StructuredOperator | None = "equivalent",
        tolerance: float = 1e-6,
        max_iterations: int = 1000,
        rank: int | None = None,
        seed: int = 0,
    ) -> LinearSolution:
        """Solve (K + ridge·I) x = b by conjugate gradients, for one right side (n,) or several (n, m).

        Args:
            b: right side or sides; all share each sweep.
            ridge: a positive number.
            preconditioner: "equivalent", the high-dimensional equivalent of the kernel in its refined form, (5.2);
                "nystrom", from `rank` random columns; None; or an equivalent that you made yourself.
            tolerance: relative residual to reach, of every right side, computed from x at the end.
            max_iterations: sweeps allowed.
            rank: columns of Nyström's approximation, 500 if not given; for the equivalent, the number of eigenvectors
                of what it misses that are added, by two sweeps, 100 if not given.
            seed: seed of the random choices in both.

        Raises:
            ConvergenceError: if the tolerance is not reached.
        """
        right = as_right_sides(b, self.n)
        if not (np.isfinite(ridge) and ridge > 0):
            raise InputError(f"ridge must be positive, got {ridge}: a kernel is often singular to rounding.")
        solution = conjugate_gradients(
            lambda block: self._matmat(block) + ridge * block,
            right.reshape(self.n, -1),
            _preconditioner(self, preconditioner, float(ridge), rank=rank, seed=seed),
            tolerance=tolerance,
            max_iterations=max_iterations,
        )
        return replace(solution, x=solution.x.reshape(right.shape))

    def equivalent(self, rank: int = 0, seed: int = 0) -> StructuredOperator:
        """The high-dimensional equivalent of this kernel in its refined form of first order, (5.2).

        It holds the samples in memory. With `rank`, that many leading eigenvectors of the difference between the kernel
        and the equivalent are added, by two sweeps over the kernel.
        """
        if self.job is None:
            raise InputError(
                "This operator has no samples to make an equivalent from. Create it with KernelOperator.of(model, X, "
                "out=…), which reads the same store, pass an equivalent, or use preconditioner='nystrom'."
            )
        job = self.job
        rows = job.left.rows.read(slice(0, self.n))
        first = equivalent(
            job.model,
            rows,
            kernel=job.kernels[0],
            form="refined",
            order=1,
            around="mean",
            tolerance=_SEPARATION,
        )
        if rank == 0:
            return first
        values, basis = leading_part(
            lambda block: self @ block - first @ block, self.n, rank, seed=seed, passes=1
        )
        # What the eigenvectors put on the diagonal is subtracted: the diagonal is exact already.
        terms = [*first.terms, low_rank(basis, np.diag(values))]
        return StructuredOperator(first.own_diagonal - basis**2 @ values, terms)


def _preconditioner(
    kernel: KernelOperator, choice: Any, ridge: float, *, rank: int | None, seed: int
) -> Preconditioner:
    """The preconditioner of kernel + ridge·I; see `KernelOperator.solve` for the arguments."""
    if choice is None:
        return Unpreconditioned()
    if not isinstance(choice, StructuredOperator):
        one_of(choice, ("equivalent", "nystrom"), "preconditioner")
    if choice == "nystrom":
        count = min(_NYSTROM_COLUMNS if rank is None else rank, kernel.n)
        chosen = np.sort(np.random.default_rng(seed).choice(kernel.n, count, replace=False))
        return Nystrom(kernel.columns(chosen), chosen, ridge)
    if choice == "equivalent":
        choice = kernel.equivalent(_ADDED_EIGENVECTORS if rank is None else rank, seed)
    if choice.shape != kernel.shape:
        raise InputError(f"The preconditioner has shape {choice.shape}, the kernel {kernel.shape}.")
    columns, core = choice.factor
    return LowRankInverse(choice.own_diagonal, columns, core, ridge)
