"""The equilibrium h = σ_a A φ(h)/√m + u and its derivatives by the implicit function theorem, docs/theory.md section 9.

Forward and backward are each one fixed-point problem; nothing of the iteration is kept between them, so the memory
of a training step does not depend on the number of iterations.  A is a matrix, or filters (`nets.connections`).
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from math import isfinite, sqrt
from typing import Any

import torch
from torch import Tensor

from notsodeep.errors import ConvergenceError
from notsodeep.gaussian.moments import predicted_rate
from notsodeep.nets.connections import Connection, DenseConnection
from notsodeep.nets.fixed_point_solvers import SolveReport, SolverOptions, solve
from notsodeep.nets.linear_maps import LinearMap
from notsodeep.nets.torch_activation import TorchActivation

ON_FAILURE = ("raise", "warn", "ignore")
# The first forward pass with rows that do not converge warns, a gradient through such rows raises.
ONCE = "warn once"
_SECOND = (
    "Second derivatives through an equilibrium are not available. Use first derivatives, or unroll the iteration of "
    "the network's `cell`."
)


@dataclass(frozen=True)
class EquilibriumSettings:
    """Everything but the tensors: activation, solvers, what to do on failure, callbacks for reports, connection."""

    phi: TorchActivation
    factor: float
    solver: SolverOptions
    adjoint: SolverOptions
    on_failure: str = "raise"
    on_solve: Callable[[SolveReport], None] | None = None
    on_adjoint: Callable[[SolveReport], None] | None = None
    connection: Connection = field(default_factory=DenseConnection)
    advice: str = "lower sigma_a2, or train with contractive=True."
    # Problems of the forward pass that its gradient raises.
    refused: list[ConvergenceError] = field(default_factory=list)

    def linear_map(self, recurrent: Tensor) -> LinearMap:
        """W = σ_a A."""
        return self.connection.linear_map(recurrent, self.factor)

    def refuse_gradient(self) -> None:
        """Raise what a forward pass let through: rows that did not converge have no gradient."""
        if self.refused:
            raise self.refused[0]


def equilibrium(recurrent: Tensor, drive: Tensor, settings: EquilibriumSettings) -> Tensor:
    """h with h = σ_a A φ(h) + drive for every row of `drive`, docs/theory.md (9.1); differentiable in both tensors."""
    h: Tensor = _Equilibrium.apply(drive, settings, recurrent)  # type: ignore[no-untyped-call]
    return h


def adjoint(recurrent: Tensor, h: Tensor, cotangent: Tensor, settings: EquilibriumSettings) -> Tensor:
    """t with t = cotangent + D σ_a Aᵀ t, D = φ'(h), for every row, docs/theory.md (9.4)."""
    t: Tensor = _Adjoint.apply(h, cotangent, settings, recurrent)  # type: ignore[no-untyped-call]
    return t


class _Forward:
    """The state is z = φ(h); a step is z ← φ(W z + u), docs/theory.md (9.1)."""

    def __init__(self, linear: LinearMap, phi: Any, drive: Tensor, h: Tensor | None = None) -> None:
        self.linear, self.phi, self.drive = linear, phi, drive
        self.h = torch.empty_like(drive) if h is None else h

    def start(self) -> Tensor:
        """The state after a step from zero: no product is spent on a zero."""
        x = torch.empty_like(self.drive)
        self._activate(self.drive, x)
        return x

    def step(self, x: Tensor, out: Tensor) -> None:
        self.linear.add_image(self.drive, x, self.h)
        self._activate(self.h, out)

    def _activate(self, h: Tensor, out: Tensor) -> None:
        self.phi.write(h, out)

    def solution(self, rows: Tensor) -> Tensor:
        return self.h[rows]

    def restrict(self, rows: Tensor) -> _Forward:
        return _Forward(self.linear, self.phi, self.drive[rows], self.h[rows])


class _Tangent(_Forward):
    """The equation of dh: the slopes D of φ at the equilibrium take the place of φ, docs/theory.md (9.3)."""

    def _activate(self, h: Tensor, out: Tensor) -> None:
        torch.mul(self.phi, h, out=out)

    def restrict(self, rows: Tensor) -> _Tangent:
        return _Tangent(self.linear, self.phi[rows], self.drive[rows], self.h[rows])


