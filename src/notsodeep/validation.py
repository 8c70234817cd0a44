"""Checks of arguments: each error says what was given, what is needed and what to do.

Every public function passes its arrays to one of these. `to_numpy` is the only place that converts tensors, tables and
lists to arrays, so that masked entries, sparse matrices and 16-bit tensors are treated alike everywhere.
"""

from __future__ import annotations

import math
from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import NDArray

from notsodeep.errors import InputError

Array = NDArray[np.float64]
IntArray = NDArray[np.intp]

# Squares of larger entries overflow.
_LARGEST_ENTRY = 1e100
# Norms that differ by more than this, relatively, are not those of a sphere written in single precision.
SAME_NORM = 1e-6
# Rounding in the mean of equal rows leaves norms of order eps ||mean||, far below this fraction of it.
_NO_SPREAD = 1e-13

# --- arrays of any kind -------------------------------------------------------------------------------------


def to_numpy(values: Any, name: str) -> NDArray[Any]:
    """Convert an array, a list, a table or a tensor to a NumPy array of the same dtype.

    A tensor is detached and moved to the CPU; bfloat16, which NumPy does not have, becomes float32.

    Raises:
        InputError: for masked entries, sparse matrices and anything that is not an array.
    """
    _refuse_masked(values, name)
    if hasattr(values, "toarray"):
        raise InputError(
            f"{name} is a sparse matrix ({type(values).__name__}); a dense one is needed: {name}.toarray()."
        )
    try:
        return np.asarray(_tensor_values(values) if hasattr(values, "detach") else values)
    except (TypeError, ValueError, RuntimeError, NotImplementedError) as error:
        raise InputError(f"{name} cannot be read as an array: {error}.") from None


def _refuse_masked(values: Any, name: str) -> None:
    """Refuse masked entries, also in lists of rows; NumPy would drop the mask."""
    parts = values if isinstance(values, list | tuple) else [values]
    masks = [np.ma.getmaskarray(part) for part in parts if isinstance(part, np.ma.MaskedArray)]
    count = sum(int(np.count_nonzero(mask)) for mask in masks)
    if count:
        raise InputError(
            f"{name} is a masked array with {count} masked entries, which have no value. Remove those rows "
            f"(np.ma.compress_rows) or choose the values: {name}.filled(…)."
        )


def _tensor_values(tensor: Any) -> Any:
    """Return the values of a torch tensor as a NumPy array."""
    if str(getattr(tensor, "layout", "torch.strided")) != "torch.strided":
        raise TypeError("it is a sparse tensor; give X.to_dense()")
    plain = tensor.detach().cpu()
    try:
        return plain.numpy()
    except TypeError:
        return plain.float().numpy()


def as_real(values: Any, name: str) -> NDArray[Any]:
    """Convert to an array of real numbers of any shape; floating-point numbers keep their precision."""
    array = to_numpy(values, name)
    if array.dtype.kind == "O":
        array = _numbers_in(array, name)
    check_real(array.dtype, name)
    return array


def _numbers_in(objects: NDArray[Any], name: str) -> NDArray[Any]:
    """Convert an array of Python objects, as tables with mixed columns give it, to numbers."""
    for value in objects.flat:
        if not isinstance(value, Real | np.bool_):
            kind = "missing values" if value is None else f"values of type {type(value).__name__}"
            raise InputError(
                f"{name} holds {kind} ({value!r}) where real numbers are needed. Leave those columns or rows out, or "
                "encode them as numbers."
            )
    return objects.astype(np.float64)


def check_real(dtype: Any, name: str) -> None:
    """Refuse a dtype that is not one of real numbers."""
    if np.dtype(dtype).kind not in "biuf":
        raise InputError(f"{name} must hold real numbers, not {dtype}. Convert it first.")


def as_floats(values: Any, name: str, *, ndim: int) -> Array:
    """Convert to a finite float64 array with `ndim` axes."""
    array = np.asarray(as_real(values, name), dtype=np.float64)
    if array.ndim != ndim:
        raise InputError(f"{name} must have {ndim} axes; got shape {array.shape}.")
    finite = np.isfinite(array)
    if not finite.all():
        bad = int(array.size - np.count_nonzero(finite))
        raise InputError(f"{name} holds {bad} values that are NaN or infinite; remove or impute them first.")
    return array


