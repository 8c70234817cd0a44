"""The two kinds of model, as frozen specifications that carry every number (docs/theory.md, section 1)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import repeat
from typing import Any

import numpy as np
from numpy.typing import NDArray

from notsodeep.errors import ConvergenceError, InputError
from notsodeep.gaussian.activations import Activation, activation
from notsodeep.gaussian.moments import mean_derivative, second_moment
from notsodeep.gaussian.serial import activation_from_dict, activation_to_dict, mapping, number
from notsodeep.gaussian.variance import solve_variance
from notsodeep.validation import as_variance

# How an activation is written where a model is: by default so that it can be read again.
Write = Callable[[Activation], dict[str, Any]]
Array = NDArray[np.float64]

_VARIANCES = ("sigma_a2", "sigma_b2", "bias2")
# Layers that are followed, and the growth that is, where variances have no limit.
_LAYERS, _LIMITLESS = 100, 1e6


@dataclass(frozen=True, init=False)
class DEQ:
    """A deep equilibrium model z = φ(σ_a A z + σ_b B x + bias)/√m, (1.1).

    Args:
        activation: φ, by name or as an Activation.
        sigma_a2: variance of the recurrent weights.
        sigma_b2: variance of the input weights; 1 - sigma_a2 if not given.
        bias2: variance of the bias.
    """

    activation: Activation
    sigma_a2: float
    sigma_b2: float
    bias2: float

    def __init__(
        self, activation: str | Activation, sigma_a2: float, sigma_b2: float | None = None, bias2: float = 0.0
    ) -> None:
        recurrent = as_variance(sigma_a2, "sigma_a2")
        if sigma_b2 is None and recurrent > 1.0:
            raise InputError(
                f"sigma_a2 = {recurrent} leaves nothing for 1 - sigma_a2: give sigma_b2 as well."
            )
        given = 1.0 - recurrent if sigma_b2 is None else as_variance(sigma_b2, "sigma_b2")
        object.__setattr__(self, "activation", _resolve(activation))
        object.__setattr__(self, "sigma_a2", recurrent)
        object.__setattr__(self, "sigma_b2", given)
        object.__setattr__(self, "bias2", as_variance(bias2, "bias2"))

    def centred(self, tau0: float) -> DEQ:
        """The same DEQ with φ shifted so that E[φ(τ_* ξ)] = 0, where τ_* belongs to inputs of norm tau0, (2.11)."""
        q = self.preactivation_variance(tau0, centred=True)
        return replace_activation(
            self, self.activation.shifted(-float(mean_derivative(self.activation, q, 0)))
        )

    def preactivation_variance(self, tau0: float, *, centred: bool = False) -> float:
        """q = τ_*² for inputs of norm tau0, (3.4); with `centred`, as it is after centring, (2.11)."""
        forcing = self.sigma_b2 * as_tau(tau0) ** 2 + self.bias2
        return float(solve_variance(self.activation, self.sigma_a2, forcing, centred=centred).q)

    @property
    def activations(self) -> tuple[Activation, ...]:
        """φ alone."""
        return (self.activation,)

    def to_dict(self, write: Write = activation_to_dict) -> dict[str, Any]:
        """The whole model as plain JSON values, from which `model_from_dict` makes it again.

        Raises:
            InputError: for a custom callable, unless `write` knows what to do with it.
        """
        # + 0.0 turns -0.0 into 0.0: equal models have equal texts.
        variances = {name: getattr(self, name) + 0.0 for name in _VARIANCES}
        return {"kind": "deq", "activation": write(self.activation), **variances}

    def largest_variance(self, norm: float) -> float:
        """The largest variance of a pre-activation, over all layers and all inputs of norms up to `norm`.

        Where the variance has no limit, which a network of finite depth can do without: as far as it can be followed.
        """
        forcing = self.sigma_b2 * _norms_up_to(norm) ** 2 + self.bias2
        try:
            limit = solve_variance(self.activation, self.sigma_a2, forcing).q
            return float(np.maximum(limit, forcing).max())
        except (ConvergenceError, InputError):
            layer = _weighted(self.activation, self.sigma_a2, forcing)
            return _largest_variance(forcing, repeat(layer, _LAYERS))

    def __str__(self) -> str:
        bias = f", bias2={self.bias2:g}" if self.bias2 else ""
        return f"DEQ({self.activation}, sigma_a2={self.sigma_a2:g}, sigma_b2={self.sigma_b2:g}{bias})"


def replace_activation(deq: DEQ, phi: Activation) -> DEQ:
    """The same variances with another activation."""
    return DEQ(phi, deq.sigma_a2, deq.sigma_b2, deq.bias2)


@dataclass(frozen=True, init=False)
class Explicit:
    """A feed-forward network x^(l) = σ_l(W_l x^(l-1))/√m_l with the given hidden layers, (1.4)."""

    layers: tuple[Activation, ...]

    def __init__(self, layers: Iterable[str | Activation]) -> None:
        if isinstance(layers, str | Activation):
            raise InputError(
                "Explicit takes a list of layers: Explicit(['relu', 'relu']), or Explicit(['relu']) for one."
            )
        resolved = tuple(_resolve(layer) for layer in layers)
        if not resolved:
            raise InputError("Explicit needs at least one hidden layer.")
        object.__setattr__(self, "layers", resolved)

    def centred(self, tau0: float) -> Explicit:
        """Each layer shifted so that its output has mean zero at the scale of its own input."""
        q, centred = as_tau(tau0) ** 2, []
        for layer in self.layers:
            shifted = layer.shifted(-float(mean_derivative(layer, q, 0)))
            centred.append(shifted)
            q = float(second_moment(shifted, q))
        return Explicit(centred)

    @property
    def activations(self) -> tuple[Activation, ...]:
        """Those of the layers, in order."""
        return self.layers

    def to_dict(self, write: Write = activation_to_dict) -> dict[str, Any]:
        """The whole network as plain JSON values, from which `model_from_dict` makes it again.

        Raises:
            InputError: for a custom callable, unless `write` knows what to do with it.
        """
        return {"kind": "explicit", "layers": [write(layer) for layer in self.layers]}

    def largest_variance(self, norm: float) -> float:
        """The largest variance of a pre-activation, over all layers and all inputs of norms up to `norm`."""
        layers = [_weighted(layer, 1.0, 0.0) for layer in self.layers[:-1]]
        return _largest_variance(_norms_up_to(norm) ** 2, layers)

    def __str__(self) -> str:
        return f"Explicit([{', '.join(str(layer) for layer in self.layers)}])"


def model_from_dict(data: Any) -> DEQ | Explicit:
    """The model that its `to_dict` wrote down."""
    kind = mapping(data, "a model").get("kind")
    if kind == "explicit":
        return network_from_list(mapping(data, "a model", ("kind", "layers"))["layers"])
    if kind != "deq":
        raise InputError(f"A stored model is of kind 'deq' or 'explicit', not {kind!r}.")
    entry = mapping(data, "a model", ("kind", "activation", *_VARIANCES))
    variances = (number(entry[key], key) for key in _VARIANCES)
    return DEQ(activation_from_dict(entry["activation"]), *variances)


def network_from_list(data: Any) -> Explicit:
    """An explicit network from the list of its layers, each as `activation_to_dict` writes it."""
    if not isinstance(data, list):
        raise InputError(f"The layers of a network must be a list, not {type(data).__name__}.")
    return Explicit([activation_from_dict(layer) for layer in data])


def as_tau(tau0: float) -> float:
    """The norm of a typical input: a finite positive number."""
    value = float(tau0)
    if not np.isfinite(value) or value <= 0:
        raise InputError(
            f"tau0 is the root of a variance (the norm of a typical row) and must be positive; got {tau0}."
        )
    return value


def _norms_up_to(norm: float) -> Array:
    """Zero and some norms up to the largest: a smaller input can have the larger variance in a later layer."""
    return norm * np.concatenate([[0.0], np.geomspace(1e-4, 1.0, 9)])


def _weighted(phi: Activation, weight: float, forcing: Any) -> Callable[[Array], Array]:
    """From the variances before φ to those before the next activation: weight · S(q) + forcing."""
    return lambda q: np.asarray(weight * second_moment(phi, q) + forcing)


def _largest_variance(q: Array, layers: Iterable[Callable[[Array], Array]]) -> float:
    """The largest variance on the way through the layers, as far as it can be computed."""
    largest, limit = float(q.max()), _LIMITLESS * (1.0 + float(q.max()))
    for layer in layers:
        try:
            q = layer(q)
        except InputError:
            # A callable that overflows: kernels say so.
            break
        largest = max(largest, float(q.max()))
        if not largest <= limit:
            break
    return min(largest, limit)


def _resolve(name: str | Activation) -> Activation:
    if isinstance(name, str | Activation):
        return activation(name)
    raise InputError(
        f"An activation is a name or an Activation, not {type(name).__name__}; see custom_activation."
    )


__all__ = ["DEQ", "Explicit", "as_tau", "model_from_dict", "network_from_list", "replace_activation"]
