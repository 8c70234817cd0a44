"""Experiments as parts of the page: figure, paper against ours, settings, rows, where they come from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from notsodeep.interfaces.report.markup import Child, Html, command, element, paragraph, picture, table
from notsodeep.interfaces.report.values import seconds, shown, verdict
from notsodeep.papers import Result, Row

_MOST_ROWS = 40


@dataclass(frozen=True)
class Section:
    """A part of the page under a heading.

    Attributes:
        title: the heading.
        body: what stands under it.
        anchor: where links to it lead.
    """

    title: str
    body: tuple[Html, ...]
    anchor: str


def experiment_section(result: Result, anchor: str) -> Section:
    """One experiment."""
    experiment, outcome = result.experiment, result.outcome
    body = [
        paragraph(f"{experiment.paper}. {experiment.summary}"),
        paragraph(_state(result), class_="soft"),
        *_figure(result),
        *_expectations(result),
        element("h3", "How to repeat it"),
        command(result.command),
        element("h3", "Settings"),
        table(("setting", "value"), _pairs(outcome.spec.values()), f"settings of {experiment.name}"),
        *_rows(outcome.rows),
        *_origin(result.provenance),
    ]
    return Section(_heading(result), tuple(body), anchor)


def _heading(result: Result) -> str:
    return f"{result.experiment.name} ({result.size or 'own settings'})"


def _state(result: Result) -> str:
    outcome = result.outcome
    words = [f"{outcome.done} of {outcome.total} tasks done, {len(outcome.rows)} rows in {outcome.folder}."]
    if not outcome.finished:
        words.append("Not finished: the command below goes on where it stopped.")
    if result.size == "full" and result.experiment.cut:
        words.append(f"Cut against the paper: {result.experiment.cut}")
    if result.size == "quick":
        words.append("Quick size: a look, not the paper's setting.")
    return " ".join(words)


def _figure(result: Result) -> list[Html]:
    if result.picture is None:
        return []
    name = result.experiment.name
    try:
        return [picture(result.picture, f"figure of {name}: {result.experiment.summary}")]
    except ValueError:
        return [paragraph(f"The figure of {name} is neither PNG nor SVG and is left out.", class_="soft")]


def _expectations(result: Result) -> list[Html]:
    if not result.outcome.expectations:
        return []
    rows: list[Sequence[Child]] = [
        (each.what, shown(each.paper), shown(each.ours), verdict(each.verdict), each.remark)
        for each in result.outcome.expectations
    ]
    header = ("what", "paper", "ours", "holds", "remark")
    return [
        element("h3", "Paper against ours"),
        table(header, rows, f"paper against ours, {result.experiment.name}"),
    ]


def _pairs(values: dict[str, Any]) -> list[Sequence[Child]]:
    return [(name, shown(value)) for name, value in values.items()]


def _rows(rows: Sequence[Row]) -> list[Html]:
    """The first rows of each kind; all of them are in rows.jsonl."""
    kinds: dict[str, list[Row]] = {}
    for row in rows:
        kinds.setdefault(shown(row.get("kind")), []).append(row)
    return [_rows_of(kind, group) for kind, group in kinds.items()]


def _rows_of(kind: str, rows: list[Row]) -> Html:
    columns = list(dict.fromkeys(name for row in rows for name in row if name != "kind"))
    cells = [[shown(row.get(name)) for name in columns] for row in rows[:_MOST_ROWS]]
    count = f"{len(rows)} rows" if len(rows) <= _MOST_ROWS else f"the first {_MOST_ROWS} of {len(rows)} rows"
    title = f"{kind or 'other'}: {count}"
    return element("details", element("summary", title), table(columns, cells, title))


def _origin(provenance: dict[str, Any]) -> list[Html]:
    """Versions, commit and machine of the last run, and the time of all."""
    sessions = provenance.get("sessions")
    if not isinstance(sessions, list) or not sessions or not isinstance(sessions[-1], dict):
        return []
    last = sessions[-1]
    facts = {
        "computing time": seconds(provenance.get("task_seconds")),
        "runs": str(len(sessions)),
        **{name: shown(last.get(name)) for name in ("started", "ended", "commit", "machine", "versions")},
    }
    rows: list[Sequence[Child]] = [(name, value) for name, value in facts.items() if value]
    return [element("h3", "Where it comes from"), table(("what", "value"), rows, "provenance")]


__all__ = ["Section", "experiment_section"]
