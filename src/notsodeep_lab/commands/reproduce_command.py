"""`notsodeep reproduce`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape
from rich.table import Table

from notsodeep.cli.common import console, errors, figures_if_installed, print_json, say, shown
from notsodeep.errors import ConvergenceError, InputError
from notsodeep.files import explained_errors

if TYPE_CHECKING:
    from notsodeep_lab.papers import Expectation, Experiment, Outcome, Size, Spec

_SIZES: tuple[Size, ...] = ("quick", "full")
_FIGURE_SUFFIXES = (".png", ".svg", ".pdf")
_BAD_INPUT, _INTERRUPTED = 2, 130


@dataclass(frozen=True)
class _Request:
    """The options of the command, apart from the name of the experiment."""

    size: str
    spec: Path | None
    root: Path
    data_dir: Path | None
    seeds: int | None
    jobs: int
    resume: bool
    as_json: bool


@dataclass
class _Summary:
    """The results of all experiments, for `--json` and the exit code."""

    experiments: list[dict[str, Any]] = field(default_factory=list)
    skipped: dict[str, str] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)


def reproduce(
    name: Annotated[str | None, typer.Argument(help="Name of an experiment, or all.")] = None,
    listed: Annotated[bool, typer.Option("--list", help="List the experiments and stop.")] = False,
    size: Annotated[
        str, typer.Option(help="quick: a preview in minutes; full: the paper's setting.")
    ] = "quick",
    spec: Annotated[Path | None, typer.Option(help="Custom settings: an edited copy of a spec.toml.")] = None,
    data_dir: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Folder of the data sets (or NOTSODEEP_DATA).", show_default=False),
    ] = None,
    out: Annotated[Path, typer.Option(help="Results folder.")] = Path("results"),
    seeds: Annotated[int | None, typer.Option(min=1, help="Number of repetitions.")] = None,
    jobs: Annotated[
        int, typer.Option(min=1, help="Number of single-threaded processes; 1: one process, all threads.")
    ] = 1,
    resume: Annotated[
        bool, typer.Option("--resume/--fresh", help="Continue from finished tasks, or start from scratch.")
    ] = True,
    as_json: Annotated[bool, typer.Option("--json", help="Print the results as JSON.")] = False,
) -> None:
    """Reproduce the figures and tables of the papers, and compare the paper's numbers with ours.

    A run can be stopped at any time; the same command continues it. Results are stored in results/NAME/HASH, where
    HASH identifies the settings: results.md (the page to read), spec.toml, rows.jsonl, figure.png, .svg and .pdf, and
    provenance.json (versions, commit, machine, times).

    Examples:
    notsodeep reproduce --list

    notsodeep reproduce icml-error

    notsodeep reproduce all --size full --data-dir DATA --jobs 2

    Exit code 0: success; 2: invalid input, or an experiment of `all` failed; 130: interrupted.
    """
    from notsodeep_lab.papers import EXPERIMENTS, find

    if listed:
        _print_list(list(EXPERIMENTS.values()), as_json)
        return
    if name is None:
        raise InputError("Name an experiment, or all. notsodeep reproduce --list shows the names.")
    request = _Request(size, spec, out, data_dir, seeds, jobs, resume, as_json)
    summary = _Summary()
    try:
        if name == "all":
            if spec is not None:
                raise InputError("Custom settings (--spec) belong to one experiment: name it instead of all.")
            _reproduce_all(list(EXPERIMENTS.values()), request, summary)
        else:
            _reproduce_one(find(name), request, summary)
    finally:
        if as_json and (summary.experiments or summary.skipped or summary.failed):
            print_json(asdict(summary), indent=1)
    if summary.failed:
        raise typer.Exit(_BAD_INPUT)


def _reproduce_all(experiments: list[Experiment[Any]], request: _Request, summary: _Summary) -> None:
    """Run all experiments; one that fails is reported and does not stop the others."""
    from notsodeep_lab.papers import absent_data

    for experiment in experiments:
        try:
            reason = absent_data(experiment, _spec(experiment, request), request.data_dir, fetch=False)
            if reason is None:
                _reproduce_one(experiment, request, summary)
            else:
                summary.skipped[experiment.name] = reason
                say(f"{experiment.name} is skipped: {reason}", errors)
        except (InputError, ConvergenceError) as error:
            summary.failed[experiment.name] = str(error)
            say(f"{experiment.name} failed: {error}", errors)


def _reproduce_one(experiment: Experiment[Any], request: _Request, summary: _Summary) -> None:
    from notsodeep.progress import progress_bar
    from notsodeep_lab.commands.results_page import write_page
    from notsodeep_lab.papers import reproduce as run

    spec = _spec(experiment, request)
    if experiment.timed and request.jobs > 1:
        say(f"{experiment.name} measures times, so its tasks run one at a time.", errors)
    with progress_bar(experiment.name) as report:
        outcome = run(
            experiment, spec=spec, root=request.root, data_dir=request.data_dir, jobs=request.jobs,
            resume=request.resume, report=report,
        )  # fmt: skip
    for note in outcome.notes:
        say(note, errors)
    if not outcome.finished:
        summary.experiments.append(_as_dict(experiment, outcome, []))
        say(
            f"Interrupted: {outcome.done} of {outcome.total} tasks of {experiment.name} are finished. Run the same "
            f"command again{'' if request.resume else ', without --fresh,'} to continue.",
            errors,
        )
        raise typer.Exit(_INTERRUPTED)
    figures = _draw(experiment, outcome)
    with explained_errors(outcome.folder):
        page = write_page(experiment, outcome, figures)
    summary.experiments.append(_as_dict(experiment, outcome, figures))
    _print_outcome(experiment, outcome, page, request)


def _spec(experiment: Experiment[Any], request: _Request) -> Spec:
    from notsodeep_lab.papers import checked_spec

    own: Spec | None = None
    if request.spec is not None:
        try:
            text = request.spec.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise InputError(f"{request.spec} cannot be read: {error}.") from None
        own = experiment.spec_type.from_toml(text, where=str(request.spec))
    return checked_spec(experiment, request.size, own, request.seeds)


def _draw(experiment: Experiment[Any], outcome: Outcome) -> list[Path]:
    """Save the figure in three formats; nothing if the experiment has none or matplotlib is missing."""
    from notsodeep_lab import papers

    figures = figures_if_installed()
    if figures is None or not papers.has_figure(experiment.name):
        return []
    drawing = papers.draw(experiment.name, outcome.rows)
    with explained_errors(outcome.folder):
        return [
            figures.save(drawing, (outcome.folder / "figure").with_suffix(suffix))
            for suffix in _FIGURE_SUFFIXES
        ]


# --- what is printed ---------------------------------------------------------------------------------
def _as_dict(experiment: Experiment[Any], outcome: Outcome, figures: list[Path]) -> dict[str, Any]:
    return {
        "name": experiment.name,
        "folder": str(outcome.folder),
        "finished": outcome.finished,
        "tasks_done": outcome.done,
        "tasks": outcome.total,
        "rows": len(outcome.rows),
        "figures": [str(path) for path in figures],
        "expectations": [asdict(expectation) for expectation in outcome.expectations],
        "notes": list(outcome.notes),
    }


def _print_outcome(experiment: Experiment[Any], outcome: Outcome, page: Path, request: _Request) -> None:
    """Print a summary, on stderr if stdout has the JSON."""
    target = errors if request.as_json else console
    known = f" ({outcome.reused} from an earlier run)" if outcome.reused else ""
    say(
        f"{experiment.name}: {outcome.total} tasks{known}, {len(outcome.rows)} rows, results in {page}",
        target,
    )
    if outcome.expectations:
        target.print(_table(outcome.expectations))
    if request.spec is None and request.size == "full" and experiment.cut:
        say(f"Differences from the paper: {experiment.cut}", target)
    if request.spec is None and request.size == "quick":
        say(
            f"Quick size: a preview. The paper's setting: --size full (about {experiment.minutes['full']:g} min).",
            target,
        )


def _table(expectations: list[Expectation]) -> Table:
    table = Table("what", "paper", "ours", "holds")
    for row in expectations:
        verdict = "" if row.verdict is None else ("yes" if row.verdict else "NO")
        what = escape(row.what) + (f"\n[dim]{escape(row.remark)}[/]" if row.remark else "")
        table.add_row(what, *map(escape, (shown(row.paper), shown(row.ours), verdict)))
    return table


def _print_list(experiments: list[Experiment[Any]], as_json: bool) -> None:
    if as_json:
        fields = ("name", "paper", "summary", "minutes", "needs", "cut")
        rows = [{name: getattr(e, name) for name in fields} for e in experiments]
        print_json(rows, indent=1)
        return
    table = Table(box=None, pad_edge=False)
    for heading in ("name", "quick", "full"):
        table.add_column(heading, no_wrap=True)
    table.add_column("paper")
    table.add_column("content")
    for e in experiments:
        times = (f"{e.minutes['quick']:g} min", f"{e.minutes['full']:g} min")
        needs = {size: e.data_needed(e.spec(size)) for size in _SIZES}
        table.add_row(*map(escape, (e.name, *times, e.paper, f"{e.summary} ({_data(needs)})")))
    console.print(table)
    total = {size: sum(e.minutes[size] for e in experiments) for size in _SIZES}
    console.print(
        f"All: about {total['quick']:g} min quick, {total['full']:g} min full, on two cores. Data sets are read from "
        "--data-dir or NOTSODEEP_DATA.",
        highlight=False,
    )


def _data(needs: Mapping[Size, tuple[str, ...]]) -> str:
    """Say which data an experiment needs, by size."""
    if not any(needs.values()):
        return "no data needed"
    if needs["quick"] == needs["full"]:
        return f"needs {', '.join(needs['full'])}"
    return "; ".join(f"{size}: {', '.join(names) or 'no data needed'}" for size, names in needs.items())
