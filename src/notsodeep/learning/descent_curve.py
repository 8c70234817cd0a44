"""Loss and accuracy along full-batch gradient descent, before training: docs/theory.md (11.19) and (11.20).

Gradient descent on the squared loss is a filter on the spectrum of the kernel that it follows: the CK where the readout
alone is trained (exact, for the features of the network), the NTK where all weights are (as long as they stay near
where they began: the wider the network, the longer).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from notsodeep.display import Shown, curves
from notsodeep.errors import InputError
from notsodeep.kernel_names import as_kernel
from notsodeep.kernels import exact_kernel
from notsodeep.learning.labelled import Labelled
from notsodeep.learning.scores import NetworkNoise, Scores
from notsodeep.models import Model
from notsodeep.validation import Array, IntArray, as_count, as_number, frozen, one_of

_STARTS = ("random", "zero")
_KERNELS = ("ck", "ntk")


@dataclass(frozen=True, eq=False, repr=False)
class DescentCurve(Shown):
    """Predicted loss and accuracy after steps of full-batch gradient descent, in the mean over initial weights.

    Attributes:
        steps: numbers of steps.
        loss: half the squared distance of the outputs, mean over the training samples, as `nets.fit` records it.
        test_loss: the same on the test samples.
        accuracy: on the training samples; NaN in a regression.
        test_accuracy: on the test samples; NaN in a regression.
        lr: the learning rate, of weights of variance 1.
        kernel: "ck", the readout is trained; "ntk", all weights are.
        start: "random", the outputs of a network with random readout; "zero".
        n: number of training samples.
        model: the model, in words.
    """

    steps: IntArray
    loss: Array
    test_loss: Array
    accuracy: Array
    test_accuracy: Array
    lr: float
    kernel: str
    start: str
    n: int
    model: str

    def _facts(self) -> dict[str, Any]:
        shown: dict[str, Any] = {
            "steps": self.steps.tolist(),
            "test_loss": np.round(self.test_loss, 4).tolist(),
        }
        if not np.isnan(self.test_accuracy).all():
            shown["test_accuracy"] = np.round(self.test_accuracy, 4).tolist()
        return shown | {"lr": self.lr, "kernel": self.kernel, "n": self.n, "model": self.model}

    def _drawing(self) -> str:
        if len(self.steps) < 2:
            return ""
        place = np.log10(1.0 + self.steps)
        series = [("training", place, self.loss), ("test", place, self.test_loss)]
        return curves(series, (), "loss, log₁₀ (1 + steps)")


def descent_curve(
    model: Model,
    train: tuple[Any, ArrayLike],
    test: tuple[Any, ArrayLike],
    steps: ArrayLike,
    lr: float | None = None,
    kernel: str = "ntk",
    *,
    start: str = "random",
) -> DescentCurve:
    """Predict full-batch gradient descent on the squared loss: `nets.fit(..., optimizer="gd", loss="squared")`.

    Args:
        model: the model; the network is wide.
        train: (X, y), training samples; classes are one-hot.
        test: (X, y), other samples.
        steps: numbers of steps, 0 for the beginning.
        lr: learning rate; n/λ_max of the kernel, the fastest that is safe, if not given.
        kernel: "ck" for the readout alone, "ntk" for all weights.
        start: "random": the network begins with a random readout and its outputs, which are averaged over; "zero".
    """
    one_of(str(as_kernel(kernel)), _KERNELS, "kernel")
    one_of(start, _STARTS, "start")
    counts = np.array([as_count(one, "steps", least=0) for one in np.atleast_1d(np.asarray(steps)).tolist()])
    rows, new = model.check_samples(train[0], "X"), model.check_samples(test[0], "X of test")
    labelled = Labelled.of(train[1], len(rows), one_hot=True)
    goal = labelled.matching(test[1], len(new))
    descent = _Descent.of(model, rows, new, labelled.targets, kernel, lr)
    random = descent.random_part(model, rows, new) if start == "random" else None
    found = np.array([descent.figures(int(count), labelled, goal, random) for count in counts])
    loss, test_loss, accuracy, test_accuracy = found.T
    return DescentCurve(
        steps=frozen(counts),
        loss=frozen(loss),
        test_loss=frozen(test_loss),
        accuracy=frozen(accuracy),
        test_accuracy=frozen(test_accuracy),
        lr=descent.lr,
        kernel=kernel,
        start=start,
        n=len(rows),
        model=str(model),
    )


@dataclass(frozen=True, eq=False)
class _Descent:
    """The kernel of the training samples, diagonalised, and the new samples in its eigenvectors."""

    values: Array
    vectors: Array
    rotated: Array  # K(new, training) in the eigenvectors
    targets: Array  # in the eigenvectors
    lr: float

    @classmethod
    def of(cls, model: Model, rows: Any, new: Any, targets: Array, kernel: str, lr: float | None) -> _Descent:
        values, vectors = np.linalg.eigh(exact_kernel(model, rows, kernel=kernel))
        top, n = float(values[-1]), len(values)
        rate = n / top if lr is None else as_number(lr, "lr", positive=True)
        if rate * top >= 2.0 * n:
            raise InputError(
                f"lr = {rate:.3g} diverges: the largest eigenvalue of the kernel allows less than {2.0 * n / top:.3g}."
            )
        cross = exact_kernel(model, new, rows, kernel=kernel) @ vectors
        return cls(np.maximum(values, 0.0), vectors, cross, vectors.T @ targets, rate)

    def random_part(self, model: Model, rows: Any, new: Any) -> tuple[Array, Array, Array]:
        """The covariance of the outputs at the beginning, the CK: of training samples, between both, of new ones."""
        own = exact_kernel(model, rows, kernel="ck")
        between = exact_kernel(model, new, rows, kernel="ck") @ self.vectors
        return self.vectors.T @ own @ self.vectors, between, exact_kernel(model, new, kernel="ck").diagonal()

    def figures(
        self, steps: int, labelled: Labelled, goal: Labelled, random: tuple[Array, Array, Array] | None
    ) -> tuple[float, float, float, float]:
        """Training loss, test loss, accuracy on both."""
        left = (1.0 - self.lr * self.values / len(self.values)) ** steps
        # (1 - left)/λ, which is t·lr/n where λ = 0.
        with np.errstate(divide="ignore", invalid="ignore"):
            filtered = (1.0 - left) / self.values
        filtered = np.where(
            self.values > 1e-14 * self.values[-1], filtered, steps * self.lr / len(self.values)
        )
        own = self.vectors @ ((1.0 - left)[:, None] * self.targets)
        scores = self.rotated @ (filtered[:, None] * self.targets)
        outputs = scores.shape[1]
        if random is None:
            pair = (Scores(own), Scores(scores))
        else:
            start, between, diagonal = random
            shrunk = self.vectors * left
            weights = self.rotated * filtered
            own_variance = np.einsum("ij,jk,ik->i", shrunk, start, shrunk, optimize=True)
            variance = diagonal - 2.0 * np.sum(weights * between, axis=1)
            variance = variance + np.einsum("ij,jk,ik->i", weights, start, weights, optimize=True)
            pair = (_random(own, own_variance), _random(scores, variance))
        losses = [
            0.5 * outputs * float(one.squared_errors(target.targets).mean())
            for one, target in zip(pair, (labelled, goal), strict=True)
        ]
        shares = [
            np.nan if target.codes is None else float(one.hits(target.codes).mean())
            for one, target in zip(pair, (labelled, goal), strict=True)
        ]
        return losses[0], losses[1], shares[0], shares[1]


def _random(scores: Array, variance: Array) -> Scores:
    """Scores whose outputs vary independently, with the same variance."""
    noise = NetworkNoise(np.maximum(variance, 0.0), np.eye(scores.shape[1]))
    return Scores(scores, noise)


__all__ = ["DescentCurve", "descent_curve"]
