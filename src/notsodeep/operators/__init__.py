"""Kernels as operators: products, eigenvalues and linear systems without n × n numbers in memory."""

from notsodeep.operators.kernel_operator import KernelOperator

__all__ = ["KernelOperator"]
