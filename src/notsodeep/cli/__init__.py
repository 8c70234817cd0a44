"""The command line of the library: each command parses, calls and prints. Others register by entry point (`entry`)."""


def main() -> None:
    """Run the command line, as the console script does."""
    # Not at the top: `entry` loads the commands of other packages, which import from this one.
    from notsodeep.cli.entry import main as run

    run()


__all__ = ["main"]
