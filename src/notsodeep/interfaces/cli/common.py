"""What the commands share: the application, and how things are printed."""

from __future__ import annotations

import json
import sys
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from notsodeep.errors import MissingExtraError

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


def spinner() -> Progress:
    """A spinner on stderr that vanishes when the work is done."""
    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    return Progress(*columns, console=errors, transient=True)


def figures_if_installed() -> Any:
    """The package of figures; without matplotlib None, and a word on how to get it."""
    try:
        from notsodeep import figures
    except MissingExtraError as error:
        errors.print(f"No figure. {error}", highlight=False, markup=False, soft_wrap=True)
        return None
    return figures


def print_distance(made: Any, rows: Any) -> dict[str, tuple[float, float]]:
    """Print how far the designed and the plain network are from the DEQ on these rows; the distances by kernel."""
    from notsodeep.interfaces.scenario import twin_distance

    kernels = ("ck", "ntk") if made.kernel == "both" else (made.kernel,)
    distances = {kernel: twin_distance(made, rows, kernel) for kernel in kernels}
    for kernel, (near, far) in distances.items():
        say(
            f"Exact {kernel} on {len(rows)} rows: the designed network is {near:.2g} away from the DEQ, "
            f"its own activation in one plain layer {far:.2g}"
        )
    return distances
