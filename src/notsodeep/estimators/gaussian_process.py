"""`DEQKernel`: the exact kernels of a DEQ for scikit-learn's Gaussian processes, with their gradients.

The gradients are central differences of fourth order. Kernels are exact to about 1e-12, so with steps of 1e-3 in the
logarithm of a hyperparameter about nine digits of a gradient are right, far more than an optimiser needs. Steps are
shorter near the end of the range of σ_a², where kernels change like 1/(1 - σ_a² D).
"""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from sklearn.gaussian_process.kernels import Hyperparameter, Kernel

from notsodeep.equivalents.expansion import exact_diagonal
from notsodeep.errors import InputError
from notsodeep.estimators.ridge import KERNELS
from notsodeep.gaussian.activations import Activation, activation
from notsodeep.kernels import exact_kernel
from notsodeep.models import DEQ
from notsodeep.validation import Array, as_number, as_rows, one_of, squared_norms

# The largest slope is searched within this distance of zero, where the pre-activations of scaled rows are.
_REACH = 8.0
# The default bounds of σ_a²: the smallest value, and the largest as a fraction of the admissible range.
_SMALLEST, _FRACTION = 1e-4, 0.95
# Largest step of the differences in the logarithm of a hyperparameter, also as a fraction of the distance of σ_a² from
# the end of its range; the weights of 1 and 2 steps, fourth order.
_STEP, _STEP_FRACTION = 1e-3, 2e-3
_WEIGHTS = ((-2, 1 / 12), (-1, -2 / 3), (1, 2 / 3), (2, -1 / 12))

Bounds = tuple[float, float] | str


@dataclass(eq=False, repr=False)
class DEQKernel(Kernel):
    """The conjugate or tangent kernel of a DEQ as a covariance function, docs/theory.md (3.3) and (3.8).

    With "ck" the Gaussian process is the infinitely wide DEQ at initialisation, with "ntk" the one that governs
    gradient descent on all weights. Not stationary. Scale the rows first (`RowScaler`), or set `length_scale`; multiply
    by a `ConstantKernel` for an amplitude, add another one for the bias of the readout (a large constant is the
    intercept of `DEQKernelRidge`) and a `WhiteKernel` for noise:

        make_pipeline(RowScaler(), GaussianProcessRegressor(
            ConstantKernel() * DEQKernel("tanh") + ConstantKernel() + WhiteKernel()))

    Args:
        activation: of the DEQ, by name or as an `Activation`.
        sigma_a2: width times the variance of a recurrent weight, a hyperparameter.
        sigma_a2_bounds: "auto", a pair, or "fixed". "auto" keeps σ_a² below 0.95/max(1, Lip(φ)²), so that the fixed
            point is unique and the tangent kernel finite, whatever the data.
        length_scale: the rows are divided by it, a hyperparameter. With a homogeneous activation (ReLU) it is an
            amplitude.
        length_scale_bounds: a pair, or "fixed".
        kernel: "ck" or "ntk".
        sigma_b2: variance of an input weight; 1 - sigma_a2, moving with it, if not given.
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
        """The hyperparameter σ_a² with its bounds."""
        bounds = self.sigma_a2_bounds
        if isinstance(bounds, str) and bounds == "auto":
            bounds = (_SMALLEST, admissible(self.activation))
        return Hyperparameter("sigma_a2", "numeric", bounds)

    @property
    def hyperparameter_length_scale(self) -> Hyperparameter:
        """The hyperparameter `length_scale` with its bounds."""
        return Hyperparameter("length_scale", "numeric", self.length_scale_bounds)

    def __call__(self, X: ArrayLike, Y: ArrayLike | None = None, eval_gradient: bool = False) -> Any:
        """Compute the kernel (n, k); with `eval_gradient` also its derivatives (n, n, d) in the free logarithms."""
        rows = self._scaled(X)
        if not eval_gradient:
            others = None if Y is None else self._scaled(Y)
            return exact_kernel(self._model(), rows, others, kernel=self._name())
        if Y is not None:
            raise InputError("eval_gradient=True differentiates the kernel of X with itself: leave Y out.")
        value = exact_kernel(self._model(), rows, kernel=self._name())
        slopes = [self._slope(X, place) for place in range(len(self.theta))]
        return value, np.stack(slopes, axis=2) if slopes else np.empty((*value.shape, 0))

    def _slope(self, X: ArrayLike, place: int) -> Array:
        """The derivative of the kernel in the logarithm of the free hyperparameter at this place."""
        variance = max(self.sigma_a2, _SMALLEST)
        # The range of the fixed point for all data, and that of σ_b² = 1 - σ_a².
        ends = [end for end in (admissible(self.activation) / _FRACTION, 1.0) if end > variance]
        step = min([_STEP, *(_STEP_FRACTION * (end / variance - 1.0) for end in ends)])
        unit = step * (np.arange(len(self.theta)) == place)
        terms = (weight * self.clone_with_theta(self.theta + k * unit)(X) for k, weight in _WEIGHTS)
        return np.asarray(sum(terms) / step)

    def diag(self, X: ArrayLike) -> Array:
        """Compute the diagonal of the kernel without the rest of it."""
        rows = self._scaled(X)
        return exact_diagonal(self._model(), squared_norms(rows), self._name())

    def is_stationary(self) -> bool:
        """Return False: rows of different norms have different variances."""
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


def admissible(name: str | Activation) -> float:
    """The upper end of the default bounds: 0.95/max(1, Lip(φ)²), so that σ_a² E[φ'(u)φ'(v)] < 1 for all data.

    Lip(φ) is the largest slope within ±8, which is that of every built-in activation but polynomials.
    """
    slopes = activation(name).derivative(np.linspace(-_REACH, _REACH, 4001))
    return _FRACTION / max(1.0, float(np.abs(slopes).max()) ** 2)
