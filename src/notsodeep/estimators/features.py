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
from notsodeep.estimators.scaling import RowScaler, checked_rows
from notsodeep.gaussian.activations import Activation
from notsodeep.models import DEQ, Explicit
from notsodeep.models.programs import LayerInput
from notsodeep.validation import Array, as_count, root_mean_square_norm


@dataclass(eq=False, repr=False)
class DEQFeatures(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    """Random features of the explicit network that shares the kernel of a DEQ.

    The DEQ is never solved: its designed twin (docs/theory.md (7.1)), one or two layers, is drawn once. The features
    are its last layer x^(L) of (1.4), and their inner products tend to the conjugate kernel Σ^(L) of (3.11). The error
    falls like 1/√n_components. What remains as n_components grows is the kernel error of the twin, which vanishes in
    high dimension (`residual_` tells whether their scalars agree).

    The DEQ is centred first, as every design is: compare with the kernel of `model_`, on rows scaled by `rows_`. It has
    no bias, which would add a constant to all pairs.

    Args:
        n_components: number of features; also the width of hidden layers before the last.
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
        weights_: the weights of each layer, shape (m, inputs).
        rows_: the fitted `RowScaler`.
    """

    n_components: int = 1000
    _: KW_ONLY
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
        as_count(self.n_components, "n_components")
        model = DEQ(self.activation, self.sigma_a2, self.sigma_b2)
        rows = checked_rows(self, X, reset=True)
        self.rows_ = RowScaler(center=self.center, scale=self.scale).fit(rows)
        tau0 = _typical_norm(self.rows_.transform(rows))
        self.network_, self.residual_ = _designed(model, tau0)
        self.model_ = model.centred(tau0)
        self._draw(rows.shape[1])
        return self

    def transform(self, X: ArrayLike) -> Array:
        """Compute the features, shape (n, n_components)."""
        check_is_fitted(self)
        rows = signal = self.rows_.transform(checked_rows(self, X))
        for layer, weights in zip(self.network_.inputs, self.weights_, strict=True):
            signal = layer.phi(_entering(layer, signal, rows) @ weights.T) / np.sqrt(len(weights))
        return signal

    @property
    def _n_features_out(self) -> int:
        """Number of features, for `get_feature_names_out`."""
        return int(self.n_components)

    def _draw(self, columns: int) -> None:
        rng, width, inputs = generator(self.random_state), int(self.n_components), columns
        self.weights_: list[Array] = []
        for layer in self.network_.inputs:
            inputs += columns if layer.inject else 0
            self.weights_.append(rng.standard_normal((width, inputs)))
            inputs = width


def _entering(layer: LayerInput, signal: Array, rows: Array) -> Array:
    """Compute the input of a layer: √w times the layer before, next to √c times the input, as in (7.9)."""
    if layer.weight != 1.0:
        signal = np.sqrt(layer.weight) * signal
    return np.hstack([signal, np.sqrt(layer.inject) * rows]) if layer.inject else signal


@lru_cache(maxsize=128)
def _designed(model: DEQ, tau0: float) -> tuple[Explicit, float]:
    """Design the network; cached, since a search over other parameters needs the same one many times."""
    found = design(model, tau0)
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
