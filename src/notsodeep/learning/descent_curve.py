"""Loss and accuracy along full-batch gradient descent, before training: docs/theory.md (11.19), (11.20) and (11.24).

Gradient descent on the squared loss is a filter on the spectrum of the kernel that it follows: the CK where the readout
alone is trained (exact, for the features of the network), the NTK where all weights are (as long as they stay near
where they began: the wider the network, the longer).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from notsodeep.display import Shown
from notsodeep.errors import InputError
from notsodeep.kernel_names import as_kernel
from notsodeep.kernels import exact_kernel
from notsodeep.learning.labelled import Labelled
from notsodeep.learning.scores import NetworkNoise, Scores
from notsodeep.models import Model
from notsodeep.validation import Array, IntArray, as_count, as_number, frozen, one_of

_STARTS = ("random", "zero")
_KERNELS = ("ck", "ntk")
# Up to this distance of the weights from where they began, over √m, the predicted test loss was within 6 % of that of
# the network (docs/learning.md).
LAZY = 1.0
# Eigenvalues below this share of the largest are zero up to rounding.
_ROUNDING = 1e-14


@dataclass(frozen=True, eq=False, repr=False)
class DescentCurve(Shown):
    """Predicted loss and accuracy after steps of full-batch gradient descent, in the mean over initial weights.

    Attributes:
        steps: numbers of steps.
        loss: half the squared distance of the outputs, mean over the training samples, as `nets.fit` records it.
        test_loss: the same on the test samples.
        accuracy: on the training samples; NaN in a regression.
        test_accuracy: on the test samples; NaN in a regression.
        drift: how far the weights (of variance 1) are from where they began, over √m; NaN where no width was given.
        lr: the learning rate, of weights of variance 1.
        kernel: "ck", the readout is trained; "ntk", all weights are.
        start: "random", the outputs of a network with random readout; "zero"; "network", those of a given one.
        n: number of training samples.
        model: the model, in words.
    """

    steps: IntArray
    loss: Array
    test_loss: Array
    accuracy: Array
    test_accuracy: Array
    drift: Array
    lr: float
    kernel: str
    start: str
    n: int
    model: str

    @property
    def lazy(self) -> NDArray[np.bool_]:
        """Whether the prediction can be trusted: always for the readout alone, else while weights have hardly moved."""
        if self.kernel == "ck":
            return np.ones(len(self.steps), dtype=bool)
        return np.asarray(self.drift <= LAZY)

    @property
    def verdict(self) -> str:
        """Until when the prediction holds, in a sentence."""
        if self.kernel == "ck":
            return "The readout alone is trained: its features stay, and the prediction holds at any step."
        if np.isnan(self.drift).all():
            return "All weights are trained: this holds while they stay near where they began. Give width= to see."
        left = self.steps[~self.lazy]
        if not len(left):
            return f"The weights stay near where they began (at most {self.drift.max():.2g} √m away)."
        return (
            f"From step {left[0]} on the weights are more than {LAZY:g} √m from where they began: the network leaves "
            "the lazy regime, and the prediction is no longer sure. A wider network stays longer."
        )

    def __str__(self) -> str:
        lines = [f"{self.model}, {self.kernel}, n = {self.n}, lr {self.lr:.3g}. {self.verdict}"]
        for row, step in enumerate(self.steps):
            shown = "" if np.isnan(self.test_accuracy[row]) else f", accuracy {self.test_accuracy[row]:.1%}"
            note = "" if self.lazy[row] or np.isnan(self.drift[row]) else "  (not lazy)"
            lines.append(f"  step {step}: test loss {self.test_loss[row]:.4g}{shown}{note}")
        return "\n".join(lines)

    def _facts(self) -> dict[str, Any]:
        shown: dict[str, Any] = {
            "steps": self.steps.tolist(),
            "test_loss": np.round(self.test_loss, 4).tolist(),
        }
        if not np.isnan(self.test_accuracy).all():
            shown["test_accuracy"] = np.round(self.test_accuracy, 4).tolist()
        return shown | {"lr": self.lr, "kernel": self.kernel, "n": self.n, "model": self.model}


def descent_curve(
    model: Any,
    train: tuple[Any, ArrayLike],
    test: tuple[Any, ArrayLike],
    steps: ArrayLike,
    lr: float | None = None,
    kernel: str = "ntk",
    *,
    start: str = "random",
    width: int | None = None,
) -> DescentCurve:
    """Predict full-batch gradient descent on the squared loss: `nets.fit(..., optimizer="gd", loss="squared")`.

    Args:
        model: a model, whose network is wide: the prediction is the mean over random networks. Or a network of
            `notsodeep.nets` as it stands: then its own kernel and outputs are taken, those of the readout or of all
            weights as it will be trained, and `kernel`, `start` and `width` are its own.
        train: (X, y), training samples; classes are one-hot.
        test: (X, y), other samples.
        steps: numbers of steps, 0 for the beginning.
        lr: learning rate; n/λ_max of the kernel, the fastest that is safe, if not given.
        kernel: "ck" for the readout alone, "ntk" for all weights.
        start: "random": the network begins with a random readout and its outputs, which are averaged over; "zero".
        width: m, of the network that is to be trained; tells how far its weights move.
    """
    one_of(str(as_kernel(kernel)), _KERNELS, "kernel")
    one_of(start, _STARTS, "start")
    wanted = np.atleast_1d(np.asarray(steps)).tolist()
    if not wanted:
        raise InputError("steps is empty: give one number of steps, or several.")
    counts = np.array([as_count(one, "steps", least=0) for one in wanted])
    for name, part in (("train", train), ("test", test)):
        if not isinstance(part, tuple) or len(part) != 2:
            raise InputError(f"{name} must be (X, y), not {type(part).__name__}.")
    begin = _of_model if hasattr(model, "check_samples") else _of_network
    descent = begin(model, train, test, lr, kernel, start, width)
    found = np.array([descent.figures(int(count)) for count in counts])
    loss, test_loss, accuracy, test_accuracy, drift = found.T
    return DescentCurve(
        steps=frozen(counts),
        loss=frozen(loss),
        test_loss=frozen(test_loss),
        accuracy=frozen(accuracy),
        test_accuracy=frozen(test_accuracy),
        drift=frozen(drift),
        lr=descent.lr,
        kernel=descent.kernel,
        start=descent.start,
        n=len(descent.values),
        model=str(model) if begin is _of_model else f"{type(model).__name__} of width {descent.width}",
    )


@dataclass(frozen=True, eq=False)
class _Random:
    """The covariance of random outputs at the beginning: own in the eigenvectors, between new and own, of new ones."""

    own: Array
    between: Array
    diagonal: Array


@dataclass(frozen=True, eq=False)
class _Descent:
    """The kernel of the training samples, diagonalised, and where training begins.

    Attributes:
        values: eigenvalues of the kernel.
        vectors: eigenvectors in columns.
        rotated: K(new, training) in the eigenvectors.
        labelled: of the training samples.
        goal: of the new samples.
        own: outputs at the beginning, of the training samples.
        new: outputs at the beginning, of the new samples.
        random: what is random about these.
        lr: learning rate.
        kernel: "ck" or "ntk".
        start: "random", "zero" or "network".
        width: m.
    """

    values: Array
    vectors: Array
    rotated: Array
    labelled: Labelled
    goal: Labelled
    own: Array
    new: Array
    random: _Random | None
    lr: float
    kernel: str
    start: str
    width: int | None

    def figures(self, steps: int) -> tuple[float, float, float, float, float]:
        """Training loss, test loss, accuracy on both, and how far the weights have moved."""
        n = len(self.values)
        left = (1.0 - self.lr * self.values / n) ** steps
        # (1 - left)/λ, which is t·lr/n where λ = 0.
        filtered = np.full(n, steps * self.lr / n)
        np.divide(1.0 - left, self.values, out=filtered, where=self.values > _ROUNDING * self.values[-1])
        gap = self.vectors.T @ (self.labelled.targets - self.own)
        own = self.own + self.vectors @ ((1.0 - left)[:, None] * gap)
        new = self.new + self.rotated @ (filtered[:, None] * gap)
        pair = (Scores(own), Scores(new))
        outputs = own.shape[1]
        squares = np.sum(gap**2, axis=1)
        if self.random is not None:
            pair = self._with_random(pair, left, filtered)
            squares = squares + outputs * self.random.own.diagonal()
        losses = [
            0.5 * outputs * float(one.squared_errors(target.targets).mean())
            for one, target in zip(pair, (self.labelled, self.goal), strict=True)
        ]
        shares = [
            np.nan if target.codes is None else float(one.hits(target.codes).mean())
            for one, target in zip(pair, (self.labelled, self.goal), strict=True)
        ]
        # θ_t - θ_0 = Jᵀ K⁻¹(f_t - f_0), (11.24).
        moved = float(np.sqrt(np.maximum((1.0 - left) * filtered, 0.0) @ squares))
        drift = np.nan if self.width is None else moved / np.sqrt(self.width)
        return losses[0], losses[1], shares[0], shares[1], drift

    def _with_random(
        self, pair: tuple[Scores, Scores], left: Array, filtered: Array
    ) -> tuple[Scores, Scores]:
        """Scores with the variance (11.20) of random outputs at the beginning."""
        if self.random is None:
            return pair
        shrunk, weights = self.vectors * left, self.rotated * filtered
        own = np.sum((shrunk @ self.random.own) * shrunk, axis=1)
        new = self.random.diagonal - 2.0 * np.sum(weights * self.random.between, axis=1)
        new = new + np.sum((weights @ self.random.own) * weights, axis=1)
        return _varying(pair[0].mean, own), _varying(pair[1].mean, new)


def _of_model(
    model: Model, train: Any, test: Any, lr: float | None, kernel: str, start: str, width: int | None
) -> _Descent:
    """The mean over wide random networks of a model."""
    rows, others = model.check_samples(train[0], "X"), model.check_samples(test[0], "X of test")
    labelled = Labelled.of(train[1], len(rows), one_hot=True)
    values, vectors = np.linalg.eigh(exact_kernel(model, rows, kernel=kernel))
    random = None
    if start == "random":
        ck = vectors.T @ exact_kernel(model, rows, kernel="ck") @ vectors
        between = exact_kernel(model, others, rows, kernel="ck") @ vectors
        random = _Random(ck, between, exact_kernel(model, others, kernel="ck").diagonal())
    return _Descent(
        values=np.maximum(values, 0.0),
        vectors=vectors,
        rotated=exact_kernel(model, others, rows, kernel=kernel) @ vectors,
        labelled=labelled,
        goal=labelled.matching(test[1], len(others)),
        own=np.zeros_like(labelled.targets),
        new=np.zeros((len(others), labelled.targets.shape[1])),
        random=random,
        lr=_rate(lr, values),
        kernel=kernel,
        start=start,
        width=None if width is None else as_count(width, "width"),
    )


def _of_network(
    net: Any, train: Any, test: Any, lr: float | None, kernel: str, start: str, width: int | None
) -> _Descent:
    """One network as it stands: its own features or gradients, and its own outputs."""
    from notsodeep.nets import Net, empirical_kernels
    from notsodeep.nets.samples import as_inputs

    if not isinstance(net, Net):
        raise InputError(f"A model is needed, or a network of notsodeep.nets, not {type(net).__name__}.")
    rows, others = as_inputs(train[0], net, "X"), as_inputs(test[0], net, "X of test")
    labelled = Labelled.of(train[1], len(rows), one_hot=True)
    if labelled.targets.shape[1] != net.out_features:
        raise InputError(
            f"The network has {net.out_features} outputs, and y needs {labelled.targets.shape[1]}: one for each class."
        )
    name = "ck" if net.train_mode == "readout" else "ntk"
    own = getattr(empirical_kernels(net, rows), name).double().cpu().numpy()
    cross = getattr(empirical_kernels(net, others, rows), name).double().cpu().numpy()
    values, vectors = np.linalg.eigh((own + own.T) / 2.0)
    first, second = (net(part).detach().double().cpu().numpy() for part in (rows, others))
    return _Descent(
        values=np.maximum(values, 0.0),
        vectors=vectors,
        rotated=cross @ vectors,
        labelled=labelled,
        goal=labelled.matching(test[1], len(others)),
        own=first,
        new=second,
        random=None,
        lr=_rate(lr, values),
        kernel=name,
        start="network",
        width=net.width,
    )


def _rate(lr: float | None, values: Array) -> float:
    """The learning rate, refused where descent diverges."""
    n, top = len(values), float(values[-1])
    rate = n / top if lr is None else as_number(lr, "lr", positive=True)
    if rate * top >= 2.0 * n:
        raise InputError(
            f"lr = {rate:.3g} diverges: the largest eigenvalue of the kernel allows less than {2.0 * n / top:.3g}."
        )
    return rate


def _varying(scores: Array, variance: Array) -> Scores:
    """Scores whose outputs vary independently, with the same variance."""
    return Scores(scores, NetworkNoise(np.maximum(variance, 0.0), np.eye(scores.shape[1])))


__all__ = ["LAZY", "DescentCurve", "descent_curve"]
