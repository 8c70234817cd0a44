"""`depth_curve`: how accurate a model is after 1, 2, 3, … steps, and how many steps a trained network needs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from notsodeep.equivalents.equivalent import kernel_distance
from notsodeep.errors import InputError
from notsodeep.extras import needed
from notsodeep.intervals import mean_interval, paired_difference, share_interval
from notsodeep.kernels import exact_kernel
from notsodeep.learning.sample_pool import Labelled, known_labels
from notsodeep.learning.trained_kernel import TrainedKernel, is_correct
from notsodeep.models import Model
from notsodeep.models.protocol import Unrollable
from notsodeep.progress import Report, reported
from notsodeep.results import Result
from notsodeep.validation import Array, IntArray, as_count, as_number, frozen, one_of


@dataclass(frozen=True, eq=False, repr=False)
class DepthCurve(Result):
    """Accuracy against the number of steps.

    Attributes:
        steps: numbers of steps in ascending order; the last one is inf, the equilibrium.
        accuracy: for each number of steps the mean of `measure`.
        interval: intervals of 95 %, shape (len(steps), 2): exact for shares (Clopper and Pearson), else normal. They
            hold for one number of steps; differences are tested sample by sample, which is more precise.
        measure: "accuracy" (share of left-out samples with the right class), "explained variance" (of left-out
            samples in a regression, or of a trained network's single output), "agreement" (share of samples on which
            the trained network chooses the same class) or "kernel similarity" (1 less the kernel error; no labels).
        scores: score of each sample, shape (len(steps), samples): 1 or 0 for shares; None without labels.
        kernel_error: distance of the kernel from that of the equilibrium, up to a factor; NaN for a trained network.
        ridge: λ at each number of steps, added to the diagonal of the kernel matrix; NaN where there is none.
        chance: accuracy without looking at the samples: the share of the most frequent class, else 0.
        kernel: which kernel; "" for a trained network.
        model: the model in words.
        source: description of the samples.
        unsolved: number of samples that are left out because a trained network does not reach its equilibrium on them.
    """

    _figure = "plot_depth_curve"
    _shown = ("steps_needed", "measure", "accuracy", "model")
    _plain = (
        "steps", "accuracy", "interval", "kernel_error", "ridge", "steps_needed", "measure", "chance", "kernel",
        "model", "source", "unsolved",
    )  # fmt: skip

    steps: Array
    accuracy: Array
    interval: Array
    measure: str
    scores: Array | None
    kernel_error: Array
    ridge: Array
    chance: float
    kernel: str
    model: str
    source: str
    unsolved: int = 0

    @property
    def steps_needed(self) -> int | float:
        """The fewest steps that are certain (95 %) to be within one point of the best; inf for the equilibrium alone.

        Certain by a paired interval over the samples, or because the kernels differ by less than 0.1 %.
        """
        # From the best number downwards: the first that fails ends it, so that a lucky one among many is not chosen.
        needed = best = self.best_place
        while needed > 0 and self._is_within_a_point(needed - 1, best):
            needed -= 1
        steps = float(self.steps[needed])
        return steps if np.isinf(steps) else int(steps)

    @property
    def best_place(self) -> int:
        """The place of the best accuracy; the most steps if several have it."""
        return int(np.flatnonzero(self.accuracy == self.accuracy.max())[-1])

    def _is_within_a_point(self, place: int, best: int) -> bool:
        alike = bool(np.max(self.kernel_error[place : best + 1]) <= ALIKE)
        if self.scores is None:
            return alike
        if alike and self.accuracy[best] - self.accuracy[place] <= POINT:
            return True
        return paired_difference(self.scores[best], self.scores[place])[1] <= POINT

    def percent(self, place: int) -> str:
        """The accuracy at one place of the curve, as text."""
        return f"{100.0 * self.accuracy[place]:.1f} %"

    def name(self, place: int) -> str:
        """The number of steps at one place of the curve, as text."""
        steps = float(self.steps[place])
        return "the equilibrium" if np.isinf(steps) else f"{steps:.0f} step{'s' * (steps > 1)}"

    def explain(self) -> str:
        """The curve as a table, and how many steps it needs."""
        kernel = f", {self.kernel}" if self.kernel else ""
        lines = [f"{self.model}{kernel}: {self.measure} by number of steps, {self.source}"]
        for place, (low, high) in enumerate(self.interval):
            band = f" ({100.0 * low:.1f} to {100.0 * high:.1f})" if low < high else ""
            lines.append(f"  {self.name(place):>15}  {self.percent(place):>7}{band}")
        return "\n".join([*lines, self._conclusion()])

    def _conclusion(self) -> str:
        needed = self.steps_needed
        if np.isinf(needed):
            return "No number of steps is certain to be within one point of the equilibrium."
        steps = "1 step is" if needed == 1 else f"{needed} steps are"
        if self.scores is None:
            return f"{steps} within 0.1 % of the equilibrium's kernel, up to a factor."
        return f"{steps} within one point of the best, with 95 % certainty."


def curve_of_scores(scores: Array, **fields: Any) -> DepthCurve:
    """A curve from what every sample scores at every number of steps."""
    intervals = [score_interval(row) for row in scores]
    return DepthCurve(
        accuracy=frozen(scores.mean(axis=1)),
        interval=frozen(np.array(intervals)),
        scores=frozen(scores),
        **fields,
    )


def score_interval(scores: Array) -> tuple[float, float]:
    """The interval of 95 % of a mean score: exact for a share, else normal."""
    if np.isin(scores, (0.0, 1.0)).all():
        return share_interval(int(scores.sum()), len(scores))
    return mean_interval(scores)


# A network replaces another one if it is at most this far behind: one point of accuracy or of explained variance.
POINT = 0.01
# Kernels that differ by no more than this, up to a factor, are the same for every task.
ALIKE = 1e-3
STEPS = (1, 2, 3, 4, 6, 8, 12, 16)
# Ridges to choose from, relative to the mean eigenvalue of the kernel matrix.
_RIDGES = 10.0 ** np.arange(-7.0, 2.0)
_FEWEST = 8


def depth_curve(
    model: Any,
    data: Any,
    steps: Sequence[int] = STEPS,
    kernel: str = "ck",
    ridge: float | None = None,
    *,
    intercept: bool = True,
    seed: int = 0,
    progress: bool | Report = True,
) -> DepthCurve:
    """Predict the accuracy of a model cut after k steps, or measure how many steps a trained network needs.

    For a model, every sample is left out in turn and predicted by ridge regression with the exact kernel of the k-step
    network, in closed form; nothing is trained. All steps share their weights and start from z = 0: step 1 is
    φ(σ_b B x). For a trained network, the readout of its k-step state is refitted on half of the samples, and its
    answers are compared with those at the equilibrium on the other half.

    Args:
        model: a DEQ, ConvDEQ or GraphDEQ, or any model with `unrolled(k)`; or a trained DEQNet or ConvDEQNet.
        data: for a model (X, y), or X alone to compare kernels without labels; for a network X. Whole numbers and
            words are classes, other numbers targets of a regression. Nodes of a graph without a label have None or NaN.
        steps: numbers of steps; the equilibrium is added.
        kernel: "ck" if the readout will be trained, "ntk" if all weights will be; for a model.
        ridge: λ, added to the diagonal of the kernel matrix; if None, for each number of steps the best one of nine
            powers of ten times the mean eigenvalue, chosen by leaving samples out. For a model.
        intercept: fit a bias of the readout, which is not penalised; for a model.
        seed: seed of the split; for a network.
        progress: a bar on a terminal after two seconds; False for none, or a function.

    Raises:
        InputError: for input that cannot be used.
        ConvergenceError: if the model has no equilibrium on some sample, or the network on more than 5 % of them; fewer
            are left out, and `unsolved` is their number.
    """
    numbers = sorted({as_count(one, "steps") for one in steps})
    if not numbers:
        raise InputError("steps is empty; give numbers of steps such as [1, 2, 4, 8].")
    if isinstance(data, tuple) and len(data) != 2:
        raise InputError(f"data must be (X, y), or X alone; got a tuple of {len(data)} entries.")
    X, y = data if isinstance(data, tuple) else (data, None)
    with reported(progress, "depth curve") as report:
        if isinstance(model, Unrollable) and isinstance(model, Model):
            return model_curve(model, X, y, numbers, kernel, ridge, report, intercept=intercept)
        needed("torch", "The depth curve of a trained network")
        from notsodeep.verdicts.trained_curve import network_scores

        return curve_of_scores(**network_scores(model, X, numbers, seed, report))


def model_curve(
    model: Any,
    X: Any,
    y: Any,
    steps: Sequence[int],
    kernel: str,
    ridge: float | None,
    report: Report,
    *,
    intercept: bool,
) -> DepthCurve:
    """The curve of a model on samples, with or without labels."""
    one_of(kernel, ("ck", "ntk"), "kernel")
    samples = model.check_samples(X)
    data = None if y is None else labelled_samples(model, y, len(samples))
    whole = exact_kernel(model, samples, kernel=kernel)
    errors, scores, ridges = [], [], []
    for number, count in enumerate((*steps, None)):
        report(number, len(steps) + 1, partial("{} steps".format, count))
        cut = whole if count is None else exact_kernel(model.unrolled(count), samples, kernel=kernel)
        errors.append(kernel_distance(whole, cut).up_to_factor)
        if data is not None:
            score, best = left_out_scores(cut, *data, ridge, intercept=intercept)
            scores.append(score)
            ridges.append(best)
    words = f"{len(samples)} samples" if data is None else f"{len(data[0])} labelled samples"
    shared: dict[str, Any] = {
        "steps": frozen(np.array([*steps, np.inf])),
        "kernel_error": frozen(np.array(errors)),
        "kernel": kernel,
        "model": str(model),
        "source": words,
    }
    if data is None:
        similarity = 1.0 - np.array(errors)
        return DepthCurve(
            accuracy=frozen(similarity),
            interval=frozen(np.stack([similarity, similarity], axis=1)),
            measure="kernel similarity",
            scores=None,
            ridge=frozen(np.full(len(errors), np.nan)),
            chance=0.0,
            **shared,
        )
    codes = data[1].codes
    return curve_of_scores(
        np.array(scores),
        measure="explained variance" if codes is None else "accuracy",
        ridge=frozen(np.array(ridges)),
        chance=0.0 if codes is None else float(np.bincount(codes).max() / len(codes)),
        **shared,
    )


def labelled_samples(model: Any, y: Any, n: int) -> tuple[IntArray, Labelled]:
    """The places of the labelled samples, and their targets; only nodes of a graph may have no label."""
    labels, places = known_labels(model, y, n)
    if len(places) < _FEWEST:
        raise InputError(f"{len(places)} labelled samples are too few: {_FEWEST} or more are needed.")
    return places, Labelled.of(labels, len(places))


def left_out_scores(
    kernel: Array, places: IntArray, labelled: Labelled, ridge: float | None, *, intercept: bool
) -> tuple[Array, float]:
    """What each labelled sample scores when it is left out, docs/theory.md (11.15), and the ridge.

    1 or 0 for its class; in a regression 1 less its squared error over the variance of the targets.
    """
    part = kernel if len(places) == len(kernel) else kernel[np.ix_(places, places)]
    trained = TrainedKernel.of(part, labelled.targets, intercept=intercept)
    ridges = float(trained.values.mean()) * _RIDGES
    if ridge is not None:
        ridges = np.array([as_number(ridge, "ridge", positive=True)])
    residuals = trained.left_out_residuals(ridges)
    squares = np.mean(residuals**2, axis=2)
    if labelled.codes is None:
        best = int(np.argmin(squares.mean(axis=1)))
        return 1.0 - squares[best] / float(labelled.targets.var(axis=0).mean()), float(ridges[best])
    right = is_correct(labelled.targets - residuals, labelled.codes).astype(np.float64)
    # The most accurate; where several are, the one with the least squared error.
    best = int(np.lexsort((squares.mean(axis=1), -right.mean(axis=1)))[0])
    return right[best], float(ridges[best])
