"""The equilibrium h = σ_a A φ(h)/√m + u and its derivatives by the implicit function theorem, docs/theory.md section 9.

Forward and backward are each one fixed-point problem; nothing of the iteration is kept between them, so the memory
of a training step does not depend on the number of iterations.  A is a matrix, or filters (`nets.connections`).
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from math import isfinite
from typing import Any

import torch
from torch import Tensor

from notsodeep.errors import ConvergenceError
from notsodeep.nets.connections import Connection, DenseConnection
from notsodeep.nets.fixed_point_solvers import SolveReport, SolverOptions, solve
from notsodeep.nets.linear_maps import LinearMap, MatrixMap
from notsodeep.nets.torch_activation import TorchActivation

ON_FAILURE = ("raise", "warn", "ignore")
_SPLIT_AFTER = 8
_SAMPLE = 256
_ALIKE = 0.5


@dataclass(frozen=True)
class Splitting:
    """W = σ_a A with a part of the slope taken out of the iteration, docs/theory.md (9.2).

    Attributes:
        linear: with d = 0 W itself; with d the mean slope (I - d W)⁻¹ W. What is left to iterate is then the deviation
            of the slope from its mean, which contracts faster.
        shift: d.
    """

    linear: LinearMap
    shift: float

    @classmethod
    def around(cls, recurrent: Tensor, factor: float, shift: float) -> Splitting:
        """The splitting of a matrix around the mean slope `shift`; costs one dense solve of the width."""
        weights = factor * recurrent.detach()
        system = torch.eye(len(weights), dtype=weights.dtype, device=weights.device).sub_(
            weights, alpha=shift
        )
        return cls(MatrixMap(torch.linalg.solve(system, weights)), shift)


class Splitter:
    """Decides when a splitting pays, makes it and keeps it: for weights that stay, or a batch larger than the width.

    For matrices alone: the inverse of a convolution with a small filter has a large one.  A splitting costs about as
    much as iterating four times as many rows as the network is wide, and saves a third of the iterations or more.
    """

    def __init__(self) -> None:
        self._mark: Tensor | None = None
        self._seen_rows = 0
        self._made: Splitting | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {"_mark": None, "_seen_rows": 0, "_made": None}

    def choose(self, recurrent: Tensor, drive: Tensor, settings: EquilibriumSettings) -> Splitting | None:
        """The splitting for this batch, or None where plain iteration is cheaper."""
        enough = _SPLIT_AFTER * len(recurrent)
        if not settings.weights_stay and len(drive) < enough:
            return None
        mark = _image_of_fixed_vector(recurrent)
        if self._mark is None or not _same(self._mark, mark):
            self._mark, self._seen_rows, self._made = mark, 0, None
        self._seen_rows += len(drive)
        if self._seen_rows < enough:
            return None
        slopes = settings.phi.slope(drive[:_SAMPLE])
        mean = float(slopes[torch.isfinite(slopes)].mean())
        if not isfinite(mean):
            return None
        if self._made is None:
            self._made = Splitting.around(recurrent, settings.factor, mean)
        # Around a slope that is not this batch's, the deviation may be larger than the slope itself.
        return self._made if abs(mean - self._made.shift) <= _ALIKE * abs(mean) else None


def _image_of_fixed_vector(matrix: Tensor) -> Tensor:
    """Tells weights apart however they were changed, at 1/rows of a step's cost."""
    generator = torch.Generator().manual_seed(0)
    probe = torch.randn(matrix.shape[1], generator=generator, dtype=torch.float64)
    image: Tensor = matrix.detach() @ probe.to(matrix)
    return image


def _same(one: Tensor, other: Tensor) -> bool:
    return one.dtype == other.dtype and one.device == other.device and torch.equal(one, other)


@dataclass
class EquilibriumSettings:
    """Everything but the tensors: what the weights do, how to solve, what to do on failure, and where the reports go.

    One object for each forward pass: its backward pass finds the splitting there.
    """

    phi: TorchActivation
    factor: float
    solver: SolverOptions
    adjoint: SolverOptions
    phantom_steps: int | None = None
    on_failure: str = "raise"
    weights_stay: bool = False
    splitter: Splitter | None = None
    splitting: Splitting | None = None
    on_solve: Callable[[SolveReport], None] | None = None
    on_adjoint: Callable[[SolveReport], None] | None = None
    connection: Connection = field(default_factory=DenseConnection)

    def linear_map(self, recurrent: Tensor) -> LinearMap:
        """W = σ_a A."""
        return self.connection.linear_map(recurrent, self.factor)

    def split(self, recurrent: Tensor) -> Splitting:
        """The prepared splitting, or the plain one."""
        return self.splitting or Splitting(self.linear_map(recurrent), 0.0)


