"""Experiments: figures and tables of the papers as specifications that can be run again, and go on when interrupted."""

from notsodeep.experiments.base import Expectation, Experiment, Row, Size, Task
from notsodeep.experiments.specs import Spec

__all__ = ["Expectation", "Experiment", "Row", "Size", "Spec", "Task"]
