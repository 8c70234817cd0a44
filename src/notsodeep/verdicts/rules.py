"""From findings to an answer: yes, no or uncertain, with the reason. Pure functions: all limits stand here."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from notsodeep.verdicts.findings import SURE, Closeness, Estimate, Gap, Speed, TrainedState

# The twin will do if it is behind by no more than a point of accuracy, or by a tenth of the squared error.
POINT, TENTH = 0.01, 0.10
# What is known before networks are measured, as standard deviations: kernels that agree to ALIKE leave the gap at
# infinite width at 0 ± SPREAD · limit, and networks of finite width have that gap ± SPREAD · (limit, or the gap if it
# is larger: what exact kernels tell apart, narrow networks may not).
ALIKE, SPREAD = 1e-3, 0.5
# Without labels: kernels this close behave alike on every task that leading eigenvectors decide, and kernels this far
# apart do not.
CLOSE, FAR = 0.01, 0.10
# Of images: a response from beyond the twin's reach that is large enough to decide a task.
BEYOND = 0.02
# A twin that is not at least this many times as fast is not worth the change.
FASTER = 1.2
# Of what a fit of a few steps to a part of the samples leaves missing, `distill` removes about this share: it fits to
# more of them, and other candidates.
REMOVED = 0.3


@dataclass(frozen=True)
class Decision:
    """An answer and its reason in two sentences."""

    answer: str
    reason: str


def limit_of(gap: Gap) -> float:
    """How far behind a twin may be."""
    return TENTH if gap.regression else POINT


def expected_gap(kernels: Gap, closeness: Closeness) -> Estimate:
    """The gap of networks, as exact kernels lead to expect it."""
    spread = SPREAD * limit_of(kernels)
    wide = kernels.estimate
    # Where labels show a gap, it has no say how close the kernels are.
    if closeness.twin <= ALIKE and closeness.beyond <= BEYOND and kernels.estimate.least <= limit_of(kernels):
        wide = wide.combine(Estimate(0.0, spread))
    return Estimate(wide.behind, math.hypot(wide.uncertainty, max(spread, SPREAD * abs(wide.behind))))


def gap_of(kernels: Gap, networks: Gap, closeness: Closeness) -> Estimate:
    """The gap of networks of the given width: what kernels lead to expect, and what networks have shown."""
    return expected_gap(kernels, closeness).combine(networks.estimate)


def decide_untrained(gaps: Sequence[Gap], closeness: Closeness, speed: Speed) -> Decision:
    """Whether a fresh twin, trained as the DEQ would be, will do; gaps of kernels and of networks, or none."""
    if max(speed.forward, speed.training or 0.0) < FASTER:
        return Decision(
            "no",
            f"The twin is only {speed.forward:.1f} times as fast as the DEQ on this machine. Nothing is gained by "
            "replacing it.",
        )
    if not gaps:
        return _by_kernels(closeness, speed)
    kernels, networks = gaps
    return _by_labels(kernels, networks, closeness, speed)


def _by_labels(kernels: Gap, networks: Gap, closeness: Closeness, speed: Speed) -> Decision:
    if not networks.learns:
        return _not_learnt(kernels, networks, closeness, speed)
    limit, found = limit_of(networks), gap_of(kernels, networks, closeness)
    if found.least > limit:
        # What shows the gap best stands in the reason; one of the two is behind, the other one need not be.
        behind = [gap for gap in (kernels, networks) if gap.behind > limit]
        shown = max(behind, key=lambda gap: gap.behind / max(gap.uncertainty, 1e-300))
        return Decision(
            "no",
            f"With the {shown.source} the twin is {_amount(shown)} behind the DEQ ({_figures(shown)}). "
            "These data need what the DEQ does beyond a few layers.",
        )
    give_or_take = f"give or take {SURE * networks.uncertainty:.1%}"
    if found.most > limit:
        return Decision(
            "uncertain",
            f"With the networks the twin is {_amount(networks)} behind, {give_or_take}, and with the kernels "
            f"{_amount(kernels)}: {networks.samples} samples cannot tell whether that matters. "
            "More labelled samples, or training both, will.",
        )
    if networks.estimate.most > limit:
        return Decision(
            "yes",
            f"With exact kernels, which agree to {closeness.twin:.1g}, twin and DEQ have {_figures(kernels)}; networks "
            f"of this width cannot tell them apart ({_figures(networks)}, {give_or_take}), and the twin is "
            f"{speed.forward:.1f} times as fast forward. {_about_plain((kernels, networks))}",
        )
    return Decision(
        "yes",
        f"On these samples the twin does what the DEQ does ({_figures(networks)}), {speed.forward:.1f} times as fast "
        f"forward. {_about_plain((kernels, networks))}",
    )


def _not_learnt(kernels: Gap, networks: Gap, closeness: Closeness, speed: Speed) -> Decision:
    """Labels that networks of this width do not learn say as much as none: kernels decide, if they are close."""
    learnt = (
        f"From {networks.samples} samples networks of this width do not learn these labels ({_figures(networks)}, "
        f"{'variance' if networks.regression else 'most frequent class'} {_number(networks, networks.chance)})"
    )
    apart = kernels.learns and kernels.estimate.most > limit_of(kernels)
    if apart or _by_kernels(closeness, speed).answer != "yes":
        return Decision(
            "uncertain",
            f"{learnt}. More samples may show a difference, or training that changes the features.",
        )
    return Decision(
        "yes",
        f"{learnt}, neither twin nor DEQ. Their kernels differ by {closeness.twin:.2g} up to a factor, so the twin "
        f"will do what the DEQ does, {speed.forward:.1f} times as fast forward.",
    )


def _about_plain(gaps: Sequence[Gap]) -> str:
    if all(gap.plain_estimate.most <= limit_of(gap) for gap in gaps):
        return "One plain layer would do as well."
    # Both of the gaps that stand below this sentence must show it.
    shown = all(gap.plain_behind > limit_of(gap) for gap in gaps)
    if shown and any(gap.plain_estimate.least > limit_of(gap) for gap in gaps):
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
    left = "left" if state.kernel_change > 2.0 * state.fresh_change else "not left"
    regime = (
        f"Training has {left} the kernel regime (tangent kernel changed by {state.kernel_change:.0%}, "
        f"{state.fresh_change:.0%} by its width alone)."
    )
    if state.speed < FASTER:
        return Decision(
            "no",
            f"{state.steps} of its own steps are only {state.speed:.1f} times as fast as the DEQ. {regime}",
        )
    steps = f"{state.steps} of its own steps, fitted in closed form, agree with it on {state.agreement:.1%}"
    least = 1.0 - (1.0 - state.wanted) / (1.0 - REMOVED)
    if state.agreement >= least:
        return Decision("yes", f"{steps} of the samples, {state.speed:.1f} times as fast. {regime}")
    if state.interval[1] < least:
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
