"""From a choice to what is shown: samples, design, spectra, distances. Pure functions; what repeats is remembered.

A page asks for everything again whenever a control moves, so each step remembers its last few answers by exactly what
it depends on: moving sigma_a2 keeps the samples, choosing another family keeps the kernel and its eigenvalues.
"""

from __future__ import annotations

from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, replace
from functools import lru_cache
from multiprocessing import get_context

import numpy as np
from numpy.typing import NDArray
from scipy.sparse.linalg import aslinearoperator

from notsodeep.data import GaussianMixture, MixtureStatistics, Preprocessing, UnitSphere, load
from notsodeep.designs import Design, design
from notsodeep.equivalents.equivalent import equivalent
from notsodeep.equivalents.error import operator_norm
from notsodeep.equivalents.spectrum import LimitingSpectrum, limiting_density
from notsodeep.errors import InputError
from notsodeep.interfaces.app.choice import SMALLEST, Choice, Data
from notsodeep.kernels import exact_kernel
from notsodeep.models import DEQ, Explicit

Array = NDArray[np.float64]
Law = GaussianMixture | UnitSphere

# Sizes of the error curve, as shares of n.
_SHARES = (0.125, 0.25, 0.5, 1.0)


@dataclass(frozen=True, eq=False)
class Samples:
    """Rows to compute on.

    Attributes:
        rows: samples in rows (n, p).
        labels: their classes, where they have some.
        law: what they were drawn from, where it is known.
        tau0: the norm of a typical row, docs/theory.md (4.2).
    """

    rows: Array
    labels: NDArray[np.intp] | None
    law: Law | None
    tau0: float


@lru_cache(maxsize=8)
def samples_of(data: Data) -> Samples:
    """The rows that a choice of data means."""
    if data.source == "mixture":
        return _of_mixture(data)
    if data.source == "sphere":
        sphere = UnitSphere(data.p)
        return Samples(sphere.sample(data.n, data.seed), None, sphere, 1.0)
    if data.source == "digits":
        loaded = load("digits", n=min(data.n, _digits()), seed=data.seed)
        prepared = np.asarray(Preprocessing.fit(loaded.X).apply(loaded.X), dtype=np.float64)
        return Samples(prepared, loaded.y, None, _typical_norm(prepared))
    if data.upload is None:
        raise InputError("There is no file yet. Upload a CSV or NPY file, or choose other data.")
    rows = data.upload.rows[: data.n]
    return Samples(rows, None, None, _typical_norm(rows))


def _of_mixture(data: Data) -> Samples:
    mixture = GaussianMixture.paper(data.p, mean=data.mean, gap=data.gap)
    rows, labels = mixture.sample(data.n, data.seed)
    return Samples(rows, labels, mixture, MixtureStatistics.of(mixture, rows, labels).tau0)


@lru_cache(maxsize=1)
def _digits() -> int:
    return len(load("digits").y)


def _typical_norm(rows: Array) -> float:
    return float(np.sqrt(np.mean(np.einsum("ij,ij->i", rows, rows))))


def centred_model(choice: Choice) -> DEQ:
    """The DEQ, centred at the norm of the samples, docs/theory.md (2.11)."""
    return choice.model.centred(samples_of(choice.data).tau0)


def design_of(choice: Choice) -> Design:
    """The explicit network with the DEQ's kernel."""
    return _design(centred_model(choice), samples_of(choice.data).tau0, choice.kernel, choice.family)


@lru_cache(maxsize=64)
def _design(model: DEQ, tau0: float, kernel: str, family: str) -> Design:
    return design(model, tau0, kernel, family)


@lru_cache(maxsize=6)
def kernel_of(model: DEQ | Explicit, data: Data, kernel: str) -> Array:
    """The exact kernel of the samples."""
    matrix = exact_kernel(model, samples_of(data).rows, kernel=kernel)
    matrix.setflags(write=False)
    return matrix


# --- spectrum -----------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Spectrum:
    """Eigenvalues of the DEQ's kernel, and what was predicted of them.

    Attributes:
        exact: eigenvalues of the exact kernel, ascending.
        limit: the prediction from the distribution alone; None where it is not known (digits, a file).
        equivalent: eigenvalues of the refined equivalent of the same rows, where there is no limit.
        distance: with a limit, the largest difference between the two distribution functions (Kolmogorov's); without,
            the largest difference between eigenvalues of the same rank, relative to the largest one.
    """

    exact: Array
    limit: LimitingSpectrum | None
    equivalent: Array | None
    distance: float


def spectrum_of(choice: Choice) -> Spectrum:
    """The exact spectrum and its prediction."""
    return _spectrum(centred_model(choice), choice.data, choice.shown_kernel)


def begin(choice: Choice) -> None:
    """Start what takes longest, a prediction without data, beside whatever is computed next; `spectrum_of` waits."""
    data = choice.data
    _begun(centred_model(choice), samples_of(data).law, len(samples_of(data).rows), choice.shown_kernel)


@lru_cache(maxsize=32)
def _spectrum(model: DEQ, data: Data, kernel: str) -> Spectrum:
    exact = np.asarray(np.linalg.eigvalsh(kernel_of(model, data, kernel)), dtype=np.float64)
    drawn = samples_of(data)
    if drawn.law is not None:
        limit = _limit(model, drawn.law, len(drawn.rows), kernel)
        return Spectrum(exact, limit, None, _kolmogorov(exact, limit))
    found = equivalent(model, drawn.rows, None, kernel, "refined", square=square_of(drawn))
    values = np.sort(found.eigvalsh())
    return Spectrum(exact, None, values, float(np.abs(exact - values).max() / exact[-1]))


