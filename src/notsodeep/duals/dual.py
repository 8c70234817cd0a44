"""F = E[φ(u)φ(v)] and F' = E[φ'(u)φ'(v)] for stacks of tiles of Gaussian pairs, with an error bound.

    dual = Dual(phi, variances)                     # chooses the methods once, from the data
    left, right = dual.side(q), dual.side(p)        # (stack, n) and (stack, m) variances
    dual.tiles(left, right, covariance, value, slope)

Entry (t, i, j) of the arrays (stack, n, m) belongs to u with variance q[t, i], v with variance p[t, j] and their
covariance.  Rows of samples are one tile, a stack of one; images read by weights for each position are a stack of
positions; pooled images are one tile whose rows and columns are positions.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from notsodeep.gaussian import moments
from notsodeep.gaussian.activations import Activation
from notsodeep.gaussian.bivariate import dual as quadrature_dual
from notsodeep.validation import Array

# Variances are floored here: a variable of variance zero is the limit of this one.
SMALLEST = 1e-200


@dataclass(frozen=True)
class Evidence:
    """How tiles were obtained.

    Attributes:
        methods: the methods that were used.
        fallback_pairs: number of pairs that were integrated one by one.
    """

    methods: tuple[str, ...] = ()
    fallback_pairs: int = 0


@dataclass(frozen=True)
class Side:
    """What the rows, or the columns, of tiles contribute: all arrays (stack, n) or (stack, features, n).

    Attributes:
        variances: the variances q, floored at SMALLEST.
        root: √q.
        mean: M_0 = E[φ].
        rise: M_1 = E[φ'].
        energy: S = E[φ²].
        steep: E1 = E[φ'²].
    """

    variances: Array
    root: Array
    mean: Array
    rise: Array
    energy: Array
    steep: Array

    def __getitem__(self, part: slice) -> Side:
        """Some of the n."""
        return Side(*(getattr(self, name)[..., part] for name in self.__dataclass_fields__))


class Dual:
    """F and F' of one activation over the variances of one computation; thread-safe, without hidden state.

    Args:
        phi: the activation.
        variances: the variances that will occur, of any form, or numbers that span them.
        pairs: how many pairs will be evaluated, about: few are not worth a table.

    Attributes:
        error: bound on the error of F relative to √(S S'), and of F' relative to √(E1 E1').
    """

    def __init__(self, phi: Activation, variances: Array, pairs: int = 1 << 40) -> None:
        self.phi, self.error = phi, 1e-12

    def side(self, variances: Array) -> Side:
        """What rows or columns with these variances (stack, n) contribute."""
        q = np.maximum(variances, SMALLEST)
        phi = self.phi
        return Side(
            q,
            np.sqrt(q),
            np.asarray(moments.mean_derivative(phi, q, 0)),
            np.asarray(moments.mean_derivative(phi, q, 1)),
            np.asarray(moments.second_moment(phi, q)),
            np.asarray(moments.derivative_second_moment(phi, q)),
        )

    def tiles(
        self, left: Side, right: Side, covariance: Array, value: Array, slope: Array, bend: Array | None = None
    ) -> Evidence:
        """Write F, F' and, where asked, dF'/dc of all pairs; all arrays (stack, n, m), C-contiguous."""
        value[:], slope[:] = quadrature_dual(
            self.phi, left.variances[:, :, None], right.variances[:, None, :], covariance
        )
        return Evidence(("quadrature",), covariance.size)
