"""Networks in PyTorch: deep equilibrium models that train, their explicit twins, and the kernels of both."""

from importlib import import_module
from typing import Any

from notsodeep.extras import needed

needed("torch", "A network that trains (notsodeep.nets)")

from notsodeep.nets.cell_net import CellNet
from notsodeep.nets.default_learning_rate import default_lr
from notsodeep.nets.empirical import EmpiricalKernels, empirical_kernels
from notsodeep.nets.equilibrium_net import EquilibriumNet
from notsodeep.nets.feedforward_net import FeedforwardNet
from notsodeep.nets.fixed_point_solvers import SolveReport, SolverOptions
from notsodeep.nets.history import Epoch, History
from notsodeep.nets.modules import Net
from notsodeep.nets.networks import ConvDEQNet, ConvExplicitNet, DEQNet, ExplicitNet, network
from notsodeep.nets.ode_net import ODENet
from notsodeep.nets.samples import compute_features
from notsodeep.nets.training import fit
from notsodeep.nets.twins import Twin, explicit_twin

__all__ = [
    "CellNet",
    "ConvDEQNet",
    "ConvExplicitNet",
    "DEQNet",
    "EmpiricalKernels",
    "Epoch",
    "EquilibriumNet",
    "ExplicitNet",
    "FeedforwardNet",
    "History",
    "Net",
    "ODENet",
    "SolveReport",
    "SolverOptions",
    "Twin",
    "compute_features",
    "default_lr",
    "empirical_kernels",
    "explicit_twin",
    "fit",
    "network",
]


def __getattr__(name: str) -> Any:
    # `nets.distill` and `nets.guarded` are public names of the room above this one, loaded when first used.
    if name in ("distill", "guarded"):
        return getattr(import_module("notsodeep.distillation"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
