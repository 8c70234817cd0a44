"""What the commands share: the application, and how things are printed."""

from __future__ import annotations

import json
import math
import sys
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from notsodeep.errors import MissingExtraError
from notsodeep.progress import shown_late

if TYPE_CHECKING:
    from notsodeep.cli.scenario import Data, Samples

app = typer.Typer(
    name="notsodeep",
    help="Deep equilibrium models and the shallow networks that share their kernels. Start with: notsodeep demo",
    no_args_is_help=True,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
)
# Texts of users may hold colons, as in leaky_relu:a=1: not emoji.
console = Console(emoji=False)
errors = Console(stderr=True, emoji=False)


def _print_version(wanted: bool) -> None:
    if wanted:
        from notsodeep import __version__

        console.print(f"notsodeep {__version__}", highlight=False)
        raise typer.Exit


@app.callback()
def _top(
    # Eager: heard before the command line misses a command.
    version: Annotated[
        bool,
        typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and stop."),
    ] = False,
) -> None:
    """What stands before the commands; its help is that of `app`."""


# --- printing -----------------------------------------------------------------------------------------


def say(sentence: str, target: Console = console) -> None:
    """Print a sentence as it is: no markup, no colours for numbers."""
    target.print(sentence, highlight=False, markup=False)


def print_json(content: Any, indent: int | None = None) -> None:
    """One value of JSON on stdout."""
    sys.stdout.write(json.dumps(content, indent=indent, ensure_ascii=indent is None) + "\n")


def spinner() -> AbstractContextManager[Progress]:
    """A spinner on stderr that comes after two seconds and vanishes when the work is done."""
    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    return shown_late(Progress(*columns, console=errors, transient=True))


def figures_if_installed() -> Any:
    """The package of figures; without matplotlib None, and a word on how to get it."""
    try:
        from notsodeep import figures
    except MissingExtraError as error:
        errors.print(f"No figure. {error}", highlight=False, markup=False, soft_wrap=True)
        return None
    return figures


def say_notes(data: Data, samples: Samples) -> None:
    """Say what was done to the rows of a file, and what is unusual about them; data sets are told of on request."""
    shown = samples.notes if data.is_file or data.scale != "auto" else ()
    for note in (*shown, samples.advice):
        if note:
            say(f"{data.source}: {note}")


def data_record(data: Data, samples: Samples) -> dict[str, Any]:
    """Where the samples came from and what was done to them, for JSON."""
    n, p = len(samples.rows), math.prod(samples.rows.shape[1:])
    return {
        "source": data.source, "n": n, "p": p, "tau0": samples.tau0,
        "scale": "none" if data.is_drawn else data.scale, "notes": list(samples.notes),
        "advice": samples.advice,
    }  # fmt: skip
