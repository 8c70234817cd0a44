"""Progress of long computations: a function that is called after each step, such as a bar on stderr."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Timer

Message = Callable[[], str]
# Called with the number of steps done, of all steps, and a function for the message (called only if it is shown).
Report = Callable[[int, int, Message], None]

_SECONDS_BETWEEN_UPDATES = 0.1
_SECONDS_BEFORE_BAR = 2.0
# Whether a bar waits or is shown: one at a time.
_is_shown = False


def silent(done: int, total: int, message: Message) -> None:
    """A progress callback that does nothing."""


@contextmanager
def reported(progress: bool | Report, title: str) -> Iterator[Report]:
    """Interpret an argument `progress`: True is a bar on a terminal, a function is called, False does nothing."""
    if progress is True:
        with progress_bar(title) as report:
            yield report
    else:
        yield progress or silent


@contextmanager
def progress_bar(title: str) -> Iterator[Report]:
    """Show a bar on stderr, if that is a terminal, from two seconds on until the block ends; the block reports.

    As a decorator it shows that a function is at work. Inside another bar it shows nothing.
    """
    global _is_shown
    if _is_shown or not sys.stderr.isatty():
        yield silent
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    bar = Progress(*columns, console=Console(stderr=True, emoji=False), transient=True)
    task = bar.add_task(title, total=None)
    shown_at = 0.0

    def report(done: int, total: int, message: Message) -> None:
        nonlocal shown_at
        now = time.monotonic()
        # Steps may take microseconds; most of them are not shown.
        if now - shown_at >= _SECONDS_BETWEEN_UPDATES or done >= total:
            shown_at = now
            bar.update(task, completed=done, total=total, description=f"{title} {message()}".strip())

    start = Timer(_SECONDS_BEFORE_BAR, bar.start)
    start.daemon = _is_shown = True
    start.start()
    try:
        yield report
    finally:
        _is_shown = False
        start.cancel()
        start.join()
        bar.stop()


__all__ = ["Message", "Report", "progress_bar", "reported", "silent"]
