"""Common parts of the package checks: empty virtual environments, commands, and progress messages."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
CONSTRAINTS = ROOT / "constraints.txt"

# Variables that would leak modules of the checkout or of this environment into the one being checked.
_LEAKS = ("PYTHONPATH", "PYTHONHOME", "PYTHONSTARTUP", "VIRTUAL_ENV")
_SHOWN_LINES = 40


class CheckFailed(Exception):
    """A check did not pass; the message says which and why."""


def require(condition: object, problem: str) -> None:
    """Raise `CheckFailed` unless the condition holds."""
    if not condition:
        raise CheckFailed(problem)


@contextmanager
def step(title: str) -> Iterator[None]:
    """Print a step and how long it took."""
    print(f"{title} … ", end="", flush=True)
    start = time.perf_counter()
    try:
        yield
    except BaseException:
        print("FAILED", flush=True)
        raise
    print(f"{time.perf_counter() - start:.0f} s", flush=True)


def run(command: Sequence[str | Path], folder: Path, *, shown: bool = False) -> str:
    """Run a command in a folder and return its output; with `shown`, print the output instead.

    Raises:
        CheckFailed: if the exit code is not 0; the message has the last lines of the output.
    """
    words = [str(word) for word in command]
    variables = {name: value for name, value in os.environ.items() if name not in _LEAKS}
    output = None if shown else subprocess.PIPE
    done = subprocess.run(
        words, cwd=folder, env=variables, stdout=output, stderr=subprocess.STDOUT, text=True, check=False
    )
    if done.returncode:
        end = "\n".join((done.stdout or "").splitlines()[-_SHOWN_LINES:])
        raise CheckFailed(f"{' '.join(words)}\nended with code {done.returncode}.\n{end}")
    return done.stdout or ""


@dataclass(frozen=True)
class Environment:
    """A virtual environment, isolated from the one that runs the check."""

    folder: Path

    @classmethod
    def new(cls, folder: Path) -> Environment:
        """Create an empty environment with the running Python."""
        run([sys.executable, "-m", "venv", folder], folder.parent)
        return cls(folder)

    @property
    def python(self) -> Path:
        """The path of its interpreter."""
        return self.folder / ("Scripts/python.exe" if os.name == "nt" else "bin/python")

    def install(self, *requirements: str | Path, constraints: Path | None = None) -> None:
        """Install with pip, and run pip check."""
        limits = [] if constraints is None else ["-c", constraints]
        pip = [self.python, "-m", "pip", "--disable-pip-version-check"]
        run([*pip, "install", "--quiet", *requirements, *limits], self.folder)
        run([*pip, "check"], self.folder)

    def run(self, *arguments: str | Path, folder: Path, shown: bool = False) -> str:
        """Run its Python; -I keeps the folder, PYTHONPATH and the user's own packages out."""
        return run([self.python, "-I", *arguments], folder, shown=shown)
