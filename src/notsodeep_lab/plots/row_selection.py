"""Select and average rows of experiments for figures, with words for their names."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np

from notsodeep.errors import InputError
from notsodeep.validation import Array

# Rows of results are dictionaries of plain values.
Row = Mapping[str, Any]
Rows = Sequence[Row]
R = TypeVar("R", bound=Row)

# The same model has the same colour in every figure.
NUMBERS = {"deq": 0, "twin": 1, "plain": 2, "equivalent": 1, "refined": 2, "monte-carlo": 3, "printed": 4}

WORDS = {
    "mixture": "Gaussian mixture",
    "sphere": "sphere",
    "digits": "digits",
    "mnist": "MNIST",
    "fashion_mnist": "Fashion-MNIST",
    "cifar10": "CIFAR-10",
    "cifar10_vgg19": "CIFAR-10, VGG-19 features",
    "deq": "DEQ",
    "twin": "explicit twin",
    "plain": "plain network",
    "cut": "DEQ cut after as many steps",
    "printed": "equations as printed",
    "equivalent": "asymptotic equivalent",
    "refined": "refined equivalent",
    "monte-carlo": "Monte Carlo",
    "features": "CK",
    "preactivations": "CK of the pre-activations",
    "ntk": "NTK",
    "ntk_paper": "NTK as in the papers",
    "ntk_preactivations": "NTK of the pre-activations",
    "relu": "ReLU",
    "leaky_relu": "Leaky ReLU",
    "gelu": "GELU",
    "readout": "readout trained",
    "all": "all weights trained",
    "common": "one step size for all widths",
    "own": "a step size for each width",
}


def chosen(rows: Iterable[R], **fields: Any) -> list[R]:
    """Select the rows whose fields have these values, in their order."""
    return [row for row in rows if all(row.get(name) == value for name, value in fields.items())]


def grouped(rows: Iterable[R], *fields: str) -> dict[tuple[Any, ...], list[R]]:
    """Group rows by the values of these fields, in the order in which the values first occur."""
    groups: dict[tuple[Any, ...], list[R]] = {}
    for row in rows:
        groups.setdefault(tuple(row.get(name) for name in fields), []).append(row)
    return groups


def words(name: Any) -> str:
    """Return the name as readers know it, without mathematics; unknown names stay as they are."""
    return WORDS.get(str(name), str(name)).replace("$", r"\$")


def title(*names: Any) -> str:
    """Join several names to one title, without the empty ones."""
    return ", ".join(words(name) for name in names if name not in (None, ""))


def needed(rows: Rows, kind: str, **fields: Any) -> list[Row]:
    """Select the rows of a kind whose fields have these values; refuse an empty selection."""
    selected = chosen(rows, kind=kind, **fields)
    if not selected:
        described = " and ".join([f"kind {kind!r}", *(f"{name} {value!r}" for name, value in fields.items())])
        kinds = sorted({str(row.get("kind")) for row in rows})
        raise InputError(
            f"Nothing to draw: no row of {described} among {len(rows)} rows"
            f"{' of the kinds ' + ', '.join(kinds) if kinds else ''}. Run the experiment first."
        )
    return selected


def averaged(rows: Rows, x: str, y: str) -> tuple[Array, Array, Array]:
    """Return the values of x, and the mean and standard deviation of y for each (0 for a single row)."""
    points = sorted(
        (float(key[0]), [float(row[y]) for row in group]) for key, group in grouped(rows, x).items()
    )
    mean = [float(np.mean(values)) for _, values in points]
    spread = [float(np.std(values, ddof=1)) if len(values) > 1 else 0.0 for _, values in points]
    return np.array([place for place, _ in points]), np.array(mean), np.array(spread)
