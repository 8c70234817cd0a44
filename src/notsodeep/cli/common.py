"""The command-line application, and functions that print sentences, JSON and progress."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from notsodeep.errors import MissingExtraError
from notsodeep.extras import needed
from notsodeep.files import new_path

if TYPE_CHECKING:
    from notsodeep.cli.scenario import Data
    from notsodeep.data import Samples

app = typer.Typer(
    name="notsodeep",
    help="Implicit and looped networks: know before you train whether they settle, what they cost and what they learn. "
    "Start with: notsodeep demo",
    no_args_is_help=True,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
)
# Texts of users may hold colons, as in leaky_relu:a=1: not emoji.
console = Console(emoji=False)
errors = Console(stderr=True, emoji=False)


def _print_version(requested: bool) -> None:
    if requested:
        from notsodeep import __version__

        console.print(f"notsodeep {__version__}", highlight=False)
        raise typer.Exit


@app.callback()
def _top(
    # Eager: read before typer asks for a command.
    version: Annotated[
        bool,
        typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit."),
    ] = False,
) -> None:
    """Options before the commands; the help text is that of `app`."""


# --- formats of values --------------------------------------------------------------------------------


def shown(value: Any) -> str:
    """Format a JSON value briefly: four figures of a number, the range of a long list."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, list | tuple):
        if len(value) <= 6:
            return ", ".join(map(shown, value))
        return f"{len(value)} values, {shown(value[0])} … {shown(value[-1])}"
    if isinstance(value, dict):
        return ", ".join(f"{key}: {shown(part)}" for key, part in value.items())
    return str(value)


def seconds(value: Any) -> str:
    """Format a time in minutes, seconds or milliseconds."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return shown(value)
    if value >= 90.0:
        return f"{value / 60.0:.1f} min"
    return f"{value:.3g} s" if value >= 1.0 else f"{1e3 * value:.3g} ms"


# --- printing -----------------------------------------------------------------------------------------


def say(sentence: str, target: Console = console) -> None:
    """Print a sentence without markup and without colours for numbers."""
    target.print(sentence, highlight=False, markup=False)


def print_json(content: Any, indent: int | None = None) -> None:
    """Print one JSON value on stdout."""
    sys.stdout.write(json.dumps(content, indent=indent, ensure_ascii=indent is None) + "\n")


def figures_if_installed() -> Any:
    """Import the figures; without matplotlib print how to install it and return None."""
    try:
        from notsodeep import figures
    except MissingExtraError as error:
        errors.print(f"No figure. {error}", highlight=False, markup=False, soft_wrap=True)
        return None
    return figures


def check_outputs(overwrite: bool, *paths: Path | None, figure: Path | None = None) -> None:
    """Check before any work that files can be written, and that matplotlib is installed for a requested figure."""
    if figure is not None:
        needed("matplotlib", "--figure")
    for path in (*paths, figure):
        if path is not None:
            new_path(path, overwrite)


def save_figure(draw: Callable[[Any], Any], path: Path) -> str | None:
    """Save a figure of one panel, which `draw` fills, and print its path; without matplotlib return None."""
    figures = figures_if_installed()
    if figures is None:
        return None
    drawing, panels = figures.new_figure()
    draw(panels[0])
    say(f"Figure: {figures.save(drawing, path)}", errors)
    return str(path)


def say_notes(data: Data, samples: Samples) -> None:
    """Print how the samples were read and scaled (for data sets only with --scale), and what is unusual about them."""
    shown = samples.notes if data.is_file or data.scale != "auto" else ()
    for note in (*shown, samples.advice):
        if note:
            say(f"{data.source}: {note}")


def data_record(data: Data, samples: Samples) -> dict[str, Any]:
    """Describe for JSON where the samples came from and how they were scaled."""
    n, p = len(samples.X), math.prod(samples.X.shape[1:])
    return {
        "source": data.source, "n": n, "p": p, "tau0": samples.tau0,
        "scale": "none" if data.is_drawn else data.scale, "notes": list(samples.notes),
        "advice": samples.advice,
    }  # fmt: skip
