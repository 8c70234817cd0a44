"""How results introduce themselves: one line at a prompt, a table with a small drawing in a notebook.

A result derives from `Shown`, is a dataclass with repr=False, and says in `_facts` what matters about it.  Drawings are
SVG written by hand: no library is needed to see them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from html import escape
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

_LONGEST, _LONGEST_VALUE = 200, 70
_WIDTH, _HEIGHT, _MARGIN = 360, 150, 6
_COLOURS = ("#4477aa", "#cc6677", "#228833", "#aa8800", "#775599")


class Shown:
    """A result with a short `repr` and a table for notebooks."""

    def _facts(self) -> Mapping[str, Any]:
        """What matters, by name, the most important first; all fields unless a class says otherwise."""
        if not is_dataclass(self):
            return {}
        return {field.name: getattr(self, field.name) for field in fields(self) if field.repr}

    def _drawing(self) -> str:
        """A small SVG, or nothing."""
        return ""

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
        return f"<div><table>{head}<tbody>{rows}</tbody></table>{self._drawing()}</div>"


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


# --- drawings ---------------------------------------------------------------------------------------------------------


def curves(
    series: Sequence[tuple[str, ArrayLike, ArrayLike]], marks: Sequence[float] = (), title: str = ""
) -> str:
    """Lines over one pair of axes, with vertical marks; each line has its label as a tooltip and in the legend."""
    lines = [(label, np.asarray(x, dtype=float), np.asarray(y, dtype=float)) for label, x, y in series]
    across = np.concatenate([*(x for _, x, _ in lines), np.asarray(marks, dtype=float)])
    up = np.concatenate([y[np.isfinite(y)] for _, _, y in lines])
    if not len(up):
        return ""
    place_x, place_y = _axis(across, _MARGIN, _WIDTH - _MARGIN), _axis(up, _HEIGHT - _MARGIN, _MARGIN)
    parts = []
    for number, (label, x, y) in enumerate(lines):
        keep = np.isfinite(y)
        chosen = np.flatnonzero(keep)[:: max(1, int(keep.sum()) // 300)]
        points = " ".join(f"{place_x(x[i]):.1f},{place_y(y[i]):.1f}" for i in chosen)
        colour = _COLOURS[number % len(_COLOURS)]
        parts.append(
            f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="1.5">'
            f"<title>{escape(label)}</title></polyline>"
        )
    for mark in marks:
        parts.append(
            f'<line x1="{place_x(mark):.1f}" x2="{place_x(mark):.1f}" y1="{_MARGIN}" y2="{_HEIGHT - _MARGIN}" '
            'stroke="#cc6677" stroke-dasharray="3 3"/>'
        )
    axis = f"{short(float(across.min()))} … {short(float(across.max()))}"
    return _svg(parts, title, axis, [label for label, _, _ in lines])


def bars(items: Sequence[tuple[str, float]], title: str = "", line: float | None = None) -> str:
    """Horizontal bars over a logarithmic axis, with a vertical line at one value; zeros have no bar."""
    positive = [value for _, value in items if 0.0 < value < np.inf] + ([line] if line else [])
    if not positive:
        return ""
    logs = np.log10(positive)
    place = _axis(np.append(logs, [logs.min() - 1.0, logs.max() + 0.2]), 130, _WIDTH - 60)
    height = min(26, (_HEIGHT - 2 * _MARGIN) // max(1, len(items)))
    parts = []
    for number, (label, value) in enumerate(items):
        top, middle = _MARGIN + number * height, _MARGIN + (number + 0.6) * height
        length = max(place(np.log10(value)) - 130.0, 0.0) if 0.0 < value < np.inf else 0.0
        parts += [
            f'<text x="0" y="{middle:.1f}" font-size="11">{escape(label[:24])}</text>',
            f'<rect x="130" y="{top + 3}" width="{length:.1f}" height="{height - 8}" fill="{_COLOURS[0]}"/>',
            f'<text x="{134 + length:.1f}" y="{middle:.1f}" font-size="11">{short(float(value))}</text>',
        ]
    if line:
        at = place(np.log10(line))
        bottom = _MARGIN + len(items) * height
        parts.append(f'<line x1="{at:.1f}" x2="{at:.1f}" y1="{_MARGIN}" y2="{bottom}" stroke="#cc6677"/>')
    return _svg(parts, title, "", [])


def _axis(values: Any, start: float, end: float) -> Any:
    low, high = float(np.min(values)), float(np.max(values))
    size = high - low or 1.0
    return lambda value: start + (float(value) - low) / size * (end - start)


def _svg(parts: Sequence[str], title: str, axis: str, legend: Sequence[str]) -> str:
    words = "".join(
        f'<div style="color:{_COLOURS[number % len(_COLOURS)]}">{escape(_cut(label))}</div>'
        for number, label in enumerate(legend)
        if len(legend) > 1
    )
    below = escape(" over ".join(word for word in (title, axis) if word))
    return (
        f'<figure style="margin:4px 0"><svg width="{_WIDTH}" height="{_HEIGHT}" viewBox="0 0 {_WIDTH} {_HEIGHT}" '
        f'role="img" aria-label="{escape(title)}" fill="currentColor">{"".join(parts)}</svg>'
        f'<figcaption style="font-size:smaller">{below}{words}</figcaption></figure>'
    )


__all__ = ["Shown", "bars", "curves", "short"]
