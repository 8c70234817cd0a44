"""Which way F and F' of an activation are evaluated over fields."""

from __future__ import annotations

from notsodeep.errors import InputError
from notsodeep.gaussian.activations import Activation
from notsodeep.gaussian.shapes import Shape
from notsodeep.pairs.bent_fields import BentFields
from notsodeep.pairs.careful_fields import CarefulFields
from notsodeep.pairs.field_layout import Layout
from notsodeep.pairs.field_series import field_series
from notsodeep.pairs.field_table import FieldTable, field_table
from notsodeep.pairs.log_table import LogTable
from notsodeep.pairs.pair_fields import FieldMethod
from notsodeep.pairs.series_fields import SeriesFields
from notsodeep.pairs.table_fields import TableFields
from notsodeep.pairs.wedge_fields import WedgeFields
from notsodeep.validation import Array


def method_for(phi: Activation, variances: Array, layout: Layout) -> FieldMethod:
    """The fastest way to evaluate fields of this activation over these variances (flat, positive)."""
    shape = phi.shape
    if shape.is_homogeneous and shape.pieces is not None:
        return BentFields(phi)
    series = field_series(shape, phi.gain**2 * variances)
    if series is not None:
        return SeriesFields(phi, series, layout, series.sample_terms(phi.gain**2 * variances))
    segments = LogTable(phi.gain**2 * variances) if len(variances) else None
    if segments is not None and shape.pieces is not None:
        return WedgeFields(phi, shape.pieces, segments, layout)
    if segments is not None and not any(shape.kinks):
        table = _table(shape, segments)
        if table is not None:
            return TableFields(phi, table, segments, layout)
    return CarefulFields(phi, layout)


def _table(shape: Shape, segments: LogTable) -> FieldTable | None:
    """The table over these segments of log q; None if it cannot be resolved."""
    try:
        table = field_table(shape, segments.bottom, segments.top)
    except InputError:
        # The range reaches where a callable outgrows the bell.
        return None
    return table if table.resolved else None


__all__ = ["method_for"]
