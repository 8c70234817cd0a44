"""`loop_curve`: test error of a network that was trained with K steps and runs with k.

Inner products of the features of one looped network after k steps and after K steps.

All steps share their weights and start from z = 0, so that h₁ = σ_b B x + bias. Pre-activations of two samples at two
steps have the covariance, docs/theory.md (15.1),

    Λ(a+1, b+1) = σ_a² 𝒜F(q_a, q_b, Λ(a, b)) + b,   Λ(1, b) = Λ(a, 1) = b,   b = σ_b² C + bias.

Λ(k, K) takes min(k, K) steps along a diagonal: a cell whose rows and columns have variances of different steps. Another
model registers a function of its own with `step_kernel`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial, singledispatch
from typing import Any

import numpy as np

from notsodeep.display import Shown
from notsodeep.errors import ConvergenceError, InputError
from notsodeep.forecasts.covariance_fields import GraphFields, fields_of
from notsodeep.kernel_names import Kernel
from notsodeep.kernels import exact_kernel
from notsodeep.learning.sample_pool import Labelled, graph_nodes, known_labels
from notsodeep.learning.trained_kernel import TrainedKernel, is_correct
from notsodeep.models import DEQ, ConvDEQ, Equilibrium, GraphDEQ, Loop, Program, Samples
from notsodeep.models.cell_models import CellModel
from notsodeep.models.cell_programs import CellProgram
from notsodeep.models.cell_rows import CellRows
from notsodeep.models.cell_shorthands import expression_of
from notsodeep.progress import Report, reported
from notsodeep.validation import Array, IntArray, as_count, as_number, frozen, label_codes

# Samples whose squared norms are computed together.
BLOCK = 32


@singledispatch
def step_kernel(model: Any, X: Any, Y: Any, left_steps: int, right_steps: int) -> Array:
    """⟨features of X after `left_steps` steps, features of Y after `right_steps` steps⟩ of one wide network.

    Args:
        model: the model of the step; a model registers its function here.
        X: checked samples of the rows.
        Y: checked samples of the columns.
        left_steps: steps for the rows.
        right_steps: steps for the columns.
    """
    raise InputError(
        f"loop_curve takes a DEQ, ConvDEQ, GraphDEQ, Equilibrium or Loop, or a model that is registered with "
        f"notsodeep.learning.step_kernel; got {type(model).__name__}."
    )


def step_variances(model: Any, samples: Any, steps: int) -> Array:
    """Squared norms of the features of each sample after this many steps."""
    size = BLOCK if graph_nodes(model) is None else len(samples)
    parts = [samples[start : start + size] for start in range(0, len(samples), size)]
    return np.concatenate([np.diag(step_kernel(model, part, part, steps, steps)) for part in parts])


@dataclass(frozen=True, eq=False)
class TwoSteps(Loop):
    """A loop whose rows are read after `steps` steps and whose columns after `right_steps`."""

    right_steps: int

    def prepare(self, left: Samples, right: Samples | None, kernels: tuple[Kernel, ...]) -> Program:
        """The recursion along the diagonal."""
        ends = self.steps, self.right_steps
        program = CellRows if self.cell.samples == "rows" else CellProgram
        return program(self.cell, max(ends), left, right or left, kernels, ends)


@step_kernel.register(DEQ)
@step_kernel.register(ConvDEQ)
@step_kernel.register(CellModel)
def _samples(model: Any, X: Any, Y: Any, left_steps: int, right_steps: int) -> Array:
    """A cell by its rules between two steps; the model that is cut if both are the same."""
    step = expression_of(model)
    named = Equilibrium(step).shorthand
    if isinstance(named, GraphDEQ):
        return _nodes(named, X, Y, left_steps, right_steps)
    if left_steps == right_steps and graph_nodes(model) is None:
        return exact_kernel(Loop(step, left_steps), X, None if X is Y else Y)
    return exact_kernel(TwoSteps(step, left_steps, right_steps), X, Y)


@step_kernel.register
def _nodes(model: GraphDEQ, X: Any, Y: Any, left_steps: int, right_steps: int) -> Array:
    """All nodes of the graph at both steps; X and Y are the same nodes."""
    S = model.propagation
    forcing = (model.sigma_b2 * (S @ (X @ X.T) @ S.T) + model.bias2)[None]
    fields = GraphFields(model.activation, model.sigma_a2, forcing, S)
    own = [forcing]
    for _ in range(1, max(left_steps, right_steps)):
        own.append(fields.step(fields.own_expectation(own[-1])))
    if left_steps == right_steps:
        return np.asarray(fields.own_expectation(own[left_steps - 1])[0])
    depth, covariance = min(left_steps, right_steps), forcing
    for number in range(1, depth + 1):
        places = left_steps - depth + number - 1, right_steps - depth + number - 1
        left, right = (fields.variances(own[place]) for place in places)
        value = fields.expectations(left, right, covariance)
        covariance = fields.step(value)
    return np.asarray(value[0])


@dataclass(frozen=True, eq=False, repr=False)
class LoopCurve(Shown):
    """Test error and accuracy against the number of steps at run time.

    Attributes:
        steps: numbers of steps k, as they were given.
        mse: mean squared error on the test samples, averaged over outputs. Targets: ±1 for two classes, else one-hot.
        accuracy: share of test samples classified correctly; NaN in a regression.
        train_steps: K, the steps after which the readout was trained.
        ridge: λ, added to the diagonal of the kernel matrix.
        width: of the network; None for the limit of infinite width.
        trusted_width: the median prediction was within 5 % of networks of this width and wider, for rates like that of
            the model; single networks vary by more.
        model: the model in words.
        source: the samples in words.
    """

    steps: IntArray
    mse: Array
    accuracy: Array
    train_steps: int
    ridge: float
    width: int | None
    trusted_width: int
    model: str
    source: str

    def plot(self, ax: Any = None, measured: Any = None) -> Any:
        """Draw the error, with measured points (steps, mse[, spread]) in rows; returns the Axes."""
        from notsodeep.figures import plot_loop_curve

        return plot_loop_curve(self, ax=ax, measured=measured)

    def explain(self) -> str:
        """The curve as a table, and from which width on it may be trusted."""
        lines = [f"{self.model}, readout trained after {self.train_steps} steps; {self.source}"]
        for steps, mse, accuracy in zip(self.steps, self.mse, self.accuracy, strict=True):
            share = "" if np.isnan(accuracy) else f", accuracy {accuracy:.1%}"
            lines.append(f"  {steps:>4} steps: mse {mse:.4g}{share}")
        return "\n".join([*lines, f"To be trusted for networks of width {self.trusted_width} and wider."])

    def to_dict(self) -> dict[str, Any]:
        """The curve as plain JSON values; the accuracy is None in a regression."""
        arrays = {name: np.asarray(getattr(self, name)).tolist() for name in ("steps", "mse", "accuracy")}
        arrays["accuracy"] = None if np.isnan(self.accuracy).any() else arrays["accuracy"]
        names = ("train_steps", "ridge", "width", "trusted_width", "model", "source")
        return {"kind": "LoopCurve", **arrays, **{name: getattr(self, name) for name in names}}

    def __str__(self) -> str:
        return self.explain()

    def _facts(self) -> dict[str, Any]:
        shown = {"steps": self.steps.tolist(), "mse": np.round(self.mse, 4).tolist()}
        return shown | {"train_steps": self.train_steps, "width": self.width, "model": self.model}


def loop_curve(
    model: Any,
    data: tuple[Any, Any],
    *,
    test: tuple[Any, Any],
    train_steps: int,
    steps: Sequence[int],
    ridge: float = 0.1,
    intercept: bool = True,
    width: int | None = None,
    progress: bool | Report = True,
) -> LoopCurve:
    """Predict the test error of a looped network that runs with more or fewer steps than it was trained with.

    The readout is trained by ridge regression on the features after `train_steps` steps, all other weights are
    random, and the network then runs with each number of `steps`. Step 1 is φ(σ_b B x); all steps share their weights.

    Args:
        model: a DEQ, ConvDEQ or GraphDEQ, or an Equilibrium or Loop of a cell: the step that is repeated.
        data: (X, y), training samples. Whole numbers and words are classes, other numbers targets of a regression.
            For a graph, X has all nodes; nodes outside of the training set have the label None or NaN.
        test: (X_test, y_test); for a graph, the same X and the labels of the test nodes.
        train_steps: K.
        steps: numbers of steps k at run time.
        ridge: λ, added to the diagonal of the kernel matrix, as in `learning_curve`.
        intercept: fit a bias of the readout, which is not penalised.
        width: predict a network of this width, docs/theory.md (15.4); the limit of infinite width if None.
        progress: a bar on a terminal after two seconds; False for none, or a function.

    Raises:
        InputError: for input that cannot be used.
    """
    trained = as_count(train_steps, "train_steps")
    numbers = [as_count(one, "steps") for one in ([steps] if isinstance(steps, int) else steps)]
    if not numbers:
        raise InputError("steps is empty; give numbers of steps such as [1, 2, 4, 8].")
    penalty, size = as_number(ridge, "ridge"), None if width is None else as_count(width, "width")
    task = _Task.of(model, data, test)
    own = _finite_kernel(model, task.X, task.X, trained, trained)[np.ix_(task.train, task.train)]
    readout = TrainedKernel.of(own, task.targets, intercept=intercept)
    rounding = len(own) * 2.0**-52 * readout.values[-1]
    if penalty == 0.0 and max(readout.values[0], readout.network_ridge(penalty, size)) <= rounding:
        raise InputError(
            "ridge = 0 and the kernel matrix is singular: samples repeat, or are too many. Give ridge > 0."
        )
    errors, shares, squares = [], [], np.zeros(len(task.test))
    with reported(progress, "loop curve") as report:
        for place, count in enumerate(numbers):
            report(place, len(numbers), partial("{} steps".format, count))
            cross = _finite_kernel(model, task.X_test, task.X, count, trained)[np.ix_(task.test, task.train)]
            if size is not None:
                squares = step_variances(model, task.X_test, count)[task.test]
            scores = readout.at(*readout.new_samples(cross, squares), penalty, size)
            errors.append(float(scores.squared_errors(task.test_targets).mean()))
            codes = task.test_codes
            shares.append(np.nan if codes is None else is_correct(scores.mean, codes).mean())
    return LoopCurve(
        steps=frozen(np.array(numbers, dtype=np.intp)),
        mse=frozen(np.array(errors)),
        accuracy=frozen(np.array(shares)),
        train_steps=trained,
        ridge=penalty,
        width=size,
        trusted_width=_trusted_width(model, task.X, size),
        model=str(model),
        source=f"{len(task.train)} training samples, {len(task.test)} test samples",
    )


def _finite_kernel(model: Any, X: Array, Y: Array, left_steps: int, right_steps: int) -> Array:
    """`step_kernel`, refused where the features overflow."""
    with np.errstate(over="ignore", invalid="ignore"):
        kernel = step_kernel(model, X, Y, left_steps, right_steps)
    if not np.isfinite(kernel).all():
        raise ConvergenceError(
            f"The features of {model} overflow within {max(left_steps, right_steps)} steps.",
            "Take fewer steps, or lower the variances of the weights.",
        )
    return kernel


@dataclass(frozen=True, eq=False)
class _Task:
    """Checked samples with their targets, and the places of those that are trained on and tested."""

    X: Array
    X_test: Array
    train: IntArray
    test: IntArray
    targets: Array
    test_targets: Array
    test_codes: IntArray | None

    @classmethod
    def of(cls, model: Any, data: Any, test: Any) -> _Task:
        """Check the arguments of `loop_curve`."""
        (X, y), (X_test, y_test) = _pair(data, "data"), _pair(test, "test")
        if step_kernel.dispatch(type(model)) is step_kernel.dispatch(object):
            step_kernel(model, X, X, 1, 1)
        X, X_test = model.check_samples(X), model.check_samples(X_test, "X_test")
        if X.shape[1:] != X_test.shape[1:]:
            raise InputError(
                f"X has samples of shape {X.shape[1:]}, X_test of shape {X_test.shape[1:]}. Give the same features."
            )
        (y, train), (y_test, tested) = (
            known_labels(model, y, len(X)),
            known_labels(model, y_test, len(X_test), "y_test"),
        )
        nodes = graph_nodes(model)
        if nodes is not None and (
            not np.array_equal(X, X_test) or len(X) != nodes or np.intersect1d(train, tested).size
        ):
            raise InputError(
                f"The graph has {nodes} nodes: X and X_test are the same array with a row for each "
                "node, and no node has a label in both y and y_test; the others are None or NaN."
            )
        labelled = Labelled.of(y, len(train))
        if labelled.codes is None:
            goals, codes = np.asarray(y_test, dtype=np.float64).reshape(len(tested), -1), None
            if goals.shape[1] != labelled.targets.shape[1]:
                raise InputError(
                    f"y_test has {goals.shape[1]} targets a sample, y {labelled.targets.shape[1]}."
                )
        else:
            codes = label_codes(y_test, np.unique(y), len(tested), "y_test")
            # The targets of a class are those of its first training sample.
            goals = labelled.targets[np.unique(labelled.codes, return_index=True)[1]][codes]
        return cls(X, X_test, train, tested, labelled.targets, goals, codes)


def _pair(value: Any, name: str) -> tuple[Any, Any]:
    if not isinstance(value, tuple | list) or len(value) != 2:
        raise InputError(f"{name} must be labelled samples (X, y); got {type(value).__name__}.")
    return value[0], value[1]


# Widths from which on the limit, and the form at finite width, had a median deviation below 5 % from networks, by the
# largest rate that was measured: `notsodeep reproduce loops --size full`.
TRUSTED = {0.5: (1024, 512), np.inf: (8192, 4096)}


def _trusted_width(model: Any, X: Array, width: int | None) -> int:
    """The width from which on a prediction may be trusted, by the contraction rate of the model on these samples."""
    try:
        rate = float(fields_of(model, X).spread_rate.max())
    except (ConvergenceError, InputError):
        rate = np.inf
    return next(widths for most, widths in TRUSTED.items() if rate <= most + 0.01)[width is not None]
