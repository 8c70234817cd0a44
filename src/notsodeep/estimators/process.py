"""`DEQKernel`: the exact kernels of a DEQ for scikit-learn's Gaussian processes, with their gradients."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from sklearn.gaussian_process.kernels import Hyperparameter, Kernel

from notsodeep.equivalents.expansion import exact_diagonal
from notsodeep.errors import InputError
from notsodeep.estimators.gradient import Change, kernel_and_gradients
from notsodeep.estimators.machine import KERNELS
from notsodeep.gaussian.activations import Activation, activation
from notsodeep.kernels import exact_kernel
from notsodeep.models import DEQ
from notsodeep.validation import Array, as_number, as_rows, one_of, squared_norms

# The largest slope is looked for within this many units of zero, where the pre-activations of scaled rows are.
_REACH = 8.0
# How much of the admissible range of σ_a² the default bounds leave to the optimiser, and where they begin.
_SHARE, _LEAST = 0.95, 1e-4

Bounds = tuple[float, float] | str


@dataclass(eq=False, repr=False)
class DEQKernel(Kernel):
    """The conjugate or tangent kernel of a DEQ as a covariance function, docs/theory.md (3.3) and (3.8).

    With "ck" the Gaussian process is the infinitely wide DEQ at initialisation, with "ntk" the one that governs
    gradient descent on all weights. Not stationary. Scale the rows first (`RowScaler`), or set `length_scale`; multiply
    by a `ConstantKernel` for an amplitude and add a `WhiteKernel` for noise:

        make_pipeline(RowScaler(), GaussianProcessRegressor(ConstantKernel() * DEQKernel("tanh") + WhiteKernel()))

    The gradients are those of the fixed point, by implicit differentiation, not differences.

    Args:
        activation: of the DEQ, by name or as an `Activation`.
        sigma_a2: variance of the recurrent weights, a hyperparameter.
        sigma_a2_bounds: "auto", a pair, or "fixed". "auto" keeps σ_a² below 0.95/max(1, Lip(φ)²), so that the fixed
            point is unique and the tangent kernel finite, whatever the data.
        length_scale: the rows are divided by it, a hyperparameter. With a homogeneous activation (ReLU) it is an
            amplitude.
        length_scale_bounds: a pair, or "fixed".
        kernel: "ck" or "ntk".
        sigma_b2: variance of the input weights; 1 - sigma_a2, moving with it, if not given.
        bias2: variance of the bias.
    """

    activation: str | Activation = "relu"
    sigma_a2: float = 0.2
    sigma_a2_bounds: Bounds = "auto"
    length_scale: float = 1.0
    length_scale_bounds: Bounds = "fixed"
    _: KW_ONLY
    kernel: str = "ck"
    sigma_b2: float | None = None
    bias2: float = 0.0

    @property
    def hyperparameter_sigma_a2(self) -> Hyperparameter:
        """σ_a², within its bounds."""
        bounds = self.sigma_a2_bounds
        if isinstance(bounds, str) and bounds == "auto":
            bounds = (_LEAST, admissible(self.activation))
        return Hyperparameter("sigma_a2", "numeric", bounds)

    @property
    def hyperparameter_length_scale(self) -> Hyperparameter:
        """The length scale."""
        return Hyperparameter("length_scale", "numeric", self.length_scale_bounds)

    def __call__(self, X: ArrayLike, Y: ArrayLike | None = None, eval_gradient: bool = False) -> Any:
        """The kernel (n, k); with `eval_gradient` also its derivatives (n, n, d) in the logarithms that are free."""
        rows = self._scaled(X)
        if not eval_gradient:
            others = None if Y is None else self._scaled(Y)
            return exact_kernel(self._model(), rows, others, kernel=self._name())
        if Y is not None:
            raise InputError("The gradient is that of the kernel of X with itself: leave Y out.")
        changes = [self._change(parameter.name) for parameter in self.hyperparameters if not parameter.fixed]
        value, slopes = kernel_and_gradients(self._model(), rows, self._name(), changes)
        return value, np.stack(slopes, axis=2) if slopes else np.empty((*value.shape, 0))

    def diag(self, X: ArrayLike) -> Array:
        """The diagonal of the kernel."""
        rows = self._scaled(X)
        return exact_diagonal(self._model(), squared_norms(rows), self._name())

    def is_stationary(self) -> bool:
        """It is not: rows of different norms have different variances."""
        return False

    def __repr__(self) -> str:
        name = self.activation if isinstance(self.activation, str) else str(self.activation)
        extra = "" if self.length_scale == 1.0 else f", length_scale={self.length_scale:.3g}"
        return f"DEQKernel({name}, {self.kernel}, sigma_a2={self.sigma_a2:.3g}{extra})"

    def _scaled(self, X: ArrayLike) -> Array:
        return as_rows(X) / as_number(self.length_scale, "length_scale", positive=True)

    def _name(self) -> str:
        return one_of(self.kernel, tuple(KERNELS), "kernel")

    def _model(self) -> DEQ:
        return DEQ(self.activation, self.sigma_a2, self.sigma_b2, self.bias2)

    def _change(self, name: str) -> Change:
        """What a change of the logarithm of a hyperparameter does to σ_a² and to σ_b² (c is that of scaled rows)."""
        model = self._model()
        if name == "length_scale":
            return Change(0.0, -2.0 * model.sigma_b2)
        return Change(model.sigma_a2, 0.0 if self.sigma_b2 is not None else -model.sigma_a2)


def admissible(name: str | Activation) -> float:
    """The upper end of the default bounds: 0.95/max(1, Lip(φ)²), so that σ_a² E[φ'(u)φ'(v)] < 1 for all data.

    Lip(φ) is the largest slope within ±8, which is that of every built-in activation but polynomials.
    """
    slopes = activation(name).derivative(np.linspace(-_REACH, _REACH, 4001))
    return _SHARE / max(1.0, float(np.abs(slopes).max()) ** 2)
