"""Select and group rows of results, which are dictionaries of plain values."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeVar

Row = Mapping[str, Any]
Rows = Sequence[Row]
R = TypeVar("R", bound=Row)


def chosen(rows: Iterable[R], **fields: Any) -> list[R]:
    """Select the rows whose fields have these values, in their order."""
    return [row for row in rows if all(row.get(name) == value for name, value in fields.items())]


def grouped(rows: Iterable[R], *fields: str) -> dict[tuple[Any, ...], list[R]]:
    """Group rows by the values of these fields, in the order in which the values first occur."""
    groups: dict[tuple[Any, ...], list[R]] = {}
    for row in rows:
        groups.setdefault(tuple(row.get(name) for name in fields), []).append(row)
    return groups


__all__ = ["Row", "Rows", "chosen", "grouped"]
