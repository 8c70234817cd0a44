"""The entry point of the console script."""

from __future__ import annotations

import sys
from importlib.metadata import entry_points

from rich.markup import escape
from typer.models import CommandInfo

# Each module adds its command to the application.
from notsodeep.cli import (  # noqa: F401
    assessment_commands,
    demo_command,
    distill_command,
    kernel_commands,
    training_commands,
)
from notsodeep.cli.common import app, errors, say
from notsodeep.errors import ConvergenceError, InputError
from notsodeep.files import explained

COMMANDS = "notsodeep.commands"
# The order of the commands in the help; other commands follow.
_ORDER = ("demo", "forecast", "verdict", "distill", "predict", "certify", "kernel", "design")


def add_installed_commands() -> None:
    """Add the commands of installed packages: entry points of the group, functions with typer's annotations."""
    for point in sorted(entry_points(group=COMMANDS), key=lambda one: one.name):
        try:
            app.command(point.name)(point.load())
        except (ImportError, AttributeError) as error:
            say(f"The command {point.name} ({point.value}) cannot be loaded: {error}", errors)


def _place(command: CommandInfo) -> int:
    """The place of a command in the help."""
    name = command.name or getattr(command.callback, "__name__", "")
    return _ORDER.index(name) if name in _ORDER else len(_ORDER)


add_installed_commands()
app.registered_commands.sort(key=_place)


def main() -> None:
    """Run the command line; foreseeable errors become one sentence and exit code 2, without a stack trace."""
    try:
        app()
    except (InputError, ConvergenceError, OSError) as error:
        text = explained(error) if isinstance(error, OSError) else str(error)
        # Escaped, or [torch] would be a style; not wrapped, so that commands in it can be copied.
        errors.print(f"[bold red]error:[/] {escape(text)}", highlight=False, soft_wrap=True)
        sys.exit(2)
    except KeyboardInterrupt:
        errors.print("interrupted")
        sys.exit(130)
