"""Exact conjugate and tangent kernels, and random networks of finite width to compare them with."""

from notsodeep.kernel_names import Kernel
from notsodeep.kernels.exact import both_kernels, conjugate_kernel, exact_kernel, tangent_kernel
from notsodeep.kernels.finite_width import random_features

__all__ = [
    "Kernel",
    "both_kernels",
    "conjugate_kernel",
    "exact_kernel",
    "random_features",
    "tangent_kernel",
]
