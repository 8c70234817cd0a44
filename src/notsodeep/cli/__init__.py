"""The command line of the library: each command parses, calls and prints. Others register by entry point (`entry`)."""

from notsodeep.cli.entry import main

__all__ = ["main"]
