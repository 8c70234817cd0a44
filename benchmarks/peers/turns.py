"""Processes that work one at a time: each waits for its turn, makes one call, says how long it took, and waits again.

Both ends are here. A contestant calls `take_turns`; the one who compares holds a `Contestant` for each and gives the
turns. So every contestant has a process, an environment and a peak memory of its own, and all of them meet the same
machine. Only the standard library is needed, so that this runs in every environment.
"""

from __future__ import annotations

import gc
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Timer
from typing import IO, Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # benchmarks/: the shared harness

from harness import Row, memory_bytes, resident_now

Task = Callable[[], Any]
Say = Callable[[Row], None]
#: A call that takes longer than this many seconds is given up.
LONGEST = 600.0


# --- the contestant ----------------------------------------------------------------------------------
@contextmanager
def only_answers_on_stdout() -> Iterator[Say]:
    """Anything a library prints goes to standard error: standard output is for answers."""
    channel, sys.stdout = sys.stdout, sys.stderr

    def say(answer: Row) -> None:
        channel.write(json.dumps(answer) + "\n")
        channel.flush()

    try:
        yield say
    finally:
        sys.stdout = channel


def obey(orders: Mapping[str, Callable[..., Row]]) -> None:
    """Answer orders {"do": name, …} from standard input, one at a time, until it is closed."""
    with only_answers_on_stdout() as say:
        for line in sys.stdin:
            order = json.loads(line)
            say(orders[order.pop("do")](**order))


def take_turns(
    prepare: Callable[[], Task], repeats: int, say: Say, *, interactive: bool = True
) -> tuple[Row, Any]:
    """Preparation and a first call in the first turn, then one call in each: figures, and the last result.

    `prepare` compiles, chooses parameters, or whatever else comes before a call; it has a time of its own. Memory is
    the highest resident during the calls beyond what was resident after the preparation, result included.
    """
    _wait_for_turn(interactive)
    start = time.perf_counter()
    task = prepare()
    prepared = time.perf_counter() - start
    before = resident_now()
    first, result = timed(task)
    say({"event": "first", "seconds": prepared + first})
    warm: list[float] = []
    for _ in range(repeats):
        _wait_for_turn(interactive)
        result = None  # two results at once would count as memory that the contestant does not need
        seconds, result = timed(task)
        warm.append(seconds)
        say({"event": "warm", "seconds": seconds})
    peak = memory_bytes("VmHWM")
    figures = {
        "prepare_seconds": prepared,
        "first_seconds": prepared + first,
        "seconds": warm or [first],  # a call too slow to repeat counts from the first time
        "warm_median": statistics.median(warm) if warm else None,
        "peak_extra_gb": None if before is None or peak is None else (peak - before) / 1e9,
    }
    return figures, result


def timed(task: Task) -> tuple[float, Any]:
    gc.collect()
    start = time.perf_counter()
    result = task()
    return time.perf_counter() - start, result


def _wait_for_turn(interactive: bool) -> None:
    if interactive and not sys.stdin.readline():
        sys.exit("the driver closed standard input before all the repeats were done")


# --- the one who gives the turns -----------------------------------------------------------------------
class Stopped(RuntimeError):
    """A contestant ended early; the text gives the reason in one line."""


class Contestant:
    """A program in its own process that answers every line with a line of JSON."""

    def __init__(self, command: Sequence[str], log: Path, environment: Mapping[str, str] | None = None):
        self._log: IO[str] = log.open("w+")
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
            env=os.environ | (environment or {}),
        )

    def ask(self, line: str, limit: float = LONGEST) -> Row:
        """Send a line, wait for the answer.

        Raises:
            Stopped: if the process ends, or takes longer than the limit.
        """
        channel = self._process.stdin
        if channel is not None:
            with suppress(BrokenPipeError):  # it has ended; what it last said is read below
                channel.write(line + "\n")
                channel.flush()
        return self.listen(limit)

    def turn(self) -> float:
        """Let it make one call; seconds by its own clock."""
        return float(self.ask("go")["seconds"])

    def listen(self, limit: float = LONGEST) -> Row:
        clock = Timer(limit, self._process.kill)
        clock.start()
        try:
            line = self._process.stdout.readline() if self._process.stdout is not None else ""
        finally:
            clock.cancel()
        if not line:
            raise Stopped(self._last_words(limit))
        answer: Row = json.loads(line)
        return answer

    def close(self) -> None:
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()
        for channel in (self._process.stdin, self._process.stdout, self._log):
            if channel is not None:
                with suppress(BrokenPipeError):
                    channel.close()

    def _last_words(self, limit: float) -> str:
        code = self._process.wait()
        self._log.seek(0)
        lines = [line.strip() for line in self._log.read().splitlines() if line.strip()]
        if code == -9:
            return f"killed: longer than {limit:.0f} s, or out of memory"
        return f"ended with code {code}: {lines[-1] if lines else 'no words'}"
