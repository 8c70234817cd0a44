"""Leading eigenvalues and adjoint series of the Jacobian of each sample, from its products with vectors alone.

Trained networks have complex leading pairs, so that power iteration alone would not do: Arnoldi's method, for all
samples at once, from a vector that power iterations have turned towards the leading eigenvectors. Where many
eigenvalues have the largest modulus, as those of a permutation do, no such space holds them: there the growth of late
products is the rate.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from notsodeep.validation import Array

# Power iterations before Arnoldi's method, dimension of its space, and eigenvalues that are kept.
POWER_STEPS, KRYLOV, EIGENVALUES = 80, 40, 6
# Rounds of power iterations, each twice as long as the one before, and the relative residual that ends them.
ROUNDS, RITZ_RESIDUAL = 5, 1e-3
# Terms of the adjoint's series: those whose errors are kept, and the most that are summed.
ADJOINT_TERMS, MOST_TERMS, SMALL_TERM = 64, 4096, 1e-5

Product = Callable[[Tensor], Tensor]


@dataclass
class Spectrum:
    """Leading eigenvalues, (samples, some), and the rate: their largest modulus, or the growth of late products."""

    eigenvalues: Any
    rate: Array


def spectrum(product: Product, v: Tensor, over: Callable[[], bool]) -> Spectrum:
    """Leading eigenvalues of a linear map of each sample, from the vectors v; later rounds until time is `over`."""
    size, start = v.shape[1], v / torch.linalg.vector_norm(v, dim=1, keepdim=True)
    values: Any = None
    rate, done = np.zeros(len(v)), np.zeros(len(v), dtype=bool)
    turned = start
    for number in range(ROUNDS):
        turned, growth = _power(product, turned, POWER_STEPS << number)
        # All of a small space, from the first vector; v = 0 says that the map is nilpotent.
        found, residual = _arnoldi(product, start if size <= KRYLOV else turned)
        values = found if values is None else np.where(done[:, None], values, found)
        settled = np.isnan(growth) | (growth == 0.0) | (residual <= RITZ_RESIDUAL)
        best = np.where((growth == 0.0) | (residual > RITZ_RESIDUAL), growth, np.abs(found).max(axis=1))
        values = np.where((growth == 0.0)[:, None], 0.0, values)
        rate, done = np.where(done, rate, best), done | settled
        if done.all() or over():
            break
    return Spectrum(values, rate)


def late_growth(product: Product, v: Tensor, steps: int) -> Array:
    """The factor of the norm of v in a late product."""
    return _power(product, v, steps)[1]


def _power(product: Product, v: Tensor, steps: int) -> tuple[Tensor, Array]:
    """The direction after so many products, and the geometric mean of the growth in the second half of them."""
    log, zero = v.new_zeros(len(v)), torch.zeros(len(v), dtype=torch.bool, device=v.device)
    for step in range(steps):
        image = product(v)
        norm = torch.linalg.vector_norm(image, dim=1)
        zero = zero | (norm == 0.0)
        if 2 * step >= steps:
            log += torch.where(zero, 0.0, norm.log())
        v = torch.where(zero[:, None], v, image / norm[:, None].clamp_min(torch.finfo(v.dtype).tiny))
    growth = torch.where(zero, 0.0, (log / (steps - (steps + 1) // 2)).exp())
    return v, growth.double().cpu().numpy()


def _arnoldi(product: Product, v: Tensor) -> tuple[Any, Array]:
    """Ritz values of largest modulus of each sample, complex, and the relative residual of the largest."""
    size = v.shape[1]
    dimension = min(size, KRYLOV)
    basis = v.new_zeros(len(v), dimension + 1, size)
    hessenberg = np.zeros((len(v), dimension + 1, dimension))
    basis[:, 0] = v / torch.linalg.vector_norm(v, dim=1, keepdim=True)
    for j in range(dimension):
        image = product(basis[:, j])
        size_before = torch.linalg.vector_norm(image, dim=1)
        # Twice is enough (Kahan and Parlett).
        for _ in range(2):
            onto = torch.einsum("bkd,bd->bk", basis[:, : j + 1], image)
            image = image - torch.einsum("bk,bkd->bd", onto, basis[:, : j + 1])
            hessenberg[:, : j + 1, j] += onto.double().cpu().numpy()
        left = torch.linalg.vector_norm(image, dim=1)
        # An invariant space: nothing but rounding is left, and the eigenvalues so far are exact.
        left = torch.where(left > 100.0 * torch.finfo(v.dtype).eps * size_before, left, 0.0)
        hessenberg[:, j + 1, j] = left.double().cpu().numpy()
        image = torch.where(left[:, None] > 0.0, image, torch.roll(v, j + 1, 1) if j + 1 < size else 0.0)
        for _ in range(2 if bool((left == 0.0).any()) else 0):
            # Another direction, so that further eigenvalues are seen.
            image -= torch.einsum("bk,bkd->bd", torch.einsum("bkd,bd->bk", basis, image), basis)
        basis[:, j + 1] = image / torch.linalg.vector_norm(image, dim=1, keepdim=True).clamp_min(1e-300)
    # A sample that is not finite has no eigenvalues; the others keep theirs.
    finite = np.asarray(np.isfinite(hessenberg).all(axis=(1, 2)))
    values, vectors = np.linalg.eig(np.where(finite[:, None, None], hessenberg, 0.0)[:, :dimension])
    values = np.where(finite[:, None], values.astype(np.complex128), np.nan)
    order = np.argsort(-np.abs(values), axis=1)[:, :EIGENVALUES]
    values, last = np.take_along_axis(values, order, axis=1), np.abs(vectors[:, -1])
    leading = np.take_along_axis(last, order[:, :1], axis=1)[:, 0]
    residual = hessenberg[:, -1, -1] * leading / np.maximum(np.abs(values[:, 0]), 1e-300)
    return values, residual


def adjoint_errors(
    product: Product, cotangents: list[Tensor], over: Callable[[], bool]
) -> tuple[Array, Array]:
    """‖t‖/‖w‖ and ‖t − t_k‖/‖t‖ for k = 0, 1, …, roots of means over random cotangents w."""
    squares = []
    for w in cotangents:
        term, total, count = w, w.clone(), 1
        # Terms may grow before they fall.
        while count < 2 * ADJOINT_TERMS or (
            count < MOST_TERMS
            and not over()
            and bool((term.square().sum(dim=1) > SMALL_TERM**2 * total.square().sum(dim=1)).any())
        ):
            term, count = product(term), count + 1
            total += term
        rest, rests, term = total.clone(), [total.square().sum(dim=1)], w
        for _ in range(ADJOINT_TERMS - 1):
            rest -= term
            rests.append(rest.square().sum(dim=1))
            term = product(term)
        squares.append(torch.stack([*rests, w.square().sum(dim=1)], dim=1).double().cpu().numpy())
    mean = np.mean(squares, axis=0)
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        return np.sqrt(mean[:, 0] / mean[:, -1]), np.sqrt(mean[:, :-1] / mean[:, :1])


__all__ = ["Spectrum", "adjoint_errors", "late_growth", "spectrum"]
