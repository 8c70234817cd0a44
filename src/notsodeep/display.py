"""Short reprs of results.

A result derives from `Shown`, is a dataclass with repr=False, and names in `_shown` what its repr shows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any, ClassVar

import numpy as np

_LONGEST, _LONGEST_VALUE = 200, 70
# Leading values of a long vector or list that are shown.
_FIRST = 3


class Shown:
    """A result with a short `repr` that shows its most important values first."""

    # Names of attributes, the most important first; all fields if there are none.
    _shown: ClassVar[tuple[str, ...]] = ()

    def _facts(self) -> Mapping[str, Any]:
        """Values by name; texts that are empty are left out."""
        names = self._shown
        if not names and is_dataclass(self):
            names = tuple(one.name for one in fields(self) if one.repr)
        values = ((name, getattr(self, name)) for name in names)
        return {name: value for name, value in values if not (isinstance(value, str) and not value)}

    def __repr__(self) -> str:
        parts, length = [], len(type(self).__name__)
        for name, value in self._facts().items():
            part = f"{name}={short(value)}"
            length += len(part) + 2
            if length > _LONGEST:
                parts.append("…")
                break
            parts.append(part)
        return f"{type(self).__name__}({', '.join(parts)})"


def short(value: Any) -> str:
    """Format a value briefly: four digits of a number, the first values of a vector, the shape of a matrix."""
    if isinstance(value, bool | np.bool_ | int | np.integer) or value is None:
        return str(value)
    if isinstance(value, float | np.floating):
        return f"{value:.4g}"
    if hasattr(value, "shape") and hasattr(value, "dtype"):
        if len(value.shape) > 1 or hasattr(value, "detach"):
            return f"array({'×'.join(str(int(size)) for size in value.shape)})"
        value = np.atleast_1d(np.asarray(value)).tolist()
    if isinstance(value, tuple | list):
        text = f"[{', '.join(short(one) for one in value[:20])}]"
        if len(value) <= 20 and len(text) <= _LONGEST_VALUE:
            return text
        return _cut(f"[{', '.join(short(one) for one in value[:_FIRST])}, … {len(value)} values]")
    if isinstance(value, Mapping):
        return _cut(", ".join(f"{key}: {short(one)}" for key, one in value.items()))
    return _cut(str(value))


def _cut(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _LONGEST_VALUE else line[: _LONGEST_VALUE - 1] + "…"


__all__ = ["Shown", "short"]
