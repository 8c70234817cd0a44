"""Kernels as operators: products, eigenvalues and linear systems without n × n numbers in memory."""

from notsodeep.operators.kernel_operator import KernelOperator
from notsodeep.operators.streamed_equivalent import StreamedEquivalent, mixture_statistics

__all__ = ["KernelOperator", "StreamedEquivalent", "mixture_statistics"]
