"""The page `results.md` of a results folder: the figure, the paper's claims beside ours, settings and provenance."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, get_args

from notsodeep.cli.common import seconds, shown
from notsodeep.files import replace_file
from notsodeep_lab.papers import Experiment, Outcome, Size, read_provenance

PAGE = "results.md"


def write_page(experiment: Experiment[Any], outcome: Outcome, figures: Sequence[Path]) -> Path:
    """Write the page of a finished run into its folder."""
    size, command = _command(experiment, outcome)
    provenance = read_provenance(outcome.folder)
    picture = next((path.name for path in figures if path.suffix == ".png"), None)
    claims = [
        (each.what, shown(each.paper), shown(each.ours), shown(each.verdict), each.remark)
        for each in outcome.expectations
    ]
    settings = [(name, shown(value)) for name, value in outcome.spec.values().items()]
    last = (provenance.get("sessions") or [{}])[-1]
    facts = {"computing time": seconds(provenance.get("task_seconds")), **last}
    parts = [
        f"# {experiment.name} ({size or 'own settings'})",
        f"{experiment.summary} ({experiment.paper}).",
        f"```console\n$ {command}\n```",
        f"![{experiment.summary}]({picture})" if picture else "",
        _table(("what", "paper", "ours", "holds", "remark"), claims),
        f"## Settings\n\n{_table(('setting', 'value'), settings)}",
        f"## Provenance\n\n{_table(('', 'value'), [(k, shown(v)) for k, v in facts.items()])}",
        f"The {len(outcome.rows)} rows are in `rows.jsonl`.",
    ]
    target = outcome.folder / PAGE
    replace_file(target, ("\n\n".join(part for part in parts if part) + "\n").encode())
    return target


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a Markdown table; empty without rows."""
    lines = [
        "| " + " | ".join(str(cell).replace("|", "\\|").replace("\n", " ") for cell in row) + " |"
        for row in rows
    ]
    return "\n".join([f"| {' | '.join(heads)} |", "|---" * len(heads) + "|", *lines]) if lines else ""


def _command(experiment: Experiment[Any], outcome: Outcome) -> tuple[str, str]:
    """The size with these settings, and the command that runs them; with a settings file if no size has them."""
    spec = outcome.spec
    data = " --data-dir DATA" if experiment.data_needed(spec) else ""
    start = f"notsodeep reproduce {experiment.name}"
    for size in get_args(Size):
        for seeds in (None, getattr(spec, "seeds", None)):
            if experiment.spec(size, seeds) == spec:
                repetitions = "" if seeds is None else f" --seeds {seeds}"
                return size, f"{start} --size {size}{repetitions}{data}"
    return "", f"{start} --spec {shlex.quote(str(outcome.folder / 'spec.toml'))}{data}"
