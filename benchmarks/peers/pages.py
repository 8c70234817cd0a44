"""The text of each section: its tables, the losses of notsodeep, and the provenance."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from harness import Row, markdown_provenance, markdown_table, show
from questions import table_rows
from tables import AHEAD, best_of, gradient_row, together
from verdicts import (
    ACCURACY,
    APPROXIMATION_MEASURES,
    KERNEL_MEASURES,
    MEMORY,
    NOT_MEASURED,
    REMARK,
    SECONDS,
    TIME_AND_MEMORY,
    Measure,
    listed,
    marked,
    table,
    with_ratio,
)

NETWORK_MEASURES = (
    Measure(SECONDS, "slower"),
    Measure(MEMORY, "more memory", floor=0.002),
    Measure("true residual", "larger residual", slack=1.05),
    Measure("gradient error", "less accurate", slack=1.05),
)


def marks(section: str) -> tuple[str, str]:
    return f"<!-- measured: {section} -->", f"<!-- end: {section} -->"


def laid_out(rows: Sequence[Row], columns: Sequence[str]) -> str:
    """A table of these columns without empty ones, and the list of losses."""
    present = [column for column in columns if any(row.get(column) is not None for row in rows)]
    return table([{column: row.get(column) for column in (*present, REMARK)} for row in rows])


# --- sections ------------------------------------------------------------------------------------------
def kernels_text(rows: list[Row]) -> str:
    keys = ("φ", "n")
    made = marked(with_ratio(rows, lambda row: (row["φ"], row["n"])), KERNEL_MEASURES, keys)
    columns = (*keys, "contestant", SECONDS, "spread", "time / ours", "prepare (s)", MEMORY)
    columns += ("CK error", "NTK error", "NTK error off the diagonal", "stated bound")
    return laid_out(made, columns) + "\n" + listed(made, keys)


def approximations_text(rows: list[Row]) -> str:
    keys = ("data", "n", "kind")
    made = marked(rows, APPROXIMATION_MEASURES, keys)
    columns = (*keys, "contestant", SECONDS, "spread", MEMORY, "error")
    return laid_out(made, columns) + "\n" + listed(made, keys)


def estimators_text(rows: list[Row]) -> str:
    rows = [row | {"training rows": row.get("rows")} for row in rows]
    # Accuracy is compared with everyone; time and memory only with those who do as much.
    made = marked(marked(rows, (ACCURACY,), ("data",)), TIME_AND_MEMORY, ("data", "kind"))
    percent = [row | {ACCURACY.column: _percent(row.get(ACCURACY.column))} for row in made]
    columns = ("data", "training rows", "kind", "contestant", ACCURACY.column, SECONDS, "spread", "fit, s")
    columns += ("predict, s", MEMORY, "search, s", "chosen")
    return laid_out(percent, columns) + "\n" + listed(made, ("data",))


def _percent(value: float | None) -> str | None:
    return None if value is None else f"{value:.2%}"


def networks_text(rows: list[Row]) -> str:
    keys = ("φ", "m", "residual ≤", "what")
    made = marked(
        with_ratio(
            [line for row in rows for line in network_rows(row)], lambda row: [row.get(k) for k in keys]
        ),
        NETWORK_MEASURES,
        keys,
    )
    columns = (*keys, "contestant", SECONDS, "time / ours", MEMORY, "true residual", "gradient error")
    text = laid_out(made, columns) + "\n" + listed(made, keys)
    gradients = [gradient_row(row) for row in rows if NOT_MEASURED not in row]
    if gradients:
        text += "\nRelative error of the gradients when both sides are given the same tolerance:\n\n"
        text += markdown_table(gradients)
    return text


def network_rows(row: Row) -> list[Row]:
    """Ours and the peer's faster start, forward and training."""
    about: Row = {"φ": row["activation"], "m": row["m"], "residual ≤": show(row.get("target"))}
    if NOT_MEASURED in row:
        return [{**about, "contestant": "TorchDEQ", NOT_MEASURED: row[NOT_MEASURED]}]
    made = []
    for mode, seconds in row["seconds"].items():
        best = best_of(seconds)
        start = "from φ(σ_b B x)" if best == AHEAD else "from zero"
        names = {"ours": ("notsodeep", row["ours"]), "peer": (f"TorchDEQ, {start}", row["theirs"][best])}
        for side, (title, found) in names.items():
            times = seconds["ours" if side == "ours" else best]
            megabytes = row.get("megabytes", {}).get(f"{mode}, {side}")
            made.append(
                {
                    **about,
                    "what": mode,
                    "contestant": title,
                    SECONDS: sorted(times)[len(times) // 2],
                    "all seconds": times,
                    MEMORY: None if megabytes is None else megabytes / 1000,
                    "true residual": found["residual"],
                    "gradient error": found["gradient error"] if mode == "training" else None,
                }
            )
    return made


def abilities_text(rows: list[Row]) -> str:
    return markdown_table(table_rows({row["package"]: row["answers"] for row in rows}))


SECTIONS: Mapping[str, tuple[str, Callable[[list[Row]], str]]] = {
    "kernels": ("Kernels", kernels_text),
    "approximations": ("Cheaper than a kernel", approximations_text),
    "estimators": ("Ridge classification", estimators_text),
    "networks": ("DEQs of finite width", networks_text),
    "abilities": ("What each can and cannot do", abilities_text),
}


def section_text(section: str, found: Mapping[str, Row]) -> str:
    """Render one section from all measurements."""
    members = [case for case in found.values() if case["section"] == section]
    rows = [row for case in members for row in case["rows"]]
    provenance = together([case["provenance"] for case in members])
    return SECTIONS[section][1](rows) + "\n" + markdown_provenance(provenance)


def report(found: Mapping[str, Row]) -> str:
    parts = [
        f"## {title}\n\n{section_text(section, found)}"
        for section, (title, _) in SECTIONS.items()
        if any(case["section"] == section for case in found.values())
    ]
    return "# Side by side\n\n" + "\n".join(parts)
