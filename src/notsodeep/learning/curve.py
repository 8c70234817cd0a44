"""`LearningCurve`: predicted accuracy and error against the number of training samples."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import numpy as np

from notsodeep.display import Shown
from notsodeep.errors import InputError
from notsodeep.validation import Array, IntArray, frozen

_FIELDS = ("n", "accuracy", "mse", "interval", "ridge", "extrapolated")
_SCORES = ("score_means", "score_variances")


@dataclass(frozen=True, eq=False, repr=False)
class LearningCurve(Shown):
    """What ridge regression with a kernel, or a network whose readout is trained by ridge, will reach on new samples.

    Attributes:
        n: numbers of training samples.
        accuracy: expected share of new samples that are classified rightly, for each n; NaN in a regression.
        mse: expected squared error on a new sample, averaged over outputs. Targets: ±1 for two classes, else one-hot.
        interval: of the accuracy (in a regression of the mse), shape (len(n), 2): where nine of ten training sets are.
        ridge: λ at each n, added to the diagonal of the kernel matrix.
        extrapolated: whether the number goes beyond what the samples themselves show; never for a mixture.
        width: of the network; None for the kernel, which is that of infinite width.
        kernel: which kernel.
        model: the model, in words.
        source: what the prediction was made from, in words.
        score_means: of a mixture, the mean score of each class, shape (len(n), classes, outputs); None from a sample.
        score_variances: of a mixture, the variance of the scores in each class over samples and training sets, the same
            shape; None from a sample.
    """

    n: IntArray
    accuracy: Array
    mse: Array
    interval: Array
    ridge: Array
    extrapolated: Array
    width: int | None
    kernel: str
    model: str
    source: str
    score_means: Array | None = None
    score_variances: Array | None = None

    def plot(self, ax: Any = None, measured: Any = None) -> Any:
        """Draw the curve with its band, and measured points (n, accuracy[, error]) in rows; returns the Axes."""
        from notsodeep.figures import plot_learning_curve

        return plot_learning_curve(self, ax=ax, measured=measured)

    @property
    def is_classification(self) -> bool:
        """Whether there are classes, and so an accuracy."""
        return not bool(np.isnan(self.accuracy).all())

    def to_dict(self) -> dict[str, Any]:
        """Plain values, which `from_dict` takes back."""
        arrays = {name: np.asarray(getattr(self, name)).tolist() for name in _FIELDS}
        # JSON has no NaN.
        arrays["accuracy"] = arrays["accuracy"] if self.is_classification else None
        words = {"width": self.width, "kernel": self.kernel, "model": self.model, "source": self.source}
        scores = {
            name: None if (values := getattr(self, name)) is None else values.tolist() for name in _SCORES
        }
        return {"kind": "LearningCurve", **arrays, **words, **scores}

    @classmethod
    def from_dict(cls, data: Any) -> LearningCurve:
        """The curve that `to_dict` wrote."""
        if not isinstance(data, dict) or data.get("kind") != "LearningCurve":
            raise InputError("This is not a learning curve: to_dict() of one is needed.")
        number = len(data["n"])
        accuracy = data["accuracy"] if data["accuracy"] is not None else [np.nan] * number
        arrays: dict[str, Any] = {
            name: frozen(np.asarray(data[name])) for name in _FIELDS if name != "accuracy"
        }
        arrays |= {name: frozen(np.asarray(data[name])) for name in _SCORES if data.get(name) is not None}
        words = {name: data[name] for name in ("width", "kernel", "model", "source")}
        return cls(accuracy=frozen(np.asarray(accuracy, dtype=np.float64)), **arrays, **words)

    def to_json(self) -> str:
        """The whole curve as JSON."""
        return json.dumps(self.to_dict(), allow_nan=False)

    def __str__(self) -> str:
        what = "kernel" if self.width is None else f"width {self.width}"
        lines = [f"{self.model}, {self.kernel}, {what}; predicted from {self.source}."]
        for row in range(len(self.n)):
            low, high = self.interval[row]
            note = "  (extrapolated)" if self.extrapolated[row] else ""
            figure = (
                f"accuracy {self.accuracy[row]:.1%} ({low:.1%} to {high:.1%}), mse {self.mse[row]:.4g}"
                if self.is_classification
                else f"mse {self.mse[row]:.4g} ({low:.4g} to {high:.4g})"
            )
            lines.append(f"  n = {self.n[row]}: {figure}, ridge {self.ridge[row]:.3g}{note}")
        return "\n".join(lines)

    def _facts(self) -> dict[str, Any]:
        shown: dict[str, Any] = {"n": self.n.tolist()}
        if self.is_classification:
            shown["accuracy"] = np.round(self.accuracy, 4).tolist()
        shown["mse"] = np.round(self.mse, 4).tolist()
        shown |= {"width": self.width, "kernel": self.kernel, "model": self.model}
        return shown | {"extrapolated": int(np.sum(self.extrapolated)), "source": self.source}


__all__ = ["LearningCurve"]
