"""The tables of benchmarks/injected.py, from its journal."""

from typing import Any


def summary(tasks: Any) -> str:
    return f"{len(tasks)} tasks"


def publish(tasks: Any) -> None: ...
