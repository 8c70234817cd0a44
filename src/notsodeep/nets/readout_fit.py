"""Linear maps of features that fit given values best, in closed form, from features that are never held all at once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

# Ridges to choose from, relative to the mean square of a feature; fewer of them where each one costs seconds.
RIDGES = tuple(10.0**power for power in range(-9, 1))
_FEW_RIDGES, _MANY_FEATURES = RIDGES[1::2], 1024
# Samples whose features are multiplied at once: adding up second moments takes long beside the products of few.
_BLOCK = 2048
# Features beyond which there is no closed form: it would take a minute and more than half a gigabyte.
LARGEST = 4096

# Features and wanted values of some observations, block by block.
Blocks = Iterable[tuple[Tensor, Tensor]]


@dataclass(frozen=True)
class LinearFit:
    """Values ≈ weights · features + bias, and what it was found from; all in double precision.

    Attributes:
        weights: (values, features).
        bias: (values,).
        covariance: of the features over the observations, (features, features).
        mean: of the features.
        error: mean squared error on the observations that chose the ridge.
    """

    weights: Tensor
    bias: Tensor
    covariance: Tensor
    mean: Tensor
    error: float


@torch.no_grad()
def fit_linear(
    blocks: Blocks, others: Blocks, ridges: Sequence[float] | None = None, toward: Tensor | None = None
) -> LinearFit | None:
    """Ridge regression, the constant not penalised; None if there are too many features for their second moment.

    Beside matrices of features × features nothing grows with the number of observations.

    Args:
        blocks: features and values to fit to.
        others: features and values by which the ridge is chosen.
        ridges: to choose from, relative to the mean square of a feature; ten powers of ten if not given.
        toward: weights, the distance to which is penalised; zero if not given.
    """
    sums: _Sums | None = None
    for features, values in blocks:
        if features.shape[1] > LARGEST:
            return None
        sums = sums or _Sums.empty(features, values)
        sums.add(features, values.to(features))
    if sums is None or not sums.count:
        return None
    if ridges is None:
        ridges = RIDGES if len(sums.first) <= _MANY_FEATURES else _FEW_RIDGES
    fits = list(sums.solutions(ridges, toward))
    errors, count = torch.zeros(len(fits), dtype=torch.float64), 0
    for features, values in others:
        count += values.numel()
        for number, (weights, bias) in enumerate(fits):
            found = torch.addmm(bias.to(features), features, weights.to(features).mT)
            errors[number] += float((found - values).double().square().sum())
    if not fits:
        return None
    best = int(errors.argmin()) if count else 0
    second, mean = sums.centred()
    return LinearFit(*fits[best], second / sums.count, mean, float(errors[best]) / max(count, 1))


@dataclass
class _Sums:
    """Sums over observations."""

    second: Tensor
    cross: Tensor
    first: Tensor
    goal: Tensor
    count: int = 0

    @classmethod
    def empty(cls, features: Tensor, values: Tensor) -> _Sums:
        width, outputs = features.shape[1], values.shape[1]
        place: dict[str, Any] = {"dtype": torch.float64, "device": features.device}
        return cls(
            torch.zeros(width, width, **place),
            torch.zeros(width, outputs, **place),
            torch.zeros(width, **place),
            torch.zeros(outputs, **place),
        )

    def add(self, features: Tensor, values: Tensor) -> None:
        # Products of a block in the precision of its features, which have no more digits; sums in double precision.
        self.second += features.mT @ features
        self.cross += features.mT @ values
        self.first += features.double().sum(0)
        self.goal += values.double().sum(0)
        self.count += len(features)

    def centred(self) -> tuple[Tensor, Tensor]:
        """The second moment around the mean, and the mean."""
        mean = self.first / self.count
        return self.second - self.count * torch.outer(mean, mean), mean

    def solutions(self, ridges: Sequence[float], toward: Tensor | None) -> Iterator[tuple[Tensor, Tensor]]:
        """Weights and bias for every ridge that is large enough."""
        second, mean = self.centred()
        goal = self.goal / self.count
        cross = self.cross - torch.outer(mean, self.goal)
        known = 0.0 if toward is None else toward.to(second).mT
        if toward is not None:  # what they leave is fitted, and added to them
            cross = cross - second @ known
        for ridge in ridges:
            shifted = second.clone()
            shifted.diagonal().add_(ridge * second.diagonal().mean().clamp(min=1e-300))
            factor, info = torch.linalg.cholesky_ex(shifted)
            if int(info) == 0:
                weights = (torch.cholesky_solve(cross, factor) + known).mT
                yield weights, goal - weights @ mean


def fit_readout(
    features: Callable[[Tensor], Tensor],
    rows: tuple[Tensor, Tensor],
    others: tuple[Tensor, Tensor],
    batch: int,
    toward: Tensor | None = None,
) -> LinearFit | None:
    """The best linear readout of features; None if there are too many of them.

    Args:
        features: of samples.
        rows: samples and wanted outputs to fit to.
        others: samples and wanted outputs by which the ridge is chosen.
        batch: samples at a time.
        toward: a readout that is corrected; the less, the larger the ridge.
    """
    with torch.no_grad():
        blocks, judges = (_featured(features, *part, batch) for part in (rows, others))
        return fit_linear(blocks, judges, toward=toward)


def _featured(features: Callable[[Tensor], Tensor], X: Tensor, Y: Tensor, batch: int) -> Blocks:
    for part in torch.split(torch.arange(len(X)), max(batch, _BLOCK)):
        rows = slice(int(part[0]), int(part[-1]) + 1)
        yield torch.cat([features(few) for few in torch.split(X[rows], batch)]), Y[rows]


__all__ = ["LARGEST", "RIDGES", "LinearFit", "fit_linear", "fit_readout"]