class _Backward:
    """The state is t; a step is t ← w + D Wᵀ t, docs/theory.md (9.4)."""

    def __init__(
        self, linear: LinearMap, slopes: Tensor, cotangent: Tensor, last: Tensor | None = None
    ) -> None:
        self.linear, self.slopes, self.cotangent = linear, slopes, cotangent
        self.last = torch.empty_like(cotangent) if last is None else last

    def start(self) -> Tensor:
        return self.cotangent.clone()

    def step(self, x: Tensor, out: Tensor) -> None:
        self.linear.write_adjoint(x, self.last)
        torch.addcmul(self.cotangent, self.slopes, self.last, out=out)

    def solution(self, rows: Tensor) -> Tensor:
        return torch.addcmul(self.cotangent[rows], self.slopes[rows], self.last[rows])

    def restrict(self, rows: Tensor) -> _Backward:
        return _Backward(self.linear, self.slopes[rows], self.cotangent[rows], self.last[rows])


class RowFunction(torch.autograd.Function):
    """A function of blocks of rows, settings, and weights that all rows share."""

    blocks = 1

    @classmethod
    def vmap(cls, info: Any, in_dims: tuple[Any, ...], *arguments: Any) -> tuple[Tensor, int]:
        """A batch of row blocks is one larger block; a batch of weights is a loop over them."""
        size, count = info.batch_size, cls.blocks
        blocks = [
            tensor.expand(size, *tensor.shape) if dim is None else tensor.movedim(dim, 0)
            for tensor, dim in zip(arguments[:count], in_dims[:count], strict=True)
        ]
        settings, *weights = arguments[count:]
        dims = in_dims[count + 1 :]
        if all(dim is None for dim in dims):
            flat = cls.apply(*(block.flatten(0, 1) for block in blocks), settings, *weights)  # type: ignore[no-untyped-call]
            return flat.reshape(size, -1, flat.shape[-1]), 0
        parts = []
        for i in range(size):
            own = [w if dim is None else w.select(dim, i) for w, dim in zip(weights, dims, strict=True)]
            parts.append(cls.apply(*(block[i] for block in blocks), settings, *own))  # type: ignore[no-untyped-call]
        return torch.stack(parts), 0


class _Equilibrium(RowFunction):
    @staticmethod
    def forward(drive: Tensor, settings: EquilibriumSettings, recurrent: Tensor) -> Tensor:
        h, report = solve(_Forward(settings.linear_map(recurrent), settings.phi, drive), settings.solver)
        if settings.on_solve is not None:
            settings.on_solve(report)
        if not report.converged and settings.on_failure != "ignore":
            predicted = _predicted(recurrent, drive, report, settings)
            try:
                _check(report, "The equilibrium", settings, settings.solver, predicted)
            except ConvergenceError as error:
                if settings.on_failure != ONCE:
                    raise
                settings.refused.append(error.with_traceback(None))
        return h

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        _, ctx.settings, recurrent = inputs
        ctx.save_for_backward(recurrent, output)
        ctx.save_for_forward(recurrent, output)

    @staticmethod
    def backward(ctx: Any, *cotangents: Tensor) -> tuple[Tensor, None, Tensor | None]:
        recurrent, h = ctx.saved_tensors
        settings = ctx.settings
        settings.refuse_gradient()
        t = adjoint(recurrent, h, cotangents[0], settings)
        if not ctx.needs_input_grad[2]:
            return t, None, None
        return t, None, settings.connection.weight_gradient(t, settings.factor * settings.phi(h))

    @staticmethod
    def jvp(ctx: Any, drive: Tensor | None, _: None, weights: Tensor | None) -> Tensor:
        """dh = W D dh + dW φ(h) + du, docs/theory.md (9.3)."""
        recurrent, h = ctx.saved_tensors
        settings = ctx.settings
        settings.refuse_gradient()
        right = torch.zeros_like(h) if drive is None else drive
        if weights is not None:
            right = right + settings.connection.image(weights, settings.factor * settings.phi(h))
        tangent: Tensor = _TangentSolve.apply(h, right, settings, recurrent)  # type: ignore[no-untyped-call]
        return tangent


