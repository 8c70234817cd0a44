"""Exact conjugate and tangent kernels, and finite-width networks to hold them against."""

from notsodeep.kernels.api import both_kernels, conjugate_kernel, tangent_kernel

__all__ = ["both_kernels", "conjugate_kernel", "tangent_kernel"]
