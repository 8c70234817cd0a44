"""`notsodeep report`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from notsodeep.cli.common import console


def report(
    files: Annotated[
        list[Path] | None, typer.Argument(help="Files to include, as with --include.", show_default=False)
    ] = None,
    root: Annotated[Path, typer.Option(help="Results folder of notsodeep reproduce.")] = Path("results"),
    out: Annotated[Path, typer.Option(help="File to write.")] = Path("report.html"),
    include: Annotated[
        list[Path] | None,
        typer.Option(help="Also show a design (design --save) or training (train --json)."),
    ] = None,
    open_it: Annotated[bool, typer.Option("--open", help="Open the page in a browser.")] = False,
    overwrite: Annotated[bool, typer.Option(help="Replace an existing file.")] = False,
) -> None:
    """Write one HTML page of all results: figures, tables, the papers' claims compared with ours.

    The page is a single self-contained file.

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
