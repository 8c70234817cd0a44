"""Which way F and F' of an activation are evaluated over fields."""

from __future__ import annotations

from notsodeep.gaussian.activations import Activation
from notsodeep.pairs.bent_fields import BentFields
from notsodeep.pairs.careful_fields import CarefulFields
from notsodeep.pairs.field_layout import Layout
from notsodeep.pairs.field_series import field_series
from notsodeep.pairs.pair_fields import FieldMethod
from notsodeep.pairs.series_fields import SeriesFields
from notsodeep.validation import Array


def method_for(phi: Activation, variances: Array, layout: Layout) -> FieldMethod:
    """The fastest way to evaluate fields of this activation over these variances (flat, positive)."""
    shape = phi.shape
    if shape.is_homogeneous and shape.pieces is not None:
        return BentFields(phi)
    series = field_series(shape, phi.gain**2 * variances)
    if series is not None:
        return SeriesFields(phi, series, layout, series.sample_terms(phi.gain**2 * variances))
    return CarefulFields(phi, layout)


__all__ = ["method_for"]
