"""Beyond the lazy regime: the kernel of a network after it has learned (docs/theory.md, section 16)."""

from notsodeep.feature_learning.adaptive import AdaptiveKernel, adaptive_kernel
from notsodeep.feature_learning.lazy_check import LazyCheck, lazy_check

__all__ = ["AdaptiveKernel", "LazyCheck", "adaptive_kernel", "lazy_check"]
