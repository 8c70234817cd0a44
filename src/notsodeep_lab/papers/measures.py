"""Samples, exact kernels, and the rows that several experiments share.

Kernels go by the names of `kernels`: "features" is G of docs/theory.md (3.3), which ICML calls the conjugate kernel;
"preactivations" is Λ, which ICLR and HLD call G; "ntk" is the tangent kernel of the network, (3.8); "ntk_paper" and
"ntk_preactivations" are (3.9) and (3.10).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import pi, sqrt
from pathlib import Path
from typing import Any

import numpy as np
from scipy import linalg
from scipy.optimize import brentq
from scipy.sparse.linalg import aslinearoperator

from notsodeep.data import GaussianMixture, MixtureStatistics, Preprocessing, load
from notsodeep.equivalents import StructuredOperator, coefficients
from notsodeep.gaussian.activations import Activation, activation
from notsodeep.kernels import exact_kernel
from notsodeep.linalg.block_lanczos import operator_norm
from notsodeep.models import DEQ, Explicit
from notsodeep.validation import Array, root_mean_square_norm
from notsodeep_lab.papers.experiment import Row
from notsodeep_lab.papers.row_statistics import six_digits

Model = DEQ | Explicit
Matrix = Array | StructuredOperator

# What the kernels of rows are called in `coefficients` and `exact_kernel`, where that is not the same.
_NAMES = {"features": "ck", "preactivations": "ck_preactivations"}
# The classes of real data sets that the papers take.
CLASSES = (6, 8)
# Relative accuracy of operator norms: errors of a thousandth of a kernel keep three digits.
_NORM_TOLERANCE = 1e-6
_CURVE_POINTS = 201
_CURVE_REACH = 3.5


@dataclass(frozen=True, eq=False)
class Sample:
    """Samples in rows with the statistics of their classes, and what to call them."""

    data: str
    X: Array
    statistics: MixtureStatistics
    seed: int

    @property
    def tau0(self) -> float:
        """τ0 of docs/theory.md (4.2): within the classes."""
        return float(self.statistics.tau0)

    @property
    def root_mean_square(self) -> float:
        """The norm of a typical row, the means of the classes included."""
        return root_mean_square_norm(self.X)

    @property
    def record(self) -> Row:
        """The fields that every row about it has."""
        return {"data": self.data, "n": len(self.X), "p": self.X.shape[1], "seed": self.seed}


def kernel_name(kernel: str) -> str:
    """The name that the functions of the library have for a kernel of the rows."""
    return _NAMES.get(kernel, kernel)


def mixture_sample(n: int, p: int, seed: int) -> Sample:
    """The papers' mixture with its exact statistics."""
    mixture = GaussianMixture.paper(p)
    X, y = mixture.sample(n, seed)
    return Sample("mixture", X, MixtureStatistics.of(mixture, X, y), seed)


def sample_of(data: str, n: int | None, p: int, seed: int, data_dir: Path | None) -> Sample:
    """The papers' mixture in p dimensions, or the papers' two classes of a real data set."""
    return mixture_sample(n or 0, p, seed) if data == "mixture" else real_sample(data, n, seed, data_dir)


def real_sample(data: str, n: int | None, seed: int, data_dir: Path | None) -> Sample:
    """The papers' two classes of a real data set, centred and scaled to mean squared norm 1; statistics estimated."""
    read = load(data, classes=CLASSES, n=n, seed=seed, data_dir=data_dir)
    X = np.asarray(Preprocessing.fit(read.X).apply(read.X), dtype=np.float64)
    return Sample(data, X, MixtureStatistics.estimate(X, read.y), seed)


def exact(model: Model, sample: Sample, kernel: str) -> Array:
    """The exact kernel of a model on a sample; an explicit network has "features" and "ntk" only."""
    return exact_kernel(model, sample.X, kernel=kernel_name(kernel))


def norm_of(matrix: Matrix) -> float:
    """The operator norm of a symmetric matrix."""
    return operator_norm(aslinearoperator(matrix), _NORM_TOLERANCE)


def norm_apart(first: Array, second: Matrix) -> float:
    """The operator norm of the difference."""
    return operator_norm(aslinearoperator(first) - aslinearoperator(second), _NORM_TOLERANCE)


def eigenvalues(matrix: Matrix) -> Array:
    """The eigenvalues of a symmetric matrix, in ascending order."""
    if isinstance(matrix, StructuredOperator):
        return np.sort(matrix.eigvalsh())
    return np.asarray(linalg.eigvalsh(matrix, check_finite=False))


