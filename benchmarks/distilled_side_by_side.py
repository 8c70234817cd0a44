"""A trained DEQ replaced: the student of `distill` beside the DEQ cut short and beside students nobody designed.

  python benchmarks/distilled_side_by_side.py      writes a section of docs/comparison.md, from what
                                                   benchmarks/distillation.py has measured

Rows of each teacher: the DEQ; the student that `distill` has chosen without labels; the DEQ cut after as many of its
steps as take no longer, and after as many as agree at least as often; a network of the student's shape with random
weights, fitted alike. The last column is computed: whatever is slower, agrees less often or is less accurate.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path

from harness import RESULTS, Row, markdown_table, write_atomically

PAGE = Path(__file__).parents[1] / "docs" / "comparison.md"
START, END = "<!-- measured: distillation -->", "<!-- end: distillation -->"
OURS, LOSES = "notsodeep: the student of `distill`", "notsodeep loses"
# Times are those of one thread in turn; what differs by less is the same.
SAME_TIME = 1.05


def teacher_name(row: Row) -> str:
    weights = "all weights" if row["trained"] == "all" else row["trained"]
    seed = f", seed {row['seed']}" if row["seed"] else ""
    return (
        f"{row['data']}, {row['activation']} {row['feedback']}, width {row['width']}, {weights} trained{seed}"
    )


def contestants(rows: list[Row]) -> Iterator[tuple[str, Row]]:
    """Who is compared, of all that was measured of one teacher."""
    student = next(row for row in rows if row.get("chosen"))
    cuts = sorted((row for row in rows if row["kind"] == "cut"), key=lambda row: row["ms"])
    yield "the DEQ, solved to 1e-3", next(row for row in rows if row["name"] == "DEQ at 1e-3")
    yield OURS, student
    quicker = [row for row in cuts if row["ms"] <= SAME_TIME * student["ms"]]
    if quicker:
        yield f"{quicker[-1]['name']}: no slower than the student", quicker[-1]
    as_faithful = next((row for row in cuts if row["agreement"] >= student["agreement"]), None)
    if as_faithful is not None and as_faithful not in quicker:
        yield f"{as_faithful['name']}: agrees no less often", as_faithful
    for row in rows:
        if row["kind"] == "undesigned":
            yield "a student of that shape, not designed", row


def shown(rows: list[Row]) -> list[Row]:
    """The table of one teacher."""
    found = dict(contestants(rows))
    student = found[OURS]
    return [
        {
            "teacher": teacher_name(row),
            "contestant": f"{name} ({row['name']})" if name == OURS else name,
            "same class as the DEQ %": f"{row['agreement']:.2f}",
            "accuracy %": f"{row['accuracy']:.2f}",
            "time / ours": f"{row['ms'] / student['ms']:.2f}",
            LOSES: (_losses(student, found) or "nothing") if name == OURS else "",
        }
        for name, row in found.items()
    ]


def _losses(student: Row, found: dict[str, Row]) -> str:
    lost = []
    for name, row in found.items():
        short = name.split(":")[0]
        if row["ms"] * SAME_TIME < student["ms"]:
            lost.append(f"slower than {short} ({student['ms'] / row['ms']:.1f}×)")
        if row["kind"] != "teacher" and row["agreement"] > student["agreement"]:
            lost.append(
                f"agrees less often than {short} ({row['agreement'] - student['agreement']:.2f} points)"
            )
        if row["accuracy"] > student["accuracy"] + 1e-9:
            lost.append(f"less accurate than {short} ({row['accuracy'] - student['accuracy']:.2f} points)")
    return f"**{'; '.join(lost)}**" if lost else ""


def section(rows: list[Row]) -> str:
    """The table of all teachers, and how many of them show no loss."""
    teachers = [list(part) for _, part in groupby(rows, key=teacher_name)]
    tables = [shown(teacher) for teacher in teachers]
    table = markdown_table([row for part in tables for row in part])
    without = sum(row[LOSES] == "nothing" for part in tables for row in part)
    said = f"{len(teachers)} teachers; for {without} of them nothing of ours is marked."
    return f"{START}\n\n{table}\n{said}\n\n{END}"


def main() -> None:
    lines = (RESULTS / "distillation.jsonl").read_text(encoding="utf-8").splitlines()
    text = PAGE.read_text(encoding="utf-8")
    before, _, rest = text.partition(START)
    after = rest.partition(END)[2]
    write_atomically(PAGE, before + section([json.loads(line) for line in lines]) + after)


if __name__ == "__main__":
    main()
