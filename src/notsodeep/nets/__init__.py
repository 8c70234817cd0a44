"""Networks in PyTorch: deep equilibrium models that train, their explicit twins, and the kernels of both."""

from notsodeep.nets.modules import DEQNet, ExplicitNet, Net
from notsodeep.nets.solvers import SolveReport, SolverOptions

__all__ = ["DEQNet", "ExplicitNet", "Net", "SolveReport", "SolverOptions"]
