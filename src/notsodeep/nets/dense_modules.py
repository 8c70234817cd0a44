"""Networks of rows: the functions of docs/theory.md (1.1) and (1.4) as torch modules."""

from __future__ import annotations

from collections.abc import Sequence
from math import sqrt
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor, nn

from notsodeep.designs import as_multipliers
from notsodeep.errors import InputError
from notsodeep.models import DEQ, ConvExplicit, Explicit
from notsodeep.nets.connections import DenseConnection
from notsodeep.nets.equilibrium_net import EquilibriumNet, PlainWeights
from notsodeep.nets.feedforward_net import FeedforwardNet
from notsodeep.nets.fixed_point_solvers import SolverOptions
from notsodeep.nets.modules import Net, network_of
from notsodeep.validation import as_real

# The largest variance of recurrent weights that `DEQNet.from_weights` states.
_LARGEST_VARIANCE = 0.99


class DEQNet(EquilibriumNet):
    """A deep equilibrium model of finite width: z = φ(σ_a A z + σ_b B x + σ_c b)/√m, outputs readout · z, (1.1).

    The equilibrium is solved sample by sample, batched; the gradient comes from the implicit function theorem (9.4), so
    the memory of a training step does not depend on the number of iterations.

    Args:
        spec: the model.
        in_features: p.
        width: m.
        out_features: number of outputs.
        train: "all", or "readout" for fixed A and B.
        seed: of the initial weights; None draws from torch's global generator, which `torch.manual_seed` sets.
        scaling: "standard" or "ntk": how trained weights are stored (see `Net`). The function is the same.
        solver: of the forward pass.
        adjoint: of the backward pass; the same if not given.
        gradient: "implicit", or "phantom": a few terms of its Neumann series (9.6), cheaper and biased.
        phantom_steps: number of terms; 1 is the gradient of one step taken at the equilibrium.
        contractive: True (or a bound below 1) keeps ||σ_a A/√m||₂ Lip(φ) at 0.95 (the bound) by `project`.
        on_failure: "raise", "warn" or "ignore" when a sample does not converge; `last_solve` always has the residuals.
        dtype: float32 if not given.
        device: where the parameters live.
    """

    spec: DEQ

    def __init__(
        self,
        spec: DEQ,
        in_features: int,
        width: int,
        out_features: int,
        *,
        train: str = "all",
        seed: int | None = None,
        scaling: str = "standard",
        solver: SolverOptions | None = None,
        adjoint: SolverOptions | None = None,
        gradient: str = "implicit",
        phantom_steps: int = 1,
        contractive: bool | float = False,
        on_failure: str = "raise",
        dtype: torch.dtype | None = None,
        device: torch.device | str | None = None,
    ) -> None:
        if not isinstance(spec, DEQ):
            raise InputError(f"DEQNet takes a DEQ, not {type(spec).__name__}; ExplicitNet takes an Explicit.")
        super().__init__(in_features, width, out_features, train, scaling, dtype, device)
        self._assemble(
            spec,
            DenseConnection(),
            entering=self.in_features,
            units=self.width,
            seed=seed,
            solver=solver,
            adjoint=adjoint,
            gradient=gradient,
            phantom_steps=phantom_steps,
            contractive=contractive,
            on_failure=on_failure,
        )

    def counterpart(
        self,
        network: Explicit | ConvExplicit,
        *,
        seed: int | None = None,
        multipliers: Sequence[float] | None = None,
    ) -> ExplicitNet:
        """An explicit network of the same size, training mode, scaling, precision and device.

        Args:
            network: its layers, an `Explicit`.
            seed: of its weights; None draws from torch's global generator.
            multipliers: of learning rates, one per layer and one for the readout.
        """
        sizes = (self.in_features, self.width, self.out_features)
        return ExplicitNet(
            cast(Explicit, network),
            *sizes,
            seed=seed,
            multipliers=multipliers,
            share_input=True,
            **self.shared_options,
        )

    @classmethod
    def from_weights(
        cls,
        W: Any,
        U: Any,
        b: Any = None,
        activation: Any = "tanh",
        readout: Any = None,
        *,
        train: str = "all",
        **options: Any,
    ) -> DEQNet:
        """The network z = φ(W z + U x + b), outputs readout(z), with weights that were trained anywhere.

        Args:
            W: (m, m).
            U: (m, inputs).
            b: (m,); None for none.
            activation: φ: a name, a formula or a function, as `DEQ` takes it.
            readout: a `torch.nn.Linear`, or weights (outputs, m); None for the equilibrium itself.
            train: "all" or "readout".
            options: of `DEQNet`: solver, adjoint, on_failure, …; dtype and device are those of W unless given.

        The weights are copied. Variances of the model (`spec`) are read off W, U and b; one of W that a model cannot
        have, 1 or more, is stated as 0.99: the function is the same, only its kernels at infinite width are not meant.
        """
        parts = plain_matrices(W, U, b, readout)
        m, p = parts.inputs.shape
        sigma_a2 = min(float(parts.recurrent.square().sum()) / m, _LARGEST_VARIANCE)
        sigma_b2 = float(parts.inputs.square().mean())
        bias2 = float(parts.bias.square().mean())
        spec = DEQ(activation, sigma_a2, sigma_b2, bias2)
        place: dict[str, Any] = {"dtype": parts.recurrent.dtype, "device": parts.recurrent.device}
        net = cls(spec, p, m, len(parts.readout), train=train, seed=0, **(place | options))
        net.load_plain_weights(parts)
        return net

    @torch.no_grad()
    def load_plain_weights(self, weights: PlainWeights) -> None:
        """Take the weights of z = φ(W z + U x + b), outputs R z + r: the inverse of `plain_weights`."""
        root = sqrt(self.units)
        for name, values, scale in (
            ("recurrent", weights.recurrent, sqrt(self.spec.sigma_a2) / root),
            ("inputs", weights.inputs, sqrt(self.spec.sigma_b2)),
            ("readout", weights.readout, 1.0 / root),
        ):
            if scale:
                getattr(self, name).copy_(values / (scale * self.factors[name]))
        if self.bias is not None:
            self.bias.copy_(weights.bias / sqrt(self.spec.bias2))
        if bool(weights.readout_bias.any()):
            self.readout_bias = weights.readout_bias.detach().to(self.readout, copy=True)
        self.forget()


