"""`DepthCurve`: accuracy against the number of steps."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from notsodeep.display import Shown
from notsodeep.intervals import mean_interval, share_interval
from notsodeep.validation import Array, frozen
from notsodeep.verdicts import rules


@dataclass(frozen=True, eq=False, repr=False)
class DepthCurve(Shown):
    """Accuracy against the number of steps.

    Attributes:
        steps: numbers of steps in ascending order; the last one is inf, the equilibrium.
        accuracy: for each number of steps the mean of `measure`.
        interval: intervals of 95 %, shape (len(steps), 2): exact for shares (Clopper and Pearson), else normal. They
            hold for one number of steps; differences are tested sample by sample, and are surer.
        measure: "accuracy" (share of left-out samples with the right class), "explained variance" (of left-out
            samples in a regression, or of a trained network's single output), "agreement" (share of samples on which
            the trained network chooses the same class) or "kernel similarity" (1 less the kernel error; no labels).
        scores: what each sample scores, shape (len(steps), samples): 1 or 0 for shares; None without labels.
        kernel_error: distance of the kernel from that of the equilibrium, up to a factor; NaN for a trained network.
        ridge: λ at each number of steps, added to the diagonal of the kernel matrix; NaN where there is none.
        chance: accuracy without looking at the samples: the share of the most frequent class, else 0.
        kernel: which kernel; "" for a trained network.
        model: the model in words.
        source: what was measured on, in words.
    """

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

    @property
    def steps_needed(self) -> int | float:
        """The fewest steps that are certain (95 %) to be within one point of the best; inf for the equilibrium alone.

        Certain by a paired interval over the samples, or because the kernels differ by less than 0.1 %.
        """
        return rules.steps_needed(self)

    def percent(self, place: int) -> str:
        """The accuracy at one place of the curve, as text."""
        return f"{100.0 * self.accuracy[place]:.1f} %"

    def name(self, place: int) -> str:
        """The number of steps at one place of the curve, as text."""
        steps = float(self.steps[place])
        return "the equilibrium" if np.isinf(steps) else f"{steps:.0f} step{'s' * (steps > 1)}"

    def plot(self, ax: Any = None) -> Any:
        """Draw the curve with its intervals and the number of steps needed; returns the Axes."""
        from notsodeep.figures import plot_depth_curve

        return plot_depth_curve(self, ax)

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

    def to_dict(self) -> dict[str, Any]:
        """The curve as plain JSON values; the equilibrium has null steps."""

        def plain(values: Array) -> list[Any]:
            return [None if not np.isfinite(one) else float(one) for one in values]

        return {
            "steps": [None if np.isinf(one) else int(one) for one in self.steps],
            "accuracy": plain(self.accuracy),
            "interval": self.interval.tolist(),
            "kernel_error": plain(self.kernel_error),
            "ridge": plain(self.ridge),
            "steps_needed": None if np.isinf(self.steps_needed) else self.steps_needed,
            **{name: getattr(self, name) for name in ("measure", "chance", "kernel", "model", "source")},
        }

    def __str__(self) -> str:
        return self.explain()

    def _facts(self) -> dict[str, Any]:
        return {
            "steps_needed": self.steps_needed,
            "measure": self.measure,
            "accuracy": [round(float(one), 4) for one in self.accuracy],
            "model": self.model,
        }


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


__all__ = ["DepthCurve", "curve_of_scores", "score_interval"]
