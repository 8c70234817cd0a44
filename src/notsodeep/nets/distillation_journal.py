"""Finished students and the one in work, in one file: a distillation that was interrupted goes on from there."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from notsodeep.errors import InputError
from notsodeep.files import atomic_write
from notsodeep.nets.students import StepsNet


@dataclass
class Journal:
    """Finished students and the one in work, kept in one file."""

    path: Path | None
    identity: str
    done: dict[str, dict[str, Tensor]] = field(default_factory=dict)
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
            raise InputError(f"{path} is not a checkpoint of distill: {error}") from error
        if known != identity:
            raise InputError(
                f"{path} belongs to another teacher, other rows or other settings. Name another file, or pass "
                "resume=False to replace it."
            )
        journal.done, journal.work = found["done"], found["work"]
        return journal

    def save(self) -> None:
        """Write the file anew."""
        if self.path is None:
            return
        with atomic_write(self.path) as temporary:
            torch.save({"identity": self.identity, "done": self.done, "work": self.work}, temporary)

    def finish(self, name: str, student: StepsNet) -> None:
        """Keep a finished student under its name."""
        self.done[name], self.work = {k: v.cpu() for k, v in student.state_dict().items()}, {}
        self.save()


__all__ = ["Journal"]
