"""The papers run again: experiments that can be stopped and resumed, their figures, and results beside the claims.

Everything that other rooms need is named here. Figures need matplotlib (extra `plot`) and are loaded when asked for.
"""

from __future__ import annotations

from typing import Any

from notsodeep.extras import needed
from notsodeep.papers.catalogue import EXPERIMENTS, find
from notsodeep.papers.experiment import Expectation, Experiment, Row, Size, Task
from notsodeep.papers.experiment_settings import Spec
from notsodeep.papers.results_reader import Result, read_results
from notsodeep.papers.runner import Outcome, absent_data, checked_spec, read_outcome, reproduce

__all__ = [
    "EXPERIMENTS",
    "Expectation",
    "Experiment",
    "Outcome",
    "Result",
    "Row",
    "Size",
    "Spec",
    "Task",
    "absent_data",
    "checked_spec",
    "draw",
    "find",
    "has_figure",
    "read_outcome",
    "read_results",
    "reproduce",
]

_DRAWINGS = ("draw", "has_figure")


def __getattr__(name: str) -> Any:
    if name not in _DRAWINGS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    needed("matplotlib", "The figure of an experiment (notsodeep.papers)")
    from notsodeep.papers import drawings

    return getattr(drawings, name)
