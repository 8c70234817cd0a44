"""Test error before training: learning curves of kernels and of networks (docs/theory.md, section 11)."""

from notsodeep.learning.loop_predictions import LoopCurve, loop_curve, step_kernel
from notsodeep.learning.predictions import LearningCurve, best_ridge, learning_curve

__all__ = ["LearningCurve", "LoopCurve", "best_ridge", "learning_curve", "loop_curve", "step_kernel"]
