"""The page: one HTML file without external references, written whole or not at all."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from notsodeep import __version__
from notsodeep.errors import InputError
from notsodeep.files import atomic_write, explained_errors, free_path
from notsodeep.interfaces.report.included import included_section
from notsodeep.interfaces.report.markup import Child, Html, command, element, joined, paragraph, table
from notsodeep.interfaces.report.report_style import CSS
from notsodeep.interfaces.report.sections import Section, experiment_section
from notsodeep.interfaces.report.values import seconds, shown, verdict
from notsodeep.papers import EXPERIMENTS, Experiment, Result, read_results

# Nothing is fetched and nothing runs, whatever the page holds.
_POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"


def report(
    root: Path, include: Sequence[Path] = (), experiments: Mapping[str, Experiment[Any]] = EXPERIMENTS
) -> Html:
    """The page of all results under a folder and of one's own files.

    Args:
        root: the folder that `notsodeep reproduce` writes to.
        include: designs and trainings of one's own, as JSON.
        experiments: whose results to look for.

    Raises:
        InputError: if there is nothing to report, or a file of one's own cannot be used.
    """
    results, doubts = read_results(root, experiments)
    if not results and not include:
        left_out = " ".join(doubts)
        raise InputError(
            f"There are no results in {root}. {left_out + ' ' if left_out else ''}Run an experiment first (notsodeep "
            "reproduce --list), name another folder (--root), or include a file of your own (--include)."
        )
    parts = [experiment_section(result, f"result-{number}") for number, result in enumerate(results)]
    own = [included_section(path, f"included-{number}") for number, path in enumerate(include)]
    opening = [
        *_overview(results, parts),
        *_claims(results, parts),
        *(paragraph(doubt, class_="no") for doubt in doubts),
    ]
    typed = " ".join(["notsodeep report --root", *map(shlex.quote, [str(root), *_included(include)])])
    return page("Deep equilibrium models and their shallow twins", opening, [*parts, *own], typed)


def _included(include: Sequence[Path]) -> list[str]:
    return [word for path in include for word in ("--include", str(path))]


def _overview(results: Sequence[Result], parts: Sequence[Section]) -> list[Html]:
    if not results:
        return []
    rows: list[Sequence[Child]] = []
    for result, part in zip(results, parts, strict=True):
        verdicts = [each.verdict for each in result.outcome.expectations if each.verdict is not None]
        state = f"{sum(verdicts)} of {len(verdicts)}" if verdicts else ""
        rows.append(
            (
                element("a", part.title, href=f"#{part.anchor}"),
                result.experiment.paper,
                f"{result.outcome.done} of {result.outcome.total}",
                state,
                seconds(result.provenance.get("task_seconds")),
            )
        )
    header = ("experiment", "paper", "tasks done", "claims that hold", "time")
    return [element("h2", "What was run"), table(header, rows, "what was run")]


def _claims(results: Sequence[Result], parts: Sequence[Section]) -> list[Html]:
    """Every claim with its verdict, from the best run of each experiment: they come first."""
    rows: list[Sequence[Child]] = []
    told: set[str] = set()
    for result, part in zip(results, parts, strict=True):
        judged = [each for each in result.outcome.expectations if each.verdict is not None]
        if judged and result.experiment.name not in told:
            told.add(result.experiment.name)
            rows += [
                (each.what, verdict(each.verdict), shown(each.ours), shown(each.paper), part.title)
                for each in judged
            ]
    if not rows:
        return []
    header = ("claim", "holds", "ours", "paper", "experiment")
    return [element("h2", "Claims, one by one"), table(header, rows, "claims")]


def page(title: str, opening: Sequence[Html], sections: Sequence[Section], typed: str) -> Html:
    """A whole page.

    Args:
        title: of the page.
        opening: what stands before the sections.
        sections: each under its heading.
        typed: the command that made the page.
    """
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", http_equiv="Content-Security-Policy", content=_POLICY),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("title", f"notsodeep: {title}"),
        Html(f"<style>{CSS}</style>"),
    )
    made = datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")
    body = element(
        "body",
        element(
            "header",
            element("h1", title),
            paragraph(f"notsodeep {__version__}, {made}", class_="soft"),
        ),
        element(
            "main",
            *opening,
            *(element("section", element("h2", part.title, id=part.anchor), *part.body) for part in sections),
        ),
        element("footer", paragraph("This page was made by"), command(typed)),
    )
    return joined([Html("<!DOCTYPE html>\n"), element("html", head, body, lang="en"), Html("\n")])


def write_page(content: Html, path: Path, *, overwrite: bool = False) -> Path:
    """Write the page whole or not at all, beside a page that is there unless told to replace it."""
    target = free_path(path, overwrite)
    with explained_errors(target.parent), atomic_write(target) as temporary:
        temporary.write_text(content.text, encoding="utf-8")
    return target


__all__ = ["page", "report", "write_page"]
