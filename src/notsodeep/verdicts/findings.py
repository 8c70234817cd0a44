"""What was measured before a verdict was given: each finding is a record of numbers that can be checked later."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

# One-sided 90 % of a normal distribution: an answer that is given should be wrong one time in ten at most.
SURE = 1.2816


@dataclass(frozen=True)
class Estimate:
    """A gap and its standard error, from all that is known about it."""

    behind: float
    uncertainty: float

    @property
    def most(self) -> float:
        """The gap is smaller than this with 90 % confidence."""
        return self.behind + SURE * self.uncertainty

    @property
    def least(self) -> float:
        """The gap is larger than this with 90 % confidence."""
        return self.behind - SURE * self.uncertainty

    def combine(self, other: Estimate) -> Estimate:
        """Two independent normal estimates of one number, weighted by their precisions."""
        share = other.uncertainty**2 / max(self.uncertainty**2 + other.uncertainty**2, 1e-300)
        return Estimate(
            share * self.behind + (1.0 - share) * other.behind, math.sqrt(share) * self.uncertainty
        )

    def is_settled(self, limit: float) -> bool:
        """Whether its band lies on one side of what is allowed."""
        return self.most <= limit or self.least > limit


@dataclass(frozen=True)
class Gap:
    """How far the twin is behind the DEQ on labelled samples, each with its own best ridge.

    Attributes:
        source: where the figures come from: "kernels" at infinite width, or "networks" that were really drawn.
        deq, twin, plain: accuracies (a regression: mean squared errors) of the DEQ, of its twin and of one plain layer.
        behind: accuracy of the DEQ less that of the twin; in a regression the twin's error over the DEQ's, less one.
        uncertainty: standard error of `behind`: all models saw the same samples.
        plain_behind: the same of the plain layer.
        plain_uncertainty: its standard error.
        chance: accuracy of always naming the most frequent class; in a regression the variance of the targets.
        regression: whether the figures are errors.
        samples: number of labelled samples.
        draws: number of networks drawn of each model; 1 for kernels.
        failed: draws that were left out because the DEQ had no equilibrium on some sample.
    """

    source: str
    deq: float
    twin: float
    plain: float
    behind: float
    uncertainty: float
    plain_behind: float
    plain_uncertainty: float
    chance: float
    regression: bool
    samples: int
    draws: int = 1
    failed: int = 0

    @property
    def estimate(self) -> Estimate:
        """How far the twin is behind, with its band."""
        return Estimate(self.behind, self.uncertainty)

    @property
    def plain_estimate(self) -> Estimate:
        """How far a plain layer is behind, with its band."""
        return Estimate(self.plain_behind, self.plain_uncertainty)

    @property
    def learns(self) -> bool:
        """Whether the DEQ does better than by chance, by more than samples alone would explain."""
        if self.regression:
            return self.deq < 0.95 * self.chance
        noise = float(np.sqrt(self.chance * (1.0 - self.chance) / self.samples))
        return self.deq > self.chance + SURE * noise

    def __str__(self) -> str:
        what = "error" if self.regression else "accuracy"
        figures = ", ".join(
            f"{name} {value:.4g}" if self.regression else f"{name} {value:.1%}"
            for name, value in (("DEQ", self.deq), ("twin", self.twin), ("plain layer", self.plain))
        )
        failed = (
            f" ({self.failed} of {self.draws + self.failed} draws of the DEQ had no equilibrium and were left out)"
            if self.failed
            else ""
        )
        return (
            f"predicted {what} with the {self.source}: {figures}; "
            f"the twin is behind by {self.behind:.2%} ± {SURE * self.uncertainty:.2%}{failed}"
        )


@dataclass(frozen=True)
class Closeness:
    """Distances of exact kernels from that of the DEQ, each with its best factor, on samples it was not fitted to.

    Attributes:
        kernel: which kernel.
        twin: of the designed network.
        plain: of one plain layer of the DEQ's own activation.
        beyond: of models of images: the share of the DEQ's response to a pixel that comes from further away than the
            twin's layers reach; 0 for rows.
        samples: number of samples.
    """

    kernel: str
    twin: float
    plain: float
    beyond: float
    samples: int

    def __str__(self) -> str:
        reach = (
            f"; {self.beyond:.1%} of the response comes from beyond the twin's reach" if self.beyond else ""
        )
        return (
            f"{self.kernel.upper()} kernels, up to a factor: twin {self.twin:.2g}, plain layer {self.plain:.2g} "
            f"away on {self.samples} samples{reach}"
        )


@dataclass(frozen=True)
class Speed:
    """Times of the DEQ over those of the twin on this machine.

    Attributes:
        forward: outputs of one batch.
        training: outputs, loss and gradient; None where only the readout is trained.
        batch: samples in the batch.
        width: units (for images channels) of both networks.
    """

    forward: float
    training: float | None
    batch: int
    width: int

    def __str__(self) -> str:
        backward = f", {self.training:.1f} times in training" if self.training is not None else ""
        return f"the twin is {self.forward:.1f} times as fast forward{backward} (width {self.width})"


@dataclass(frozen=True)
class TrainedState:
    """A trained DEQ: how far training has left the kernel regime, and how few of its own steps give its answers.

    Attributes:
        kernel_change: distance of its tangent kernel from that of the untrained model, up to a factor.
        fresh_change: the same of a freshly drawn network of this width: what finite width alone does.
        tangent_share: share of the variance of its outputs, on samples left out, that a regression with the untrained
            tangent kernel explains.
        steps: number of steps of the candidate below: the fewest that surely agree as wanted, or the most faithful.
        agreement: share of samples on which that many of its own steps, with a readout fitted in closed form to other
            samples, choose the same class as the DEQ; for a single output the share of variance explained.
        interval: below and above which this share is with 10 % probability each; for a single output the share itself.
        cut_agreement: the same of the DEQ simply cut there.
        needed: steps after which the cut DEQ agrees on as many samples as are wanted; None if more than were tried.
        contraction: how much of the distance to the equilibrium a step leaves, measured on these samples.
        speed: time of the DEQ over that of the candidate.
        samples: number of samples on which the agreement was measured.
        wanted: the share of samples on which the replacement should agree.
    """

    kernel_change: float
    fresh_change: float
    tangent_share: float
    steps: int
    agreement: float
    interval: tuple[float, float]
    cut_agreement: float
    needed: int | None
    contraction: float
    speed: float
    samples: int
    wanted: float

    def __str__(self) -> str:
        return (
            f"training changed the tangent kernel by {self.kernel_change:.0%} (a fresh network of this width: "
            f"{self.fresh_change:.0%}), and the untrained one explains {max(self.tangent_share, 0.0):.0%} of the "
            "outputs; "
            f"{self.steps} of its own steps agree with it on {self.agreement:.1%} of {self.samples} samples "
            f"({self.cut_agreement:.1%} if it is simply cut), {self.speed:.1f} times as fast; "
            f"a step leaves {self.contraction:.2f} of the distance to the equilibrium"
        )


def finite(value: float) -> float | None:
    """A number as JSON has it: None for one that is not finite."""
    return float(value) if np.isfinite(value) else None
