"""Which way F and F' of an activation are evaluated over fields."""

from __future__ import annotations

from notsodeep.errors import InputError
from notsodeep.gaussian.activations import Activation
from notsodeep.gaussian.shapes import Shape
from notsodeep.pairs.bent_fields import BentFields
from notsodeep.pairs.careful_fields import CarefulFields
from notsodeep.pairs.field_layout import Layout
from notsodeep.pairs.field_series import FieldSeries, field_series
from notsodeep.pairs.field_table import FieldTable, field_table
from notsodeep.pairs.log_table import LogTable
from notsodeep.pairs.pair_fields import FieldMethod, MaskedMethod
from notsodeep.pairs.series_fields import SeriesFields
from notsodeep.pairs.table_fields import TableFields
from notsodeep.pairs.wedge_fields import WedgeFields
from notsodeep.validation import Array


def method_for(phi: Activation, variances: Array, layout: Layout, allowed: float = 0.0) -> FieldMethod:
    """The fastest way to evaluate fields of this activation over these variances (flat, positive).

    `allowed` is what F' may leave out.
    """
    shape, inner = phi.shape, phi.gain**2 * variances
    if shape.is_homogeneous and shape.pieces is not None:
        return BentFields(phi)
    series = field_series(shape, inner)
    if series is not None:
        return SeriesFields(phi, series, layout, series.sample_terms(inner))
    otherwise = _without_series(phi, inner, layout, allowed) if len(inner) else None
    if otherwise is None:
        return CarefulFields(phi, layout)
    series = FieldSeries(shape, inner, partial=True)
    return SeriesFields(phi, series, layout, series.sample_terms(inner), otherwise)


def _without_series(phi: Activation, variances: Array, layout: Layout, allowed: float) -> MaskedMethod | None:
    """The way that serves every correlation of an activation whose series does not, if there is one."""
    shape, segments = phi.shape, LogTable(variances)
    if shape.pieces is not None:
        return WedgeFields(phi, shape.pieces, segments, layout)
    table = None if any(shape.kinks) else _table(shape, segments)
    return TableFields(phi, table, segments, layout, allowed) if table is not None else None


def _table(shape: Shape, segments: LogTable) -> FieldTable | None:
    """The table over these segments of log q; None if it cannot be resolved."""
    try:
        table = field_table(shape, segments.bottom, segments.top)
    except InputError:
        # The range reaches where a callable outgrows the bell.
        return None
    return table if table.resolved else None


__all__ = ["method_for"]
