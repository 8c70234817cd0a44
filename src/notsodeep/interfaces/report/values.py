"""Numbers, lists and times as people read them; whatever else comes, as text."""

from __future__ import annotations

from typing import Any

from notsodeep.interfaces.report.markup import Html, element


def shown(value: Any) -> str:
    """A value of JSON in few characters: four figures of a number, the range of a long list."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, list | tuple):
        return _list(value)
    if isinstance(value, dict):
        return ", ".join(f"{key}: {shown(part)}" for key, part in value.items())
    return str(value)


def _list(values: list[Any] | tuple[Any, ...]) -> str:
    if len(values) <= 6:
        return ", ".join(shown(value) for value in values)
    return f"{len(values)} values, {shown(values[0])} … {shown(values[-1])}"


def verdict(holds: bool | None) -> Html | str:
    """Yes or no, told by word, sign and colour."""
    if holds is None:
        return ""
    return element("span", "✓ yes", class_="yes") if holds else element("span", "✗ no", class_="no")


def scaled(value: Any, factor: float, unit: str, digits: int = 3) -> str:
    """A number in a unit; text that came in place of a number stays text."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return shown(value)
    return f"{factor * value:.{digits}g} {unit}"


def seconds(value: Any) -> str:
    """A time in the unit that suits it."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return shown(value)
    if value >= 90.0:
        return f"{value / 60.0:.1f} min"
    return f"{value:.2g} s" if value >= 1.0 else f"{1e3 * value:.3g} ms"


__all__ = ["scaled", "seconds", "shown", "verdict"]
