"""Exact conjugate and tangent kernels, and finite-width networks to hold them against."""

from notsodeep.kernels.api import both_kernels, conjugate_kernel, tangent_kernel
from notsodeep.kernels.montecarlo import finite_width_kernels

__all__ = ["both_kernels", "conjugate_kernel", "finite_width_kernels", "tangent_kernel"]
