"""Samples and targets of a training, checked before any work, and features computed once."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from notsodeep.errors import InputError
from notsodeep.memory import available_bytes
from notsodeep.nets.fixed_point_solvers import SolveReport
from notsodeep.nets.modules import Net
from notsodeep.validation import as_real

# Rows per call without gradients, and how many numbers they may have in a layer: large enough for the matrix
# products, small beside the data.
_EVALUATION_ROWS, _EVALUATION_NUMBERS = 1024, 2**24


def evaluation_rows(module: Net) -> int:
    """Return the number of samples per call without gradients."""
    return max(1, min(_EVALUATION_ROWS, _EVALUATION_NUMBERS // module.layer_size))


@dataclass(frozen=True)
class LabelledSamples:
    """Inputs (samples, or their features in rows), targets of the loss in rows, and classes where there are any."""

    inputs: Tensor
    target: Tensor
    labels: Tensor | None

    def __len__(self) -> int:
        return len(self.target)

    def labels_of(self, rows: Tensor) -> Tensor | None:
        """The classes of these rows, if there are any."""
        return None if self.labels is None else self.labels.index_select(0, rows)

    def batches(self, rows: int) -> Iterator[LabelledSamples]:
        """Consecutive rows, as views."""
        for start in range(0, len(self), rows):
            part = slice(start, start + rows)
            labels = None if self.labels is None else self.labels[part]
            yield LabelledSamples(self.inputs[part], self.target[part], labels)


def as_samples(pair: Any, module: Net, loss: str, name: str) -> LabelledSamples:
    """Samples and targets of a pair (X, y), on the device and in the precision of the module."""
    if not (isinstance(pair, tuple | list) and len(pair) == 2):
        raise InputError(f"{name} must be a pair (X, y); got {type(pair).__name__}.")
    rows = as_inputs(pair[0], module, f"The inputs of {name}")
    target, labels = _as_target(pair[1], module, loss, name)
    if len(rows) != len(target):
        raise InputError(
            f"{name} has {len(rows)} samples and {len(target)} targets; one target for each sample is needed."
        )
    return LabelledSamples(rows, target, labels)


def as_inputs(X: Any, module: Net, name: str) -> Tensor:
    """Finite samples of the shape that the module takes, on its device and in its precision."""
    given = as_tensor(X, name)
    module.check_shape(given.shape, name)
    return _finite(given, module, name)


def _finite(given: Tensor, module: Net, name: str) -> Tensor:
    if len(given) == 0:
        raise InputError(f"{name} has no samples; its shape is {tuple(given.shape)}.")
    values = given.detach().to(module.readout.device, module.readout.dtype)
    # The sum is not finite if any entry is not, and cheaper than a mask; overflow of the sum alone is re-checked.
    if not math.isfinite(float(values.sum())) and not bool(torch.isfinite(values).all()):
        bad = int((~torch.isfinite(values).flatten(1).all(dim=1)).sum())
        raise InputError(
            f"{name} has NaN or infinite entries in {bad} of {len(values)} samples. Remove or impute them."
        )
    return values


def as_tensor(values: Any, name: str) -> Tensor:
    """Real numbers as a tensor, of whatever shape."""
    if isinstance(values, Tensor) and values.layout == torch.strided:
        if values.dtype.is_complex:
            raise InputError(f"{name} must hold real numbers, not {values.dtype}.")
        return values
    array = as_real(values, name)
    # torch has no longer numbers than these, and warns of arrays that must not be written to.
    plain = array if array.dtype.itemsize <= 8 else array.astype(np.float64)
    return torch.from_numpy(np.require(plain, requirements=["C", "W"]))


def _as_target(y: Any, module: Net, loss: str, name: str) -> tuple[Tensor, Tensor | None]:
    given = as_tensor(y, f"The targets of {name}").detach()
    is_class = not given.dtype.is_floating_point and given.ndim == 1 and module.out_features > 1
    if is_class:
        return _one_hot(given.to(module.readout.device, torch.int64), module, name)
    if loss == "cross_entropy":
        raise InputError(
            f"Cross-entropy takes class labels, integers of shape (n,), and a module with an output for each class; "
            f"{name} came with {given.dtype} of shape {tuple(given.shape)} and the module has {module.out_features} "
            "outputs. Convert the labels, or use loss='squared' for real targets."
        )
    column = given[:, None] if given.ndim == 1 else given
    if column.ndim != 2 or column.shape[1] != module.out_features:
        raise InputError(
            f"The targets of {name} must be a matrix with {module.out_features} columns, one for each output of the "
            f"module; got shape {tuple(given.shape)}."
        )
    return _finite(column, module, f"The targets of {name}"), None


def _one_hot(labels: Tensor, module: Net, name: str) -> tuple[Tensor, Tensor]:
    classes = module.out_features
    if len(labels) and not 0 <= int(labels.min()) <= int(labels.max()) < classes:
        raise InputError(
            f"The labels of {name} run from {int(labels.min())} to {int(labels.max())}; a module with {classes} "
            f"outputs takes 0 to {classes - 1}. Renumber them (np.unique(y, return_inverse=True)[1])."
        )
    return functional.one_hot(labels, classes).to(module.readout.dtype), labels


def compute_features(module: Net, X: Any, *, log: list[SolveReport] | None = None) -> Tensor:
    """The features of all samples, (n, width), computed in batches and without gradients.

    Args:
        module: the network.
        X: samples, as the network takes them.
        log: a list that receives the report of each equilibrium solve.

    Raises:
        InputError: if they would not fit into memory; nothing is allocated then.
        ConvergenceError: if the equilibrium of a sample is not reached.
    """
    samples = as_inputs(X, module, "X")
    refuse_too_large(len(samples), module)
    rows = len(samples) if module.coupled_samples else evaluation_rows(module)
    features = samples.new_empty((len(samples), module.width))
    with torch.no_grad():
        for start in range(0, len(samples), rows):
            features[start : start + rows] = module.features(samples[start : start + rows])
            module.refuse_unsolved()
            if log is not None and module.last_solve is not None:
                log.append(module.last_solve)
    return features


def refuse_too_large(count: int, module: Net) -> None:
    """Say what the features of `count` samples need before they are allocated, if that is more than there is."""
    readout = module.readout
    item, on_gpu = readout.element_size(), readout.device.type == "cuda"
    needed = module.width * count * item
    free = int(torch.cuda.mem_get_info(readout.device)[0]) if on_gpu else available_bytes()
    if needed > free:
        raise InputError(
            f"The {module.width} features of {count} samples each take {module.width} × {count} × {item} "
            f"bytes = {needed / 2**30:.1f} GiB, and {free / 2**30:.1f} GiB are free. Use fewer samples, a smaller "
            "width, or train='all', which keeps one batch at a time."
        )
