"""Ridge regression in closed form, from features that are never held in memory all at once."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

# Ridges to choose from, relative to the mean square of a feature; fewer of them where each one costs seconds.
RIDGES = tuple(10.0**power for power in range(-9, 1))
_FEW_RIDGES, _MANY_FEATURES = RIDGES[1::2], 1024
# Features beyond which nothing is fitted: it would take a minute and more than half a gigabyte.
LARGEST = 4096

# Features and targets of some observations, block by block.
Blocks = Iterable[tuple[Tensor, Tensor]]


@dataclass(frozen=True)
class LinearFit:
    """Targets ≈ weights · features + bias, in double precision.

    Attributes:
        weights: (targets, features).
        bias: (targets,).
        covariance: covariance of the features, (features, features).
        mean: mean of the features.
    """

    weights: Tensor
    bias: Tensor
    covariance: Tensor
    mean: Tensor


@torch.no_grad()
def fit_linear(
    blocks: Blocks, validation: Blocks, ridges: Sequence[float] | None = None, toward: Tensor | None = None
) -> LinearFit | None:
    """Ridge regression with an intercept that is not penalised; None if there are too many features.

    Args:
        blocks: features and targets to fit to.
        validation: features and targets by which the ridge is chosen.
        ridges: ridges to choose from, relative to the mean square of a feature; ten powers of ten if None.
        toward: weights, the distance to which is penalised; zero if None.
    """
    count, sums = 0, None
    for features, targets in blocks:
        if features.shape[1] > LARGEST:
            return None
        # Products in the precision of the features, which have no more digits; sums in double precision.
        targets = targets.to(features)
        parts = (features.mT @ features, features.mT @ targets, features.double().sum(0), targets.double().sum(0))
        sums = [part.double() + (0.0 if sums is None else sums[i]) for i, part in enumerate(parts)]
        count += len(features)
    if sums is None or not count:
        return None
    mean, goal = sums[2] / count, sums[3] / count
    second = sums[0] - count * torch.outer(mean, mean)
    cross = sums[1] - count * torch.outer(mean, goal)
    known = 0.0 if toward is None else toward.to(second).mT
    if toward is not None:
        cross = cross - second @ known
    fits: list[tuple[Tensor, Tensor]] = []
    for ridge in ridges or (RIDGES if len(mean) <= _MANY_FEATURES else _FEW_RIDGES):
        shifted = second.clone()
        shifted.diagonal().add_(ridge * second.diagonal().mean().clamp(min=1e-300))
        factor, info = torch.linalg.cholesky_ex(shifted)
        if int(info) == 0:
            weights = (torch.cholesky_solve(cross, factor) + known).mT
            fits.append((weights, goal - weights @ mean))
    errors = torch.zeros(len(fits), dtype=torch.float64)
    for features, targets in validation:
        for number, (weights, bias) in enumerate(fits):
            outputs = torch.addmm(bias.to(features), features, weights.to(features).mT)
            errors[number] += float((outputs - targets).double().square().sum())
    if not fits or not bool(torch.isfinite(errors).any()):
        return None
    return LinearFit(*fits[int(errors.nan_to_num(torch.inf).argmin())], second / count, mean)


__all__ = ["LARGEST", "RIDGES", "LinearFit", "fit_linear"]
