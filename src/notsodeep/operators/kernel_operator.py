"""A kernel as an operator: n × n in its answers, never in memory."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.sparse.linalg import LinearOperator, eigsh

from notsodeep.equivalents.operators import StructuredOperator
from notsodeep.errors import InputError
from notsodeep.kernel_names import Kernel, as_kernel
from notsodeep.memory import RESERVE, budget, in_words
from notsodeep.models.protocol import Model, as_model
from notsodeep.operators.block_sources import Blocks, ComputedBlocks, KeptBlocks, add_products, sweep
from notsodeep.operators.krylov import (
    Eigenpairs,
    Estimate,
    SpectralMeasure,
    leading_eigenpairs,
    spectral_measure,
)
from notsodeep.operators.solving import (
    Nystrom,
    Preconditioner,
    Solution,
    Unpreconditioned,
    conjugate_gradients,
)
from notsodeep.operators.streamed_equivalent import StreamedEquivalent
from notsodeep.progress import Report, reported
from notsodeep.scale.compute import ComputeOptions, compute_kernels
from notsodeep.scale.kernel_jobs import STORAGES, block_bytes, check_block, fitting_block, make_job
from notsodeep.scale.sample_sources import Rows, Survey, rows_of, sample_size, survey
from notsodeep.scale.stored import StoredKernel
from notsodeep.validation import as_right_sides, one_of

Array = NDArray[np.float64]

# Part of the memory for blocks that are kept from one sweep to the next; the rest is for vectors.
_KEPT = 0.5
# Columns of Nyström's approximation, and eigenvectors added to the equivalent, where nothing is said.
COLUMNS, CORRECTION = 500, 100
# Error allowed to a preconditioner in the dependence on two samples' norms: it costs an iteration or two, and a smaller
# one would double or treble the columns of the inverse, on which it depends by their third power.
_SEPARATION = 0.1
# Blocks in memory while a store is read: one in use, one being read, and its bytes as they come from the file.
_MOVING = 3


@dataclass(frozen=True, eq=False)
class Origin:
    """What a kernel was made from: enough to make its equivalent.

    Attributes:
        model: the model.
        kernel: its name.
        rows: the samples.
        seen: what one pass over them left.
        resources: what must live as long as the rows do.
    """

    model: Model
    kernel: Kernel
    rows: Rows
    seen: Survey
    resources: ExitStack


class KernelOperator(LinearOperator):
    """A symmetric kernel matrix that is multiplied block by block; a `scipy.sparse.linalg.LinearOperator`.

        K = KernelOperator.of(deq, X, "ck")                       # blocks computed in every sweep
        K = KernelOperator.of(deq, X, "ck", out="G.zarr")         # computed once (or resumed), then read
        K = KernelOperator.stored("G.zarr")                       # read; without X there is no equivalent

    A product goes over all blocks of the lower half once, however many columns it has: give it many. As many blocks as
    fit into half of the memory allowed stay there after the first sweep.

    Attributes:
        progress: True for a bar on stderr for each sweep, or a function that is told of each of its blocks.
    """

    def __init__(
        self, blocks: Blocks, origin: Origin | None = None, *, room: int = 0, progress: bool | Report = False
    ) -> None:
        grid = blocks.grid
        if not grid.symmetric:
            raise InputError("A kernel between two sets of samples is no symmetric operator; leave Y out.")
        self.blocks = KeptBlocks(blocks, room) if room > 0 else blocks
        self.origin, self.progress = origin, progress
        super().__init__(np.float64, (grid.rows, grid.rows))

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
        progress: bool | Report = False,
    ) -> KernelOperator:
        """The kernel of a model on samples.

        Args:
            model: a DEQ or an Explicit network.
            X: samples in rows (n, p): an array, an np.memmap, a zarr array or a dask array.
            kernel: "ck", "ntk", "ntk_paper", "ck_preactivations" or "ntk_preactivations".
            depth: cuts a DEQ.
            out: a folder to compute the kernel into first; without it blocks are computed whenever they are needed.
            client: who computes what goes to `out`, see `conjugate_kernel`.
            max_memory: what the process may hold in all.
            storage: "float64" or "float32": the precision of blocks on disk or kept.
            block: rows and columns of a block.
            progress: True for a bar on stderr, or a function that is told of each block.
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
            origin = Origin(specified, name, rows, survey(rows, specified), stack.pop_all())
        spare, p = budget(max_memory), sample_size(rows)
        if out is not None:
            return cls(stored, origin, room=_room(stored, spare), progress=progress)
        # One block is computed while another is used.
        share = int((1.0 - _KEPT) * spare) // 2
        if block is None:
            size = fitting_block(share, rows.shape[0], p, storage)
        else:
            size = check_block(block, share, p, storage)
        job = make_job(specified, (name,), (rows, None), (origin.seen, None), size, storage)
        room = spare - 2 * block_bytes(size, p, storage)
        return cls(ComputedBlocks(job), origin, room=int(_KEPT * room), progress=progress)

    @classmethod
    def stored(
        cls,
        kernel: str | Path | StoredKernel,
        *,
        max_memory: str | int | None = None,
        progress: bool | Report = False,
    ) -> KernelOperator:
        """The operator of a kernel on disk."""
        found = kernel if isinstance(kernel, StoredKernel) else StoredKernel(kernel)
        return cls(found, room=_room(found, budget(max_memory)), progress=progress)

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

    def _matvec(self, vector: Array) -> Array:
        return self._matmat(np.reshape(vector, (-1, 1)))[:, 0]

    def _adjoint(self) -> KernelOperator:
        return self

    def _transpose(self) -> KernelOperator:
        return self

    @property
    def n(self) -> int:
        """The number of samples."""
        return int(self.shape[0])

    def columns(self, chosen: NDArray[np.intp]) -> Array:
        """Some columns of the matrix, in one sweep."""
        grid = self.blocks.grid
        result = np.empty((self.n, len(chosen)))
        for cell, part in sweep(self.blocks):
            rows, columns = grid.slices(cell)
            for across, along, whole in ((columns, rows, part), (rows, columns, part.T)):
                inside = np.flatnonzero((chosen >= across.start) & (chosen < across.stop))
                result[along, inside] = whole[:, chosen[inside] - across.start]
        return result

    # --- numbers ------------------------------------------------------------------------------------------

    def diagonal(self) -> Array:
        """The diagonal of the matrix."""
        return np.asarray(self.blocks.diagonal(), dtype=np.float64)

    def trace(self) -> float:
        """The trace, exactly, from the diagonal alone."""
        return float(self.diagonal().sum())

    def stochastic_trace(self, *, probes: int = 16, seed: int = 0) -> Estimate:
        """Hutchinson's estimate of the trace, one sweep; what `density` does for functions of the matrix."""
        signs = np.random.default_rng(seed).integers(0, 2, (self.n, probes)) * 2.0 - 1.0
        each = np.einsum("ij,ij->j", signs, self @ signs)
        error = float(each.std(ddof=1) / np.sqrt(probes)) if probes > 1 else float("nan")
        return Estimate(float(each.mean()), error)

    def eigsh(
        self,
        k: int = 6,
        *,
        tolerance: float = 1e-6,
        max_sweeps: int = 30,
        seed: int = 0,
        method: str = "block",
    ) -> Eigenpairs:
        """The k largest eigenvalues with their vectors and residuals.

        Args:
            k: how many.
            tolerance: largest residual ||Kv - λv|| allowed, as a fraction of λ_1. The error of a value that stands
                apart from the others is about the square of that.
            max_sweeps: passes over the kernel allowed, each with k + 8 columns.
            seed: of the random start.
            method: "block" is a block Lanczos iteration; "arpack" is scipy's `eigsh`, one column a sweep.
        """
        if not 1 <= k <= self.n:
            raise InputError(f"k = {k} eigenvalues were asked of a {self.n} × {self.n} operator.")
        one_of(method, ("block", "arpack"), "method")
        if method == "block" or k >= self.n - 1:
            return leading_eigenpairs(self, k, tolerance=tolerance, max_sweeps=max_sweeps, seed=seed)
        return self._arpack(k, tolerance, seed)

    def _arpack(self, k: int, tolerance: float, seed: int) -> Eigenpairs:
        sweeps = 0

        def counted(vector: Array) -> Array:
            nonlocal sweeps
            sweeps += 1
            return self._matvec(vector)

        start = np.random.default_rng(seed).standard_normal(self.n)
        counting = LinearOperator(self.shape, matvec=counted, dtype=np.float64)
        values, vectors = eigsh(counting, k, which="LA", tol=tolerance, v0=start)
        values, vectors = values[::-1], vectors[:, ::-1]
        residuals = np.linalg.norm(self._matmat(vectors) - vectors * values, axis=0)
        return Eigenpairs(values, vectors, residuals, sweeps + 1)

    def density(self, *, probes: int = 8, steps: int = 40, seed: int = 0) -> SpectralMeasure:
        """The distribution of all eigenvalues by stochastic Lanczos quadrature: `steps` sweeps of `probes` columns.

        `.smoothed(grid, width)`, `.cdf(x)` and `.histogram(edges)` show it; `.trace(np.log)` and the like are traces
        of functions of the matrix.
        """
        return spectral_measure(self, probes, steps, seed)

    # --- solving ------------------------------------------------------------------------------------------

    def solve(
        self,
        b: ArrayLike,
        ridge: float,
        *,
        preconditioner: str | StructuredOperator | StreamedEquivalent | None = "equivalent",
        tolerance: float = 1e-6,
        max_iterations: int = 1000,
        rank: int | None = None,
        seed: int = 0,
    ) -> Solution:
        """Give x with (K + ridge·I) x = b, for one right side (n,) or several (n, m), by conjugate gradients.

        Args:
            b: right side or sides; all share each sweep.
            ridge: positive.
            preconditioner: "equivalent", the high-dimensional equivalent of the kernel in its refined form, (5.2);
                "nystrom", from `rank` random columns; None; or an equivalent of one's own.
            tolerance: relative residual to reach, of every right side, computed from x at the end.
            max_iterations: sweeps allowed.
            rank: columns of Nyström's approximation, 500 if not given; of the equivalent, how many eigenvectors of
                what it misses are added, by two sweeps, 100 if not given.
            seed: of the random choices in both.

        Raises:
            ConvergenceError: if the tolerance is not reached.
        """
        right = as_right_sides(b, self.n)
        if not (np.isfinite(ridge) and ridge > 0):
            raise InputError(f"ridge must be positive, got {ridge}: a kernel is often singular to rounding.")
        found = conjugate_gradients(
            lambda block: self._matmat(block) + ridge * block,
            right.reshape(self.n, -1),
            self._preconditioner(preconditioner, float(ridge), rank, seed),
            tolerance=tolerance,
            max_iterations=max_iterations,
        )
        return Solution(
            found.x.reshape(right.shape),
            found.iterations,
            found.residual,
            found.history,
            found.preconditioner,
        )

    def _preconditioner(self, wanted: Any, ridge: float, rank: int | None, seed: int) -> Preconditioner:
        if wanted is None:
            return Unpreconditioned()
        if isinstance(wanted, StructuredOperator):
            wanted = StreamedEquivalent.of(wanted)
        if isinstance(wanted, StreamedEquivalent):
            if wanted.shape != self.shape:
                raise InputError(f"The preconditioner is {wanted.shape}, the kernel {self.shape}.")
            return wanted.inverse(ridge)
        one_of(wanted, ("equivalent", "nystrom"), "preconditioner")
        if wanted == "equivalent":
            return self.equivalent(CORRECTION if rank is None else rank, seed).inverse(ridge)
        count = min(COLUMNS if rank is None else rank, self.n)
        chosen = np.sort(np.random.default_rng(seed).choice(self.n, count, replace=False))
        return Nystrom(self.columns(chosen), chosen, ridge)

    def equivalent(self, rank: int = 0, seed: int = 0) -> StreamedEquivalent:
        """The high-dimensional equivalent of this kernel as a preconditioner: refined, first order, few columns.

        With `rank`, so many eigenvectors of what it misses are added to it, by two sweeps over the kernel. O(n) memory
        beside the samples.
        """
        if self.origin is None:
            raise InputError(
                "This operator has no samples to make an equivalent from: make it with KernelOperator.of(model, X, "
                "out=…), which reads the same store, give an equivalent of your own, or use preconditioner='nystrom'."
            )
        origin = self.origin
        first = StreamedEquivalent.refined(
            origin.model,
            origin.rows,
            origin.kernel,
            known=origin.seen,
            around="mean",
            tolerance=_SEPARATION,
        )
        return first if rank == 0 else first.corrected(self, rank, seed)


def _room(kernel: StoredKernel, spare: int) -> int:
    """Bytes for blocks that are kept, beside those on their way from the disk."""
    side = min(kernel.grid.block, kernel.grid.rows)
    moving = _MOVING * side**2 * kernel.dtype.itemsize
    # Reading loads nothing that is not loaded: the reserve may be used.
    if moving > spare + RESERVE:
        raise InputError(
            f"Reading the blocks of {kernel.path} takes {in_words(moving)}, and {in_words(max(spare, 0))} are left. "
            "Raise max_memory."
        )
    return max(int(_KEPT * (spare - moving)), 0)


__all__ = ["KernelOperator"]