class ExplicitNet(FeedforwardNet):
    """A feed-forward network of finite width: x^(l) = σ_l(W_l x^(l-1))/√m, outputs readout · x^(L), (1.4).

    Layers that see the input again have weights B_l of their own (`input2`, `input3`, …), (7.8), or share those of the
    first layer.

    Args:
        spec: the layers.
        in_features: p.
        width: m, of every layer.
        out_features: number of outputs.
        train: "all", or "readout" for fixed hidden weights.
        seed: of the initial weights; None draws from torch's global generator, which `torch.manual_seed` sets.
        scaling: "standard" or "ntk": how trained weights are stored (see `Net`). The function is the same.
        multipliers: learning-rate multipliers, one per layer and one for the readout (`Design.multipliers` of
            kernel="both"). A weight with multiplier c is stored as weight/√c: gradient descent then moves it c times as
            fast. Weights with multiplier zero are buffers and stay as drawn.
        share_input: layers that see the input again read it by the weights of the first layer, which costs no further
            product with the input. At infinite width the kernels are the same.
        dtype: float32 if not given.
        device: where the parameters live.
    """

    spec: Explicit

    def __init__(
        self,
        spec: Explicit,
        in_features: int,
        width: int,
        out_features: int,
        *,
        train: str = "all",
        seed: int | None = None,
        scaling: str = "standard",
        multipliers: Sequence[float] | None = None,
        share_input: bool = False,
        dtype: torch.dtype | None = None,
        device: torch.device | str | None = None,
    ) -> None:
        if not isinstance(spec, Explicit):
            raise InputError(f"ExplicitNet takes an Explicit, not {type(spec).__name__}; DEQNet takes a DEQ.")
        super().__init__(in_features, width, out_features, train, scaling, dtype, device)
        self._assemble(
            spec,
            DenseConnection(),
            entering=self.in_features,
            units=self.width,
            seed=seed,
            multipliers=_multipliers(multipliers, spec, train),
            share_input=share_input,
        )


