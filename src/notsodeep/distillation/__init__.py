"""Distillation: a trained network replaced by a fast explicit one that gives the same answers."""

from notsodeep.extras import needed

needed("torch", "Distillation (notsodeep.distillation)")

from notsodeep.distillation.distilled import Candidate, Distilled
from notsodeep.distillation.distiller import distill
from notsodeep.distillation.guard import Guarded, guarded
from notsodeep.distillation.student_networks import AcceleratedCell, PlainMLP, StepsNet, UnrolledCell

__all__ = [
    "AcceleratedCell",
    "Candidate",
    "Distilled",
    "Guarded",
    "PlainMLP",
    "StepsNet",
    "UnrolledCell",
    "distill",
    "guarded",
]