class FirstOrder(RowFunction):
    """A linear equation at the equilibrium, whose solution cannot be differentiated again."""

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        """Nothing is kept: there is no further derivative."""

    @staticmethod
    def backward(ctx: Any, *cotangents: Tensor) -> tuple[None, ...]:
        """Refuse a second derivative."""
        raise NotImplementedError(_SECOND)

    @staticmethod
    def jvp(ctx: Any, *tangents: Tensor) -> Tensor:
        """Refuse a second derivative."""
        raise NotImplementedError(_SECOND)


class _Adjoint(FirstOrder):
    """t = (I - D Wᵀ)⁻¹ w, docs/theory.md (9.4)."""

    blocks = 2

    @staticmethod
    def forward(h: Tensor, cotangent: Tensor, settings: EquilibriumSettings, recurrent: Tensor) -> Tensor:
        problem = _Backward(settings.linear_map(recurrent), settings.phi.slope(h), cotangent)
        t, report = solve(problem, settings.adjoint)
        if settings.on_adjoint is not None:
            settings.on_adjoint(report)
        _check(report, "The adjoint equation of the backward pass", settings, settings.adjoint)
        return t


class _TangentSolve(FirstOrder):
    """dh = (I - W D)⁻¹ (dW φ(h) + du), docs/theory.md (9.3)."""

    blocks = 2

    @staticmethod
    def forward(h: Tensor, right: Tensor, settings: EquilibriumSettings, recurrent: Tensor) -> Tensor:
        problem = _Tangent(settings.linear_map(recurrent), settings.phi.slope(h), right)
        tangent, report = solve(problem, settings.adjoint)
        what = "The tangent equation of forward-mode derivatives"
        _check(report, what, settings, settings.adjoint)
        return tangent


def _predicted(recurrent: Tensor, drive: Tensor, report: SolveReport, settings: EquilibriumSettings) -> str:
    """What the theory of wide networks says about weights of this size, on the samples that did not converge."""
    units, late = len(recurrent), ~(report.residuals <= report.tolerance)
    sigma_a2 = float(settings.factor**2 * recurrent.double().square().sum()) / units**2
    forcing = float(drive[late].double().square().mean())
    if not isfinite(sigma_a2) or not isfinite(forcing) or forcing <= 0.0:
        return ""
    # The activation of the settings has the factor 1/√m.
    return " " + predicted_rate(settings.phi.phi.scaled(sqrt(units)), sigma_a2, forcing)


def _check(
    report: SolveReport, what: str, settings: EquilibriumSettings, options: SolverOptions, predicted: str = ""
) -> None:
    on_failure = "raise" if settings.on_failure == ONCE else settings.on_failure
    check_report(report, what, on_failure, options, predicted, settings.advice)


def check_report(
    report: SolveReport,
    what: str,
    on_failure: str,
    options: SolverOptions,
    predicted: str = "",
    advice: str = "lower sigma_a2, or train with contractive=True.",
) -> None:
    """Raise, warn or ignore, as `on_failure` says, where some samples did not converge."""
    if on_failure == "ignore" or report.converged:
        return
    growing = (
        f" A step of iteration multiplies the residual by {report.rate:.3g}." if report.rate >= 0 else ""
    )
    problem = f"{what}: {report}.{growing}{predicted}"
    others = "" if options.method == "auto" else "Use method='auto', which tries other methods. "
    remedy = (
        f"{others}Allow more max_steps (now {options.max_steps} in each stage) or a larger tolerance. A rate near or "
        f"above 1 means that the map does not contract: {advice}"
    )
    if not bool(torch.isfinite(report.residuals).all()):
        remedy = (
            "Inputs, weights, gradient or the iteration are not finite. Look for NaN in the inputs; in training lower "
            f"the learning rate; otherwise {advice}"
        )
    if on_failure == "raise":
        raise ConvergenceError(problem, remedy)
    warnings.warn(f"{problem} {remedy}", RuntimeWarning, stacklevel=4)
