"""Checkpoints of a training: one file, written completely or not at all, with nothing in it but tensors and numbers.

A checksum of the whole file is checked before anything in it is used.

A file belongs to one training: its model (as `notsodeep.fingerprint` describes it), settings, data and initial weights
are kept as text and hashes, and a training that differs in any of them is refused rather than continued into something
that neither of them is.
"""

from __future__ import annotations

import hashlib
import io
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, Self

import torch
from torch import Tensor

from notsodeep.errors import InputError
from notsodeep.files import atomic_write
from notsodeep.fingerprint import describe, differences
from notsodeep.nets.history import Epoch
from notsodeep.nets.modules import Net
from notsodeep.nets.samples import TrainingData

State = dict[str, Any]

# In format 1 models were told apart by six digits; format 2 had no checksum.
_FORMAT = 3


@dataclass(frozen=True)
class Checkpoint:
    """The state of a training; each kind of training adds the fields that its state consists of.

    Attributes:
        settings: what must be the same for the training to be continued, by name: text or plain JSON values.
    """

    settings: State

    def save(self, path: Path) -> None:
        """Write the file, in the place of the one before."""
        memory = io.BytesIO()
        torch.save({field.name: getattr(self, field.name) for field in fields(self)}, memory)
        with atomic_write(path) as temporary:
            temporary.write_bytes(_head(memory.getvalue()) + memory.getvalue())

    @classmethod
    def load(cls, path: Path, device: torch.device | str = "cpu") -> Self:
        """Read a file; nothing in it is executed.

        Raises:
            InputError: if it is not, bit for bit, what `save` of this class wrote.
        """
        head, _, body = path.read_bytes().partition(b"\n")
        if head + b"\n" == _head(body):
            content = torch.load(io.BytesIO(body), map_location=device, weights_only=True)
            if content.keys() == {field.name for field in fields(cls)}:
                return cls(**content)
        raise InputError(
            f"{path} is damaged, or not a checkpoint of this kind of training and version of notsodeep. Name another "
            "file, or pass resume=False to train anew and replace it."
        )

    def refuse_other(self, settings: State, path: Path) -> None:
        """Refuse a training whose settings or data are not those of the checkpoint."""
        if different := differences(self.settings, settings):
            raise InputError(
                f"{path} belongs to another training ({'; '.join(different)}). Use its settings and data, name another "
                "file, or pass resume=False to start anew."
            )


@dataclass(frozen=True)
class FitCheckpoint(Checkpoint):
    """Where a training by `fit` stands after a whole number of epochs."""

    start: str  # hash of the weights it started from
    module: State  # the module's state
    optimizer: State  # the optimiser's state
    generator: Tensor  # state of the generator that shuffles
    rows: list[dict[str, Any]]  # one record per epoch so far


class CheckpointFile:
    """The checkpoint of one training by `fit`: knows what identifies the training, reads and writes the file.

    Args:
        path: the file.
        module: the network, with its initial weights.
        data: what it is trained on.
        settings: what else must be the same for the training to be continued.
    """

    def __init__(self, path: Path, module: Net, data: TrainingData, settings: State) -> None:
        self.path, self.module = path, module
        sizes = f"{'×'.join(map(str, module.sample_shape))}-{module.width}-{module.out_features}"
        self.settings = settings | {
            "network": f"{type(module).__name__} {sizes}, train={module.train_mode}",
            "model": describe(module.spec, data.largest_norm()),
            "factors": dict(module.factors),
            "precision": str(module.readout.dtype),
            "solver": module.solver_settings,
        }
        for name, part in (("train", data.train), ("test", data.test)):
            known = "none" if part is None else tensor_hash({"X": part.inputs, "y": part.target})
            self.settings[f"{name} data"] = known
        self.start = tensor_hash(module.state_dict())

    def load(self, epochs: int) -> FitCheckpoint | None:
        """The checkpoint to continue from, None if there is no file.

        The weights of the module may be those the checkpoint started from, or those that it holds, as when one process
        trains on.

        Raises:
            InputError: if the file belongs to another training, or to more than `epochs` epochs of this one.
        """
        if not self.path.exists():
            return None
        found = FitCheckpoint.load(self.path, self.module.readout.device)
        found.refuse_other(self.settings, self.path)
        if self.start not in (found.start, tensor_hash(found.module)):
            raise InputError(
                f"{self.path} belongs to a training that started from other weights. Make the module with the same "
                "seed, name another file, or pass resume=False to start anew."
            )
        if len(found.rows) > epochs:
            raise InputError(
                f"{self.path} is already {len(found.rows)} epochs on; {epochs} were asked for. Ask for more, name "
                "another file, or pass resume=False to start anew."
            )
        self.start = found.start
        return found

    def save(self, optimizer: torch.optim.Optimizer, generator: torch.Generator, rows: list[Epoch]) -> None:
        """Write the state of the training after an epoch."""
        FitCheckpoint(
            self.settings,
            self.start,
            dict(self.module.state_dict()),
            optimizer.state_dict(),
            generator.get_state(),
            [asdict(row) for row in rows],
        ).save(self.path)


def _head(body: bytes) -> bytes:
    """The first line of a file: format, and a checksum of the rest."""
    return f"notsodeep checkpoint {_FORMAT} {hashlib.sha256(body).hexdigest()}\n".encode()


def checkpoint_path(path: str | Path | None) -> Path | None:
    """The file as a path, whose folder must exist."""
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


def tensor_hash(tensors: Mapping[str, Any]) -> str:
    """A hash of the bytes, shapes and types of tensors (and of the text of anything else), in their order."""
    digest = hashlib.blake2b(digest_size=16)
    for name, value in tensors.items():
        if isinstance(value, Tensor):
            digest.update(f"{name} {value.dtype} {tuple(value.shape)};".encode())
            raw = value.detach().cpu().contiguous().reshape(-1).view(torch.uint8)
            digest.update(raw.numpy().data)
        else:
            digest.update(f"{name} {value!r};".encode())
    return digest.hexdigest()
