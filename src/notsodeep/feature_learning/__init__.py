"""Beyond the lazy regime: the kernel of a network after it has learned (docs/theory.md, section 14)."""

from notsodeep.feature_learning.adaptive import AdaptiveKernel, adaptive_kernel

__all__ = ["AdaptiveKernel", "adaptive_kernel"]
