"""Reproducing the papers: resumable experiments, their figures, and the papers' claims compared with our results.

`EXPERIMENTS` has the experiments by name, in the order of `notsodeep reproduce --list`. To add one, import its module
here and add it to `_KINDS`. Modules of experiments import torch inside `run`, so that the list is printed at once and
experiments without networks work without torch. Figures need matplotlib (extra `plot`), which is imported on demand.
"""

from __future__ import annotations

from typing import Any

from notsodeep.errors import InputError
from notsodeep.extras import needed

needed("msgspec", "An experiment (notsodeep_lab.papers)")

from notsodeep_lab.papers.aistats import Aistats1
from notsodeep_lab.papers.errata import Errata
from notsodeep_lab.papers.experiment import Expectation, Experiment, Row, Size, Task
from notsodeep_lab.papers.experiment_settings import Spec
from notsodeep_lab.papers.hld import Hld1
from notsodeep_lab.papers.iclr import Iclr1, Iclr2, Iclr3
from notsodeep_lab.papers.icml import IcmlAccuracy, IcmlError, IcmlMatching
from notsodeep_lab.papers.learned_features import LearnedFeatures
from notsodeep_lab.papers.learning_curves import LearningCurves
from notsodeep_lab.papers.loops import Loops
from notsodeep_lab.papers.neural_odes import NeuralODEs
from notsodeep_lab.papers.ours import SpectrumPrediction, Width
from notsodeep_lab.papers.results_folder import read_provenance
from notsodeep_lab.papers.runner import Outcome, absent_data, checked_spec, read_outcome, reproduce

__all__ = [
    "EXPERIMENTS",
    "Expectation",
    "Experiment",
    "Outcome",
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
    "read_provenance",
    "reproduce",
]

_DRAWINGS = ("draw", "has_figure")

_KINDS: tuple[type[Experiment[Any]], ...] = (
    Aistats1,
    Hld1,
    Iclr1,
    Iclr2,
    Iclr3,
    IcmlError,
    IcmlMatching,
    IcmlAccuracy,
    SpectrumPrediction,
    Width,
    LearningCurves,
    Loops,
    NeuralODEs,
    LearnedFeatures,
    Errata,
)
EXPERIMENTS: dict[str, Experiment[Any]] = {kind.name: kind() for kind in _KINDS}


def find(name: str) -> Experiment[Any]:
    """Return the experiment with this name."""
    if name not in EXPERIMENTS:
        raise InputError(f"Unknown experiment {name!r}. Choose one of: {', '.join(EXPERIMENTS)}.")
    return EXPERIMENTS[name]


def __getattr__(name: str) -> Any:
    if name not in _DRAWINGS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    needed("matplotlib", "The figure of an experiment (notsodeep_lab.papers)")
    from notsodeep_lab.papers import drawings

    return getattr(drawings, name)
