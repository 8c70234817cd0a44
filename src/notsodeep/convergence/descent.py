"""Full-batch gradient descent with the theorem's quantities recorded: docs/theory.md (8.10), (8.12) and (8.21).

Gradients are exact, by the implicit function theorem, and taken in the paper's parameters W, U and a; they consist of
features and adjoint vectors: ∇_W Φ = Σ r_i v_i z_iᵀ, ∇_U Φ = Σ r_i v_i x_iᵀ, ∇_a Φ = Σ r_i z_i with r = ŷ - y.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor

from notsodeep.convergence.network import PaperNetwork, spectrum_of
from notsodeep.convergence.population import as_sigma_w2, as_sphere
from notsodeep.convergence.verified import norm_estimate
from notsodeep.display import Shown
from notsodeep.errors import ConvergenceError
from notsodeep.nets.fixed_point_solvers import SolverOptions
from notsodeep.progress import Report, reported
from notsodeep.validation import Array, as_count, as_number, as_targets, one_of

# Tolerance of equilibria and adjoint vectors: the gradient is exact to about this.
_TOLERANCES = {"float64": 1e-12, "float32": 1e-5}
# A step size this many halvings below 1/λ_max(H) means that something else is wrong.
_HALVINGS = 20
_DEFAULT_ROWS = 50


@dataclass(frozen=True)
class RecordedStep:
    """The state of training before a step, docs/theory.md (8.21).

    Attributes:
        step: τ.
        loss: Φ(τ).
        loss_bound: (1 - ηλ_0/2)^τ Φ(0), what the theorem promises where its condition holds.
        recurrent_norm: ||W(τ)||₂; the equilibrium is sure to exist below 1.
        least: λ_τ = λ_min(Zᵀ Z).
        tangent_least: λ_min(H).
        tangent_largest: λ_max(H).
        gradient_norm: ||∇Φ||.
        pl_ratio: ||∇Φ||²/(λ_0 Φ), at least 1 where the theorem holds; infinite at zero loss.
        moved_recurrent: ||W(τ) - W(0)||_F.
        moved_inputs: ||U(τ) - U(0)||_F.
        moved_readout: ||a(τ) - a(0)||.
    """

    step: int
    loss: float
    loss_bound: float
    recurrent_norm: float
    least: float
    tangent_least: float
    tangent_largest: float
    gradient_norm: float
    pl_ratio: float
    moved_recurrent: float
    moved_inputs: float
    moved_readout: float


@dataclass(frozen=True, repr=False)
class Descent(Shown):
    """A training by gradient descent and its record.

    Attributes:
        rows: the recorded steps, the first and the last among them.
        losses: Φ at every step.
        lr: η, the same at every step.
        halvings: how often the step size was halved and training restarted.
        network: the network at the end.
        stopped: why training ended before its last step, or None.
    """

    rows: tuple[RecordedStep, ...]
    losses: Array
    lr: float
    halvings: int
    network: PaperNetwork
    stopped: str | None

    def as_dicts(self) -> list[dict[str, Any]]:
        """The recorded steps as plain dictionaries."""
        return [asdict(row) for row in self.rows]

    def _facts(self) -> dict[str, Any]:
        return {
            "steps": len(self.losses) - 1,
            "first_loss": float(self.losses[0]),
            "last_loss": float(self.losses[-1]),
            "lr": self.lr,
            "halvings": self.halvings,
            "stopped": self.stopped,
        }


def gradient_descent(
    X: ArrayLike,
    y: ArrayLike,
    width: int,
    sigma_w2: float,
    steps: int,
    *,
    lr: float | None = None,
    every: int | None = None,
    seed: int = 0,
    readout_scale: float = 1.0,
    normalise: bool = False,
    dtype: str = "float64",
    progress: bool | Report = False,
) -> Descent:
    """Train a random DEQ by full-batch gradient descent and record the quantities of the theorem.

    Args:
        X: samples in rows (n, d), of norm √d and no two parallel.
        y: one label for each sample.
        width: m.
        sigma_w2: σ_w² < 1/8.
        steps: number of gradient steps.
        lr: η, in the paper's parameters. If not given, 1/λ_max(H) of the initial network, halved (and training
            restarted) as long as the loss rises or the equilibrium is lost at some step.
        every: record every so many steps, and the first and last; about fifty rows if not given.
        seed: random seed of the weights; the same network as that of `certificate`.
        readout_scale: factor on the initial readout.
        normalise: scale the rows of X to norm √d.
        dtype: "float64", or "float32" for speed.
        progress: True for a bar on stderr, or a function to report to (see `notsodeep.progress`).

    Returns:
        A `Descent`; `stopped` gives the reason if the equilibrium was lost or the loss became infinite.
    """
    rows = as_sphere(X, normalise=normalise)
    precision = getattr(torch, one_of(dtype, tuple(_TOLERANCES), "dtype"))
    samples, labels = (torch.from_numpy(array).to(precision) for array in (rows, as_targets(y, len(rows))))
    start = PaperNetwork.draw(
        as_count(width, "width"),
        rows.shape[1],
        as_sigma_w2(sigma_w2),
        seed=seed,
        readout_scale=as_number(readout_scale, "readout_scale"),
        dtype=precision,
    )
    count = as_count(steps, "steps")
    with reported(progress, "gradient descent") as report:
        return _Training(
            samples,
            labels,
            start,
            count,
            lr=None if lr is None else as_number(lr, "lr", positive=True),
            every=max(1, count // _DEFAULT_ROWS) if every is None else as_count(every, "every"),
            # The theorem is about equilibria that plain iteration reaches.
            solver=SolverOptions("iteration", tolerance=_TOLERANCES[dtype], max_steps=1000),
            report=report,
        ).run()


@dataclass
class _State:
    """The state of training; `lr` and `least` (λ_0) do not change."""

    network: PaperNetwork
    lr: float
    least: float
    halvings: int = 0
    losses: list[float] = field(default_factory=list)
    rows: list[RecordedStep] = field(default_factory=list)


class _LossRose(Exception):
    """The step size is too large."""


@dataclass(frozen=True, eq=False)
class _Training:
    """One run of `gradient_descent`: everything that does not change while the state does."""

    X: Tensor
    y: Tensor
    start: PaperNetwork
    steps: int
    lr: float | None
    every: int
    solver: SolverOptions
    report: Report

    def run(self) -> Descent:
        """Train, and restart with half the step size as long as that may help."""
        spectrum = spectrum_of(*self.start.features_and_adjoints(self.X, self.solver), self.X)
        lr = spectrum.step if self.lr is None else self.lr
        state, lasted_before = _State(self.start.copy(), lr, spectrum.features), math.inf
        while True:
            stopped, again = None, False
            try:
                self._descend(state)
            except _LossRose:
                stopped = f"The loss rises with the step size {state.lr:.3g}, halved {state.halvings} times."
                again = True
            except ConvergenceError as error:
                stopped = f"The equilibrium was lost at step {len(state.losses)}: {error}"
                # If half the step takes twice as many steps to the same end, the step size is not the cause.
                lasted = state.lr * len(state.losses)
                again, lasted_before = self.lr is None and lasted < 0.7 * lasted_before, lasted
            except FloatingPointError as error:
                stopped = str(error)
            if not again or state.halvings >= _HALVINGS:
                break
            state = _State(self.start.copy(), 0.5 * state.lr, state.least, state.halvings + 1)
        losses = np.array(state.losses)
        return Descent(tuple(state.rows), losses, state.lr, state.halvings, state.network, stopped)

    def _descend(self, state: _State) -> None:
        """Step until the last one, zero loss, or an error."""
        for step in range(self.steps + 1):
            features, adjoints = state.network.features_and_adjoints(self.X, self.solver)
            residual = features @ state.network.readout - self.y
            self._add_loss(state, 0.5 * float(residual.square().sum()))
            # docs/theory.md (8.12): the derivatives in W, U and a.
            weighted = (adjoints * residual[:, None]).mT
            gradient = PaperNetwork(weighted @ features, weighted @ self.X, features.mT @ residual)
            last = step == self.steps or state.losses[-1] == 0.0
            if step % self.every == 0 or last:
                state.rows.append(self._record(state, features, adjoints, gradient))
            self.report(step, self.steps, lambda: f"loss {state.losses[-1]:.3e}")
            if last:
                return
            for weights, slope in zip(state.network.weights, gradient.weights, strict=True):
                weights.sub_(slope, alpha=state.lr)

    def _add_loss(self, state: _State, loss: float) -> None:
        """Keep the loss, unless it shows that the step size is too large."""
        if not math.isfinite(loss) and self.lr is not None:
            raise FloatingPointError(
                f"The loss became infinite at step {len(state.losses)}. Use a smaller lr."
            )
        if self.lr is None and state.losses:
            first, best = math.sqrt(state.losses[0]), math.sqrt(min(state.losses))
            # Outputs are known to the solver's tolerance; a rise within it is none.
            noise = 10.0 * self.solver.tolerance_for(self.X.dtype) * (first + float(self.y.norm()))
            if not math.sqrt(loss) <= best + noise:
                raise _LossRose
        state.losses.append(loss)

    def _record(
        self, state: _State, features: Tensor, adjoints: Tensor, gradient: PaperNetwork
    ) -> RecordedStep:
        loss, step = state.losses[-1], len(state.losses) - 1
        spectrum = spectrum_of(features, adjoints, self.X)
        square = sum(float(slope.double().square().sum()) for slope in gradient.weights)
        pairs = zip(state.network.weights, self.start.weights, strict=True)
        moved = [float((now - before).norm()) for now, before in pairs]
        return RecordedStep(
            step=step,
            loss=loss,
            loss_bound=(1.0 - 0.5 * state.lr * state.least) ** step * state.losses[0],
            recurrent_norm=norm_estimate(state.network.recurrent.double().numpy()),
            least=spectrum.features,
            tangent_least=spectrum.least,
            tangent_largest=spectrum.largest,
            gradient_norm=math.sqrt(square),
            pl_ratio=square / (state.least * loss) if loss > 0 and state.least > 0 else math.inf,
            moved_recurrent=moved[0],
            moved_inputs=moved[1],
            moved_readout=moved[2],
        )
