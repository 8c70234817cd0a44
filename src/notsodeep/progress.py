"""Progress of long computations: they call a function after each step, and a bar on stderr is one such function."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

News = Callable[[], str]
# Called with the number of steps done, of all steps, and a function for the message (called only if it is shown).
Report = Callable[[int, int, News], None]

_SECONDS_BETWEEN_UPDATES = 0.1


def silent(done: int, total: int, news: News) -> None:
    """A progress callback that does nothing."""


@contextmanager
def reported(progress: bool | Report, title: str) -> Iterator[Report]:
    """What `progress=` means everywhere: True is a bar on stderr, a function is called, False is neither."""
    if progress is True:
        with progress_bar(title) as report:
            yield report
    else:
        yield progress or silent


@contextmanager
def progress_bar(title: str) -> Iterator[Report]:
    """A bar on stderr that vanishes when the work is done; the block calls the report it is given."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(title, total=None)
        shown_at = 0.0

        def report(done: int, total: int, news: News) -> None:
            nonlocal shown_at
            now = time.monotonic()
            # Steps may take microseconds: most of them are not worth a line.
            if now - shown_at >= _SECONDS_BETWEEN_UPDATES or done >= total:
                shown_at = now
                bar.update(task, completed=done, total=total, description=f"{title} {news()}".strip())

        yield report


__all__ = ["News", "Report", "progress_bar", "reported", "silent"]
