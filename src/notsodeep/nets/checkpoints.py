"""Checkpoints of `fit`: one file with the state of a training after its last epoch, replaced completely or not at all.

The first line has a checksum of the rest, which is verified before anything else is read; the rest holds tensors and
numbers alone, and reading it executes nothing. The file also describes the training it belongs to: its model
(`notsodeep.fingerprint`), settings, data and initial weights. A training that differs in any of them is refused.
"""

from __future__ import annotations

import hashlib
import io
from collections.abc import Mapping
from dataclasses import asdict
from itertools import zip_longest
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from notsodeep.errors import InputError
from notsodeep.files import atomic_write
from notsodeep.fingerprint import describe, differences
from notsodeep.nets.history import Epoch
from notsodeep.nets.modules import Net
from notsodeep.nets.samples import LabelledSamples

State = dict[str, Any]

# Version of the file format, in the first line.
_FORMAT = 4


class CheckpointFile:
    """The checkpoint file of one training.

    Args:
        path: the file.
        module: the network, with its initial weights.
        parts: training samples, and test samples if there are any.
        settings: settings that must agree for the training to be continued.
    """

    def __init__(self, path: Path, module: Net, parts: list[LabelledSamples], settings: State) -> None:
        self.path, self.module = path, module
        largest_norm = max(float(part.inputs.norm(dim=1).max()) for part in parts)
        sizes = f"{'×'.join(map(str, module.sample_shape))}-{module.width}-{module.out_features}"
        self.settings = settings | {
            "network": f"{type(module).__name__} {sizes}, train={module.train_mode}",
            "model": describe(module.spec, largest_norm),
            "factors": dict(module.factors),
            "precision": str(module.readout.dtype),
            "solver": module.solver_settings,
        }
        for name, part in zip_longest(("train", "test"), parts):
            known = "none" if part is None else _tensor_hash({"X": part.inputs, "y": part.target})
            self.settings[f"{name} data"] = known
        self.initial = _tensor_hash(module.state_dict())

    def load(self, epochs: int) -> State | None:
        """The state to continue from, or None if there is no file.

        Raises:
            InputError: if the file is damaged, belongs to another training, or has more than `epochs` epochs.
        """
        if not self.path.exists():
            return None
        head, _, body = self.path.read_bytes().partition(b"\n")
        if head + b"\n" != _first_line(body):
            raise self._refusal("is damaged, or not a checkpoint of this version of notsodeep")
        device = self.module.readout.device
        state: State = torch.load(io.BytesIO(body), map_location=device, weights_only=True)
        if different := differences(state["settings"], self.settings):
            raise self._refusal(f"belongs to another training ({'; '.join(different)})")
        # The module may also hold the weights of the checkpoint, where one process continues after an interruption.
        if self.initial not in (state["initial"], _tensor_hash(state["module"])):
            raise self._refusal("belongs to a training that started from other weights")
        if len(state["rows"]) > epochs:
            raise self._refusal(f"already has {len(state['rows'])} epochs, more than epochs={epochs}")
        self.initial = state["initial"]
        return state

    def _refusal(self, problem: str) -> InputError:
        return InputError(f"{self.path} {problem}. Name another file, or pass resume=False to replace it.")

    def save(
        self, optimizer: torch.optim.Optimizer, generator: torch.Generator, lr: float, rows: list[Epoch]
    ) -> None:
        """Write the state of the training after an epoch."""
        state = {
            "settings": self.settings,
            "initial": self.initial,
            "module": dict(self.module.state_dict()),
            "optimizer": optimizer.state_dict(),
            "generator": generator.get_state(),
            "lr": lr,
            "rows": [asdict(row) for row in rows],
        }
        memory = io.BytesIO()
        torch.save(state, memory)
        with atomic_write(self.path) as temporary:
            temporary.write_bytes(_first_line(memory.getvalue()) + memory.getvalue())


def checkpoint_path(path: str | Path | None) -> Path | None:
    """The file as a path; raises an error unless its folder exists."""
    if path is None:
        return None
    file = Path(path)
    if not file.parent.is_dir():
        raise InputError(f"The folder {file.parent} of the checkpoint does not exist. Create it first.")
    if file.is_dir():
        raise InputError(f"The checkpoint {file} is a folder. Name a file, such as {file / 'training.pt'}.")
    return file


def _first_line(body: bytes) -> bytes:
    return f"notsodeep checkpoint {_FORMAT} {hashlib.sha256(body).hexdigest()}\n".encode()


def _tensor_hash(tensors: Mapping[str, Tensor]) -> str:
    """A hash of the names, types, shapes and bytes of tensors, in their order."""
    digest = hashlib.sha256()
    for name, value in tensors.items():
        digest.update(f"{name} {value.dtype} {tuple(value.shape)};".encode())
        digest.update(value.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


__all__ = ["CheckpointFile", "State", "checkpoint_path"]
