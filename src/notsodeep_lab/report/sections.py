"""The sections of a report: experiments, designs and trainings."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from markupsafe import Markup

from notsodeep.cli.common import seconds, shown
from notsodeep.designs import FORMAT, Design
from notsodeep.errors import InputError, MissingExtraError
from notsodeep_lab.papers import EXPERIMENTS, Experiment, Result, Row, read_results
from notsodeep_lab.report.rendering import Section, page, parts, picture, render

_NEEDED = "Expected a design (notsodeep design --save FILE) or a training (notsodeep train --json > FILE)."
_MOST_ROWS = 40


def report(
    root: Path, include: Sequence[Path] = (), experiments: Mapping[str, Experiment[Any]] = EXPERIMENTS
) -> str:
    """Render a page of all results below a folder and of further files.

    Args:
        root: the folder that `notsodeep reproduce` writes to.
        include: JSON files of designs and trainings.
        experiments: the experiments to include.

    Raises:
        InputError: if there is nothing to report, or an included file is invalid.
    """
    results, problems = read_results(root, experiments)
    if not results and not include:
        raise InputError(
            " ".join([f"There are no results in {root}.", *problems])
            + " Run an experiment first (notsodeep reproduce --list), name another folder (--root), or include a file "
            "(--include)."
        )
    sections = [experiment_section(result, f"result-{number}") for number, result in enumerate(results)]
    sections += [included_section(path, f"included-{number}") for number, path in enumerate(include)]
    opening = render("overview.html", entries=_entries(results, sections), problems=problems)
    included = [word for path in include for word in ("--include", str(path))]
    typed = shlex.join(["notsodeep", "report", "--root", str(root), *included])
    return page("Deep equilibrium models and their shallow twins", [opening], sections, typed)


def _entries(results: Sequence[Result], sections: Sequence[Section]) -> list[dict[str, Any]]:
    """The entries of the overview; claims are listed for the first, most complete run of each experiment."""
    entries: list[dict[str, Any]] = []
    claimed: set[str] = set()
    for result, section in zip(results, sections, strict=False):
        judged = [each for each in result.outcome.expectations if each.verdict is not None]
        is_best = bool(judged) and result.experiment.name not in claimed
        if is_best:
            claimed.add(result.experiment.name)
        entries.append(
            {
                "result": result,
                "title": section.title,
                "anchor": section.anchor,
                "judged": judged,
                "is_best": is_best,
            }
        )
    return entries


def experiment_section(result: Result, anchor: str) -> Section:
    """Render one experiment: figure, comparison with the paper, settings, rows and provenance."""
    body = render(
        "experiment.html",
        result=result,
        figure=_figure(result),
        settings=[(name, shown(value)) for name, value in result.outcome.spec.values().items()],
        groups=_groups(result.outcome.rows),
        origin=_origin(result.provenance),
    )
    return Section(f"{result.experiment.name} ({result.size or 'own settings'})", (body,), anchor)


def _figure(result: Result) -> str:
    if result.picture is None:
        return ""
    name = result.experiment.name
    try:
        return picture(result.picture, f"figure of {name}: {result.experiment.summary}")
    except ValueError:
        return Markup(
            parts().paragraph(f"The figure of {name} is omitted: it is neither PNG nor SVG.", "soft")
        )


def _groups(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """The first rows of each kind as a table; rows.jsonl has all of them."""
    kinds: dict[str, list[Row]] = {}
    for row in rows:
        kinds.setdefault(shown(row.get("kind")) or "other", []).append(row)
    groups = []
    for kind, group in kinds.items():
        columns = list(dict.fromkeys(name for row in group for name in row if name != "kind"))
        cells = [[shown(row.get(name)) for name in columns] for row in group[:_MOST_ROWS]]
        first = f"the first {_MOST_ROWS} of " if len(group) > _MOST_ROWS else ""
        groups.append({"title": f"{kind}: {first}{len(group)} rows", "columns": columns, "rows": cells})
    return groups


def _origin(provenance: dict[str, Any]) -> list[tuple[str, str]]:
    """Versions, commit and machine of the last run, and the time of all runs."""
    sessions = provenance.get("sessions")
    if not isinstance(sessions, list) or not sessions or not isinstance(sessions[-1], dict):
        return []
    facts = {
        "computing time": seconds(provenance.get("task_seconds")),
        "runs": str(len(sessions)),
        **{
            name: shown(sessions[-1].get(name))
            for name in ("started", "ended", "commit", "machine", "versions")
        },
    }
    return [(name, value) for name, value in facts.items() if value]


# --- included files ----------------------------------------------------------------------------------


def included_section(path: Path, anchor: str) -> Section:
    """Render a design (`notsodeep design --save`) or a training (`notsodeep train --json`).

    Raises:
        InputError: if the file is neither of them.
    """
    try:
        text = path.read_text(encoding="utf-8")
        content = json.loads(text)
    except (OSError, ValueError, RecursionError) as error:
        raise InputError(f"{path} is not valid JSON: {error}. {_NEEDED}") from None
    if isinstance(content, dict) and content.get("format") == FORMAT:
        return Section(f"Design: {path.name}", (design_body(Design.from_json(text)),), anchor)
    if _is_training(content):
        return Section(f"Training: {path.name}", (training_body(content),), anchor)
    raise InputError(f"{path} is neither a design nor a training. {_NEEDED}")


def _is_training(content: Any) -> bool:
    return (
        isinstance(content, list)
        and bool(content)
        and all(isinstance(row, dict) and {"model", "accuracy"} <= row.keys() for row in content)
    )


def design_body(design: Design) -> Markup:
    """Render a design: explanation, kernel entries, layers, and target and reached scalars."""
    scalars = zip(design.residuals.items(), *design.scalar_columns(), strict=True)
    return render(
        "design.html",
        design=design,
        figure=_drawn(design),
        layers=[(str(number), words) for number, words in enumerate(design.layer_words(), 1)],
        scalars=[
            (name, f"{target:.9g}", f"{reached:.9g}", f"{residual:.1e}")
            for (name, residual), target, reached in scalars
        ],
    )


def _drawn(design: Design) -> str:
    """The figure of the kernel entries; empty without matplotlib, and without the model."""
    if design.model is None:
        return ""
    try:
        from notsodeep import figures
    except MissingExtraError:
        return ""
    figure, panels = figures.new_figure()
    figures.plot_design(design, panels[0])
    return picture(
        figures.svg(figure),
        "kernel entries of the designed network and of a plain layer beside those of the model",
    )


def training_body(rows: Sequence[dict[str, Any]]) -> Markup:
    """Render a comparison of trained models: accuracy, agreement, times."""
    shared = {
        name: shown(rows[0].get(name)) for name in ("data", "width", "train", "optimizer", "lr", "seeds")
    }
    setting = ", ".join(f"{name} {value}" for name, value in shared.items() if value)
    return render("training.html", rows=rows, setting=setting)
