"""Compare measured rows: which contestant is slower, larger or less accurate, as tables.

Losses are computed, never written by hand: every row of ours is compared with every comparable row of the others, and
its losses are printed in the last column and in a list under the table.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from harness import Row, markdown_table

OURS = "notsodeep"
REMARK = "notsodeep loses"
NOT_MEASURED = "not measured"
#: Relative errors below this are rounding on both sides and are not compared.
ROUNDING = 1e-13


@dataclass(frozen=True)
class Measure:
    """A column that is compared, and the word for being worse in it.

    Attributes:
        column: its name.
        worse: what the worse one is: "slower", "less accurate".
        more_is_better: for accuracies.
        floor: a value up to this is as good as any.
        slack: a ratio up to this is no difference.
    """

    column: str
    worse: str
    more_is_better: bool = False
    floor: float = 0.0
    slack: float = 1.0

    def loses(self, mine: Row, other: Row) -> bool:
        a, b = mine.get(self.column), other.get(self.column)
        if a is None or b is None:
            return False
        if self.more_is_better:
            return bool(a < b)
        return bool(a > self.floor and a > self.slack * b)

    def told(self, mine: Row, other: Row) -> str:
        """Describe how much worse a value is."""
        a, b = mine[self.column], other[self.column]
        if self.more_is_better:
            return (
                f"{self.worse} than {other['contestant']} by {100 * (b - a):.2f} points{_noise(mine, other)}"
            )
        times = f"{a / b:.2g}×" if b else "which has none"
        close = ", ranges overlap" if self.column == SECONDS and _overlap(mine, other) else ""
        return f"{self.worse} than {other['contestant']} ({times}{close})"


SECONDS = "seconds"
MEMORY = "extra GB"
TIME_AND_MEMORY = (Measure(SECONDS, "slower"), Measure(MEMORY, "more memory", floor=0.02))
KERNEL_MEASURES = (
    *TIME_AND_MEMORY,
    Measure("CK error", "less accurate CK", floor=ROUNDING),
    Measure("NTK error", "less accurate NTK", floor=ROUNDING),
)
APPROXIMATION_MEASURES = (*TIME_AND_MEMORY, Measure("error", "less accurate"))
ACCURACY = Measure("test accuracy", "less accurate", more_is_better=True)


def _overlap(mine: Row, other: Row) -> bool:
    a, b = mine.get("all seconds"), other.get("all seconds")
    return bool(a and b and min(a) <= max(b))


def _noise(mine: Row, other: Row) -> str:
    """Two binomial standard errors of a difference; paired tests would be a little sharper."""
    rows = mine.get("test rows")
    if not rows:
        return ""
    variances = (row[ACCURACY.column] * (1 - row[ACCURACY.column]) / rows for row in (mine, other))
    return f" (± {200 * math.sqrt(sum(variances)):.2f})"


# --- marking -------------------------------------------------------------------------------------------
def is_ours(row: Row) -> bool:
    return str(row["contestant"]).startswith(OURS)


def marked(rows: Sequence[Row], measures: Sequence[Measure], keys: Sequence[str]) -> list[Row]:
    """Add to each row of ours its losses against rows with equal `keys`."""
    return [
        _marked(row, [other for other in rows if _comparable(row, other, keys)], measures) for row in rows
    ]


def _comparable(row: Row, other: Row, keys: Sequence[str]) -> bool:
    return not is_ours(other) and all(row.get(key) == other.get(key) for key in keys)


def _marked(row: Row, others: Sequence[Row], measures: Sequence[Measure]) -> Row:
    if row.get(NOT_MEASURED):
        return row | {REMARK: f"not measured: {row[NOT_MEASURED]}"}
    if not is_ours(row):
        return row | {REMARK: row.get(REMARK, "")}
    found = [m.told(row, other) for m in measures for other in others if m.loses(row, other)]
    if row.get(REMARK) and row[REMARK] != NOTHING:
        found.insert(0, row[REMARK])
    return row | {REMARK: "; ".join(found) if found else NOTHING}


NOTHING = "nothing"


def losses(rows: Iterable[Row], keys: Sequence[str]) -> list[str]:
    """One line for every row of ours that loses something."""
    return [
        f"{', '.join(f'{row[key]}' for key in keys if row.get(key) is not None)}, {row['contestant']}: {row[REMARK]}"
        for row in rows
        if is_ours(row) and row.get(REMARK, NOTHING) != NOTHING and not row.get(NOT_MEASURED)
    ]


# --- tables --------------------------------------------------------------------------------------------
HIDDEN = {NOT_MEASURED}


def table(rows: Sequence[Row]) -> str:
    """Render a Markdown table with losses in bold."""
    shown = [{key: value for key, value in row.items() if key not in HIDDEN} for row in rows]
    return markdown_table([row | {REMARK: _cell(row)} if REMARK in row else row for row in shown])


def _cell(row: Row) -> str:
    text = str(row[REMARK]).replace("|", "\\|")
    return f"**{text}**" if text and text != NOTHING and is_ours(row) else text


def listed(rows: Sequence[Row], keys: Sequence[str]) -> str:
    """The losses of these marked rows as a list, or that there are none."""
    sides = {is_ours(row) for row in rows if not row.get(NOT_MEASURED)}
    if len(sides) < 2:
        return "Nothing to compare in this run: see above what was not measured.\n"
    lines = losses(rows, keys)
    if not lines:
        return "In this run notsodeep loses none of these comparisons.\n"
    return "Where notsodeep loses in this run:\n\n" + "".join(f"- {line}\n" for line in lines)


def with_ratio(rows: Sequence[Row], key: Callable[[Row], Any]) -> list[Row]:
    """Each row with its seconds over those of the first of ours in its group."""
    made: list[Row] = []
    for _, group in groupby(rows, key):
        members = list(group)
        base = next((row[SECONDS] for row in members if is_ours(row) and row.get(SECONDS)), None)
        for row in members:
            seconds = row.get(SECONDS)
            made.append(row | {"time / ours": seconds / base if seconds and base else None})
    return made
