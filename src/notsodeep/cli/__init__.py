"""The command line: `notsodeep demo`, `kernel`, `spectrum`, `design`, `train`."""

from notsodeep.cli.entry import main

__all__ = ["main"]