def equilibrium(recurrent: Tensor, drive: Tensor, settings: EquilibriumSettings) -> Tensor:
    """h with h = σ_a A φ(h) + drive for every row of `drive`, docs/theory.md (9.1); differentiable in both tensors."""
    h: Tensor = _Equilibrium.apply(recurrent, drive, settings)  # type: ignore[no-untyped-call]
    return h


def adjoint(recurrent: Tensor, h: Tensor, cotangent: Tensor, settings: EquilibriumSettings) -> Tensor:
    """t with t = cotangent + D σ_a Aᵀ t, D = φ'(h), for every row, docs/theory.md (9.4)."""
    t: Tensor = _Adjoint.apply(recurrent, h, cotangent, settings)  # type: ignore[no-untyped-call]
    return t


class _SplitProblem:
    """The equation of a splitting: residuals are relative to the norm of state + d · (result of the last step)."""

    splitting: Splitting
    last: Tensor

    def size(self, state: Tensor) -> Tensor:
        shift = self.splitting.shift
        whole = torch.add(state, self.last, alpha=shift) if shift else state
        norms: Tensor = torch.linalg.vector_norm(whole, dim=1)
        return norms


class _Forward(_SplitProblem):
    """The state is v = φ(h) - d h; a step is v ← ψ(P v + u'), docs/theory.md (9.2)."""

    def __init__(
        self, splitting: Splitting, phi: TorchActivation, drive: Tensor, last: Tensor | None = None
    ) -> None:
        self.splitting, self.phi, self.drive = splitting, phi, drive
        self.last = torch.empty_like(drive) if last is None else last

    @classmethod
    def of(cls, splitting: Splitting, phi: TorchActivation, drive: Tensor) -> _Forward:
        if splitting.shift:
            drive = drive + splitting.shift * splitting.linear.image(drive)
        return cls(splitting, phi, drive)

    def start(self) -> Tensor:
        """The state that belongs to h = u': no product is spent on a zero."""
        self.last.copy_(self.drive)
        x = torch.empty_like(self.drive)
        self._activate(x)
        return x

    def step(self, x: Tensor, out: Tensor) -> None:
        self.splitting.linear.add_image(self.drive, x, self.last)
        self._activate(out)

    def _activate(self, out: Tensor) -> None:
        self.phi.write(self.last, out)
        if self.splitting.shift:
            out.sub_(self.last, alpha=self.splitting.shift)

    def solution(self) -> Tensor:
        return self.last

    def restrict(self, rows: Tensor) -> _Forward:
        return _Forward(self.splitting, self.phi, self.drive[rows], self.last[rows])


class _Backward(_SplitProblem):
    """The state is s = t - d Wᵀt; a step is s ← w + (D - d) Pᵀ s, docs/theory.md (9.5)."""

    def __init__(
        self, splitting: Splitting, slopes: Tensor, cotangent: Tensor, last: Tensor | None = None
    ) -> None:
        self.splitting, self.slopes, self.cotangent = splitting, slopes, cotangent
        self.last = torch.empty_like(cotangent) if last is None else last

    def start(self) -> Tensor:
        return self.cotangent.clone()

    def step(self, x: Tensor, out: Tensor) -> None:
        self.splitting.linear.write_adjoint(x, self.last)
        torch.addcmul(self.cotangent, self.slopes, self.last, out=out)
        if self.splitting.shift:
            out.sub_(self.last, alpha=self.splitting.shift)

    def solution(self) -> Tensor:
        return torch.addcmul(self.cotangent, self.slopes, self.last)

    def restrict(self, rows: Tensor) -> _Backward:
        return _Backward(self.splitting, self.slopes[rows], self.cotangent[rows], self.last[rows])


