"""Networks in PyTorch: deep equilibrium models that train, their explicit twins, and the kernels of both."""

from notsodeep.extras import needed

needed("torch", "A network that trains (notsodeep.nets)")

from notsodeep.nets.default_learning_rate import default_lr
from notsodeep.nets.distillation import distill
from notsodeep.nets.distilled import Candidate, Distilled
from notsodeep.nets.empirical import EmpiricalKernels, empirical_kernels
from notsodeep.nets.equilibrium_net import EquilibriumNet
from notsodeep.nets.feedforward_net import FeedforwardNet
from notsodeep.nets.fidelity import Fidelity
from notsodeep.nets.fixed_point_solvers import SolveReport, SolverOptions
from notsodeep.nets.guard import Guarded, guarded
from notsodeep.nets.history import Epoch, History
from notsodeep.nets.modules import Net
from notsodeep.nets.networks import ConvDEQNet, ConvExplicitNet, DEQNet, ExplicitNet
from notsodeep.nets.race import Race, RaceSettings, Standing, race
from notsodeep.nets.samples import compute_features
from notsodeep.nets.students import StepsNet
from notsodeep.nets.training import fit
from notsodeep.nets.twins import Twin, TwinEvidence, explicit_twin

__all__ = [
    "Candidate",
    "ConvDEQNet",
    "ConvExplicitNet",
    "DEQNet",
    "Distilled",
    "EmpiricalKernels",
    "Epoch",
    "EquilibriumNet",
    "ExplicitNet",
    "FeedforwardNet",
    "Fidelity",
    "Guarded",
    "History",
    "Net",
    "Race",
    "RaceSettings",
    "SolveReport",
    "SolverOptions",
    "Standing",
    "StepsNet",
    "Twin",
    "TwinEvidence",
    "compute_features",
    "default_lr",
    "distill",
    "empirical_kernels",
    "explicit_twin",
    "fit",
    "guarded",
    "race",
]
