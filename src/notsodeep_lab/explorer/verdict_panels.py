"""Panels of the first screen (the verdict, its reason, three figures) and of the learning curves."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import streamlit as st

from notsodeep_lab.explorer.choice import FORMULA, MODES, Choice
from notsodeep_lab.explorer.computations import fits_rows, samples_for, samples_of
from notsodeep_lab.explorer.first_screen import (
    comparison_of,
    curves_of,
    part_of,
    start_curves,
    times_of,
    verdict_of,
)
from notsodeep_lab.explorer.page_errors import errors_on_page
from notsodeep_lab.explorer.page_panels import show_picture
from notsodeep_lab.explorer.recipes import next_command, on_short_lines
from notsodeep_lab.explorer.words import plain
from notsodeep_lab.plots.row_selection import words

if TYPE_CHECKING:
    from streamlit.delta_generator import DeltaGenerator

    from notsodeep.learning import Comparison, LearningCurve
    from notsodeep.verdicts import Verdict

_TRAINED = {"readout": "only the readout trained", "all": "all weights trained"}
_NO_LABELS = (
    "Add labels to see learning curves: choose digits or two Gaussian classes, or name a label column."
)


def show_first_screen(choice: Choice) -> None:
    """Show the verdict, the activations, predicted learning curves, and the time of a call."""
    start_curves(choice)
    answer, measured = st.columns([3, 2], gap="large")
    pictures = st.columns(3, gap="medium")
    with errors_on_page(pictures[0]):
        pictures[0].subheader("The activations", anchor=False)
        show_picture(pictures[0], "activations", choice)
    with errors_on_page(answer):
        _show_verdict(answer, measured, choice, verdict_of(choice))
    with errors_on_page(pictures[2]):
        pictures[2].subheader("The time of a call", anchor=False)
        times_of(choice)
        show_picture(pictures[2], "times", choice)
    with errors_on_page(pictures[1]):
        pictures[1].subheader("The learning curve", anchor=False)
        _show_curves(pictures[1], choice)


def _show_verdict(place: DeltaGenerator, beside: DeltaGenerator, choice: Choice, verdict: Verdict) -> None:
    place.subheader("Can a few explicit layers replace the DEQ?", anchor=False)
    box = {"replace": place.success, "keep": place.warning, "unsure": place.info}[verdict.answer]
    icon = {"replace": "check_circle", "keep": "cancel", "unsure": "help"}[verdict.answer]
    answer = {"replace": "Yes", "keep": "No", "unsure": "Unsure"}[verdict.answer]
    box(f"**{answer}.** {plain(verdict.reason)}", icon=f":material/{icon}:")
    place.markdown("Next step:")
    place.code(on_short_lines(next_command(choice, verdict.answer)), language="bash", wrap_lines=True)
    beside.subheader("Measurements", anchor=False)
    beside.markdown("\n".join(f"- {plain(line.strip())}" for line in verdict.explain().splitlines()[1:]))
    beside.caption(plain(_basis(choice)))


def _basis(choice: Choice) -> str:
    """Describe what the verdict is based on."""
    part = part_of(choice)
    basis = (
        f"Based on {part.words}, for networks of {choice.units} {'channels' if choice.images else 'units'} with "
        f"{_TRAINED[MODES[choice.kernel]]}."
    )
    if choice.images:
        basis += f" {samples_for(choice).notes[-1]}"
    elif choice.activation == FORMULA and not fits_rows(choice):
        basis += " The twin of a typed formula is designed for the norm of the samples, not fitted to them."
    return basis


def _show_curves(place: DeltaGenerator, choice: Choice) -> bool:
    """Show the learning curves, or say that labels are missing."""
    if curves_of(choice) is None:
        place.info(_NO_LABELS, icon=":material/label_off:")
        return False
    show_picture(place, "curves", choice)
    return True


# --- learning curves ----------------------------------------------------------------------------------


def show_learning(choice: Choice) -> None:
    """Show predicted curves, the samples that each model needs for an accuracy, and a comparison of the models."""
    start_curves(choice)
    left, right = st.columns(2, gap="large")
    left.subheader("Predicted learning curves", anchor=False)
    curves = curves_of(choice)
    if not _show_curves(left, choice) or curves is None:
        return
    right.subheader("How many samples do I need?", anchor=False)
    if next(iter(curves.values())).is_classification:
        target = right.slider(
            "Target accuracy, in %", 50.0, 99.9, 95.0, 0.1, key="target_accuracy",
            help="The table has the number of samples at which each curve reaches this accuracy.",
        )  # fmt: skip
        right.table(needed_rows(curves, target / 100.0), width="stretch")
    compared = comparison_of(choice)
    if compared is not None:
        right.markdown(plain(compared.verdict))
        right.table(compared_rows(compared), width="stretch")
    law = samples_of(choice.data).law
    source = "the distribution of the classes, without samples" if law else part_of(choice).words
    right.caption(
        plain(
            f"Curves: predicted from {source}. Lower table: leave-one-out on {part_of(choice).words}, each model with "
            "its best ridge; the last column is the difference from the first model with its standard error."
        )
    )


def samples_needed(curve: LearningCurve, target: float) -> str:
    """Return the number of training samples at which a curve reaches an accuracy, interpolated in log n."""
    reached = np.flatnonzero(np.asarray(curve.accuracy) >= target)
    if not len(reached):
        return f"more than {curve.n[-1]}"
    place = int(reached[0])
    if place == 0:
        return f"at most {curve.n[0]}"
    low, high = curve.accuracy[place - 1], curve.accuracy[place]
    share = (target - low) / (high - low)
    logs = np.log(curve.n[place - 1 : place + 1])
    # Two digits: the prediction is not more precise.
    return f"{int(float(f'{np.exp(logs[0] + share * (logs[1] - logs[0])):.2g}'))}"


def needed_rows(curves: dict[str, LearningCurve], target: float) -> dict[str, list[str]]:
    """Return the table of the samples needed as columns of text."""
    return {
        "model": [words(name) for name in curves],
        "samples needed": [samples_needed(curve, target) for curve in curves.values()],
    }


def compared_rows(comparison: Comparison) -> dict[str, list[str]]:
    """Return the table of the comparison as columns of text."""
    is_regression = bool(np.isnan(comparison.accuracy[0]))
    figures = comparison.mse if is_regression else comparison.accuracy
    return {
        "model": [words(name) for name in comparison.names],
        "error" if is_regression else "accuracy": [
            f"{value:.3g}" if is_regression else f"{value:.1%}" for value in figures
        ],
        "difference": [
            f"{gap:.1%} ± {error:.1%}"
            for gap, error in zip(comparison.behind, comparison.uncertainty, strict=True)
        ],
    }
