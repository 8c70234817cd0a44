"""Test error before training: learning curves of kernels and of networks (docs/theory.md, section 11)."""

from notsodeep.learning.choices import Comparison, best_ridge, compare
from notsodeep.learning.curve import LearningCurve
from notsodeep.learning.descent_curve import DescentCurve, descent_curve
from notsodeep.learning.effective_ridge import RidgeError, Spectrum, effective_ridge, ridge_error
from notsodeep.learning.predictions import learning_curve

__all__ = [
    "Comparison",
    "DescentCurve",
    "LearningCurve",
    "RidgeError",
    "Spectrum",
    "best_ridge",
    "compare",
    "descent_curve",
    "effective_ridge",
    "learning_curve",
    "ridge_error",
]
