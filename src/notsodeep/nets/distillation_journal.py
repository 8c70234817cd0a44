"""Finished students and the one in work, in one file: a distillation that was interrupted goes on from there."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from notsodeep.errors import InputError
from notsodeep.files import atomic_write


@dataclass
class Journal:
    """Finished students and the one in work, kept in one file.

    Attributes:
        path: the file; None for none.
        identity: a hash of teacher, rows and settings.
        done: the weights of finished students, by name.
        notes: what is to be known of them, by name.
        work: the student in work: its weights, and where its fit stands.
    """

    path: Path | None
    identity: str
    done: dict[str, dict[str, Tensor]] = field(default_factory=dict)
    notes: dict[str, str] = field(default_factory=dict)
    work: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, path: Path | None, identity: str, resume: bool) -> Journal:
        """What a file holds, or nothing yet; a file of another distillation is refused."""
        journal = cls(path, identity)
        if path is None or not path.exists() or not resume:
            return journal
        try:
            found = torch.load(path, map_location="cpu", weights_only=True)
            known = found["identity"]
        except Exception as error:
            raise InputError(
                f"{path} is not a checkpoint of distill ({str(error).splitlines()[0]}). Name another file, or pass "
                "resume=False to replace it."
            ) from error
        if known != identity:
            raise InputError(
                f"{path} belongs to another teacher, other rows or other settings. Name another file, or pass "
                "resume=False to replace it."
            )
        journal.done, journal.notes, journal.work = (found[name] for name in ("done", "notes", "work"))
        return journal

    def save(self) -> None:
        """Write the file anew."""
        if self.path is None:
            return
        with atomic_write(self.path) as temporary:
            torch.save(
                {"identity": self.identity, "done": self.done, "notes": self.notes, "work": self.work},
                temporary,
            )

    def finish(self, name: str, student: nn.Module, note: str = "") -> None:
        """Keep a finished student under its name."""
        self.done[name] = {key: value.detach().cpu().clone() for key, value in student.state_dict().items()}
        self.notes[name], self.work = note, {}
        self.save()


__all__ = ["Journal"]
