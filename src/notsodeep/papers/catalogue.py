"""The experiments by name, in the order of `notsodeep reproduce --list`.

To add one, import its module here and add one line to `_ALL`:

    from notsodeep.papers.icml import IcmlError
    …
    _ALL = (…, IcmlError(), …)

Its module imports torch (and the rooms that need it) inside `run`, so that the list is printed at once and the
experiments that need no torch work without it.
"""

from __future__ import annotations

from typing import Any

from notsodeep.errors import InputError
from notsodeep.papers.aistats import Aistats1
from notsodeep.papers.experiment import Experiment
from notsodeep.papers.hld import Hld1
from notsodeep.papers.iclr import Iclr1, Iclr2, Iclr3
from notsodeep.papers.icml import IcmlAccuracy, IcmlError, IcmlMatching
from notsodeep.papers.ours import Refined, Spectrum, Twins, Width

_ALL: tuple[Experiment[Any], ...] = (
    Aistats1(),
    Hld1(),
    Iclr1(),
    Iclr2(),
    Iclr3(),
    IcmlError(),
    IcmlMatching(),
    IcmlAccuracy(),
    Refined(),
    Spectrum(),
    Twins(),
    Width(),
)

EXPERIMENTS: dict[str, Experiment[Any]] = {experiment.name: experiment for experiment in _ALL}


def find(name: str) -> Experiment[Any]:
    """The experiment of that name."""
    if name not in EXPERIMENTS:
        raise InputError(f"No experiment is called {name!r}; there are {', '.join(EXPERIMENTS)}.")
    return EXPERIMENTS[name]
