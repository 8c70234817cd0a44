"""Progress of long computations: a function that is called after each step, such as a bar on stderr.

Bars appear after two seconds; quick computations show none.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.progress import Progress

Message = Callable[[], str]
# Called with the number of steps done, of all steps, and a function for the message (called only if it is shown).
Report = Callable[[int, int, Message], None]

_SECONDS_BETWEEN_UPDATES = 0.1
SECONDS_BEFORE_BAR = 2.0


def silent(done: int, total: int, message: Message) -> None:
    """A progress callback that does nothing."""


@contextmanager
def reported(progress: bool | Report, title: str) -> Iterator[Report]:
    """Interpret an argument `progress`: True shows a bar on stderr, a function is called, False does nothing."""
    if progress is True:
        with progress_bar(title) as report:
            yield report
    else:
        yield progress or silent


@contextmanager
def progress_bar(title: str) -> Iterator[Report]:
    """Show a bar on stderr after two seconds, until the block ends; the block calls the report."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    bar = Progress(*columns, console=Console(stderr=True), transient=True)
    with shown_late(bar):
        task = bar.add_task(title, total=None)
        shown_at = 0.0

        def report(done: int, total: int, message: Message) -> None:
            nonlocal shown_at
            now = time.monotonic()
            # Steps may take microseconds; most of them are not shown.
            if now - shown_at >= _SECONDS_BETWEEN_UPDATES or done >= total:
                shown_at = now
                bar.update(task, completed=done, total=total, description=f"{title} {message()}".strip())

        yield report


@contextmanager
def shown_late(bar: Progress) -> Iterator[Progress]:
    """Show a bar of rich when the block has taken two seconds, whether or not anything was reported."""
    # Both sides hold the lock, so that a bar is never started after the block has ended.
    lock, ended = threading.Lock(), threading.Event()

    def start() -> None:
        with lock:
            if not ended.is_set():
                bar.start()

    timer = threading.Timer(SECONDS_BEFORE_BAR, start)
    timer.daemon = True
    timer.start()
    try:
        yield bar
    finally:
        with lock:
            ended.set()
            timer.cancel()
            # A bar that was never shown would end with an empty line.
            if bar.live.is_started:
                bar.stop()


__all__ = ["Message", "Report", "progress_bar", "reported", "shown_late", "silent"]