class _Equilibrium(torch.autograd.Function):
    @staticmethod
    def forward(recurrent: Tensor, drive: Tensor, settings: EquilibriumSettings) -> Tensor:
        if settings.splitter is not None:
            settings.splitting = settings.splitter.choose(recurrent, drive, settings)
        h, report = solve(_Forward.of(settings.split(recurrent), settings.phi, drive), settings.solver)
        if settings.on_solve is not None:
            settings.on_solve(report)
        _judge(report, "The equilibrium", settings.on_failure)
        return h

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        recurrent, _, ctx.settings = inputs
        ctx.save_for_backward(recurrent, output)

    @staticmethod
    def backward(ctx: Any, *cotangents: Tensor) -> tuple[Tensor | None, Tensor, None]:
        recurrent, h = ctx.saved_tensors
        settings = ctx.settings
        t = adjoint(recurrent, h, cotangents[0], settings)
        if not ctx.needs_input_grad[0]:
            return None, t, None
        return settings.connection.weight_gradient(t, settings.factor * settings.phi(h)), t, None

    @staticmethod
    def vmap(info: Any, in_dims: tuple[Any, ...], *arguments: Any) -> tuple[Tensor, int]:
        return _vmapped(_Equilibrium, info.batch_size, in_dims, arguments)


class _Adjoint(torch.autograd.Function):
    """t = (I - D Wᵀ)⁻¹ w, docs/theory.md (9.4)."""

    @staticmethod
    def forward(recurrent: Tensor, h: Tensor, cotangent: Tensor, settings: EquilibriumSettings) -> Tensor:
        slopes = settings.phi.slope(h)
        if settings.phantom_steps is not None:
            return _truncated(recurrent, slopes, cotangent, settings)
        t, report = solve(_Backward(settings.split(recurrent), slopes, cotangent), settings.adjoint)
        if settings.on_adjoint is not None:
            settings.on_adjoint(report)
        _judge(report, "The adjoint equation of the backward pass", settings.on_failure)
        return t

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        pass

    @staticmethod
    def backward(ctx: Any, *cotangents: Tensor) -> tuple[None, ...]:
        raise NotImplementedError(
            "Second derivatives through an equilibrium are not available. Use first derivatives, or unroll the "
            "iteration z = phi(sigma_a A z + sigma_b B x)/sqrt(m) by hand."
        )

    @staticmethod
    def vmap(info: Any, in_dims: tuple[Any, ...], *arguments: Any) -> tuple[Tensor, int]:
        return _vmapped(_Adjoint, info.batch_size, in_dims, arguments)


def _truncated(recurrent: Tensor, slopes: Tensor, cotangent: Tensor, settings: EquilibriumSettings) -> Tensor:
    """The first terms of t = Σ_k (D Wᵀ)^k w: the gradient of a few steps taken at the equilibrium, (9.6)."""
    t, linear = cotangent, settings.linear_map(recurrent)
    for _ in range((settings.phantom_steps or 1) - 1):
        t = torch.addcmul(cotangent, slopes, linear.adjoint(t))
    return t.clone()


def _judge(report: SolveReport, what: str, on_failure: str) -> None:
    if on_failure == "ignore" or report.converged:
        return
    growing = f" A step multiplies the residual by {report.rate:.3g}." if report.rate == report.rate else ""
    problem = f"{what}: {report}.{growing}"
    remedy = (
        "A rate near or above 1 means that the map does not contract: lower sigma_a2, or train with contractive=True. "
        "Else try SolverOptions(method='anderson'), more max_steps, or a larger tolerance."
    )
    if not bool(torch.isfinite(report.residuals).all()):
        remedy = (
            "What came in (inputs, weights or a gradient) or the iteration is not finite. Look for NaN in the inputs; "
            "in training lower the learning rate, or use contractive=True."
        )
    if on_failure == "raise":
        raise ConvergenceError(problem, remedy)
    warnings.warn(f"{problem} {remedy}", RuntimeWarning, stacklevel=4)


def _vmapped(
    function: Any, size: int, in_dims: tuple[Any, ...], arguments: tuple[Any, ...]
) -> tuple[Tensor, int]:
    """A vmapped call: a batch of row blocks is one larger block; a batch of weights is a loop over them."""
    recurrent, *rows, settings = arguments
    blocks = [
        tensor.expand(size, *tensor.shape) if dim is None else tensor.movedim(dim, 0)
        for tensor, dim in zip(rows, in_dims[1:-1], strict=True)
    ]
    if in_dims[0] is None:
        flat = function.apply(recurrent, *(block.reshape(-1, block.shape[-1]) for block in blocks), settings)
        return flat.reshape(blocks[0].shape), 0
    weights = recurrent.movedim(in_dims[0], 0)
    # Different weights have no splitting in common.
    plain = replace(settings, splitter=None, splitting=None)
    found = [function.apply(weights[i], *(block[i] for block in blocks), plain) for i in range(size)]
    return torch.stack(found), 0
