"""The marked tables of docs/evidence, computed from files of benchmarks/results."""

from __future__ import annotations

import json
from collections.abc import Callable

import numpy as np
from evidence_axes import rows_of
from evidence_figures import ratios
from harness import RESULTS, Row, markdown_table

from notsodeep_lab.plots.row_selection import grouped, words


def learning() -> str:
    """The miss of predicted accuracies by data set and by samples over samples given."""
    parts = {"inside": lambda share: share <= 1.0, "twice": lambda share: share == 2.0,
             "four times": lambda share: share == 4.0}  # fmt: skip
    rows = []
    for (name,), part in [
        *grouped(rows_of("learning"), "data").items(),
        (("all cases",), rows_of("learning")),
    ]:
        row: Row = {"data": words(name).replace("CIFAR-10, VGG", "VGG")}
        for heading, is_in in parts.items():
            miss = [abs(one["predicted"] - one["measured"]) for one in part if is_in(one["n"] / one["pool"])]
            row[heading] = (
                f"{np.median(miss):.2f}, {np.quantile(miss, 0.9):.1f}, {max(miss):.1f} ({len(miss)})"
            )
        rows.append(row)
    return markdown_table(rows)


def verdicts() -> str:
    """Verdicts before training by what was right after it."""
    judged, trained = (
        json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))
        for name in ("verdicts", "verdicts-trained")
    )
    truth = {name: "keep" if found["ahead"] > 1.0 else "replace" for name, found in trained.items()}
    rows = [
        {"verdict": answer}
        | {
            f"“{right}” was right": str(
                sum(judged[name]["answer"] == answer for name in truth if truth[name] == right)
            )
            for right in ("keep", "replace")
        }
        for answer in ("keep", "replace", "unsure")
    ]
    return markdown_table(rows)


def losses() -> str:
    """How many comparisons notsodeep loses, by task and other package, and by how much at worst."""
    measures = {
        "slower": ratios("seconds"),
        "more memory": ratios("extra GB"),
        "larger error": ratios("CK error") | ratios("error") | ratios("gradient error"),
    }
    lines = dict.fromkeys(line for found in measures.values() for line in found)
    rows = []
    for line in lines:
        task, peer = line.split(": ")
        row: Row = {"task": TASKS[task], "other": peer}
        rows.append(row | {name: _lost(found.get(line, [])) for name, found in measures.items()})
    return markdown_table(rows)


def _lost(values: list[float]) -> str:
    lost = [value for value in values if value < 1.0]
    if not values:
        return "–"
    return f"{len(lost)} of {len(values)}" + (f", up to {_times(1.0 / min(lost))}×" if lost else "")


def _times(ratio: float) -> str:
    return f"{ratio:.0f}" if ratio >= 10.0 else f"{ratio:.2g}"


TASKS = {
    "kernel": "exact CK and NTK",
    "cheaper": "cheaper than a kernel",
    "ridge": "ridge classification",
    "DEQ": "DEQ, outputs and gradients",
}
TABLES: dict[tuple[str, str], Callable[[], str]] = {
    ("predictions", "learning"): learning,
    ("verdicts", "verdicts"): verdicts,
    ("comparison", "losses"): losses,
}
