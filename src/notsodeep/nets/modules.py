"""The two kinds of network as torch modules, in the scaling of docs/theory.md (1.1) and (1.4).

Weights have entries of variance 1; every factor (σ_a, σ_b, 1/√m) stands outside of them, so that gradient descent on
the parameters follows the neural tangent kernel.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial, singledispatch
from math import floor, isfinite, sqrt
from typing import Any

import torch
from torch import Tensor, nn

from notsodeep.designs import as_multipliers
from notsodeep.errors import InputError
from notsodeep.models import DEQ, Explicit, Model
from notsodeep.nets.contraction import NormTracker, spectral_norm
from notsodeep.nets.equilibrium import ON_FAILURE, EquilibriumSettings, Splitter, adjoint, equilibrium
from notsodeep.nets.fixed_point_solvers import SolveReport, SolverOptions
from notsodeep.nets.torch_activation import TorchActivation
from notsodeep.validation import as_count, one_of

TRAIN = ("all", "readout")
GRADIENTS = ("implicit", "phantom")
DEFAULT_BOUND = 0.95


@dataclass(frozen=True)
class WeightGroup:
    """Weights that see one signal: their gradient for sample i and output k is rate^½ · back[k, i] ⊗ signal[i].

    Attributes:
        signal: what the weights multiply, (rows, fan_in).
        back: the derivative of every output in what the weights produce, (outputs, rows, width); None for the readout.
        rate: the square of the factor that stands outside of the weights.
    """

    signal: Tensor
    back: Tensor | None
    rate: float


class Net(nn.Module):
    """The base of all networks: features, a linear readout, and the choice of trained parameters.

    Attributes:
        spec: the model it realises.
        multipliers: learning-rate multipliers of the weights, the readout's last; ones if none were given.
        factors: √c for each of them, by which a stored weight is multiplied; 1 for frozen weights.
        train_mode: "all", or "readout": the hidden weights are buffers, and features never change.
        readout: (out_features, width).
        last_solve: how the equilibrium of the last forward pass was solved; None for an explicit network.
        last_adjoint: how the adjoint equation of the last backward pass was solved; None for an explicit network.
    """

    spec: Model
    readout: Tensor
    last_solve: SolveReport | None = None
    last_adjoint: SolveReport | None = None
    factors: list[float]
    multipliers: list[float]

    def __init__(self, in_features: int, width: int, out_features: int, train: str) -> None:
        super().__init__()
        self.factors = [1.0]
        self.multipliers = [1.0]
        self.train_mode = one_of(train, TRAIN, "train")
        self.in_features = as_count(in_features, "in_features")
        self.width = as_count(width, "width")
        self.out_features = as_count(out_features, "out_features")

    def _add(self, name: str, values: Tensor, *, frozen: bool = False) -> None:
        """Hold weights as a parameter if they are trained, as a buffer otherwise."""
        if not frozen and (name == "readout" or self.train_mode == "all"):
            self.register_parameter(name, nn.Parameter(values))
        else:
            self.register_buffer(name, values)

    def features(self, X: Tensor) -> Tensor:
        """The last hidden layer, (rows, width)."""
        raise NotImplementedError

    def outputs(self, features: Tensor) -> Tensor:
        """The readout of given features, (rows, out_features)."""
        return features @ self.readout.mT

    def weight_groups(self, X: Tensor) -> Iterator[WeightGroup]:
        """All groups of weights with the factors of their gradients, the readout last."""
        raise NotImplementedError

    def forget(self) -> None:
        """Drop what was kept to save work: what follows does not depend on earlier calls, to the last bit."""

    def contraction(self) -> float | None:
        """The Lipschitz constant of the equilibrium map, or a bound on it; None for a network without one."""
        return None

    def project(self) -> float | None:
        """Called after every optimiser step: keep the bound that was asked for on `contraction`, and return it."""
        return None

    @property
    def solver_settings(self) -> str:
        """Everything that decides how an equilibrium and its gradient are computed, in words."""
        return "none"

    def forward(self, X: Tensor) -> Tensor:
        """The outputs, (rows, out_features)."""
        return self.outputs(self.features(X))

    def _rows(self, X: Tensor) -> Tensor:
        if not isinstance(X, Tensor):
            raise InputError(
                f"X must be a torch tensor, not {type(X).__name__}: torch.as_tensor(X, dtype=torch.float32)."
            )
        if X.ndim != 2 or X.shape[1] != self.in_features:
            raise InputError(
                f"X must have samples in rows, (rows, {self.in_features}); got {tuple(X.shape)}."
            )
        if X.dtype != self.readout.dtype:
            raise InputError(
                f"X is {X.dtype} and the network {self.readout.dtype}: "
                f"use X.to({self.readout.dtype}), or net.to({X.dtype})."
            )
        return X

    def extra_repr(self) -> str:
        """What `print(net)` shows."""
        return (
            f"{self.spec}, in_features={self.in_features}, width={self.width}, out_features={self.out_features}, "
            f"train={self.train_mode!r}"
        )


class DEQNet(Net):
    """A deep equilibrium model of finite width: z = φ(σ_a A z + σ_b B x + σ_c b)/√m, outputs readout · z, (1.1).

    The equilibrium is solved sample by sample, batched; the gradient comes from the implicit function theorem (9.4), so
    the memory of a training step does not depend on the number of iterations.

    Args:
        spec: the model.
        in_features: p.
        width: m.
        out_features: number of outputs.
        train: "all", or "readout" for fixed A and B.
        seed: of the initial weights.
        solver: of the forward pass.
        adjoint: of the backward pass; the same if not given.
        gradient: "implicit", or "phantom": a few terms of its Neumann series (9.6), cheaper and biased.
        phantom_steps: number of terms; 1 is the gradient of one step taken at the equilibrium.
        contractive: True (or a bound below 1) keeps ||σ_a A/√m||₂ Lip(φ) at 0.95 (the bound) by `project`.
        on_failure: "raise", "warn" or "ignore" when a sample does not converge; `last_solve` always has the residuals.
        dtype: float32 if not given.
        device: where the parameters live.

    Attributes:
        bound: what `project` keeps the contraction below; None without `contractive`.
    """

    spec: DEQ
    recurrent: Tensor
    inputs: Tensor
    bias: Tensor | None

    def __init__(
        self,
        spec: DEQ,
        in_features: int,
        width: int,
        out_features: int,
        *,
        train: str = "all",
        seed: int = 0,
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
        super().__init__(in_features, width, out_features, train)
        one_of(gradient, GRADIENTS, "gradient")
        one_of(on_failure, ON_FAILURE, "on_failure")
        as_count(phantom_steps, "phantom_steps")
        self.spec = spec
        solver = SolverOptions() if solver is None else _options(solver, "solver")
        self._settings = EquilibriumSettings(
            TorchActivation(spec.activation, 1.0 / sqrt(width)),
            sqrt(spec.sigma_a2),
            solver,
            solver if adjoint is None else _options(adjoint, "adjoint"),
            phantom_steps if gradient == "phantom" else None,
            on_failure,
        )
        draw = _gaussian(seed, dtype, device)
        self._add("recurrent", draw(width, width))
        self._add("inputs", draw(width, in_features))
        if spec.bias2:
            self._add("bias", draw(width))
        else:
            self.register_parameter("bias", None)
        self._add("readout", draw(out_features, width))
        self._lipschitz = spec.activation.lipschitz
        self.forget()
        self.bound = _bound(contractive)
        self._refuse_expanding_start()

    # --- forward --------------------------------------------------------------------------------------------------

    def features(self, X: Tensor) -> Tensor:
        """The equilibrium z for every row of X, (rows, width)."""
        return self.features_from(self.preactivations(X))

    def features_from(self, h: Tensor) -> Tensor:
        """z = φ(h)/√m."""
        return self._settings.phi(h)

    def preactivations(self, X: Tensor) -> Tensor:
        """h = σ_a A z + σ_b B x + σ_c b at the equilibrium, z = φ(h)/√m, docs/theory.md (9.1)."""
        drive = self._drive(self._rows(X))
        settings = replace(
            self._settings,
            weights_stay=not (self.recurrent.requires_grad and torch.is_grad_enabled()),
            splitter=self._splitter,
            on_solve=partial(setattr, self, "last_solve"),
            on_adjoint=partial(setattr, self, "last_adjoint"),
        )
        return equilibrium(self.recurrent, drive, settings)

    def adjoint(self, h: Tensor, cotangent: Tensor) -> Tensor:
        """∂(Σ cotangent · h)/∂u for the drive u of every row: t = cotangent + D σ_a Aᵀ t, docs/theory.md (9.4)."""
        keep = partial(setattr, self, "last_adjoint")
        settings = replace(self._settings, phantom_steps=None, on_adjoint=keep)
        return adjoint(self.recurrent, h, cotangent, settings)

    def weight_groups(self, X: Tensor) -> Iterator[WeightGroup]:
        """A, B and b with the adjoint of the equilibrium, docs/theory.md (9.7); then the readout."""
        h = self.preactivations(X)
        slopes, z = self._settings.phi.slope(h), self.features_from(h)
        # All outputs of all samples are rows of one adjoint problem.
        cotangents = (self.readout[:, None, :] * slopes).flatten(0, 1)
        repeated = h.expand(self.out_features, *h.shape).flatten(0, 1)
        back = self.adjoint(repeated, cotangents).reshape(self.out_features, len(X), -1)
        yield WeightGroup(z, back, self.spec.sigma_a2)
        yield WeightGroup(X, back, self.spec.sigma_b2)
        yield WeightGroup(X.new_ones(len(X), 1), back, self.spec.bias2)
        yield WeightGroup(z, None, 1.0)

    def _drive(self, X: Tensor) -> Tensor:
        """σ_b B x + σ_c b."""
        scale = sqrt(self.spec.sigma_b2)
        if self.bias is None:
            return (scale * X) @ self.inputs.mT
        return torch.addmm(self.bias, X, self.inputs.mT, beta=sqrt(self.spec.bias2), alpha=scale)

    def forget(self) -> None:
        """Drop what was kept to save work: what follows does not depend on earlier calls, to the last bit."""
        self._tracker, self._splitter = NormTracker(), Splitter()

    @property
    def solver_settings(self) -> str:
        """Everything that decides how the equilibrium and its gradient are computed, in words."""
        settings = self._settings
        gradient = "implicit" if settings.phantom_steps is None else f"phantom({settings.phantom_steps})"
        return f"{settings.solver}, adjoint {settings.adjoint}, {gradient}, bound {self.bound}"

    # --- contraction ----------------------------------------------------------------------------------------------

    @torch.no_grad()
    def contraction(self, exact: bool = False) -> float:
        """||σ_a A/√m||₂ · Lip(φ): below 1 the equilibrium exists, is unique and is reached by iteration, (1.5).

        Args:
            exact: by singular values; otherwise by a few rounds of power iteration, from below, by a percent or two.
        """
        if self.spec.sigma_a2 == 0.0:
            return 0.0
        norm = spectral_norm(self.recurrent) if exact else self._tracker.estimate(self.recurrent.detach())
        return sqrt(self.spec.sigma_a2 / self.width) * norm * self._lipschitz

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


class ExplicitNet(Net):
    """A feed-forward network of finite width: x^(l) = σ_l(W_l x^(l-1))/√m, outputs readout · x^(L), (1.4).

    Layers that see the input again have weights B_l of their own (`input2`, `input3`, …), (7.8).

    Args:
        spec: the layers.
        in_features: p.
        width: m, of every layer.
        out_features: number of outputs.
        train: "all", or "readout" for fixed hidden weights.
        seed: of the initial weights.
        multipliers: learning-rate multipliers, one per layer and one for the readout (`Design.multipliers` of
            kernel="both"). A weight with multiplier c is stored as weight/√c: gradient descent then moves it c times as
            fast. Weights with multiplier zero are buffers and stay as drawn.
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
        seed: int = 0,
        multipliers: Sequence[float] | None = None,
        dtype: torch.dtype | None = None,
        device: torch.device | str | None = None,
    ) -> None:
        if not isinstance(spec, Explicit):
            raise InputError(f"ExplicitNet takes an Explicit, not {type(spec).__name__}; DEQNet takes a DEQ.")
        super().__init__(in_features, width, out_features, train)
        self.spec = spec
        self.multipliers = _multipliers(multipliers, spec, train)
        self.factors = [sqrt(rate) if rate else 1.0 for rate in self.multipliers]
        self._activations = [TorchActivation(layer, 1.0 / sqrt(width)) for layer in spec.layers]
        draw = _gaussian(seed, dtype, device)
        fan_in = in_features
        for layer, rate in enumerate(self.multipliers[:-1], 1):
            self._add(f"weight{layer}", draw(width, fan_in), frozen=not rate)
            if spec.inputs[layer - 1].inject:
                self._add(f"input{layer}", draw(width, in_features), frozen=not rate)
            fan_in = width
        self._add("readout", draw(out_features, width), frozen=not self.multipliers[-1])
        with torch.no_grad():
            for weight, factor in zip([*self.weights, self.readout], self.factors, strict=True):
                weight.div_(factor)
            for again, factor in zip(self.input_weights, self.factors[:-1], strict=True):
                if again is not None:
                    again.div_(factor)

    @property
    def weights(self) -> list[Tensor]:
        """The hidden weights in order, each (width, fan_in)."""
        return [getattr(self, f"weight{layer + 1}") for layer in range(len(self.spec.layers))]

    @property
    def input_weights(self) -> list[Tensor | None]:
        """For each layer the weights that read the input again, (width, in_features); None where it does not."""
        return [getattr(self, f"input{layer + 1}", None) for layer in range(len(self.spec.layers))]

    def features(self, X: Tensor) -> Tensor:
        """x^(L) for every row of X, (rows, width)."""
        x = rows = self._rows(X)
        for layer, phi in enumerate(self._activations):
            x = phi(self._inner(x, rows, layer))
        return x

    def _inner(self, x: Tensor, rows: Tensor, layer: int) -> Tensor:
        """√w W x of the layer before and, where the layer sees it again, √c B of the input."""
        factor, entering = self.factors[layer], self.spec.inputs[layer]
        scale, again = factor * sqrt(entering.weight), self.input_weights[layer]
        inner = (x if scale == 1.0 else scale * x) @ self.weights[layer].mT
        return inner if again is None else inner + (factor * sqrt(entering.inject) * rows) @ again.mT

    def weight_groups(self, X: Tensor) -> Iterator[WeightGroup]:
        """The layers in order, by backpropagation, then the readout."""
        rows = self._rows(X)
        signals, slopes = [rows], []
        for layer, phi in enumerate(self._activations):
            h = self._inner(signals[-1], rows, layer)
            signals.append(phi(h))
            slopes.append(phi.slope(h))
        back = self.factors[-1] * self.readout[:, None, :].expand(-1, len(X), -1)
        groups = []
        for layer in range(len(slopes) - 1, -1, -1):
            back = back * slopes[layer]
            entering, rate = self.spec.inputs[layer], self.multipliers[layer]
            if entering.inject:
                groups.append(WeightGroup(rows, back, rate * entering.inject))
            groups.append(WeightGroup(signals[layer], back, rate * entering.weight))
            back = self.factors[layer] * sqrt(entering.weight) * (back @ self.weights[layer])
        yield from reversed(groups)
        yield WeightGroup(signals[-1], None, self.multipliers[-1])

    def outputs(self, features: Tensor) -> Tensor:
        """The readout of given features, (rows, out_features)."""
        factor = self.factors[-1]
        return super().outputs(features if factor == 1.0 else factor * features)


