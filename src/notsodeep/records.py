"""Rows of results, dictionaries of plain values: chosen and grouped by their fields."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeVar

Row = Mapping[str, Any]
Rows = Sequence[Row]
R = TypeVar("R", bound=Row)


def chosen(rows: Iterable[R], **fields: Any) -> list[R]:
    """The rows whose fields have these values, in their order."""
    return [row for row in rows if all(row.get(name) == value for name, value in fields.items())]


def grouped(rows: Iterable[R], *fields: str) -> dict[tuple[Any, ...], list[R]]:
    """Rows with the same values of these fields together, in the order in which the values first occur."""
    groups: dict[tuple[Any, ...], list[R]] = {}
    for row in rows:
        groups.setdefault(tuple(row.get(name) for name in fields), []).append(row)
    return groups


__all__ = ["Row", "Rows", "chosen", "grouped"]
