"""The base of networks that solve an equilibrium: solver, implicit gradient and contraction, for any connection."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from math import floor, isfinite, sqrt
from typing import Any, NamedTuple

import torch
from torch import Tensor

from notsodeep.errors import ConvergenceError, InputError
from notsodeep.models import DEQ, ConvDEQ
from notsodeep.nets.connections import Connection
from notsodeep.nets.equilibrium import ON_FAILURE, ONCE, EquilibriumSettings, adjoint, equilibrium
from notsodeep.nets.fixed_point_solvers import SolverOptions, as_solver_options
from notsodeep.nets.linear_maps import NormTracker
from notsodeep.nets.modules import Net, gaussian_draws
from notsodeep.nets.torch_activation import TorchActivation
from notsodeep.nets.weight_groups import WeightGroup
from notsodeep.validation import one_of

DEFAULT_BOUND = 0.95


class PlainWeights(NamedTuple):
    """The weights of z = φ(W z + U x + b), outputs R z + r, without any factors of the theory.

    Attributes:
        recurrent: W, (units, units), followed by taps for filters.
        inputs: U, (units, inputs or channels), followed by taps for filters.
        bias: b, (units,).
        readout: R, (outputs, features).
        readout_bias: r, (outputs,).
    """

    recurrent: Tensor
    inputs: Tensor
    bias: Tensor
    readout: Tensor
    readout_bias: Tensor


class EquilibriumNet(Net):
    """Base of deep equilibrium networks: h = σ_a A z + σ_b B x + σ_c b at the equilibrium, z = φ(h)/√m.

    A and B are matrices or, divided by √(number of taps), filters: `connection` says which. The equilibrium is solved
    sample by sample, batched; the gradient comes from the implicit function theorem (9.4), so the memory of a training
    step does not depend on the number of iterations.

    Args:
        spec: the model.
        sample_shape: shape of one sample: (features,) for rows, (channels, height, width) for images.
        connection: what A and B do to a layer.
        units: m.
        out_features: number of outputs.
        seed: random seed of the initial weights; torch's global generator (`torch.manual_seed`) if None.
        solver: solver of the forward pass.
        adjoint: solver of the backward pass; the same if not given.
        contractive: True (or a bound below 1) keeps ||σ_a A/√m||₂ Lip(φ) at 0.95 (the bound) by `project`; for filters
            of q taps ||σ_a A/√(qm)||₂ Lip(φ).
        on_failure: "raise", "warn" or "ignore" when a sample does not converge; "warn once": forward passes return
            every sample and the first one warns, but a gradient through such samples raises. `last_solve` always has
            the residuals, and the places of these samples.
        options: keyword arguments of `Net`: train, scaling, dtype, device, output_scale.

    Attributes:
        recurrent: A as it is stored.
        inputs: B.
        bias: b; None without one.
        bound: what `project` keeps the contraction below; None without `contractive`.
    """

    spec: DEQ | ConvDEQ
    recurrent: Tensor
    inputs: Tensor
    bias: Tensor | None

    def __init__(
        self,
        spec: DEQ | ConvDEQ,
        sample_shape: tuple[int, ...],
        connection: Connection,
        units: int,
        out_features: int,
        *,
        seed: int | None = None,
        solver: SolverOptions | None = None,
        adjoint: SolverOptions | None = None,
        contractive: bool | float = False,
        on_failure: str = "raise",
        **options: Any,
    ) -> None:
        super().__init__(sample_shape, connection, units, out_features, **options)
        self.spec = spec
        forward = as_solver_options(solver, "solver")
        # In the order A, B, b, readout.
        draw, taps = gaussian_draws(seed), connection.filter_shape
        self._add("recurrent", draw(units, units, *taps))
        self._add("inputs", draw(units, sample_shape[0], *taps))
        if spec.bias2:
            self._add("bias", draw(units))
        else:
            self.register_parameter("bias", None)
        self._add("readout", draw(self.out_features, self.width))
        self._settings = EquilibriumSettings(
            TorchActivation(spec.activation, 1.0 / sqrt(units)),
            sqrt(spec.sigma_a2 / connection.taps) * self.factors["recurrent"],
            forward,
            as_solver_options(adjoint, "adjoint", forward),
            one_of(on_failure, (*ON_FAILURE, ONCE), "on_failure"),
            connection=connection,
        )
        self._lipschitz = spec.activation.lipschitz
        self._refused: list[ConvergenceError] = []
        self._has_warned = False
        self.clear_cache()
        self.bound = _bound(contractive)
        self._refuse_expanding_start()

    # --- forward --------------------------------------------------------------------------------------------------

    def features(self, X: Tensor) -> Tensor:
        """The equilibrium z for every sample, as it is read out, (rows, width)."""
        return self.features_from(self.preactivations(X))

    def features_from(self, h: Tensor) -> Tensor:
        """z = φ(h)/√m, as it is read out."""
        return self.connection.read(self._settings.phi(h))

    def preactivations(self, X: Tensor) -> Tensor:
        """h at the equilibrium, docs/theory.md (9.1): (rows, layer_size); of images, channel by channel."""
        settings = replace(
            self._settings,
            on_solve=partial(setattr, self, "last_solve"),
            on_adjoint=partial(setattr, self, "last_adjoint"),
            refused=[],
        )
        # Under autocast too an equilibrium is solved in the precision of the weights: half of it would not converge.
        rows = self._rows(X)
        with torch.autocast(rows.device.type, enabled=False):
            h = equilibrium(self.recurrent, self._drive(rows), settings)
        self._refused = settings.refused
        if settings.refused and not self._has_warned:
            self._has_warned = True
            warnings.warn(
                f"{settings.refused[0]} These rows are returned with their best states; later passes do not warn. "
                "on_failure='raise', 'warn' or 'ignore' decides, and last_solve.unsolved has their places.",
                RuntimeWarning,
                stacklevel=4,
            )
        return h

    @property
    def on_failure(self) -> str:
        """What happens when a sample does not converge."""
        return self._settings.on_failure

    @on_failure.setter
    def on_failure(self, value: str) -> None:
        self._settings = replace(self._settings, on_failure=one_of(value, (*ON_FAILURE, ONCE), "on_failure"))

    def refuse_unsolved(self) -> None:
        """Raise an error if the last forward pass only warned of samples that did not converge."""
        replace(self._settings, refused=self._refused).refuse_gradient()

    def cell(self, z: Tensor, X: Tensor) -> Tensor:
        """One evaluation φ(σ_a A z + σ_b B x + σ_c b)/√m at any state z, (rows, layer_size); differentiable."""
        linear = self._settings.linear_map(self.recurrent)
        return self._settings.phi(linear.image(z) + self._drive(self._rows(X)))

    def adjoint(self, h: Tensor, cotangent: Tensor) -> Tensor:
        """∂(Σ cotangent · h)/∂u for the drive u of every row: t = cotangent + D σ_a Aᵀ t, docs/theory.md (9.4)."""
        keep = partial(setattr, self, "last_adjoint")
        settings = replace(self._settings, on_adjoint=keep)
        return adjoint(self.recurrent, h, cotangent, settings)

    def weight_groups(self, X: Tensor) -> Iterator[WeightGroup]:
        """A, B and b with the adjoint of the equilibrium, docs/theory.md (9.7); then the readout."""
        h, phi, connection = self.preactivations(X), self._settings.phi, self.connection
        slopes, z = phi.slope(h), phi(h)
        # All outputs of all samples are rows of one adjoint problem.
        readout = connection.read_back(self.factors["readout"] * self.readout)
        cotangents = (readout[:, None, :] * slopes).flatten(0, 1)
        repeated = h.expand(self.out_features, *h.shape).flatten(0, 1)
        back = self.adjoint(repeated, cotangents).reshape(self.out_features, *h.shape)
        yield connection.group(z, back, self.spec.sigma_a2 / connection.taps)
        yield connection.group(X.flatten(1), back, self.spec.sigma_b2 / connection.taps)
        yield connection.bias_group(back, self.spec.bias2)
        yield WeightGroup(connection.read(z), None, self.output_scale**2)

    def _drive(self, rows: Tensor) -> Tensor:
        """σ_b B x + σ_c b."""
        scale = sqrt(self.spec.sigma_b2 / self.connection.taps) * self.factors["inputs"]
        bias = None if self.bias is None else sqrt(self.spec.bias2) * self.bias
        return self.connection.image(self.inputs, scale * rows, bias)

    def plain_weights(self) -> PlainWeights:
        """The same function as z = φ(W z + U x + b), outputs R z + r: copies."""
        root, taps = sqrt(self.units), self.connection.taps
        with torch.no_grad():
            bias = self.recurrent.new_zeros(self.units)
            if self.bias is not None:
                bias = sqrt(self.spec.bias2) * self.bias.detach()
            offset = self.readout.new_zeros(self.out_features)
            return PlainWeights(
                (sqrt(self.spec.sigma_a2 / taps) * self.factors["recurrent"] / root)
                * self.recurrent.detach(),
                (sqrt(self.spec.sigma_b2 / taps) * self.factors["inputs"]) * self.inputs.detach(),
                bias,
                (self.factors["readout"] / root) * self.readout.detach(),
                offset if self.readout_bias is None else self.readout_bias.detach().clone(),
            )

    def clear_cache(self) -> None:
        """Drop cached intermediate results, so that later results do not depend on earlier calls."""
        self._tracker = NormTracker()

    # --- contraction ----------------------------------------------------------------------------------------------

    @torch.no_grad()
    def contraction(self, exact: bool = False) -> float:
        """||σ_a A/√m||₂ · Lip(φ): below 1 the equilibrium exists, is unique and is reached by iteration, (1.5).

        For filters of q taps it is the norm of the convolution, ||σ_a A/√(qm)||₂.

        Args:
            exact: by singular values (of filters with zeros beyond the border a bound from above); otherwise by a few
                rounds of power iteration, from below, by a percent or two.
        """
        if self.spec.sigma_a2 == 0.0:
            return 0.0
        linear = self._settings.linear_map(self.recurrent.detach())
        norm = linear.norm() if exact else self._tracker.estimate(linear)
        return norm / sqrt(self.units) * self._lipschitz

    @torch.no_grad()
    def project(self) -> float:
        """With contractive=True, shrink A until the bound holds; returns the contraction, now at most the bound.

        Call it after every optimiser step; `fit` does.
        """
        value = self.contraction()
        if self.bound is not None and value > self.bound:
            self.recurrent.mul_(self.bound / value)
            return self.bound
        return value

    def _refuse_expanding_start(self) -> None:
        if self.bound is None:
            return
        start = self.contraction(exact=True)
        if not isfinite(start):
            raise InputError(
                f"contractive={self.bound:g} cannot hold: the slope of {self.spec.activation} grows without bound. "
                "Use contractive=False, or an activation with bounded slope."
            )
        if start > self.bound:
            limit = floor(1e4 * self.spec.sigma_a2 * (self.bound / start) ** 2) / 1e4
            raise InputError(
                f"contractive={self.bound:g} cannot hold at the start: ||σ_a A/√m|| Lip(φ) is {start:.4g}. "
                f"Use sigma_a2 below {limit:g}, a larger bound (below 1), or contractive=False."
            )


def _bound(contractive: Any) -> float | None:
    if contractive is False:
        return None
    try:
        bound = DEFAULT_BOUND if contractive is True else float(contractive)
    except (TypeError, ValueError):
        bound = float("nan")
    if not 0.0 < bound < 1.0:
        raise InputError(f"contractive is True, False, or a bound between 0 and 1; got {contractive}.")
    return bound
