"""All rules of the verdict: from a depth curve, or from a distillation, to "replace", "keep" or "unsure".

A statement is called certain if a one-sided bound of 95 % confirms it, the rule by which `distill` chooses. Here
`curve` is a `DepthCurve` and `ordinary` an `OrdinaryNetwork` or None, of modules that import this one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from notsodeep.intervals import mean_interval, paired_difference, share_interval
from notsodeep.validation import Array

if TYPE_CHECKING:
    from notsodeep.distillation import Distilled

# A network replaces another one if it is at most this far behind: one point of accuracy or of explained variance.
POINT = 0.01
# The largest number of steps that counts as a few explicit layers.
FEW = 4
# Kernels that differ by no more than this, up to a factor, are the same for every task.
ALIKE = 1e-3
# A network that is not at least this many times as fast is not worth the change.
FASTER = 1.2


@dataclass(frozen=True)
class Decision:
    """An answer and its reason in one or two sentences."""

    answer: str
    reason: str


def reference_place(curve: Any) -> int:
    """The place of the best accuracy of a curve; the most steps if several have it."""
    return int(np.flatnonzero(curve.accuracy == curve.accuracy.max())[-1])


def steps_needed(curve: Any) -> int | float:
    """The fewest steps that are certain to be within one point of the best; inf for the equilibrium alone.

    Numbers of steps are tested from the best one downwards, and the first that fails ends it, so that a single lucky
    one among many is not chosen.
    """
    best = reference_place(curve)
    needed = best
    for place in reversed(range(best)):
        if not _is_within_a_point(curve, place, best):
            break
        needed = place
    steps = float(curve.steps[needed])
    return steps if np.isinf(steps) else int(steps)


def _is_within_a_point(curve: Any, place: int, best: int) -> bool:
    alike = bool(np.max(curve.kernel_error[place : best + 1]) <= ALIKE)
    if curve.scores is None:
        return alike
    if alike and curve.accuracy[best] - curve.accuracy[place] <= POINT:
        return True
    return paired_difference(curve.scores[best], curve.scores[place])[1] <= POINT


def decide_untrained(curve: Any, ordinary: Any, few: int = FEW) -> Decision:
    """Whether a few steps, or an ordinary network of as many layers, can replace a model before it is trained."""
    if curve.scores is None:
        return _decide_without_labels(curve, few)
    needed, best, end = curve.steps_needed, reference_place(curve), curve.percent(-1)
    scores, learnt = curve.scores, _is_learnt(curve, curve.scores[best])
    others = [] if ordinary is None else [ordinary.scores]
    if learnt and needed <= few:
        place = int(np.flatnonzero(curve.steps == needed)[0])
        beside = "" if ordinary is None else f", an ordinary {ordinary} {_percent(ordinary.accuracy)}"
        words = f"{_suffice(needed)}: {curve.measure} {curve.percent(place)}, equilibrium {end}{beside}."
        return Decision("replace", words)
    ahead = [one for one in others if paired_difference(scores[best], one)[1] <= POINT]
    if ahead and _is_learnt(curve, ahead[0]):
        words = f"{curve.measure} {_percent(float(ahead[0].mean()))}, equilibrium {end}"
        return Decision("replace", f"An ordinary {ordinary} suffices: {words}.")
    if not learnt:
        return Decision(
            "unsure",
            f"{curve.source} do not show that the labels can be predicted: {curve.percent(best)} at best, "
            f"{_percent(curve.chance)} by chance. Add labelled samples.",
        )
    shallow = int(np.argmax(np.where(curve.steps <= few, curve.accuracy, -np.inf)))
    behind = min(paired_difference(scores[best], one)[0] for one in (scores[shallow], *others))
    compared = (
        f"{curve.percent(best)} at {curve.name(best)}, {curve.percent(shallow)} at {curve.name(shallow)}"
    )
    if behind <= POINT:
        return Decision(
            "unsure",
            f"{curve.source} cannot tell whether {few} steps suffice: {compared}. Add labelled samples, or train both.",
        )
    if np.isinf(needed) and curve.accuracy[best] - curve.accuracy[-2] > POINT:
        words = f"{curve.measure.capitalize()} still rises at {curve.name(-2)}"
        return Decision("keep", f"{words}: {compared}.")
    if np.isinf(needed):
        return Decision("keep", f"More than {few} steps are needed: {curve.measure} {compared}.")
    return Decision("keep", f"{needed} steps are needed: {curve.measure} {compared}.")


def _decide_without_labels(curve: Any, few: int) -> Decision:
    if curve.steps_needed <= few:
        place = int(np.flatnonzero(curve.steps == curve.steps_needed)[0])
        return Decision(
            "replace",
            f"{_suffice(curve.steps_needed)}: kernel error {100.0 * curve.kernel_error[place]:.2g} % up to a factor. "
            "Add labels for a firmer answer.",
        )
    place = int(np.flatnonzero(curve.steps <= few)[-1])
    return Decision(
        "unsure",
        f"The kernel of {curve.steps[place]:.0f} steps differs from the equilibrium's by "
        f"{100.0 * curve.kernel_error[place]:.2g} % up to a factor. Add labels for a firmer answer.",
    )


def _is_learnt(curve: Any, scores: Array) -> bool:
    """Whether the labels are certainly predicted better than without looking at the samples."""
    if curve.measure == "accuracy":
        return bool(share_interval(int(scores.sum()), len(scores))[0] > curve.chance)
    return bool(mean_interval(scores)[0] > curve.chance)


def _percent(share: float) -> str:
    return f"{100.0 * share:.1f} %"


def _suffice(steps: float) -> str:
    return "1 step suffices" if steps == 1 else f"{steps:.0f} steps suffice"


def decide_trained(distilled: Distilled) -> Decision:
    """Whether what `distill` builds of a trained network can replace it."""
    low, high = distilled.agreement_interval
    name = distilled.name[:1].upper() + distilled.name[1:]
    built = (
        f"{name}: agrees with the network on {_percent(distilled.agreement)} of samples it has not "
        f"seen ({100.0 * low:.1f} to {100.0 * high:.1f} %), {distilled.speedup:.1f} times as fast"
    )
    if distilled.speedup < FASTER:
        return Decision("keep", f"{built}. That is too little to gain.")
    if distilled.certain:
        return Decision("replace", f"{built}.")
    target = distilled.target_agreement
    if high < target:
        return Decision("keep", f"{built}. The target is {_percent(target)}.")
    return Decision(
        "unsure",
        f"{built}. It is not certain to reach the target of {_percent(target)}: add samples, or lower it.",
    )


__all__ = [
    "FEW",
    "POINT",
    "Decision",
    "decide_trained",
    "decide_untrained",
    "reference_place",
    "steps_needed",
]
