"""From findings to an answer: yes, no or uncertain, with the reason. Pure functions: all limits stand here."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from notsodeep.verdicts.findings import SURE, Closeness, Gap, Speed, TrainedState

ANSWERS = ("yes", "no", "uncertain")
# The twin will do if it is behind by no more than a point of accuracy, or by a tenth of the squared error.
POINT, TENTH = 0.01, 0.10
# Networks of one width whose kernels agree to this are expected to be alike on average, to within half of what is
# allowed: where labelled samples leave it open, this decides; where they show a gap, it has no say.
ALIKE = 1e-3
# Without labels: kernels this close behave alike on every task that leading eigenvectors decide, and kernels this far
# apart do not.
CLOSE, FAR = 0.01, 0.10
# Of images: a response from beyond the twin's reach that is large enough to decide a task.
BEYOND = 0.02
# A twin that is not at least this many times as fast is not worth the change.
FASTER = 1.2
# Of a trained DEQ, judged by at least MANY samples: fitting all weights of a few steps removes about REMOVED of the
# disagreement that the closed form leaves; where this is HOPELESS times what is allowed it does not come down to it.
# From fewer samples fits of all weights gain nothing that other samples see: the closed form decides.
MANY, REMOVED, HOPELESS = 3000, 0.35, 4.0


@dataclass(frozen=True)
class Decision:
    """An answer and its reason in two sentences."""

    answer: str
    reason: str


def limit_of(gap: Gap) -> float:
    """How far behind a twin may be."""
    return TENTH if gap.regression else POINT


def is_settled(gap: Gap) -> bool:
    """Whether the band of a gap lies on one side of what is allowed."""
    return gap.most <= limit_of(gap) or gap.least > limit_of(gap)


def is_open(gap: Gap, closeness: Closeness) -> bool:
    """Whether a gap may be larger than allowed, given the samples and how close the kernels are.

    Kernels that agree give the expectation `behind` = 0 ± limit/2, which is combined with the measured gap as two
    independent normal estimates are.
    """
    limit = limit_of(gap)
    if gap.most <= limit or closeness.twin > ALIKE or closeness.beyond > BEYOND:
        return gap.most > limit
    measured = (limit / 2.0) ** 2 / ((limit / 2.0) ** 2 + gap.uncertainty**2)
    return measured * gap.behind + SURE * math.sqrt(measured) * gap.uncertainty > limit


def decide_untrained(gaps: Sequence[Gap], closeness: Closeness, speed: Speed) -> Decision:
    """Whether a fresh twin, trained as the DEQ would be, will do."""
    if max(speed.forward, speed.training or 0.0) < FASTER:
        return Decision(
            "no",
            f"The twin is only {speed.forward:.1f} times as fast as the DEQ on this machine. Nothing is gained by "
            "replacing it.",
        )
    return _by_labels(gaps, closeness, speed) if gaps else _by_kernels(closeness, speed)


def _by_labels(gaps: Sequence[Gap], closeness: Closeness, speed: Speed) -> Decision:
    if not any(gap.learns for gap in gaps):
        return Decision(
            "uncertain",
            f"From {gaps[0].samples} samples none of the models learns these labels ({_figures(gaps[0])}, "
            f"{'variance' if gaps[0].regression else 'most frequent class'} {_number(gaps[0], gaps[0].chance)}). "
            "More samples may show a difference, or training that changes the features.",
        )
    # What does not learn is behind or ahead by chance.
    behind = [gap for gap in gaps if gap.learns and gap.least > limit_of(gap)]
    if behind:
        worst = max(behind, key=lambda gap: gap.behind / limit_of(gap))
        return Decision(
            "no",
            f"With the {worst.source} the twin is {_amount(worst)} behind the DEQ ({_figures(worst)}). "
            "These data need what the DEQ does beyond a few layers.",
        )
    open_ = [gap for gap in gaps if is_open(gap, closeness)]
    if open_:
        worst = max(open_, key=lambda gap: gap.most / limit_of(gap))
        return Decision(
            "uncertain",
            f"With the {worst.source} the twin is {_amount(worst)} behind, give or take "
            f"{(worst.most - worst.behind):.1%}: {worst.samples} samples cannot tell whether that matters. "
            "More labelled samples, or training both, will.",
        )
    widest = max(gaps, key=lambda gap: gap.most / limit_of(gap))
    if widest.most > limit_of(widest):
        return Decision(
            "yes",
            f"The kernels of twin and DEQ agree to {closeness.twin:.1g}, which decides what {widest.samples} samples "
            f"leave open ({_figures(widest)}, give or take {(widest.most - widest.behind):.1%}); the twin is "
            f"{speed.forward:.1f} times as fast forward. {_about_plain(gaps)}",
        )
    worst = max(gaps, key=lambda gap: gap.behind / limit_of(gap))
    return Decision(
        "yes",
        f"On these samples the twin does what the DEQ does ({_figures(worst)}), {speed.forward:.1f} times as fast "
        f"forward. {_about_plain(gaps)}",
    )


def _about_plain(gaps: Sequence[Gap]) -> str:
    if all(gap.plain_most <= limit_of(gap) for gap in gaps):
        return "One plain layer would do as well."
    if any(gap.plain_least > limit_of(gap) for gap in gaps):
        return "One plain layer would not do."
    return "Whether one plain layer would do as well, these samples cannot tell."


def _by_kernels(closeness: Closeness, speed: Speed) -> Decision:
    distance = f"{closeness.twin:.2g}"
    if closeness.beyond > BEYOND:
        return Decision(
            "uncertain",
            f"{closeness.beyond:.0%} of the DEQ's response to a pixel comes from further away than the twin's layers "
            "reach. Whether the task needs it only labels can tell.",
        )
    if closeness.twin <= CLOSE:
        return Decision(
            "yes",
            f"The kernels of twin and DEQ differ by {distance} up to a factor, and the twin is {speed.forward:.1f} "
            "times as fast forward. What a task needs beyond the leading eigenvectors only labels can tell.",
        )
    if closeness.twin > FAR:
        return Decision(
            "no",
            f"The kernels of twin and DEQ differ by {distance} even with the best factor. With labels the effect on "
            "accuracy can be predicted.",
        )
    return Decision(
        "uncertain",
        f"The kernels of twin and DEQ differ by {distance} up to a factor. Whether that matters depends on the task: "
        "give labels.",
    )


def decide_trained(state: TrainedState) -> Decision:
    """Whether a few of the steps of a trained DEQ, fitted to its outputs, will give its answers."""
    missing, allowed = 1.0 - state.agreement, 1.0 - state.wanted
    left = "left" if state.kernel_change > 2.0 * state.fresh_change else "not left"
    regime = f"Training has {left} the kernel regime (tangent kernel changed by {state.kernel_change:.0%})."
    if state.speed < FASTER:
        return Decision(
            "no",
            f"{state.steps} of its own steps are only {state.speed:.1f} times as fast as the DEQ. {regime}",
        )
    steps = f"{state.steps} of its own steps with a fitted readout agree with it on {state.agreement:.1%}"
    many = state.samples >= MANY
    if missing <= (allowed / (1.0 - REMOVED) if many else allowed):
        return Decision("yes", f"{steps} of the samples, {state.speed:.1f} times as fast. {regime}")
    if missing > (HOPELESS * allowed if many else allowed):
        more = "more than were tried" if state.needed is None else f"{state.needed}"
        return Decision(
            "no",
            f"{steps} of the samples, where {state.wanted:.0%} are wanted; cut, it needs {more} steps. {regime}",
        )
    return Decision(
        "uncertain",
        f"{steps} of the samples, where {state.wanted:.0%} are wanted: fitting all weights may or may not close that. "
        f"{regime}",
    )


def _amount(gap: Gap) -> str:
    return f"{gap.behind:.0%} in error" if gap.regression else f"{100.0 * gap.behind:.1f} points"


def _figures(gap: Gap) -> str:
    what = "error" if gap.regression else "accuracy"
    return f"{what} {_number(gap, gap.twin)} against {_number(gap, gap.deq)}"


def _number(gap: Gap, value: float) -> str:
    return f"{value:.3g}" if gap.regression else f"{value:.1%}"
