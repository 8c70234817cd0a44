"""Common parts of the smoke tests, which run in the checked environment without pytest and without a checkout."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

Check = Callable[[], None]


class SmokeError(Exception):
    """Something does not work as it should."""


def expect(condition: object, problem: str) -> None:
    """Raise unless the condition holds: an assert would vanish under -O."""
    if not condition:
        raise SmokeError(problem)


def notsodeep(*arguments: str, code: int = 0) -> tuple[str, str]:
    """Run a command that must end with this exit code and no stack trace; return its stdout and stderr."""
    script = shutil.which("notsodeep", path=os.path.dirname(sys.executable))
    expect(script, "The console script notsodeep is not there.")
    done = subprocess.run([str(script), *arguments], capture_output=True, text=True, check=False)
    expect(
        done.returncode == code and "Traceback" not in done.stderr,
        f"notsodeep {' '.join(arguments)} ended with {done.returncode}, not {code}:\n{done.stdout}\n{done.stderr}",
    )
    return done.stdout, done.stderr


def says(text: str, words: str, where: str) -> None:
    """Raise unless the words, which may be folded over lines, are in the text."""
    expect(words in " ".join(text.split()), f"{where} does not say {words!r}, but:\n{text}")


def is_installed_here() -> None:
    """The package is the one of this environment, not that of a checkout."""
    import notsodeep

    place = Path(notsodeep.__file__).resolve()
    expect(place.is_relative_to(Path(sys.prefix).resolve()), f"notsodeep was imported from {place}.")


def run_all(checks: Sequence[Check]) -> int:
    """Run the checks one after the other, each with its docstring as its name; the exit code."""
    for check in checks:
        title = (check.__doc__ or check.__name__).splitlines()[0]
        start = time.perf_counter()
        try:
            check()
        except Exception as error:
            print(f"  FAILED  {title}\n{type(error).__name__}: {error}", flush=True)
            return 1
        print(f"  {time.perf_counter() - start:5.1f} s  {title}", flush=True)
    return 0
