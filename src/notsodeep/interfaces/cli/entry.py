"""Where the console script starts."""

from __future__ import annotations

import sys

from rich.markup import escape

from notsodeep.errors import ConvergenceError, InputError
from notsodeep.files import explained

# Each module adds its command to the application.
from notsodeep.interfaces.cli import (  # noqa: F401
    certify_command,
    demo_command,
    design_command,
    distill_command,
    explore_command,
    kernel_command,
    predict_command,
    report_command,
    reproduce_command,
    spectrum_command,
    train_command,
    verdict_command,
)
from notsodeep.interfaces.cli.common import app, errors


def main() -> None:
    """Run the command line; a foreseeable error is a sentence and exit code 2, not a stack trace."""
    try:
        app()
    except (InputError, ConvergenceError) as error:
        # Escaped, or [torch] would be a style; not folded, so that a command in it can be copied.
        errors.print(f"[bold red]error:[/] {escape(str(error))}", highlight=False, soft_wrap=True)
        sys.exit(2)
    except OSError as error:
        errors.print(f"[bold red]error:[/] {escape(explained(error))}", highlight=False, soft_wrap=True)
        sys.exit(2)
    except KeyboardInterrupt:
        errors.print("interrupted")
        sys.exit(130)
