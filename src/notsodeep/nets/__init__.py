"""Networks in PyTorch: deep equilibrium models that train, their explicit twins, and the kernels of both."""

from notsodeep.extras import needed

needed("torch", "A network that trains (notsodeep.nets)")

from notsodeep.nets.conv_modules import ConvDEQNet, ConvExplicitNet
from notsodeep.nets.default_learning_rate import default_lr
from notsodeep.nets.dense_modules import DEQNet, ExplicitNet
from notsodeep.nets.empirical import EmpiricalKernels, empirical_kernels
from notsodeep.nets.fixed_point_solvers import SolveReport, SolverOptions
from notsodeep.nets.history import Epoch, History
from notsodeep.nets.modules import Net
from notsodeep.nets.race import Race, RaceSettings, Standing, race
from notsodeep.nets.samples import compute_features
from notsodeep.nets.training import fit
from notsodeep.nets.twins import Evidence, Twin, explicit_twin, plain_network

__all__ = [
    "ConvDEQNet",
    "ConvExplicitNet",
    "DEQNet",
    "EmpiricalKernels",
    "Epoch",
    "Evidence",
    "ExplicitNet",
    "History",
    "Net",
    "Race",
    "RaceSettings",
    "SolveReport",
    "SolverOptions",
    "Standing",
    "Twin",
    "compute_features",
    "default_lr",
    "empirical_kernels",
    "explicit_twin",
    "fit",
    "plain_network",
    "race",
]
