"""Samples, exact kernels, and rows that several experiments share.

Names of kernels: "features" is G of docs/theory.md (3.3), which ICML calls the conjugate kernel;
"preactivations" is Λ, which ICLR and HLD call G; "ntk" is the tangent kernel of the network, (3.8); "ntk_paper" and
"ntk_preactivations" are (3.9) and (3.10).
"""

from __future__ import annotations

from dataclasses import dataclass
from math import pi, sqrt
from pathlib import Path
from typing import Any

import numpy as np
from scipy import linalg
from scipy.optimize import brentq
from scipy.sparse.linalg import aslinearoperator

from notsodeep.data import GaussianMixture, MixtureStatistics, Preprocessing
from notsodeep.equivalents import Coefficients, StructuredOperator, coefficients
from notsodeep.gaussian.activations import Activation, activation
from notsodeep.kernels import exact_kernel
from notsodeep.linalg.block_lanczos import operator_norm
from notsodeep.models import DEQ, Explicit
from notsodeep.validation import Array, root_mean_square_norm
from notsodeep_lab.papers.data_files import load
from notsodeep_lab.papers.experiment import Row
from notsodeep_lab.papers.row_statistics import six_digits

Model = DEQ | Explicit
Matrix = Array | StructuredOperator

# Names of kernels in `coefficients` and `exact_kernel`, where they differ from those of rows.
_NAMES = {"features": "ck", "preactivations": "ck_preactivations"}
# The classes of real data sets that the papers use.
CLASSES = (6, 8)
# Relative accuracy of operator norms: errors of a thousandth of a kernel keep three digits.
_NORM_TOLERANCE = 1e-6
# Number of entries of a kernel that are kept for a scatter plot: of pairs of samples, and of the diagonal.
_PAIRS, _DIAGONAL = 240, 20


@dataclass(frozen=True, eq=False)
class Sample:
    """Samples with the statistics of their classes and the name of the data."""

    data: str
    X: Array
    statistics: MixtureStatistics
    seed: int

    @property
    def tau0(self) -> float:
        """τ0 of docs/theory.md (4.2), without the means of the classes."""
        return float(self.statistics.tau0)

    @property
    def root_mean_square(self) -> float:
        """The root mean square norm of the rows, including the means of the classes."""
        return root_mean_square_norm(self.X)

    @property
    def record(self) -> Row:
        """The fields that describe the sample in every row."""
        return {"data": self.data, "n": len(self.X), "p": self.X.shape[1], "seed": self.seed}


def kernel_name(kernel: str) -> str:
    """Return the name of a kernel in the library."""
    return _NAMES.get(kernel, kernel)


def mixture_sample(n: int, p: int, seed: int) -> Sample:
    """Draw from the papers' mixture, with exact statistics."""
    mixture = GaussianMixture.paper(p)
    X, y = mixture.sample(n, seed)
    return Sample("mixture", X, MixtureStatistics.of(mixture, X, y), seed)


def sample_of(data: str, n: int | None, p: int, seed: int, data_dir: Path | None) -> Sample:
    """Draw from the papers' mixture in p dimensions, or load two classes of a real data set."""
    return mixture_sample(n or 0, p, seed) if data == "mixture" else real_sample(data, n, seed, data_dir)


def real_sample(data: str, n: int | None, seed: int, data_dir: Path | None) -> Sample:
    """Load two classes of a real data set, centred and scaled to mean squared norm 1, with estimated statistics."""
    read = load(data, classes=CLASSES, n=n, seed=seed, data_dir=data_dir)
    X = np.asarray(Preprocessing.fit(read.X).apply(read.X), dtype=np.float64)
    return Sample(data, X, MixtureStatistics.estimate(X, read.y), seed)


def exact(model: Model, sample: Sample, kernel: str) -> Array:
    """Compute the exact kernel of a model on a sample; explicit networks have "features" and "ntk" only."""
    return exact_kernel(model, sample.X, kernel=kernel_name(kernel))


def norm_of(matrix: Matrix) -> float:
    """Return the operator norm of a symmetric matrix."""
    return operator_norm(aslinearoperator(matrix), _NORM_TOLERANCE)


def norm_apart(first: Array, second: Matrix) -> float:
    """Return the operator norm of a difference."""
    return operator_norm(aslinearoperator(first) - aslinearoperator(second), _NORM_TOLERANCE)


