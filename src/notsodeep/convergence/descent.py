"""Full-batch gradient descent on W, U and a, under watch: docs/theory.md (8.10), (8.12) and (8.21).

Gradients are exact, by the implicit function theorem, and taken in the paper's parameters; they are made of features
and adjoint vectors: ∇_W Φ = Σ r_i v_i z_iᵀ, ∇_U Φ = Σ r_i v_i x_iᵀ, ∇_a Φ = Σ r_i z_i with r = ŷ - y.
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
from notsodeep.convergence.journal import Journal, load_journal, save_journal
from notsodeep.convergence.network import PaperNetwork
from notsodeep.convergence.tangent import spectrum_of
from notsodeep.convergence.verified import norm_estimate
from notsodeep.errors import ConvergenceError, InputError
from notsodeep.nets.checkpoints import checkpoint_path, fingerprint
from notsodeep.nets.solvers import SolverOptions
from notsodeep.progress import Report, silent
from notsodeep.validation import Array, as_count, as_number, as_targets

Callback = Callable[["Watched"], None]

# Of the equilibria and adjoint vectors: the gradient is exact to about this.
_TOLERANCES = {torch.float64: 1e-12, torch.float32: 1e-5}
_DTYPES = {"float64": torch.float64, "float32": torch.float32}
# A step size found by halving that is this much below 1/λ_max(H) means that something else is wrong.
_HALVINGS = 20
_DEFAULT_ROWS = 50


@dataclass(frozen=True)
class Watched:
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

    @property
    def record(self) -> dict[str, Any]:
        """As a row of results."""
        return asdict(self)


@dataclass(frozen=True)
class Descent:
    """A training and what was watched.

    Attributes:
        rows: the watched steps, the first and the last among them.
        losses: Φ at every step.
        lr: η, the one that was used throughout.
        halvings: how often the step size was halved and training begun anew.
        network: the network at the end.
        stopped: why training ended before its last step, or None.
        resumed: steps that came from a checkpoint.
    """

    rows: tuple[Watched, ...]
    losses: Array
    lr: float
    halvings: int
    network: PaperNetwork
    stopped: str | None
    resumed: int

    @property
    def records(self) -> list[dict[str, Any]]:
        """The watched steps as rows of results."""
        return [row.record for row in self.rows]


@dataclass(frozen=True)
class _Task:
    """Everything that does not change while training."""

    X: Tensor
    y: Tensor
    start: PaperNetwork
    solver: SolverOptions
    steps: int
    every: int
    target: float
    searching: bool
    facts: dict[str, str]
    path: Path | None
    callback: Callback | None
    report: Report


@dataclass
class _State:
    """Where training stands; `lr` stays what it is."""

    network: PaperNetwork
    lr: float
    least: float
    halvings: int = 0
    losses: list[float] = field(default_factory=list)
    rows: list[Watched] = field(default_factory=list)

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
    *,
    steps: int,
    lr: float | None = None,
    seed: int = 0,
    readout_scale: float = 1.0,
    every: int | None = None,
    target: float = 0.0,
    dtype: str = "float64",
    normalise: bool = False,
    checkpoint: str | Path | None = None,
    resume: bool = True,
    callback: Callback | None = None,
    report: Report = silent,
) -> Descent:
    """Train a random DEQ by full-batch gradient descent and watch what the theorem speaks of.

    Args:
        X: samples in rows (n, d), of norm √d and no two parallel.
        y: one label for each sample.
        width: m.
        sigma_w2: σ_w² < 1/8.
        steps: how many gradient steps.
        lr: η, in the paper's parameters. If not given, 1/λ_max(H) of the initial network, halved (and training begun
            anew) as long as the loss rises or the equilibrium is lost at some step.
        seed: of the weights; the same network as that of `certificate`.
        readout_scale: factor on the initial readout.
        every: watch every so many steps, and the first and last; about fifty rows if not given.
        target: stop when the loss is at most this.
        dtype: "float64", or "float32" for speed.
        normalise: scale the rows of X to norm √d.
        checkpoint: a file that is written at every watched step and from which the same training continues.
        resume: continue from the file if it is there; otherwise replace it.
        callback: called with each row as it is watched.
        report: called with the steps done, all steps, and the news: see `notsodeep.progress`.

    Returns:
        A `Descent`; `stopped` says why if the equilibrium was lost or the loss became infinite.
    """
    rows = as_sphere(X, normalise=normalise)
    labels = as_targets(y, len(rows))
    precision = _precision(dtype)
    if steps < 1 or (every is not None and every < 1):
        raise InputError(f"steps and every must be at least 1; got {steps} and {every}.")
    if lr is not None and not (math.isfinite(lr) and lr > 0):
        raise InputError(f"lr must be positive, or None to have one found; got {lr}.")
    start = PaperNetwork.draw(
        as_count(width, "width"),
        rows.shape[1],
        as_sigma_w2(sigma_w2),
        seed=seed,
        readout_scale=as_number(readout_scale, "readout_scale"),
        dtype=precision,
    )
    samples, targets = (torch.from_numpy(array).to(precision) for array in (rows, labels))
    task = _Task(
        X=samples,
        y=targets,
        start=start,
        solver=SolverOptions(tolerance=_TOLERANCES[precision], max_steps=1000),
        steps=steps,
        every=every or max(1, steps // _DEFAULT_ROWS),
        target=target,
        searching=lr is None,
        facts={
            "samples": fingerprint(samples),
            "labels": fingerprint(targets),
            "weights": fingerprint({"W": start.recurrent, "U": start.inputs, "a": start.readout}),
            "lr": "found" if lr is None else repr(float(lr)),
        },
        path=checkpoint_path(checkpoint),
        callback=callback,
        report=report,
    )
    state = _resumed(task) if resume else None
    resumed = 0 if state is None else state.step
    return _train(task, state or _begun(task, lr), resumed)


def _precision(dtype: str) -> torch.dtype:
    if dtype not in _DTYPES:
        raise InputError(f"dtype={dtype!r} is not known. Choose one of: {', '.join(_DTYPES)}.")
    return _DTYPES[dtype]


def _begun(task: _Task, lr: float | None) -> _State:
    """At step 0, with λ_0 and a step size."""
    spectrum = spectrum_of(*task.start.features_and_adjoints(task.X, task.solver), task.X)
    return _State(_copy(task.start), spectrum.step if lr is None else float(lr), spectrum.features)


def _train(task: _Task, state: _State, resumed: int) -> Descent:
    stopped: str | None
    lasted_before = math.inf
    while True:
        try:
            _descend(task, state)
        except _LossRose:
            stopped = f"The loss rises with the step size {state.lr:.3g}, halved {state.halvings} times."
            again = True
        except ConvergenceError as error:
            stopped = f"The equilibrium was lost at step {state.step}: {error}"
            # If half the step takes twice as many steps to the same end, the step size is not to blame.
            lasted = state.lr * state.step
            again, lasted_before = task.searching and lasted < 0.7 * lasted_before, lasted
        except FloatingPointError as error:
            stopped, again = str(error), False
        else:
            stopped, again = None, False
        if again and state.halvings < _HALVINGS:
            state, resumed = _State(_copy(task.start), 0.5 * state.lr, state.least, state.halvings + 1), 0
            continue
        return Descent(
            rows=tuple(state.rows),
            losses=np.array(state.losses),
            lr=state.lr,
            halvings=state.halvings,
            network=state.network,
            stopped=stopped,
            resumed=resumed,
        )


def _descend(task: _Task, state: _State) -> None:
    """Step until the last one, the target, or an error."""
    while state.step <= task.steps and not _reached(task, state):
        step, due = state.step, state.step % task.every == 0
        if task.path is not None and step > 0 and (due or step == task.steps):
            save_journal(task.path, _journal(task, state))
        features, adjoints = state.network.features_and_adjoints(task.X, task.solver)
        residual = features @ state.network.readout - task.y
        _enter(task, state, 0.5 * float(residual.square().sum()))
        gradient = _gradient(features, adjoints, residual, task.X)
        last = step == task.steps or _reached(task, state)
        if due or last:
            _watch(task, state, features, adjoints, gradient)
        if not last:
            _move(state.network, gradient, state.lr)
        task.report(step, task.steps, lambda: f"loss {state.losses[-1]:.3e}")


def _enter(task: _Task, state: _State, loss: float) -> None:
    """Keep the loss, unless it shows that the step size does not work."""
    if not math.isfinite(loss) and not task.searching:
        raise FloatingPointError(f"The loss became infinite at step {state.step}. Use a smaller lr.")
    if task.searching and state.losses:
        first, best = math.sqrt(state.losses[0]), math.sqrt(min(state.losses))
        # Outputs are known to the solver's tolerance; a rise within it is none.
        noise = 10.0 * task.solver.tolerance_for(task.X.dtype) * (first + float(task.y.norm()))
        if not math.sqrt(loss) <= best + noise:
            raise _LossRose
    state.losses.append(loss)


def _reached(task: _Task, state: _State) -> bool:
    return bool(state.losses) and state.losses[-1] <= task.target


def _gradient(features: Tensor, adjoints: Tensor, residual: Tensor, X: Tensor) -> PaperNetwork:
    """∇_W Φ, ∇_U Φ and ∇_a Φ, docs/theory.md (8.12), in the places of W, U and a."""
    weighted = (adjoints * residual[:, None]).mT
    return PaperNetwork(weighted @ features, weighted @ X, features.mT @ residual)


def _move(network: PaperNetwork, gradient: PaperNetwork, lr: float) -> None:
    for parameter, slope in zip(_tensors(network), _tensors(gradient), strict=True):
        parameter.sub_(slope, alpha=lr)


def _watch(task: _Task, state: _State, features: Tensor, adjoints: Tensor, gradient: PaperNetwork) -> None:
    network, loss, step = state.network, state.losses[-1], state.step - 1
    spectrum = spectrum_of(features, adjoints, task.X)
    square = sum(float(slope.double().square().sum()) for slope in _tensors(gradient))
    moved = [
        float((now - before).norm())
        for now, before in zip(_tensors(network), _tensors(task.start), strict=True)
    ]
    row = Watched(
        step=step,
        loss=loss,
        loss_bound=(1.0 - 0.5 * state.lr * state.least) ** step * state.losses[0],
        recurrent_norm=norm_estimate(network.recurrent.double().numpy()),
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
    if task.callback is not None:
        task.callback(row)


def _tensors(network: PaperNetwork) -> tuple[Tensor, Tensor, Tensor]:
    return network.recurrent, network.inputs, network.readout


def _copy(network: PaperNetwork) -> PaperNetwork:
    return PaperNetwork(*(tensor.clone() for tensor in _tensors(network)))


def _journal(task: _Task, state: _State) -> Journal:
    return Journal(
        facts=task.facts,
        tensors=dict(zip(("recurrent", "inputs", "readout"), _tensors(state.network), strict=True)),
        numbers={"lr": state.lr, "least": state.least, "halvings": float(state.halvings)},
        losses=state.losses,
        rows=[row.record for row in state.rows],
    )


def _resumed(task: _Task) -> _State | None:
    if task.path is None or not task.path.exists():
        return None
    journal = load_journal(task.path, task.facts)
    numbers = journal.numbers
    return _State(
        network=PaperNetwork(**journal.tensors),
        lr=numbers["lr"],
        least=numbers["least"],
        halvings=int(numbers["halvings"]),
        losses=list(journal.losses),
        rows=[Watched(**row) for row in journal.rows],
    )
