"""Which command to run after a verdict: decided here, for the command line and for the explorer."""

from __future__ import annotations

from typing import Any

import numpy as np


def command_after_verdict(
    answer: str, labels: Any, *, images: bool = False, trained: bool = False, solved: bool = True
) -> str:
    """The name of the command that goes on from a verdict.

    Args:
        answer: "replace", "keep" or "unsure".
        labels: labels of the samples; None if there are none.
        images: the model is convolutional.
        trained: a trained network was judged.
        solved: the model has an equilibrium on the samples.
    """
    if trained:
        return "distill"
    if not solved:
        return "verdict"  # with weaker feedback
    if not images and (answer == "replace" or labels is None):
        return "design"
    if labels is None:
        return "verdict"  # with labels
    if np.asarray(labels).dtype.kind == "f":
        return "kernel" if images else "predict"
    return "train"


__all__ = ["command_after_verdict"]
