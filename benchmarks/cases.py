"""The inputs of the benchmarks: every built-in activation, the papers' mixture, MNIST 6 against 8."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np

import notsodeep as nsd
from notsodeep_lab.papers.data_files import load

SIGMA_A2 = 0.2

#: Every built-in activation, with the parameters it is measured at.
ACTIVATIONS: dict[str, dict[str, Any]] = {
    "identity": {},
    "relu": {},
    "leaky_relu": {"a": 1.0, "b": 0.1},
    "abs": {},
    "hard_tanh": {"a": 0.8, "c": 1.2},
    "hard_sigmoid": {},
    "piecewise_linear": {"knots": [-0.7, 0.9], "slopes": [0.1, 1.0, 0.3]},
    "tanh": {},
    "erf": {},
    "sigmoid": {},
    "swish": {},
    "gelu": {},
    "softplus": {},
    "elu": {},
    "mish": {},
    "arctan": {},
    "softsign": {},
    "sin": {},
    "cos": {},
    "polynomial": {"coefficients": [0.1, 0.8, 0.1, -0.05]},
}


def deq(name: str) -> Any:
    """The DEQ of the benchmarks with one activation: sigma_a2 = 0.2, sigma_b2 = 0.8."""
    return nsd.DEQ(nsd.activation(name, **ACTIVATIONS[name]), sigma_a2=SIGMA_A2)


def mixture(n: int, p: int, *, seed: int = 0) -> np.ndarray:
    """The papers' two classes: x ~ N(μ_a/√p, C_a/p), μ_a = 8 e_{8a}, C_a = (1 + 8a/√p) I, a = 0, 1."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((n, p))
    for label, rows in enumerate((slice(0, n // 2), slice(n // 2, n))):
        x[rows] *= np.sqrt(1.0 + 8.0 * label / np.sqrt(p))
        x[rows, 8 * label] += 8.0
    x /= np.sqrt(p)
    return x


def data_folder(given: Path | None) -> Path | None:
    """The folder that holds mnist/, from --data-dir or NOTSODEEP_DATA; None when there is none.

    Without one the loader would turn to OpenML, and a benchmark must not wait on the network.
    """
    named = given or (Path(os.environ["NOTSODEEP_DATA"]) if os.environ.get("NOTSODEEP_DATA") else None)
    return named if named is not None and (named / "mnist").is_dir() else None


def mnist_6_8(folder: Path, n: int, *, centred: bool) -> np.ndarray:
    """n digits 6 and 8 in equal parts, scaled so that the mean of ||x||² is 1.

    Rows as they come are all positive, so that every pair of them is strongly correlated: the hard case of a
    pair solver. Centring takes most of that away.
    """
    x = load("mnist", classes=(6, 8), data_dir=folder, n=n).X
    return np.asarray(nsd.data.Preprocessing.fit(x if centred else np.concatenate([x, -x])).apply(x))