def spectrum_row(sample_record: Row, kernel: str, source: str, label: str, values: Array) -> Row:
    """The eigenvalues of one matrix."""
    return {
        "kind": "spectrum",
        **sample_record,
        "kernel": kernel,
        "source": source,
        "label": label,
        "eigenvalues": six_digits(values),
    }


def distance(first: Array, second: Matrix, norm: float | None = None) -> Row:
    """How far two matrices are apart in operator norm, relative to the first one too; `norm` is that of the first."""
    norm, apart = norm_of(first) if norm is None else norm, norm_apart(first, second)
    return {"absolute": apart, "relative": apart / norm, "norm": norm}


def distance_row(
    record: Row,
    matrices: tuple[Array, Matrix],
    kernel: str,
    names: tuple[str, str],
    reading: str,
    *,
    main: bool = False,
    **fields: Any,
) -> Row:
    """How far a kernel and what stands for it are apart.

    Args:
        record: `Sample.record`.
        matrices: the exact kernel, whose norm the relative distance is measured by, and the other one.
        kernel: which kernel it is.
        names: of the two matrices: ("deq", "twin").
        reading: what is compared, in words.
        main: whether the papers' figures print it.
        **fields: what else the row should say.
    """
    about = {"kernel": kernel, "first": names[0], "second": names[1], "reading": reading, "main": main}
    return {"kind": "distance", **record, **distance(*matrices), **about, **fields}


def spectra_apart(first: Array, second: Array) -> float:
    """The largest distance between eigenvalues of the same rank, over the largest eigenvalue of the first."""
    return float(np.abs(first - second).max() / np.abs(first).max())


def activation_rows(kernel: str, deq: DEQ, twin: Explicit, tau0: float, **fields: Any) -> Iterator[Row]:
    """The curve of the DEQ's activation (layer 0) and those of a network's layers, over what enters them."""
    scales = [sqrt(q) for q in (deq.preactivation_variance(tau0), *twin.preactivation_variances(tau0))]
    for number, (phi, scale) in enumerate(zip((deq.activation, *twin.layers), scales, strict=True)):
        yield activation_row(kernel, phi, number, scale, **fields)


def activation_row(kernel: str, phi: Activation, layer: int, scale: float, **fields: Any) -> Row:
    """The curve of one activation over ±3.5 standard deviations of what enters it."""
    t = np.linspace(-_CURVE_REACH * scale, _CURVE_REACH * scale, _CURVE_POINTS)
    return {
        "kind": "activation",
        "kernel": kernel,
        "label": f"DEQ, {phi.name}" if layer == 0 else f"layer {layer}, {phi.name}",
        "formula": str(phi),
        "layer": layer,
        "scale": scale,
        "t": six_digits(t),
        "value": six_digits(phi(t)),
        **fields,
    }


# --- one Leaky-ReLU layer (ICLR, Corollary 2) ---------------------------------------------------------

# What docs/theory.md (7.5) multiplies e² by.
_BEND = pi / 2.0 - 1.0


def leaky_layer_for(model: DEQ, tau0: float, kernel: str) -> Explicit:
    """One Leaky-ReLU layer with the diagonal and the linear part of a kernel, docs/theory.md (7.5).

    ICLR's Corollary 2 with its equations put right (docs/errata.md, 9): (a+b)² = 4 α₁, and 2ab in the second.
    """
    target = coefficients(model, tau0, kernel_name(kernel))
    return _leaky(target.linear, (target.diagonal / tau0**2 - target.linear) / _BEND).centred(tau0)


def printed_leaky_layer_for(model: DEQ, tau0: float) -> Explicit:
    """The same for Λ with the equations as ICLR prints them: (a-b)² = 4 α₁², and ab in the second."""
    target = coefficients(model, tau0, kernel_name("preactivations"))
    gap2, wanted = 4.0 * target.linear**2, target.diagonal / tau0**2 - target.linear

    def second_equation(total2: float) -> float:
        squares, product = (total2 + gap2) / 2.0, (total2 - gap2) / 4.0
        return ((pi - 1.0) * squares + product) / (2.0 * pi) - total2 / 4.0 - wanted

    total2 = float(brentq(second_equation, 0.0, 1e3))
    return _leaky(total2 / 4.0, gap2 / (2.0 * pi)).centred(tau0)


def _leaky(slope2: float, curvature2: float) -> Explicit:
    """The Leaky-ReLU with ((a+b)/2)² = slope2 and (a-b)²/2π = curvature2."""
    middle, half_gap = sqrt(slope2), sqrt(pi * curvature2 / 2.0)
    return Explicit([activation("leaky_relu", a=middle + half_gap, b=middle - half_gap)])
