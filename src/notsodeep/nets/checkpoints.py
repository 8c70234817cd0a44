"""Checkpoints of a training: one file, whole or not there, that holds nothing but tensors and numbers.

A file belongs to one training: its model (as `notsodeep.fingerprint` describes it), settings, data and initial weights
are kept as text and hashes, and a training that differs in any of them is refused rather than continued into something
that neither of them is.
"""

from __future__ import annotations

import hashlib
import pickle
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from notsodeep.errors import InputError
from notsodeep.files import written_whole
from notsodeep.fingerprint import differences

# Text, or plain JSON values.
Facts = Mapping[str, Any]
State = dict[str, Any]

# 1 told models apart by six digits.
_FORMAT = 2


@dataclass(frozen=True)
class Checkpoint:
    """Where a training stands after a whole number of epochs.

    Attributes:
        settings: what must be the same for the training to be continued, by name.
        start: hash of the weights it started from.
        module: the module's state.
        optimizer: the optimiser's state.
        generator: state of the generator that shuffles.
        rows: one record per epoch so far.
    """

    settings: Facts
    start: str
    module: State
    optimizer: State
    generator: Tensor
    rows: list[dict[str, Any]]

    def save(self, path: Path) -> None:
        """Write the file whole, in the place of the one before."""
        content = {
            "format": _FORMAT, "settings": dict(self.settings), "start": self.start, "module": self.module,
            "optimizer": self.optimizer, "generator": self.generator, "rows": self.rows,
        }  # fmt: skip
        with written_whole(path) as temporary:
            torch.save(content, temporary)

    @classmethod
    def load(cls, path: Path, device: torch.device) -> Checkpoint:
        """Read a file; nothing in it is executed."""
        try:
            content = torch.load(path, map_location=device, weights_only=True)
            if (version := content.pop("format")) != _FORMAT:
                raise InputError(
                    f"{path} was written by another version of notsodeep (format {version}, this one has {_FORMAT}); "
                    "in format 1 a training could go on with another model. Train anew: pass resume=False to replace "
                    "it, or name another file."
                )
            content["generator"] = content["generator"].cpu()
            return cls(**content)
        except (
            RuntimeError, pickle.UnpicklingError, EOFError, KeyError, TypeError, AttributeError
        ) as error:  # fmt: skip
            reason = str(error).splitlines()[0] if str(error) else type(error).__name__
            raise InputError(
                f"{path} is not a checkpoint of a training ({reason}). Name another file, or pass resume=False "
                "to replace it."
            ) from None

    def refuse_other(self, settings: Facts, weights: str, path: Path) -> None:
        """Only the same training may continue: same settings, same data, same initial weights.

        The weights may also be those of the checkpoint, as when one process trains on.
        """
        different = differences(dict(self.settings), dict(settings))
        if different:
            said = "; ".join(different)
            raise InputError(
                f"{path} belongs to another training ({said}). Use its settings and data, name another file, or pass "
                "resume=False to start anew."
            )
        if weights not in (self.start, fingerprint(self.module)):
            raise InputError(
                f"{path} belongs to a training that started from other weights. Make the module with the same seed, "
                "name another file, or pass resume=False to start anew."
            )


def checkpoint_path(path: str | Path | None) -> Path | None:
    """The file, whose folder must be there."""
    if path is None:
        return None
    file = Path(path)
    if not file.parent.is_dir():
        raise InputError(
            f"The folder {file.parent} of the checkpoint is not there. Make it, or name another."
        )
    if file.is_dir():
        raise InputError(
            f"The checkpoint {file} is a folder; a file is needed, such as {file / 'training.pt'}."
        )
    return file


def fingerprint(tensors: Mapping[str, Any] | Tensor) -> str:
    """A hash of the bytes, shapes and types of tensors (and of the text of anything else), in their order."""
    digest = hashlib.blake2b(digest_size=16)
    for name, value in [("", tensors)] if isinstance(tensors, Tensor) else tensors.items():
        if isinstance(value, Tensor):
            digest.update(f"{name} {value.dtype} {tuple(value.shape)};".encode())
            raw = value.detach().cpu().contiguous().reshape(-1).view(torch.uint8)
            digest.update(raw.numpy().data)
        else:
            digest.update(f"{name} {value!r};".encode())
    return digest.hexdigest()


def snapshot(state: Mapping[str, Any]) -> State:
    """A copy that later steps do not touch."""
    return {
        name: value.detach().clone() if isinstance(value, Tensor) else value for name, value in state.items()
    }


__all__ = ["Checkpoint", "checkpoint_path", "fingerprint", "snapshot"]
