"""How results introduce themselves: one line at a prompt, a table in a notebook.

A result derives from `Shown`, is a dataclass with repr=False, and says in `_facts` what matters about it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from html import escape
from typing import Any

import numpy as np

_LONGEST, _LONGEST_VALUE = 200, 70


class Shown:
    """A result with a short `repr` and a table for notebooks."""

    def _facts(self) -> Mapping[str, Any]:
        """What matters, by name, the most important first; all fields unless a class says otherwise."""
        if not is_dataclass(self):
            return {}
        return {field.name: getattr(self, field.name) for field in fields(self) if field.repr}

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

    def _repr_html_(self) -> str:
        rows = "".join(
            f'<tr><th style="text-align:left">{escape(name.replace("_", " "))}</th>'
            f'<td style="text-align:left">{escape(short(value))}</td></tr>'
            for name, value in self._facts().items()
        )
        head = f'<caption style="text-align:left"><b>{escape(type(self).__name__)}</b></caption>'
        return f"<div><table>{head}<tbody>{rows}</tbody></table></div>"


def short(value: Any) -> str:
    """A value in a few characters: four digits of a number, the shape of an array, one line of anything else."""
    if isinstance(value, bool | np.bool_ | int | np.integer) or value is None:
        return str(value)
    if isinstance(value, float | np.floating):
        return f"{value:.4g}"
    if isinstance(value, str):
        return _cut(value)
    if hasattr(value, "shape") and hasattr(value, "dtype"):
        return _short_array(value)
    if isinstance(value, tuple | list):
        inner = [short(one) for one in value]
        text = f"[{', '.join(inner)}]"
        return text if len(text) <= _LONGEST_VALUE else f"{len(inner)} entries"
    if isinstance(value, Mapping):
        return _cut(", ".join(f"{key}: {short(one)}" for key, one in value.items()))
    return _cut(str(value))


def _short_array(array: Any) -> str:
    sizes = tuple(int(one) for one in array.shape)
    if len(sizes) <= 1 and int(np.prod(sizes)) <= 4 and not hasattr(array, "detach"):
        values = np.atleast_1d(np.asarray(array)).tolist()
        return f"[{', '.join(short(one) for one in values)}]"
    return f"array({'×'.join(str(one) for one in sizes)})"


def _cut(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _LONGEST_VALUE else line[: _LONGEST_VALUE - 1] + "…"


__all__ = ["Shown", "short"]