def frozen(array: NDArray[Any]) -> NDArray[Any]:
    """Return a read-only copy."""
    copy = np.array(array)
    copy.setflags(write=False)
    return copy


# --- samples in rows ----------------------------------------------------------------------------------------


def as_rows(X: Any, name: str = "X", *, columns: int | None = None) -> Array:
    """Convert samples in rows to a finite C-contiguous float64 array (n, p); p must equal `columns` if given."""
    array = as_real(X, name)
    check_row_shape(array.shape, name, columns=columns)
    rows = np.ascontiguousarray(array, dtype=np.float64)
    # The sum is not finite if any entry is not, and cheaper than a mask; overflow of the sum alone is re-checked.
    if not np.isfinite(rows.sum()) and not np.all(np.isfinite(rows)):
        bad = int(np.count_nonzero(~np.isfinite(rows).all(axis=1)))
        raise InputError(
            f"{name} has NaN or infinite entries in {bad} of {len(rows)} rows. Remove or impute them."
        )
    if max(float(rows.max()), -float(rows.min())) > _LARGEST_ENTRY:
        raise InputError(f"{name} has entries above 1e100, whose squares overflow. Scale the data down.")
    return rows


def check_row_shape(
    shape: tuple[int, ...], name: str, *, columns: int | None = None, more_axes: bool = False
) -> None:
    """Refuse a shape that is not a matrix with at least one row and one column.

    Args:
        shape: shape of the samples.
        name: name of the samples in an error.
        columns: required number of features.
        more_axes: allow samples with more than one axis, such as images.
    """
    if len(shape) < 2 or (len(shape) > 2 and not more_axes):
        remedy = (
            "One sample x goes in as x[None, :], one feature as x[:, None]."
            if len(shape) < 2
            else f"Images and other arrays go in flattened: {name}.reshape(len({name}), -1)."
        )
        raise InputError(
            f"{name} must be a matrix with samples in rows (n, p); got shape {tuple(shape)}. {remedy}"
        )
    if 0 in shape:
        raise InputError(
            f"{name} is empty: shape {tuple(shape)}. At least one sample and one feature are needed."
        )
    if columns is not None and shape[1] != columns:
        raise InputError(
            f"{name} has {shape[1]} columns where {columns} features are needed; samples go in rows."
        )


def squared_norms(rows: Array) -> Array:
    """Compute ||x_i||² for each row."""
    return np.asarray(np.einsum("ij,ij->i", rows, rows))


def root_mean_square(squares: Array) -> float:
    """Compute the root of the mean of squared norms."""
    typical = float(np.sqrt(np.mean(squares)))
    if not math.isfinite(typical):
        raise InputError("X has entries whose squares overflow. Scale the data down.")
    return typical


def root_mean_square_norm(rows: Array, *, mean: Array | None = None) -> float:
    """Compute the norm of a typical sample, the root of the mean of ||x_i||².

    Args:
        rows: samples in rows.
        mean: what was subtracted from the rows; rows that are only rounding errors of it have norm 0.
    """
    with np.errstate(over="ignore"):
        typical = root_mean_square(squared_norms(rows))
    rounding = 0.0 if mean is None else _NO_SPREAD * float(np.linalg.norm(mean))
    return typical if typical > rounding else 0.0


# --- labels and targets ---------------------------------------------------------------------------------------


def as_labels(y: Any, length: int | None, name: str = "y") -> NDArray[Any]:
    """Convert to one class label for each of `length` samples (any number if None): numbers or words, not both."""
    labels = _one_kind(to_numpy(np.array(y, dtype=object) if isinstance(y, list | tuple) else y, name), name)
    _check_length(labels, length, name, "label")
    if labels.dtype.kind == "f" and not np.isfinite(labels).all():
        raise InputError(
            f"{name} holds labels that are NaN or infinite; remove those rows or name their class."
        )
    return labels


