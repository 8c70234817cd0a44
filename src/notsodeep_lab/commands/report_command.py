"""`notsodeep report`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from notsodeep.cli.common import console


def report(
    files: Annotated[
        list[Path] | None, typer.Argument(help="Files of your own, as with --include.", show_default=False)
    ] = None,
    root: Annotated[Path, typer.Option(help="Folder of the results of notsodeep reproduce.")] = Path(
        "results"
    ),
    out: Annotated[Path, typer.Option(help="Where the page goes.")] = Path("report.html"),
    include: Annotated[
        list[Path] | None,
        typer.Option(help="A design (design --save) or a training (train --json) to show as well."),
    ] = None,
    open_it: Annotated[bool, typer.Option("--open", help="Show the page in the browser.")] = False,
    overwrite: Annotated[bool, typer.Option(help="Replace the page if it is there.")] = False,
) -> None:
    """One page of everything that was run: figures, tables, the papers' claims beside ours, how to repeat it.

    The page is one file without external references: it can be sent, printed, and read on a phone.

    Examples:
    notsodeep report --open

    notsodeep report --include design.json train.json
    """
    from notsodeep_lab.report import report as make_report
    from notsodeep_lab.report import write_page

    target = write_page(make_report(root, [*(include or []), *(files or [])]), out, overwrite=overwrite)
    console.print(f"Report: [bold]{target}[/] ({target.stat().st_size / 1e6:.1f} MB)", highlight=False)
    if open_it:
        import webbrowser

        webbrowser.open(target.resolve().as_uri())
