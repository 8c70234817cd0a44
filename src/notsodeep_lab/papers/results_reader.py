"""Read all results below a folder, without changing them."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

from notsodeep.errors import InputError
from notsodeep_lab.papers.experiment import Experiment, Size
from notsodeep_lab.papers.experiment_settings import Spec
from notsodeep_lab.papers.results_folder import SPEC, read_provenance
from notsodeep_lab.papers.runner import Outcome, read_outcome

# A page with a dozen figures should open at once: of larger figures the bitmap is used.
_LARGEST_SVG = 1_000_000


@dataclass(frozen=True)
class Result:
    """The stored results of one experiment with one set of settings.

    Attributes:
        experiment: the experiment.
        outcome: its rows, and the paper's claims compared with them.
        provenance: versions, machine, times; empty if unreadable.
        size: "quick", "full", or "" for custom settings.
        command: the command that reproduces the result.
        picture: the figure as SVG or PNG; None if there is none.
    """

    experiment: Experiment[Any]
    outcome: Outcome
    provenance: dict[str, Any]
    size: str
    command: str
    picture: bytes | None


def read_results(root: Path, experiments: Mapping[str, Experiment[Any]]) -> tuple[list[Result], list[str]]:
    """Read all results below a folder in the order of the experiments; messages about unreadable ones come second."""
    all_results, problems = [], []
    for experiment in experiments.values():
        results = []
        for spec in sorted((root / experiment.name).glob(f"*/{SPEC}")):
            folder = spec.parent
            try:
                outcome = read_outcome(experiment, folder)
                size, command = _command(experiment, outcome.spec, folder)
                picture, provenance = _picture(folder), read_provenance(folder)
                results.append(Result(experiment, outcome, provenance, size, command, picture))
            except (InputError, KeyError, TypeError, ValueError) as error:
                problems.append(f"{folder} is skipped: {error}")
        all_results += sorted(results, key=lambda result: ("full", "", "quick").index(result.size))
    return all_results, problems


def _command(experiment: Experiment[Any], spec: Spec, folder: Path) -> tuple[str, str]:
    """The size with these settings, and the command that runs them; with a settings file if no size has them."""
    data = " --data-dir DATA" if experiment.data_needed(spec) else ""
    start = f"notsodeep reproduce {experiment.name}"
    for size in get_args(Size):
        for seeds in (None, getattr(spec, "seeds", None)):
            if experiment.spec(size, seeds) == spec:
                repetitions = "" if seeds is None else f" --seeds {seeds}"
                return size, f"{start} --size {size}{repetitions}{data}"
    return "", f"{start} --spec {shlex.quote(str(folder / SPEC))}{data}"


def _picture(folder: Path) -> bytes | None:
    drawn, bitmap = folder / "figure.svg", folder / "figure.png"
    if drawn.is_file() and (drawn.stat().st_size <= _LARGEST_SVG or not bitmap.is_file()):
        return drawn.read_bytes()
    return bitmap.read_bytes() if bitmap.is_file() else None