@singledispatch
def network_of(
    spec: Model, in_features: int, width: int, out_features: int, *, train: str, seed: int, **deq_options: Any
) -> Net:
    """A fresh network of finite width for a model; `deq_options` are for networks that solve an equilibrium."""
    raise InputError(f"There is no network of finite width for {type(spec).__name__}.")


@network_of.register
def _(spec: DEQ, in_features: int, width: int, out_features: int, **options: Any) -> Net:
    return DEQNet(spec, in_features, width, out_features, **options)


@network_of.register
def _(
    spec: Explicit, in_features: int, width: int, out_features: int, *, train: str, seed: int, **_: Any
) -> Net:
    return ExplicitNet(spec, in_features, width, out_features, train=train, seed=seed)


def _gaussian(
    seed: int, dtype: torch.dtype | None, device: torch.device | str | None
) -> Callable[..., Tensor]:
    """Draws weights of variance 1, in float64 on the CPU, so that a seed means one network everywhere."""
    kind = torch.float32 if dtype is None else dtype
    if not isinstance(kind, torch.dtype) or not kind.is_floating_point:
        raise InputError(
            f"dtype must be a floating-point type of torch, such as torch.float64; got {dtype!r}."
        )
    generator = torch.Generator().manual_seed(seed)
    return lambda *shape: torch.randn(shape, generator=generator, dtype=torch.float64).to(
        dtype=kind, device=device
    )


def _options(given: Any, name: str) -> SolverOptions:
    if not isinstance(given, SolverOptions):
        raise InputError(f"{name} takes SolverOptions(method=..., tolerance=...), not {given!r}.")
    return given


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


def _multipliers(given: Sequence[float] | None, spec: Explicit, train: str) -> list[float]:
    rates = [1.0] * (len(spec.layers) + 1) if given is None else as_multipliers(given, spec)
    if not any(rates if train == "all" else rates[-1:]):
        raise InputError(f"With multipliers {rates} and train={train!r} no weight would be trained.")
    return rates
