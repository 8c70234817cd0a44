"""What a design is compared with: plain layers of the model's own activation, and the model cut after a few steps."""

from __future__ import annotations

import math

from notsodeep.gaussian.moments import mean_derivative, second_moment
from notsodeep.models import DEQ, ConvDEQ, ConvExplicit, Explicit

# A mean below this fraction of the root mean square is rounding in the centring constant.
_CENTRED = 1e-8


def is_centred(model: DEQ | ConvDEQ, tau0: float) -> bool:
    """Whether the activation has mean zero at inputs of norm tau0 (of images: at every position)."""
    phi, q = model.activation, model.preactivation_variance(tau0)
    return abs(float(mean_derivative(phi, q, 0))) <= _CENTRED * math.sqrt(float(second_moment(phi, q)))


def plain_layers(model: DEQ | ConvDEQ, depth: int, tau0: float) -> Explicit | ConvExplicit:
    """The model's own activation in plain layers; centred, each at its own scale, where the model is."""
    network = model.network([model.activation] * depth)
    return network.centred(tau0) if is_centred(model, tau0) else network