def eigenvalues(matrix: Matrix) -> Array:
    """Return the eigenvalues of a symmetric matrix in ascending order."""
    if isinstance(matrix, StructuredOperator):
        return np.sort(matrix.eigvalsh())
    return np.asarray(linalg.eigvalsh(matrix, check_finite=False))


def spectrum_row(sample_record: Row, kernel: str, source: str, label: str, values: Array) -> Row:
    """Return a row with the eigenvalues of one matrix."""
    return {
        "kind": "spectrum",
        **sample_record,
        "kernel": kernel,
        "source": source,
        "label": label,
        "eigenvalues": six_digits(values),
    }


def distance(first: Array, second: Matrix, norm: float | None = None) -> Row:
    """Return the distance of two matrices in operator norm, also relative to `norm`, that of the first one."""
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
    """Return a row with the distance between a kernel and its approximation.

    Args:
        record: `Sample.record`.
        matrices: the exact kernel, which relative distances refer to, and the approximation.
        kernel: name of the kernel.
        names: names of the two matrices: ("deq", "twin").
        reading: description of the comparison.
        main: whether the figures of the papers print this distance.
        **fields: further fields of the row.
    """
    about = {"kernel": kernel, "first": names[0], "second": names[1], "reading": reading, "main": main}
    return {"kind": "distance", **record, **distance(*matrices), **about, **fields}


def spectra_apart(first: Array, second: Array) -> float:
    """Return the largest difference of sorted eigenvalues, relative to the largest one of the first matrix."""
    return float(np.abs(first - second).max() / np.abs(first).max())


def entries_row(
    record: Row, kernels: tuple[Array, Array], kernel: str, source: str, label: str, **fields: Any
) -> Row:
    """Return a row with some entries of a DEQ's kernel and of an approximation: of random pairs of samples."""
    n = len(kernels[0])
    first, second = np.random.default_rng(0).integers(n, size=(2, _PAIRS + _DIAGONAL))
    second[_PAIRS:] = first[_PAIRS:]
    exact, approximation = (six_digits(matrix[first, second]) for matrix in kernels)
    about = {"kernel": kernel, "source": source, "label": label, **fields}
    return {"kind": "entries", **record, **about, "deq": exact, "approximation": approximation}


# --- one Leaky-ReLU layer (ICLR, Corollary 2) ---------------------------------------------------------

# The factor of e² in docs/theory.md (7.5).
BEND = pi / 2.0 - 1.0


def leaky_layer_for(model: DEQ, tau0: float, kernel: str) -> Explicit:
    """Design one Leaky-ReLU layer that matches the diagonal and the linear part of a kernel, docs/theory.md (7.5).

    ICLR's Corollary 2 with corrected equations (docs/errata.md, 9): (a+b)² = 4 α₁, and 2ab in the second.
    """
    target = coefficients(model, tau0, kernel_name(kernel))
    return Explicit([matching_leaky_relu(target)]).centred(tau0)


def printed_leaky_layer_for(model: DEQ, tau0: float) -> Explicit:
    """Design the layer for Λ from the equations as printed by ICLR: (a-b)² = 4 α₁², and ab in the second."""
    target = coefficients(model, tau0, kernel_name("preactivations"))
    return Explicit([printed_leaky_relu(target)]).centred(tau0)


def matching_leaky_relu(target: Coefficients) -> Activation:
    """Solve the corrected equations of ICLR's Corollary 2 for the slopes."""
    return leaky_relu(target.linear, (target.diagonal / target.tau0**2 - target.linear) / BEND)


def printed_leaky_relu(target: Coefficients) -> Activation:
    """Solve the equations of ICLR's Corollary 2 as printed; they are linear in (a+b)²."""
    gap2, target2 = 4.0 * target.linear**2, target.diagonal / target.tau0**2 - target.linear

    def second_equation(total2: float) -> float:
        squares, product = (total2 + gap2) / 2.0, (total2 - gap2) / 4.0
        return ((pi - 1.0) * squares + product) / (2.0 * pi) - total2 / 4.0 - target2

    total2 = float(brentq(second_equation, 0.0, 1e3))
    return leaky_relu(total2 / 4.0, gap2 / (2.0 * pi))


def leaky_relu(slope2: float, curvature2: float) -> Activation:
    """Return the Leaky-ReLU with ((a+b)/2)² = slope2 and (a-b)²/2π = curvature2."""
    middle, half_gap = sqrt(slope2), sqrt(pi * curvature2 / 2.0)
    return activation("leaky_relu", a=middle + half_gap, b=middle - half_gap)