def _one_kind(labels: NDArray[Any], name: str) -> NDArray[Any]:
    """Refuse labels that cannot be sorted: words and numbers have no common order."""
    if labels.dtype.kind not in "biufUSO":
        raise InputError(f"Labels are numbers or words; {name} holds {labels.dtype}. Convert them first.")
    if labels.dtype.kind != "O":
        return labels
    words = [value for value in labels.flat if isinstance(value, str)]
    numbers = [value for value in labels.flat if isinstance(value, Real | np.bool_)]
    if words and numbers:
        raise InputError(
            f"{name} mixes labels of two kinds: {words[0]!r} is a word and {numbers[0]!r} a number, which have no "
            f"common order. Write all of them as words: [str(label) for label in {name}]."
        )
    if len(words) + len(numbers) < labels.size:
        odd = next(value for value in labels.flat if not isinstance(value, str | Real | np.bool_))
        what = "a missing one" if odd is None else f"one of type {type(odd).__name__}"
        raise InputError(
            f"Labels are numbers or words; {name} holds {what} ({odd!r}). Remove those rows or name their class."
        )
    return labels if words else np.array(labels.tolist())


def label_codes(y: Any, classes: NDArray[Any], length: int, name: str = "y") -> IntArray:
    """Return the position of each label in the sorted `classes`; refuse unknown labels."""
    labels = as_labels(y, length, name)
    unknown = unknown_labels(labels, classes)
    if unknown.size:
        raise InputError(
            f"{name} holds labels {unknown[:5].tolist()} that are not among the classes {classes[:10].tolist()}; "
            "list every class, or drop those rows."
        )
    return np.searchsorted(classes, labels).astype(np.intp)


def unknown_labels(labels: NDArray[Any], classes: NDArray[Any]) -> NDArray[Any]:
    """Return the labels that are not among the classes, each once."""
    are_words = [array.dtype.kind in "USO" for array in (labels, classes)]
    return np.setdiff1d(labels, classes) if are_words[0] == are_words[1] else np.unique(labels)


def as_targets(y: Any, length: int, name: str = "y") -> Array:
    """Convert to one finite real number for each of `length` samples."""
    targets = np.asarray(as_real(y, name), dtype=np.float64)
    _check_length(targets, length, name, "number")
    finite = np.isfinite(targets)
    if not finite.all():
        raise InputError(
            f"{name} has {int(np.count_nonzero(~finite))} NaN or infinite entries. Remove those rows."
        )
    return targets


def as_right_sides(b: Any, n: int, name: str = "b") -> Array:
    """Convert to right-hand sides of n linear equations: finite, one (n,) or several (n, m)."""
    right = np.asarray(as_real(b, name), dtype=np.float64)
    if right.ndim not in (1, 2) or len(right) != n:
        raise InputError(f"{name} has shape {right.shape}; {n} rows are needed, one for each sample.")
    if not np.isfinite(right).all():
        raise InputError(f"{name} has NaN or infinite entries.")
    return right


def _check_length(values: NDArray[Any], length: int | None, name: str, what: str) -> None:
    if values.ndim != 1 or (length is not None and len(values) != length):
        rows = "each row" if length is None else f"each of the {length} rows"
        raise InputError(
            f"{name} must be a vector with one {what} for {rows} of X; its shape is {values.shape}."
        )


# --- numbers and words ----------------------------------------------------------------------------------------


def as_number(value: Any, name: str, *, positive: bool = False) -> float:
    """Convert to a finite number that is not negative, with `positive` also not zero."""
    try:
        number = float(value)
    except (TypeError, ValueError):
        raise InputError(f"{name} must be a number, got {value!r}.") from None
    if not math.isfinite(number) or number < 0.0 or (positive and number == 0.0):
        raise InputError(
            f"{name} must be finite and {'positive' if positive else 'not negative'}; got {value!r}."
        )
    return number


def as_variance(value: Any, name: str) -> float:
    """Convert to a variance: a finite number that is not negative."""
    return as_number(value, f"{name}, a variance,")


def as_count(value: Any, name: str, *, least: int = 1) -> int:
    """Convert to a whole number of at least `least`."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < least:
        raise InputError(f"{name} must be a whole number of at least {least}; got {value!r}.")
    return int(value)


def one_of(value: str, choices: tuple[str, ...], name: str) -> str:
    """Check that a value is one of the listed words, and return it."""
    if not isinstance(value, str) or value not in choices:
        raise InputError(f"{name}={value!r} is not known. Choose one of: {', '.join(choices)}.")
    return value
