"""Which data come with the package."""

from __future__ import annotations

# Two are drawn, the digits are scikit-learn's.
_EMBEDDED = ("mixture", "sphere", "digits")


def not_embedded(*names: str) -> tuple[str, ...]:
    """The data sets among these that must be found elsewhere."""
    return tuple(name for name in names if name not in _EMBEDDED)


__all__ = ["not_embedded"]
