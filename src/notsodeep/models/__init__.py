"""Networks at infinite width as frozen specifications: the protocol, and the models that fulfil it."""

from notsodeep.models.cell_models import Equilibrium, Loop
from notsodeep.models.cell_shorthands import expression_of
from notsodeep.models.convolutional import ConvDEQ, ConvExplicit
from notsodeep.models.deq import DEQ, UnrolledDEQ
from notsodeep.models.explicit import Explicit
from notsodeep.models.graph import GraphDEQ, GraphExplicit, normalised_adjacency
from notsodeep.models.neural_ode import NeuralODE
from notsodeep.models.protocol import Model, Program, RowModel, Samples, Tile, as_model, as_tau
from notsodeep.models.stored_models import model_from_dict

__all__ = [
    "DEQ",
    "ConvDEQ",
    "ConvExplicit",
    "Equilibrium",
    "Explicit",
    "GraphDEQ",
    "GraphExplicit",
    "Loop",
    "Model",
    "NeuralODE",
    "Program",
    "RowModel",
    "Samples",
    "Tile",
    "UnrolledDEQ",
    "as_model",
    "as_tau",
    "expression_of",
    "model_from_dict",
    "normalised_adjacency",
]
