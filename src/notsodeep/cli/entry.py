"""Where the console script starts."""

from __future__ import annotations

import sys

from rich.markup import escape

# Each module adds its command to the application.
from notsodeep.cli import certify, demo, design, explore, kernel, report, reproduce, spectrum, train  # noqa: F401
from notsodeep.cli.common import app, errors
from notsodeep.errors import ConvergenceError, InputError


def main() -> None:
    """Run the command line; a foreseeable error is a sentence and exit code 2, not a stack trace."""
    try:
        app()
    except (InputError, ConvergenceError) as error:
        # Escaped, or [torch] would be a style; not folded, so that a command in it can be copied.
        errors.print(f"[bold red]error:[/] {escape(str(error))}", highlight=False, soft_wrap=True)
        sys.exit(2)
    except KeyboardInterrupt:
        errors.print("interrupted")
        sys.exit(130)
