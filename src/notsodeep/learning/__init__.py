"""Test error before training: learning curves of kernels and of networks (docs/theory.md, section 11)."""

from notsodeep.learning.comparison import Comparison, compare_models
from notsodeep.learning.curve import LearningCurve
from notsodeep.learning.predictions import best_ridge, learning_curve

__all__ = ["Comparison", "LearningCurve", "best_ridge", "compare_models", "learning_curve"]