def _limit(model: DEQ, law: Law, n: int, kernel: str) -> LimitingSpectrum:
    begun = _begun(model, law, n, kernel)
    try:
        if begun is not None:
            return begun.result()
    except BrokenProcessPool:
        pass  # somebody ended the process beside this one
    return limiting_density(model, law, n, kernel, form="refined")


@lru_cache(maxsize=32)
def _begun(model: DEQ, law: Law | None, n: int, kernel: str) -> Future[LimitingSpectrum] | None:
    """The prediction from the law, on its way; None where there is no law, or nobody to compute it."""
    if law is None:
        return None
    try:
        return _beside().submit(limiting_density, model, law, n, kernel, form="refined")
    except BrokenProcessPool:
        return None


@lru_cache(maxsize=1)
def _beside() -> ProcessPoolExecutor:
    """A process, not a thread: predictions are many small steps, and two such things in one process take turns."""
    return ProcessPoolExecutor(1, mp_context=get_context("spawn"))


def _kolmogorov(exact: Array, limit: LimitingSpectrum) -> float:
    steps = np.arange(len(exact) + 1) / len(exact)
    share = limit.cdf(exact)
    return float(np.maximum(np.abs(share - steps[1:]), np.abs(share - steps[:-1])).max())


# --- distances ----------------------------------------------------------------------------------------


def twin_distance(choice: Choice) -> tuple[float, float]:
    """How far the designed network's exact kernel, and that of one plain layer, are from the DEQ's on these samples."""
    model, tau0 = centred_model(choice), samples_of(choice.data).tau0
    twin, plain = design_of(choice).network, Explicit([model.activation]).centred(tau0)
    near, far = (_between(model, other, choice.data, choice.shown_kernel) for other in (twin, plain))
    return near, far


@lru_cache(maxsize=64)
def _between(model: DEQ, other: Explicit, data: Data, kernel: str) -> float:
    target = kernel_of(model, data, kernel)
    return _norm(exact_kernel(other, samples_of(data).rows, kernel=kernel) - target) / _norm(target)


def _norm(matrix: Array) -> float:
    return operator_norm(aslinearoperator(matrix))


@dataclass(frozen=True)
class ErrorPoint:
    """The relative distance ‖K - K̄‖₂/‖K‖₂ between the exact kernel and an equivalent, docs/theory.md (4.8)."""

    form: str
    n: int
    p: int
    relative: float

    def as_row(self) -> dict[str, object]:
        """As figures take it."""
        return {"kind": "error", "form": self.form, "n": self.n, "p": self.p, "relative": self.relative}


def errors_of(choice: Choice) -> tuple[ErrorPoint, ...]:
    """How the equivalents' error falls with n: at a constant p/n where samples can be drawn, on the first rows else."""
    return tuple(
        point
        for data in error_sizes(choice.data)
        for point in _errors(choice.model, data, choice.shown_kernel)
    )


def error_sizes(data: Data) -> tuple[Data, ...]:
    """The same data at an eighth, a quarter, a half and all of n; drawn data keep their p/n."""
    total = len(samples_of(data).rows)
    sizes = sorted({max(SMALLEST, round(share * total)) for share in _SHARES})
    if data.source in ("digits", "file"):
        return tuple(replace(data, n=size) for size in sizes)
    return tuple(replace(data, n=n, p=max(SMALLEST, round(data.p * n / total))) for n in sizes)


@lru_cache(maxsize=256)
def _errors(model: DEQ, data: Data, kernel: str) -> tuple[ErrorPoint, ...]:
    drawn = samples_of(data)
    centred = model.centred(drawn.tau0)
    exact = kernel_of(centred, data, kernel)
    size = _norm(exact)
    points = []
    for form in ("asymptotic", "refined") if drawn.law is not None else ("refined",):
        other = equivalent(centred, drawn.rows, statistics_of(drawn), kernel, form, square=square_of(drawn))
        apart = operator_norm(aslinearoperator(exact) - aslinearoperator(other))
        points.append(ErrorPoint(form, drawn.rows.shape[0], drawn.rows.shape[1], apart / size))
    return tuple(points)


def statistics_of(drawn: Samples) -> MixtureStatistics | None:
    """What is known of the classes; nothing without a law, one isotropic class on a sphere."""
    if drawn.law is None:
        return None
    if drawn.labels is not None and isinstance(drawn.law, GaussianMixture):
        return MixtureStatistics.of(drawn.law, drawn.rows, drawn.labels)
    isotropic = GaussianMixture(np.zeros((1, drawn.law.p)), 1.0)
    return MixtureStatistics.of(isotropic, drawn.rows, np.zeros(len(drawn.rows), dtype=np.intp))


def square_of(drawn: Samples) -> str:
    """Inner products of drawn samples concentrate; those of real data do not, and want a sketch."""
    return "sketch" if drawn.law is None else "mixture"


def warm_up() -> None:
    """Compile and load what the first answer would wait for."""
    small = Choice(data=Data(n=60, p=40))
    for name in ("tanh", "relu"):
        choice = replace(small, activation=name)
        design_of(choice), spectrum_of(choice), errors_of(choice)


__all__ = [
    "ErrorPoint",
    "Samples",
    "Spectrum",
    "design_of",
    "errors_of",
    "samples_of",
    "spectrum_of",
    "twin_distance",
]
