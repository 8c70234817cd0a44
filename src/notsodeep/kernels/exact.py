"""The exact kernels of any model: one public function each, for arrays in memory and for everything larger."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from notsodeep.kernel_names import Kernel, as_conjugate_kernel, as_kernel, as_tangent_kernel
from notsodeep.models.protocol import Model, as_model
from notsodeep.progress import Report
from notsodeep.scale.compute import ComputeOptions, compute_kernels
from notsodeep.validation import Array


def conjugate_kernel(
    model: Model,
    X: Any,
    Y: Any = None,
    of: str = "features",
    *,
    depth: int | None = None,
    return_info: bool = False,
    out: str | Path | None = None,
    client: Any = None,
    max_memory: str | int | None = None,
    storage: str = "float64",
    block: int | None = None,
    tolerance: float | None = None,
    progress: bool | Report = True,
) -> Any:
    """Compute the conjugate kernel of an infinitely wide network, docs/theory.md (3.3) and (3.11).

    Args:
        model: a DEQ (infinite depth unless `depth` is given), an Explicit network, or any other model.
        X: samples, for models of rows (n, p): an array, an np.memmap, a zarr array or a dask array.
        Y: other samples (k, p) for the rectangular kernel; X itself if not given.
        of: "features" (or "ck") is ⟨z_i, z_j⟩; "preactivations" (or "ck_preactivations") is Λ, the covariance of what
            enters the activation.
        depth: cut the DEQ after this many layers whose weights are not tied, (3.12).
        return_info: also return a `KernelInfo`: iterations, residual and error bound.
        out: a folder (G.zarr) that the kernel is written to, block by block, the lower half only. A run that was
            interrupted goes on where it stopped when it is called again.
        client: where blocks are computed: None is this process; "threads"; a number of processes on this machine; the
            address of a `distributed` scheduler; a `distributed.Client`.
        max_memory: the memory that the process (with a client: each worker) may use in all, "4GB"; if not given, blocks
            take half of what is free.
        storage: "float64" or "float32", the precision that is kept; blocks are always computed in float64.
        block: rows and columns of a block; as large as memory allows if not given.
        tolerance: error that kernels of images may have, relative to the diagonal, up to 1e-4; 1e-12 if not given.
            Models of rows have none.
        progress: a bar on a terminal after two seconds; False for none,
            or a function (see `notsodeep.progress`) that is called for each block, or
            for each tile where the whole kernel is computed in memory.

    Returns:
        The kernel (n, n) or (n, k) as an array, or as a `StoredKernel` where `out` is given; with `return_info` that
        and a `KernelInfo`.
    """
    options = ComputeOptions(out, client, max_memory, storage, block, progress, tolerance)
    (kernel,), info = compute_kernels(as_model(model, depth), X, Y, (as_conjugate_kernel(of),), options)
    return (kernel, info) if return_info else kernel


def tangent_kernel(
    model: Model,
    X: Any,
    Y: Any = None,
    of: str = "network",
    *,
    depth: int | None = None,
    return_info: bool = False,
    out: str | Path | None = None,
    client: Any = None,
    max_memory: str | int | None = None,
    storage: str = "float64",
    block: int | None = None,
    tolerance: float | None = None,
    progress: bool | Report = True,
) -> Any:
    """Compute the neural tangent kernel of an infinitely wide network, docs/theory.md (3.8) to (3.12).

    Args:
        model: a DEQ, an Explicit network, or any other model.
        X: samples, for models of rows (n, p).
        Y: other samples (k, p) for the rectangular kernel; X itself if not given.
        of: "network" (or "ntk"): the NTK of f = ⟨a, z⟩ with all weights trained, the true one; "paper" (or
            "ntk_paper"): G/(1 - σ_a² D) as the papers define it; "preactivations" (or "ntk_preactivations"):
            Λ/(1 - σ_a² D).
        depth: number of untied layers after which the DEQ is cut, (3.12).
        return_info: also return a `KernelInfo`: iterations, residual and error bound.
        out: folder to write to, block by block; see `conjugate_kernel`, as for the arguments below.
        client: where blocks are computed.
        max_memory: memory that may be used, such as "4GB".
        storage: "float64" or "float32".
        block: rows and columns of a block.
        tolerance: error that kernels of images may have.
        progress: a bar on a terminal after two seconds; False for none, or a function.

    Returns:
        The kernel (n, n) or (n, k), as `conjugate_kernel` returns it.
    """
    options = ComputeOptions(out, client, max_memory, storage, block, progress, tolerance)
    (kernel,), info = compute_kernels(as_model(model, depth), X, Y, (as_tangent_kernel(of),), options)
    return (kernel, info) if return_info else kernel


def both_kernels(
    model: Model,
    X: Any,
    Y: Any = None,
    of: str = "network",
    *,
    depth: int | None = None,
    return_info: bool = False,
    out: str | Path | None = None,
    client: Any = None,
    max_memory: str | int | None = None,
    storage: str = "float64",
    block: int | None = None,
    tolerance: float | None = None,
    progress: bool | Report = True,
) -> Any:
    """Compute the conjugate kernel (of features) and a tangent kernel in one pass, at little more cost than one.

    `of` is that of `tangent_kernel`, the other arguments are those of `conjugate_kernel`. In the folder `out` the two
    kernels become the folders ck.zarr and ntk.zarr (or ntk_paper.zarr, ntk_preactivations.zarr).

    Returns:
        The conjugate kernel and the tangent kernel; with `return_info` these and a `KernelInfo` of both.
    """
    options = ComputeOptions(out, client, max_memory, storage, block, progress, tolerance)
    names = (Kernel.CK, as_tangent_kernel(of))
    kernels, info = compute_kernels(as_model(model, depth), X, Y, names, options)
    return (*kernels, info) if return_info else tuple(kernels)


def exact_kernel(
    model: Model, X: Any, Y: Any = None, *, kernel: str = "ck", progress: bool | Report = True
) -> Array:
    """Any of the five kernels (see `Kernel`) as an array in memory."""
    options = ComputeOptions(progress=progress)
    kernels, _ = compute_kernels(as_model(model), X, Y, (as_kernel(kernel),), options)
    return np.asarray(kernels[0])


__all__ = ["both_kernels", "conjugate_kernel", "exact_kernel", "tangent_kernel"]
