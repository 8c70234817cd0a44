"""Students as ONNX files: a DEQ cannot be exported without its loop, its steps can."""

from __future__ import annotations

import copy
import logging
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import torch

from notsodeep.distillation.student_networks import Student
from notsodeep.errors import ConvergenceError, InputError
from notsodeep.extras import needed
from notsodeep.files import atomic_write

# Largest difference from torch, relative to the largest output.
_TOLERANCE = 1e-4


def export_onnx(network: Student, path: str | Path, *, overwrite: bool = False) -> Path:
    """Write a student as ONNX, for any number of samples, and compare it with torch on random ones.

    Raises:
        MissingExtraError: where the extra "onnx" is not installed.
        InputError: if the file exists and `overwrite` is False.
        ConvergenceError: if the file does not compute what the module does; it is not written then.
    """
    runtime = [needed(name, "Export to ONNX") for name in ("onnx", "onnxscript", "onnxruntime")][-1]
    file, log = Path(path), logging.getLogger("torch.onnx")
    if file.exists() and not overwrite:
        raise InputError(f"{file} exists. Name another file, or pass overwrite=True.")
    module = copy.deepcopy(network).eval().to("cpu")
    generator, dtype = torch.Generator().manual_seed(0), next(module.parameters()).dtype
    # Traced with another number of samples than it is compared on.
    traced, compared = (
        torch.randn(rows, *module.sample_shape, generator=generator).to(dtype) for rows in (3, 7)
    )
    options: dict[str, Any] = {
        "input_names": ["X"],
        "output_names": ["outputs"],
        "external_data": False,
        "verbose": False,
    }
    level = log.level
    with atomic_write(file) as temporary:
        try:
            # Without the exporter's remarks on packages that are not needed.
            log.setLevel(logging.ERROR)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                shapes = ({0: torch.export.Dim("rows")},)
                torch.onnx.export(module, (traced,), temporary, dynamic_shapes=shapes, dynamo=True, **options)
        finally:
            log.setLevel(level)
        session = runtime.InferenceSession(str(temporary), providers=["CPUExecutionProvider"])
        (outputs,) = session.run(None, {"X": compared.numpy()})
        with torch.no_grad():
            target = module(compared).numpy()
        error = float(np.abs(outputs - target).max() / max(np.abs(target).max(), 1e-30))
        if not error <= _TOLERANCE:
            raise ConvergenceError(
                f"The ONNX file differs from the module by {error:.1e} of the largest output.",
                "Export in float64, or use the module itself.",
            )
    return file


__all__ = ["export_onnx"]
