"""`LearningCurve`: predicted accuracy and error against the number of training samples."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from notsodeep.display import Shown
from notsodeep.validation import Array, IntArray

_FIELDS = ("n", "accuracy", "mse", "interval", "ridge", "extrapolated")


@dataclass(frozen=True, eq=False, repr=False)
class LearningCurve(Shown):
    """Predicted accuracy and error of ridge regression with a kernel, or of a network with a ridge readout.

    Attributes:
        n: numbers of training samples.
        accuracy: expected share of new samples classified correctly, for each n; NaN in a regression.
        mse: expected squared error on a new sample, averaged over outputs. Targets: ±1 for two classes, else one-hot.
        interval: of the accuracy (in a regression of the mse), shape (len(n), 2): nine of ten training sets lie inside.
        ridge: λ at each n, added to the diagonal of the kernel matrix.
        extrapolated: whether n exceeds the number of labelled samples; never for a mixture.
        width: of the network; None for the kernel (infinite width).
        kernel: which kernel.
        model: the model, in words.
        source: what the prediction is based on, in words.
        caveat: whether the prediction holds for a network that learns features; empty unless `richness` was given.
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
    caveat: str = ""

    def plot(self, ax: Any = None, measured: Any = None) -> Any:
        """Draw the curve with its band, and measured points (n, accuracy[, error]) in rows; returns the Axes."""
        from notsodeep.figures import plot_learning_curve

        return plot_learning_curve(self, ax=ax, measured=measured)

    @property
    def is_classification(self) -> bool:
        """Whether there are classes, and so an accuracy."""
        return not bool(np.isnan(self.accuracy).all())

    def to_dict(self) -> dict[str, Any]:
        """The curve as plain values that JSON can hold; accuracy is None in a regression."""
        arrays = {name: np.asarray(getattr(self, name)).tolist() for name in _FIELDS}
        # JSON has no NaN.
        arrays["accuracy"] = arrays["accuracy"] if self.is_classification else None
        words = {"width": self.width, "kernel": self.kernel, "model": self.model, "source": self.source}
        words |= {"caveat": self.caveat} if self.caveat else {}
        return {"kind": "LearningCurve", **arrays, **words}

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
        return "\n".join([*lines, self.caveat] if self.caveat else lines)

    def _facts(self) -> dict[str, Any]:
        shown: dict[str, Any] = {"n": self.n.tolist()}
        if self.is_classification:
            shown["accuracy"] = np.round(self.accuracy, 4).tolist()
        shown["mse"] = np.round(self.mse, 4).tolist()
        shown |= {"width": self.width, "kernel": self.kernel, "model": self.model}
        return shown | {"extrapolated": int(np.sum(self.extrapolated)), "source": self.source}


__all__ = ["LearningCurve"]
