"""Networks in PyTorch: deep equilibrium models that train, their explicit twins, and the kernels of both."""

from notsodeep.nets.empirical import EmpiricalKernels, empirical_kernels
from notsodeep.nets.modules import DEQNet, ExplicitNet, Net
from notsodeep.nets.solvers import SolveReport, SolverOptions
from notsodeep.nets.twins import Evidence, Twin, explicit_twin, plain_network

__all__ = [
    "DEQNet",
    "EmpiricalKernels",
    "Evidence",
    "ExplicitNet",
    "Net",
    "SolveReport",
    "SolverOptions",
    "Twin",
    "empirical_kernels",
    "explicit_twin",
    "plain_network",
]
