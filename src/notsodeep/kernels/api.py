"""Exact kernels of DEQs and explicit networks."""

from __future__ import annotations

from functools import cache
from typing import Any, Literal, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray

from notsodeep.errors import InputError
from notsodeep.kernels.programs import Program, Samples, prepare
from notsodeep.kernels.tiles import announce_compilation, for_each_tile
from notsodeep.models import DEQ, Explicit
from notsodeep.results import KernelInfo
from notsodeep.validation import as_rows, as_rows_like, one_of

Array = NDArray[np.float64]
Model = DEQ | Explicit

CONJUGATE = ("features", "preactivations")
TANGENT = ("network", "paper", "preactivations")


@overload
def conjugate_kernel(
    model: Model, X: ArrayLike, Y: ArrayLike | None = ..., of: str = ..., *, depth: int | None = ...
) -> Array: ...
@overload
def conjugate_kernel(
    model: Model,
    X: ArrayLike,
    Y: ArrayLike | None = ...,
    of: str = ...,
    *,
    depth: int | None = ...,
    return_info: Literal[True],
) -> tuple[Array, KernelInfo]: ...
@overload
def conjugate_kernel(
    model: Model,
    X: ArrayLike,
    Y: ArrayLike | None = ...,
    of: str = ...,
    *,
    depth: int | None = ...,
    return_info: bool,
) -> Any: ...
def conjugate_kernel(
    model: Model,
    X: ArrayLike,
    Y: ArrayLike | None = None,
    of: str = "features",
    *,
    depth: int | None = None,
    return_info: bool = False,
) -> Any:
    """The conjugate kernel of an infinitely wide network, docs/theory.md (3.3) and (3.11).

    Args:
        model: a DEQ (infinite depth unless `depth` is given) or an Explicit network.
        X: samples in rows (n, p).
        Y: other samples (k, p) for the rectangular kernel; X itself if not given.
        of: "features" is ⟨z_i, z_j⟩; "preactivations" is Λ, what enters the activation.
        depth: cut the DEQ after this many layers whose weights are not tied, (3.12).
        return_info: also return the evidence: iterations, residual and error bound.

    Returns:
        The kernel (n, n) or (n, k), and a `KernelInfo` if asked for.
    """
    kernels, info = _compute(model, X, Y, (one_of(of, CONJUGATE, "of"),), depth)
    return (kernels[0], info) if return_info else kernels[0]


@overload
def tangent_kernel(
    model: Model, X: ArrayLike, Y: ArrayLike | None = ..., of: str = ..., *, depth: int | None = ...
) -> Array: ...
@overload
def tangent_kernel(
    model: Model,
    X: ArrayLike,
    Y: ArrayLike | None = ...,
    of: str = ...,
    *,
    depth: int | None = ...,
    return_info: Literal[True],
) -> tuple[Array, KernelInfo]: ...
@overload
def tangent_kernel(
    model: Model,
    X: ArrayLike,
    Y: ArrayLike | None = ...,
    of: str = ...,
    *,
    depth: int | None = ...,
    return_info: bool,
) -> Any: ...
def tangent_kernel(
    model: Model,
    X: ArrayLike,
    Y: ArrayLike | None = None,
    of: str = "network",
    *,
    depth: int | None = None,
    return_info: bool = False,
) -> Any:
    """The neural tangent kernel of an infinitely wide network, docs/theory.md (3.8) to (3.12).

    Args:
        model: a DEQ (infinite depth unless `depth` is given) or an Explicit network.
        X: samples in rows (n, p).
        Y: other samples (k, p) for the rectangular kernel; X itself if not given.
        of: "network" is the NTK of f = ⟨a, z⟩ with all weights trained, the true one; "paper" is G/(1 - σ_a² D) as
            the papers define it; "preactivations" is Λ/(1 - σ_a² D).
        depth: cut the DEQ after this many layers whose weights are not tied.
        return_info: also return the evidence: iterations, residual and error bound.

    Returns:
        The kernel (n, n) or (n, k), and a `KernelInfo` if asked for.
    """
    kernels, info = _compute(model, X, Y, (tangent_reading(of),), depth)
    return (kernels[0], info) if return_info else kernels[0]


def both_kernels(
    model: Model,
    X: ArrayLike,
    Y: ArrayLike | None = None,
    of: str = "network",
    *,
    depth: int | None = None,
    return_info: bool = False,
) -> Any:
    """Conjugate kernel (of features) and tangent kernel in one pass, and the evidence if asked for."""
    kernels, info = _compute(model, X, Y, ("features", tangent_reading(of)), depth)
    return (*kernels, info) if return_info else tuple(kernels)


def tangent_reading(of: str) -> str:
    """The name that `programs.Block.reading` has for a tangent kernel."""
    return "tangent" if one_of(of, TANGENT, "of") == "preactivations" else of


def _compute(
    model: Model, X: ArrayLike, Y: ArrayLike | None, wanted: tuple[str, ...], depth: int | None
) -> tuple[list[Array], KernelInfo]:
    check_model(model, depth)
    left = as_rows(X)
    right = None if Y is None else as_rows_like(Y, left)
    # The Gram matrix is overwritten by the first kernel: nothing of size n² exists beside the output.
    gram = left @ (left if right is None else right).T
    sides = _samples(left, right, gram)
    program = prepare(model, *sides, depth, any(name not in CONJUGATE for name in wanted))
    return evaluate(program, gram, wanted, symmetric=right is None)


def evaluate(
    program: Program, gram: Array, wanted: tuple[str, ...], *, symmetric: bool
) -> tuple[list[Array], KernelInfo]:
    """All tiles of a Gram matrix through a program: the wanted kernels, the first in place of the Gram matrix."""
    outputs = [gram, *(np.empty_like(gram) for _ in wanted[1:])]
    _announce_once()

    def work(rows: slice, columns: slice) -> KernelInfo:
        diagonal = symmetric and rows == columns
        c = gram[rows, columns].copy()
        if diagonal:
            # A product need not be symmetric to the last bit.
            c = np.tril(c) + np.tril(c, -1).T
        block = program.tile(c, rows, columns, diagonal=diagonal)
        for output, name in zip(outputs, wanted, strict=True):
            part = block.reading(name)
            output[rows, columns] = part
            if symmetric and not diagonal:
                output[columns, rows] = part.T
        return block.info

    info = for_each_tile(work, *gram.shape, symmetric=symmetric)
    return outputs, info


@cache
def _announce_once() -> bool:
    return announce_compilation()


def _samples(left: Array, right: Array | None, gram: Array) -> tuple[Samples, Samples | None]:
    """Squared norms as the Gram matrix has them, so that a pair of equal rows is a diagonal entry to the last bit."""
    if right is None:
        return Samples(left, gram.diagonal().copy()), None
    squares = [np.einsum("ij,ij->i", rows, rows) for rows in (left, right)]
    return Samples(left, squares[0]), Samples(right, squares[1])


def check_model(model: Model, depth: int | None) -> None:
    """Refuse what is not a model, and a depth that it cannot have."""
    if not isinstance(model, DEQ | Explicit):
        raise InputError(f"model must be a DEQ or an Explicit network, not {type(model).__name__}.")
    if depth is None:
        return
    if isinstance(model, Explicit):
        raise InputError("depth cuts a DEQ; an Explicit network has the depth of its layers.")
    if isinstance(depth, bool) or not isinstance(depth, int | np.integer) or depth < 1:
        raise InputError(f"depth must be a whole number from 1 on, got {depth}.")
