"""Progress of long computations: callbacks, and a bar on stderr."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

News = Callable[[], str]
# Called with the number of finished steps, the number of all steps, and a function that returns a text about the step;
# that function is called only if the text is shown.
Report = Callable[[int, int, News], None]

_SECONDS_BETWEEN_UPDATES = 0.1


def silent(done: int, total: int, news: News) -> None:
    """A progress callback that does nothing."""


@contextmanager
def reported(progress: bool | Report, title: str) -> Iterator[Report]:
    """The callback of an argument `progress=`: True is a bar on stderr, False does nothing, a function is itself."""
    if progress is True:
        with progress_bar(title) as report:
            yield report
    else:
        yield progress or silent


@contextmanager
def progress_bar(title: str) -> Iterator[Report]:
    """A bar on stderr that disappears at the end of the with statement; its callback moves it."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(title, total=None)
        shown_at = 0.0

        def report(done: int, total: int, news: News) -> None:
            nonlocal shown_at
            now = time.monotonic()
            # Steps may take microseconds: not each of them is shown.
            if now - shown_at >= _SECONDS_BETWEEN_UPDATES or done >= total:
                shown_at = now
                bar.update(task, completed=done, total=total, description=f"{title} {news()}".strip())

        yield report


__all__ = ["News", "Report", "progress_bar", "reported", "silent"]
