"""The command line: `notsodeep demo`, `kernel`, `spectrum`, `design`, `train`."""

from notsodeep.interfaces.cli.entry import main

__all__ = ["main"]
