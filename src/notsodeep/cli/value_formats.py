"""Format numbers, lists and times for people; anything else as text."""

from __future__ import annotations

from typing import Any


def shown(value: Any) -> str:
    """Format a JSON value briefly: four figures of a number, the range of a long list."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, list | tuple):
        if len(value) <= 6:
            return ", ".join(map(shown, value))
        return f"{len(value)} values, {shown(value[0])} … {shown(value[-1])}"
    if isinstance(value, dict):
        return ", ".join(f"{key}: {shown(part)}" for key, part in value.items())
    return str(value)


def scaled(value: Any, factor: float, unit: str, digits: int = 3) -> str:
    """Format a number with a unit; anything that is not a number is formatted by `shown`."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return shown(value)
    return f"{factor * value:.{digits}g} {unit}"


def seconds(value: Any) -> str:
    """Format a time in minutes, seconds or milliseconds."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return shown(value)
    if value >= 90.0:
        return f"{value / 60.0:.1f} min"
    return f"{value:.3g} s" if value >= 1.0 else f"{1e3 * value:.3g} ms"
