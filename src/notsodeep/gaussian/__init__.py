"""Activations, their one-dimensional Gaussian moments and bivariate expectations."""

from notsodeep.gaussian import moments
from notsodeep.gaussian.activations import Activation, activation, custom_activation

__all__ = ["Activation", "activation", "custom_activation", "moments"]
