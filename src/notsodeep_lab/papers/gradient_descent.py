"""Full-batch gradient descent with the theorem's quantities recorded: docs/theory.md (8.10), (8.12) and (8.21).

Gradients are exact, by the implicit function theorem, and taken in the paper's parameters W, U and a; they consist of
features and adjoint vectors: ∇_W Φ = Σ r_i v_i z_iᵀ, ∇_U Φ = Σ r_i v_i x_iᵀ, ∇_a Φ = Σ r_i z_i with r = ŷ - y.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import torch
from numpy.typing import ArrayLike
from torch import Tensor

from notsodeep.convergence import PaperNetwork
from notsodeep.convergence.network import spectrum_of
from notsodeep.convergence.population import as_sigma_w2, as_sphere
from notsodeep.errors import ConvergenceError
from notsodeep.linalg.block_lanczos import extreme_eigenvalues
from notsodeep.nets.fixed_point_solvers import SolverOptions
from notsodeep.validation import as_count, as_number, as_targets, one_of

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
        gradient_norm: ||∇Φ||; ||∇Φ||² ≥ λ_0 Φ where the theorem holds.
        moved: the largest of ||W(τ) - W(0)||_F, ||U(τ) - U(0)||_F and ||a(τ) - a(0)||.
    """

    step: int
    loss: float
    loss_bound: float
    recurrent_norm: float
    least: float
    gradient_norm: float
    moved: float


@dataclass
class Descent:
    """A training by gradient descent and its record.

    Attributes:
        network: the network at the end.
        lr: η, the same at every step.
        least: λ_0 of the initial network.
        halvings: how often the step size was halved and training restarted.
        losses: Φ at every step.
        rows: the recorded steps, the first and the last among them.
        stopped: why training ended before its last step, or None.
    """

    network: PaperNetwork
    lr: float
    least: float
    halvings: int = 0
    losses: list[float] = field(default_factory=list)
    rows: list[RecordedStep] = field(default_factory=list)
    stopped: str | None = None


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

    Returns:
        A `Descent`; `stopped` gives the reason if the equilibrium was lost or the loss became infinite.
    """
    rows = as_sphere(X, normalise=normalise)
    precision = getattr(torch, one_of(dtype, tuple(_TOLERANCES), "dtype"))
    samples, labels = (torch.from_numpy(array).to(precision) for array in (rows, as_targets(y, len(rows))))
    start = PaperNetwork.draw(
        width, rows.shape[1], as_sigma_w2(sigma_w2), seed=seed, readout_scale=readout_scale, dtype=precision
    )
    # The theorem is about equilibria that plain iteration reaches.
    solver = SolverOptions("iteration", tolerance=_TOLERANCES[dtype], max_steps=1000)
    count = as_count(steps, "steps")
    every = max(1, count // _DEFAULT_ROWS) if every is None else as_count(every, "every")
    training = _Training(samples, labels, start, count, every, solver, searched=lr is None)
    spectrum = spectrum_of(*start.features_and_adjoints(samples, solver), samples)
    first = spectrum.step if lr is None else as_number(lr, "lr", positive=True)
    run, lasted_before = training.run(Descent(_copy(start), first, spectrum.features)), math.inf
    while lr is None and run.stopped is not None and run.halvings < _HALVINGS:
        lasted = run.lr * len(run.losses)
        # If half the step takes twice as many steps to the same end, the step size is not the cause.
        if "equilibrium" in run.stopped and lasted >= 0.7 * lasted_before:
            break
        lasted_before = lasted
        run = training.run(Descent(_copy(start), 0.5 * run.lr, run.least, run.halvings + 1))
    return run


def _copy(network: PaperNetwork) -> PaperNetwork:
    return PaperNetwork(*(tensor.clone() for tensor in network.weights))


@dataclass(frozen=True, eq=False)
class _Training:
    """What does not change when the training is restarted with half the step size."""

    X: Tensor
    y: Tensor
    start: PaperNetwork
    steps: int
    every: int
    solver: SolverOptions
    searched: bool  # whether the step size is ours: then the loss must fall at every step

    def run(self, state: Descent) -> Descent:
        """Step until the last one, zero loss, or a reason to stop."""
        network = state.network
        for step in range(self.steps + 1):
            try:
                features, adjoints = network.features_and_adjoints(self.X, self.solver)
            except ConvergenceError as error:
                state.stopped = f"The equilibrium was lost at step {step}: {error}"
                return state
            residual = features @ network.readout - self.y
            loss = 0.5 * float(residual.square().sum())
            state.stopped = self._objection(state, loss)
            if state.stopped is not None:
                return state
            state.losses.append(loss)
            # docs/theory.md (8.12): the derivatives in W, U and a.
            weighted = (adjoints * residual[:, None]).mT
            gradient = (weighted @ features, weighted @ self.X, features.mT @ residual)
            last = step == self.steps or loss == 0.0
            if step % self.every == 0 or last:
                state.rows.append(self._record(state, features, gradient))
            if last:
                break
            for weights, slope in zip(network.weights, gradient, strict=True):
                weights.sub_(slope, alpha=state.lr)
        return state

    def _objection(self, state: Descent, loss: float) -> str | None:
        """The reason to stop at this loss: it is infinite, or it rises with a step size that was searched for."""
        if not self.searched:
            return (
                None
                if math.isfinite(loss)
                else f"Infinite loss at step {len(state.losses)}: use a smaller lr."
            )
        if state.losses:
            first, best = math.sqrt(state.losses[0]), math.sqrt(min(state.losses))
            # Outputs are known to the solver's tolerance; a rise within it is none.
            noise = 10.0 * self.solver.tolerance_for(self.X.dtype) * (first + float(self.y.norm()))
            if not math.sqrt(loss) <= best + noise:
                return f"The loss rises with the step size {state.lr:.3g}, halved {state.halvings} times."
        return None

    def _record(
        self, state: Descent, features: Tensor, gradient: tuple[Tensor, Tensor, Tensor]
    ) -> RecordedStep:
        step, features = len(state.losses) - 1, features.double()
        square = sum(float(slope.double().square().sum()) for slope in gradient)
        recurrent = state.network.recurrent.double().numpy()
        pairs = zip(state.network.weights, self.start.weights, strict=True)
        return RecordedStep(
            step=step,
            loss=state.losses[-1],
            loss_bound=(1.0 - 0.5 * state.lr * state.least) ** step * state.losses[0],
            recurrent_norm=math.sqrt(extreme_eigenvalues(recurrent @ recurrent.T, 1, "LA", 1e-6)[0]),
            least=float(torch.linalg.eigvalsh(features @ features.mT)[0]),
            gradient_norm=math.sqrt(square),
            moved=max(float((now - before).norm()) for now, before in pairs),
        )
