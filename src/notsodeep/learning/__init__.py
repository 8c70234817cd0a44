"""Test error before training: learning curves of kernels and of networks (docs/theory.md, section 11)."""

from notsodeep.learning.choices import Comparison, alternatives, best_ridge, compare_models, gaussian_kernel
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
    "alternatives",
    "best_ridge",
    "compare_models",
    "descent_curve",
    "effective_ridge",
    "gaussian_kernel",
    "learning_curve",
    "ridge_error",
]
