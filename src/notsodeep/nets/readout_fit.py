"""The linear readout that fits given outputs best, in closed form, from features that are never held all at once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

# Ridges to choose from, relative to the mean square of a feature.
_RIDGES = tuple(10.0**power for power in range(-9, 1))
# Features beyond which their second moment is not formed: it would take more than half a gigabyte.
LARGEST = 8192


@dataclass(frozen=True)
class ReadoutFit:
    """A readout and what it was found from.

    Attributes:
        weights: (outputs, features).
        bias: (outputs,).
        metric: the inverse of the features' second moment with the ridge, for leverages.
        error: mean squared error on the rows that chose the ridge.
    """

    weights: Tensor
    bias: Tensor
    metric: Tensor
    error: float


@torch.no_grad()
def fit_readout(
    features: Callable[[Tensor], Tensor],
    rows: tuple[Tensor, Tensor],
    others: tuple[Tensor, Tensor],
    batch: int,
) -> ReadoutFit | None:
    """Ridge regression of outputs on features; None if there are too many features for their second moment.

    Args:
        features: of rows.
        rows: inputs and wanted outputs to fit to.
        others: inputs and wanted outputs by which the ridge is chosen.
        batch: rows at a time; beside two matrices of features × features nothing grows with the number of rows.
    """
    X, Y = rows
    width = features(X[:1]).shape[1]
    if width > LARGEST:
        return None
    place: dict[str, Any] = {"dtype": torch.float64, "device": X.device}
    second, cross = torch.zeros(width, width, **place), torch.zeros(width, Y.shape[1], **place)
    first, goal = torch.zeros(width, **place), Y.double().mean(0)
    for start in range(0, len(X), batch):
        part = features(X[start : start + batch]).double()
        second += part.mT @ part
        cross += part.mT @ (Y[start : start + batch].double() - goal)
        first += part.sum(0)
    # Around the mean of the features, so that the constant is not penalised.
    mean = first / len(X)
    second -= len(X) * torch.outer(mean, mean)
    size = float(second.diagonal().mean().clamp(min=1e-300))
    judged = torch.cat([features(part) for part in torch.split(others[0], batch)]).double()
    best: ReadoutFit | None = None
    for ridge in _RIDGES:
        shifted = second.clone()
        shifted.diagonal().add_(ridge * size)
        factor, info = torch.linalg.cholesky_ex(shifted)
        if int(info):
            continue
        weights = torch.cholesky_solve(cross, factor).mT
        bias = goal - weights @ mean
        error = float((judged @ weights.mT + bias - others[1].double()).square().mean())
        if best is None or error < best.error:
            best = ReadoutFit(weights.to(Y), bias.to(Y), torch.cholesky_inverse(factor), error)
    return best


__all__ = ["LARGEST", "ReadoutFit", "fit_readout"]
