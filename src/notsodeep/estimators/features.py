"""`DEQFeatures`: random features of the explicit network that shares the kernel of a DEQ."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from functools import lru_cache
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from notsodeep.designs import design
from notsodeep.errors import InputError
from notsodeep.estimators.ridge import KERNELS
from notsodeep.estimators.scaling import RowScaler, checked_rows
from notsodeep.gaussian.activations import Activation
from notsodeep.models import DEQ, Explicit
from notsodeep.models.programs import LayerInput
from notsodeep.validation import Array, as_count, one_of, root_mean_square_norm


@dataclass(eq=False, repr=False)
class DEQFeatures(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    """Random features of the explicit network that shares the kernel of a DEQ.

    The DEQ is never solved: its designed twin (docs/theory.md (7.1) and (7.2)), one or two layers, is drawn once. For
    "ck" the features are the last layer x^(L) of (1.4), and their inner products tend to Σ^(L) of (3.11). For "ntk"
    each layer also has a tangent part,

        ψ^(l) = [x^(l), (N_l ψ^(l-1)) ∘ σ_l'(V_l x^(l-1))/√m],   ψ^(0) = x,   N_l, V_l, W_l Gaussian, independent,

    whose inner products have the mean <ψ^(l-1), ψ'^(l-1)> F'_l, the second term of the recursion (3.11) for Θ^(l). The
    error falls like 1/√n_components. What remains as n_components grows is the kernel error of the twin, which vanishes
    in high dimension (`residual_` tells whether their scalars agree).

    The DEQ is centred first, as every design is: compare with the kernel of `model_`, on rows scaled by `rows_`. It has
    no bias, which would add a constant to all pairs.

    Args:
        n_components: number of features; also the width of hidden layers before the last. For "ntk" half of them are
            those of the CK.
        kernel: "ck" or "ntk".
        activation: activation of the DEQ, by name or as an `Activation`.
        sigma_a2: variance of the recurrent weights.
        sigma_b2: variance of the input weights; 1 - sigma_a2 if None.
        center: as in `RowScaler`.
        scale: as in `RowScaler`.
        random_state: a seed, or a generator to draw from; None draws other weights each time.

    Attributes:
        network_: the designed `Explicit`.
        model_: the centred `DEQ` that it replaces.
        residual_: the largest relative difference of their scalars; below 1e-9 the design is exact.
        weights_: W_l for each layer, shape (m, inputs).
        slope_weights_, tangent_weights_: V_l and N_l; empty for "ck".
        rows_: the fitted `RowScaler`.
    """

    n_components: int = 1000
    _: KW_ONLY
    kernel: str = "ck"
    activation: str | Activation = "relu"
    sigma_a2: float = 0.2
    sigma_b2: float | None = None
    center: bool = True
    scale: float | str | None = "auto"
    random_state: Any = 0

    def fit(self, X: ArrayLike, y: Any = None) -> Self:
        """Design the network for the norm of these rows and draw its weights.

        Args:
            X: samples in rows.
            y: not used.
        """
        one_of(self.kernel, KERNELS, "kernel")
        as_count(self.n_components, "n_components")
        model = DEQ(self.activation, self.sigma_a2, self.sigma_b2)
        rows = checked_rows(self, X, reset=True)
        self.rows_ = RowScaler(center=self.center, scale=self.scale).fit(rows)
        tau0 = _typical_norm(self.rows_.transform(rows))
        self.network_, self.residual_ = _designed(model, tau0, self.kernel)
        self.model_ = model.centred(tau0)
        self._draw(rows.shape[1])
        return self

    def transform(self, X: ArrayLike) -> Array:
        """Compute the features, shape (n, n_components)."""
        check_is_fitted(self)
        rows = signal = self.rows_.transform(checked_rows(self, X))
        if not self.tangent_weights_:
            for layer, weights in zip(self.network_.inputs, self.weights_, strict=True):
                signal = _normalised(layer.phi(_entering(layer, signal, rows) @ weights.T))
            return signal
        tangent = signal
        for number, layer in enumerate(self.network_.inputs):
            signal, tangent = _entering(layer, signal, rows), _entering(layer, tangent, rows)
            slopes = layer.phi.derivative(signal @ self.slope_weights_[number].T)
            second = _normalised(slopes * (tangent @ self.tangent_weights_[number].T))
            signal = _normalised(layer.phi(signal @ self.weights_[number].T))
            tangent = np.hstack([signal, second])
        return tangent

    @property
    def _n_features_out(self) -> int:
        """Number of features, for `get_feature_names_out`."""
        return int(self.n_components)

    def _draw(self, columns: int) -> None:
        rng, width, depth = generator(self.random_state), int(self.n_components), len(self.network_.layers)
        inputs = tangent_inputs = columns
        self.weights_: list[Array] = []
        self.slope_weights_: list[Array] = []
        self.tangent_weights_: list[Array] = []
        for number, layer in enumerate(self.network_.inputs):
            if layer.inject:
                inputs, tangent_inputs = inputs + columns, tangent_inputs + columns
            # The two parts of the last layer have n_components features together.
            split = self.kernel == "ntk" and number == depth - 1
            first, second = (width - width // 2, width // 2) if split else (width, width)
            self.weights_.append(rng.standard_normal((first, inputs)))
            if self.kernel == "ntk":
                self.slope_weights_.append(rng.standard_normal((second, inputs)))
                self.tangent_weights_.append(rng.standard_normal((second, tangent_inputs)))
                tangent_inputs = first + second
            inputs = first


def _entering(layer: LayerInput, signal: Array, rows: Array) -> Array:
    """Compute the input of a layer: √w times the layer before, next to √c times the input, as in (7.9)."""
    if layer.weight != 1.0:
        signal = np.sqrt(layer.weight) * signal
    return np.hstack([signal, np.sqrt(layer.inject) * rows]) if layer.inject else signal


def _normalised(block: Array) -> Array:
    """Divide the block in place by the root of its number of columns, which is 0 if n_components is 1."""
    block /= np.sqrt(max(1, block.shape[1]))
    return block


@lru_cache(maxsize=128)
def _designed(model: DEQ, tau0: float, kernel: str) -> tuple[Explicit, float]:
    """Design the network; cached, since a search over other parameters needs the same one many times."""
    found = design(model, tau0, kernel)
    return found.network, found.residual


def _typical_norm(rows: Array) -> float:
    """Compute the root mean square norm to nine digits; 1 if all rows are zero.

    No design needs more digits, and rows that were scaled to 1 have exactly 1, whatever the rounding.
    """
    return float(f"{root_mean_square_norm(rows):.9g}") or 1.0


def generator(random_state: Any) -> np.random.Generator:
    """Convert a random state of scikit-learn to a generator; the global one is never used.

    A number seeds a separate stream: with the plain one, samples drawn with `default_rng(0)` and weights drawn with
    `random_state=0` would be the same numbers, and the features of such samples far from their kernel.
    """
    if isinstance(random_state, np.random.Generator):
        return random_state
    if isinstance(random_state, np.random.RandomState):
        random_state = random_state.randint(np.iinfo(np.int32).max)
    try:
        return np.random.default_rng(np.random.SeedSequence(random_state).spawn(1)[0])
    except (TypeError, ValueError):
        raise InputError(
            f"random_state must be a whole number, a NumPy generator or None, got {random_state!r}."
        ) from None
