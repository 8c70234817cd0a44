"""Full-batch gradient descent with the theorem's quantities recorded: docs/theory.md (8.10), (8.12) and (8.21).

Gradients are exact, by the implicit function theorem, and taken in the paper's parameters W, U and a; they are made of
features and adjoint vectors: ∇_W Φ = Σ r_i v_i z_iᵀ, ∇_U Φ = Σ r_i v_i x_iᵀ, ∇_a Φ = Σ r_i z_i with r = ŷ - y.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor

from notsodeep.convergence.assumptions import as_sigma_w2, as_sphere
from notsodeep.convergence.network import PaperNetwork
from notsodeep.convergence.tangent import spectrum_of
from notsodeep.convergence.verified import norm_estimate
from notsodeep.display import Shown
from notsodeep.errors import ConvergenceError
from notsodeep.nets.checkpoints import Checkpoint, checkpoint_path, tensor_hash
from notsodeep.nets.fixed_point_solvers import SolverOptions
from notsodeep.progress import Report, reported
from notsodeep.validation import Array, as_count, as_number, as_targets, one_of

Callback = Callable[["RecordedStep"], None]

# Of the equilibria and adjoint vectors: the gradient is exact to about this.
_TOLERANCES = {"float64": 1e-12, "float32": 1e-5}
# A step size found by halving that is this much below 1/λ_max(H) means that something else is wrong.
_HALVINGS = 20
_DEFAULT_ROWS = 50


@dataclass(frozen=True)
class DescentSettings:
    """How gradient descent is run.

    Attributes:
        steps: number of gradient steps.
        lr: η, in the paper's parameters. If not given, 1/λ_max(H) of the initial network, halved (and training begun
            anew) as long as the loss rises or the equilibrium is lost at some step.
        every: record every so many steps, and the first and last; about fifty rows if not given.
        target: stop when the loss is at most this.
        dtype: "float64", or "float32" for speed.
    """

    steps: int
    lr: float | None = None
    every: int | None = None
    target: float = 0.0
    dtype: str = "float64"

    def __post_init__(self) -> None:
        """Refuse what cannot work."""
        as_count(self.steps, "steps")
        if self.every is not None:
            as_count(self.every, "every")
        if self.lr is not None:
            as_number(self.lr, "lr", positive=True)
        one_of(self.dtype, tuple(_TOLERANCES), "dtype")


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
    """A training by gradient descent and what was recorded of it.

    Attributes:
        rows: the recorded steps, the first and the last among them.
        losses: Φ at every step.
        lr: η, the one that was used throughout.
        halvings: how often the step size was halved and training begun anew.
        network: the network at the end.
        stopped: why training ended before its last step, or None.
        resumed: number of steps that came from a checkpoint.
    """

    rows: tuple[RecordedStep, ...]
    losses: Array
    lr: float
    halvings: int
    network: PaperNetwork
    stopped: str | None
    resumed: int

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


@dataclass(frozen=True)
class DescentCheckpoint(Checkpoint):
    """Where gradient descent stands before a step: the fields of `_State` as tensors and plain values."""

    network: dict[str, Tensor]
    lr: float
    least: float
    halvings: int
    losses: list[float]
    rows: list[dict[str, Any]]


@dataclass
class _State:
    """Where training stands; `lr` and `least` (λ_0) stay what they are."""

    network: PaperNetwork
    lr: float
    least: float
    halvings: int = 0
    losses: list[float] = field(default_factory=list)
    rows: list[RecordedStep] = field(default_factory=list)

    @property
    def step(self) -> int:
        return len(self.losses)


class _LossRose(Exception):
    """The step size does not work."""


def gradient_descent(
    X: ArrayLike,
    y: ArrayLike,
    width: int,
    sigma_w2: float,
    settings: DescentSettings,
    *,
    seed: int = 0,
    readout_scale: float = 1.0,
    normalise: bool = False,
    checkpoint: str | Path | None = None,
    resume: bool = True,
    callback: Callback | None = None,
    progress: bool | Report = False,
) -> Descent:
    """Train a random DEQ by full-batch gradient descent and record the quantities of the theorem.

    Args:
        X: samples in rows (n, d), of norm √d and no two parallel.
        y: one label for each sample.
        width: m.
        sigma_w2: σ_w² < 1/8.
        settings: how many steps of which size, and what is recorded.
        seed: of the weights; the same network as that of `certificate`.
        readout_scale: factor on the initial readout.
        normalise: scale the rows of X to norm √d.
        checkpoint: a file that is written at every recorded step and from which the same training continues.
        resume: continue from the file if it is there; otherwise replace it.
        callback: called with each `RecordedStep`.
        progress: True for a bar on stderr, or a function to report to (see `notsodeep.progress`).

    Returns:
        A `Descent`; `stopped` says why if the equilibrium was lost or the loss became infinite.
    """
    rows = as_sphere(X, normalise=normalise)
    precision = getattr(torch, settings.dtype)
    samples, labels = (torch.from_numpy(array).to(precision) for array in (rows, as_targets(y, len(rows))))
    start = PaperNetwork.draw(
        as_count(width, "width"),
        rows.shape[1],
        as_sigma_w2(sigma_w2),
        seed=seed,
        readout_scale=as_number(readout_scale, "readout_scale"),
        dtype=precision,
    )
    with reported(progress, "gradient descent") as report:
        training = _Training(samples, labels, start, settings, checkpoint_path(checkpoint), callback, report)
        return training.run(training.resumed() if resume else None)


class _Training:
    """One run of `gradient_descent`: everything that does not change while the state does."""

    def __init__(
        self,
        X: Tensor,
        y: Tensor,
        start: PaperNetwork,
        settings: DescentSettings,
        path: Path | None,
        callback: Callback | None,
        report: Report,
    ) -> None:
        self.X, self.y, self.start, self.settings = X, y, start, settings
        self.path, self.callback, self.report = path, callback, report
        # The theorem is about equilibria that plain iteration reaches.
        self.solver = SolverOptions("iteration", tolerance=_TOLERANCES[settings.dtype], max_steps=1000)
        self.every = settings.every or max(1, settings.steps // _DEFAULT_ROWS)
        self.searching = settings.lr is None
        self.identity = {} if path is None else self._identity()

    def run(self, state: _State | None) -> Descent:
        """Train from a state, or from the beginning; with half the step size as long as that may help."""
        resumed = 0 if state is None else state.step
        state = state or self._begin()
        lasted_before = math.inf
        while True:
            stopped, again = None, False
            try:
                self._descend(state)
            except _LossRose:
                stopped = f"The loss rises with the step size {state.lr:.3g}, halved {state.halvings} times."
                again = True
            except ConvergenceError as error:
                stopped = f"The equilibrium was lost at step {state.step}: {error}"
                # If half the step takes twice as many steps to the same end, the step size is not to blame.
                lasted = state.lr * state.step
                again, lasted_before = self.searching and lasted < 0.7 * lasted_before, lasted
            except FloatingPointError as error:
                stopped = str(error)
            if not again or state.halvings >= _HALVINGS:
                break
            state, resumed = _State(self.start.copy(), 0.5 * state.lr, state.least, state.halvings + 1), 0
        rows, losses = tuple(state.rows), np.array(state.losses)
        return Descent(rows, losses, state.lr, state.halvings, state.network, stopped, resumed)

    def _begin(self) -> _State:
        """Step 0, with λ_0 and a step size."""
        spectrum = spectrum_of(*self.start.features_and_adjoints(self.X, self.solver), self.X)
        lr = spectrum.step if self.settings.lr is None else float(self.settings.lr)
        return _State(self.start.copy(), lr, spectrum.features)

    def _descend(self, state: _State) -> None:
        """Step until the last one, the target, or an error."""
        steps = self.settings.steps
        while state.step <= steps and not self._reached(state):
            step, due = state.step, state.step % self.every == 0
            if step > 0 and (due or step == steps):
                self._save(state)
            features, adjoints = state.network.features_and_adjoints(self.X, self.solver)
            residual = features @ state.network.readout - self.y
            self._add_loss(state, 0.5 * float(residual.square().sum()))
            # docs/theory.md (8.12): the derivatives in W, U and a, in the places of these.
            weighted = (adjoints * residual[:, None]).mT
            gradient = PaperNetwork(weighted @ features, weighted @ self.X, features.mT @ residual)
            last = step == steps or self._reached(state)
            if due or last:
                self._record(state, features, adjoints, gradient)
            if not last:
                for weights, slope in zip(state.network.weights, gradient.weights, strict=True):
                    weights.sub_(slope, alpha=state.lr)
            self.report(step, steps, lambda: f"loss {state.losses[-1]:.3e}")

    def _add_loss(self, state: _State, loss: float) -> None:
        """Keep the loss, unless it shows that the step size does not work."""
        if not math.isfinite(loss) and not self.searching:
            raise FloatingPointError(f"The loss became infinite at step {state.step}. Use a smaller lr.")
        if self.searching and state.losses:
            first, best = math.sqrt(state.losses[0]), math.sqrt(min(state.losses))
            # Outputs are known to the solver's tolerance; a rise within it is none.
            noise = 10.0 * self.solver.tolerance_for(self.X.dtype) * (first + float(self.y.norm()))
            if not math.sqrt(loss) <= best + noise:
                raise _LossRose
        state.losses.append(loss)

    def _reached(self, state: _State) -> bool:
        return bool(state.losses) and state.losses[-1] <= self.settings.target

    def _record(self, state: _State, features: Tensor, adjoints: Tensor, gradient: PaperNetwork) -> None:
        loss, step = state.losses[-1], state.step - 1
        spectrum = spectrum_of(features, adjoints, self.X)
        square = sum(float(slope.double().square().sum()) for slope in gradient.weights)
        pairs = zip(state.network.weights, self.start.weights, strict=True)
        moved = [float((now - before).norm()) for now, before in pairs]
        row = RecordedStep(
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
        state.rows.append(row)
        if self.callback is not None:
            self.callback(row)

    # --- checkpoints ------------------------------------------------------------------------------------------------

    def _identity(self) -> dict[str, Any]:
        """What must be the same for a training to be continued; more steps continue the same training."""
        lr = self.settings.lr
        return {
            "samples": tensor_hash({"X": self.X}),
            "labels": tensor_hash({"y": self.y}),
            "weights": tensor_hash(vars(self.start)),
            "lr": "found" if lr is None else float(lr),
        }

    def _save(self, state: _State) -> None:
        if self.path is not None:
            values = vars(state) | {
                "network": vars(state.network),
                "rows": [asdict(row) for row in state.rows],
            }
            DescentCheckpoint(self.identity, **values).save(self.path)

    def resumed(self) -> _State | None:
        """The state that the checkpoint holds, None if there is no file."""
        if self.path is None or not self.path.exists():
            return None
        found = DescentCheckpoint.load(self.path)
        found.refuse_other(self.identity, self.path)
        rows = [RecordedStep(**row) for row in found.rows]
        return _State(
            PaperNetwork(**found.network), found.lr, found.least, found.halvings, found.losses, rows
        )
