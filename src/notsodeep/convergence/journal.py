"""The file from which a training continues: whole or not there, nothing in it but tensors and numbers."""

from __future__ import annotations

import pickle
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from notsodeep.errors import InputError
from notsodeep.files import atomic_write

_FORMAT = 1


@dataclass(frozen=True)
class Journal:
    """Where a training stands, and what it is a training of.

    Attributes:
        facts: what must be the same for the training to be continued.
        tensors: the weights.
        numbers: the step size and what else stays.
        losses: of every step so far.
        rows: the watched steps so far.
    """

    facts: dict[str, str]
    tensors: dict[str, Tensor]
    numbers: dict[str, float]
    losses: list[float]
    rows: list[dict[str, Any]]


def save_journal(path: Path, journal: Journal) -> None:
    """Write the file whole, in the place of the one before."""
    with atomic_write(path) as temporary:
        torch.save(
            {"format": _FORMAT, **{f.name: getattr(journal, f.name) for f in fields(journal)}}, temporary
        )


def load_journal(path: Path, facts: dict[str, str]) -> Journal:
    """Read a file; nothing in it is executed.

    Raises:
        InputError: if it is not such a file, or belongs to another training.
    """
    try:
        content = torch.load(path, weights_only=True)
        if content.pop("format") != _FORMAT:
            raise InputError(f"{path} was written by another version of notsodeep. Train anew.")
        journal = Journal(**content)
    except (RuntimeError, pickle.UnpicklingError, EOFError, KeyError, TypeError, AttributeError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise InputError(
            f"{path} is not a checkpoint of gradient_descent ({reason}). Name another file, or pass resume=False to "
            "replace it."
        ) from None
    different = [name for name in sorted(facts) if journal.facts.get(name) != facts[name]]
    if different:
        raise InputError(
            f"{path} belongs to another training: other {', '.join(different)}. Name another file, or pass "
            "resume=False to start anew."
        )
    return journal
