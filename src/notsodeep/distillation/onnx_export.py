"""Students as ONNX files: a DEQ cannot be exported without its loop, its steps can."""

from __future__ import annotations

import copy
import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import torch

from notsodeep.distillation.student_networks import Student
from notsodeep.errors import ConvergenceError, InputError
from notsodeep.extras import needed
from notsodeep.files import atomic_write

# Rows of the comparison: another number than the file was traced with, so that it is seen to take any.
_TRACED, _COMPARED = 3, 7
_TOLERANCE = 1e-4


def export_onnx(network: Student, path: str | Path, *, overwrite: bool = False) -> Path:
    """Write a student as ONNX, for any number of samples, and compare it with torch on random ones.

    Args:
        network: the student.
        path: the file.
        overwrite: replace a file that is there.

    Raises:
        MissingExtraError: where the extra "onnx" is not installed.
        InputError: if the file is there already.
        ConvergenceError: if the file does not compute what the module does; it is not written then.
    """
    onnxruntime = needed("onnxruntime", "Export to ONNX")
    needed("onnx", "Export to ONNX")
    needed("onnxscript", "Export to ONNX")
    file = Path(path)
    if file.exists() and not overwrite:
        raise InputError(f"{file} exists. Name another file, or pass overwrite=True.")
    module = copy.deepcopy(network).eval().to("cpu")
    like = next(module.parameters())
    generator = torch.Generator().manual_seed(0)
    first, other = (
        torch.randn((rows, *module.sample_shape), generator=generator).to(like.dtype)
        for rows in (_TRACED, _COMPARED)
    )
    with atomic_write(file) as temporary:
        with warnings.catch_warnings(), _quiet_log():
            warnings.simplefilter("ignore")
            torch.onnx.export(
                module,
                (first,),
                temporary,
                input_names=["X"],
                output_names=["outputs"],
                dynamic_shapes=({0: torch.export.Dim("rows")},),
                dynamo=True,
                external_data=False,
                verbose=False,
            )
        session = onnxruntime.InferenceSession(str(temporary), providers=["CPUExecutionProvider"])
        (found,) = session.run(None, {"X": other.numpy()})
        with torch.no_grad():
            wanted = module(other).numpy()
        error = float(np.abs(found - wanted).max() / max(np.abs(wanted).max(), 1e-30))
        if not error <= _TOLERANCE:
            raise ConvergenceError(
                f"The ONNX file differs from the module by {error:.1e} of the largest output.",
                "Export in float64, or use the module itself.",
            )
    return file


@contextmanager
def _quiet_log() -> Iterator[None]:
    """Without the exporter's remarks on packages that are not needed."""
    log = logging.getLogger("torch.onnx")
    level = log.level
    log.setLevel(logging.ERROR)
    try:
        yield
    finally:
        log.setLevel(level)


__all__ = ["export_onnx"]