def plain_matrices(W: Any, U: Any, b: Any, readout: Any) -> PlainWeights:
    """Checked weights of z = φ(W z + U x + b), outputs readout(z), in the precision and on the device of W."""
    recurrent = _matrix(W, "W", None)
    m = len(recurrent)
    if not m or recurrent.shape[1] != m:
        raise InputError(
            f"W must be square, (m, m), with a row for each of at least one unit; got {tuple(recurrent.shape)}."
        )
    inputs = _matrix(U, "U", recurrent)
    if len(inputs) != m:
        turned = " It looks transposed: pass U.T." if inputs.shape[1] == m else ""
        raise InputError(f"U must have a row for each of the {m} units; got {tuple(inputs.shape)}.{turned}")
    bias = recurrent.new_zeros(m) if b is None else _numbers(b, "b", recurrent)
    if bias.shape != (m,):
        raise InputError(f"b must have a number for each of the {m} units, ({m},); got {tuple(bias.shape)}.")
    offset = None
    if isinstance(readout, nn.Linear):
        offset, readout = readout.bias, readout.weight
    if callable(readout) and not isinstance(readout, Tensor):
        raise InputError(
            "readout must be linear: a torch.nn.Linear, or weights (outputs, m). What comes after it belongs to the "
            "outputs: apply it to those."
        )
    rows = torch.eye(m).to(recurrent) if readout is None else _matrix(readout, "readout", recurrent)
    if rows.shape[1] != m:
        raise InputError(
            f"readout must have a column for each of the {m} units, (outputs, {m}); got {tuple(rows.shape)}."
        )
    last = rows.new_zeros(len(rows)) if offset is None else _numbers(offset, "readout.bias", recurrent)
    return PlainWeights(recurrent, inputs, bias, rows, last)


def _matrix(given: Any, name: str, like: Tensor | None) -> Tensor:
    values = _numbers(given, name, like)
    if values.ndim != 2:
        raise InputError(f"{name} must be a matrix; got shape {tuple(values.shape)}.")
    return values


def _numbers(given: Any, name: str, like: Tensor | None) -> Tensor:
    """Finite floating-point numbers, a copy; of the precision and on the device of another tensor."""
    if isinstance(given, Tensor):
        values = given.detach()
    else:
        array = as_real(given, name)
        # torch takes neither other byte orders nor negative strides.
        values = torch.from_numpy(np.array(array, array.dtype.newbyteorder("="), order="C"))
    if values.is_complex():
        raise InputError(
            f"{name} must hold real numbers, not {values.dtype}. Pass its real part, or other weights."
        )
    if not values.is_floating_point():
        values = values.to(torch.float32)
    values = values.clone() if like is None else values.to(like, copy=True)
    if not bool(torch.isfinite(values).all()):
        raise InputError(f"{name} has NaN or infinite entries.")
    return values


@network_of.register
def _(spec: DEQ, sample_shape: Sequence[int], width: int, out_features: int, **options: Any) -> Net:
    return DEQNet(spec, sample_shape[0], width, out_features, **options)


@network_of.register
def _(
    spec: Explicit,
    sample_shape: Sequence[int],
    width: int,
    out_features: int,
    *,
    train: str,
    seed: int | None,
    **_: Any,
) -> Net:
    return ExplicitNet(spec, sample_shape[0], width, out_features, train=train, seed=seed)


def _multipliers(given: Sequence[float] | None, spec: Explicit, train: str) -> list[float]:
    rates = [1.0] * (len(spec.layers) + 1) if given is None else as_multipliers(given, spec)
    if not any(rates if train == "all" else rates[-1:]):
        raise InputError(f"With multipliers {rates} and train={train!r} no weight would be trained.")
    return rates
