"""Arguments that several functions of this room take, checked before any work."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from notsodeep.errors import InputError
from notsodeep.kernel_names import as_kernel
from notsodeep.validation import IntArray, as_count, as_number


def as_sizes(n: ArrayLike) -> IntArray:
    """One or several numbers of samples, as a vector."""
    listed: Any = np.atleast_1d(np.asarray(n)).tolist()
    if not listed:
        raise InputError("n is empty: give one number of training samples, or several.")
    return np.array([as_count(size, "n") for size in listed], dtype=np.intp)


def as_ridge(ridge: float | str) -> float | None:
    """A ridge that is not negative, or None for "best"."""
    return None if isinstance(ridge, str) and ridge == "best" else as_number(ridge, "ridge")


def as_labelled_samples(source: Any) -> tuple[Any, Any]:
    """The pair (X, y)."""
    if not isinstance(source, tuple) or len(source) != 2:
        raise InputError(
            f"source must be a GaussianMixture or labelled samples (X, y), not {type(source).__name__}."
        )
    return source


def as_width(width: int | None, kernel: str) -> tuple[int | None, str]:
    """The width of a network, None for the kernel, and the full name of the kernel."""
    name = str(as_kernel(kernel))
    if width is None:
        return None, name
    if name != "ck":
        raise InputError(
            f"width={width} belongs to a network whose readout alone is trained, and that has the kernel 'ck'; "
            f"kernel={kernel!r} is known at infinite width: leave width out."
        )
    return as_count(width, "width"), name


__all__ = ["as_labelled_samples", "as_ridge", "as_sizes", "as_width"]
