"""Compute what the page shows from a `Choice`: samples, design, spectra, distances.

The page recomputes everything whenever a control moves, so each step is cached by the values it depends on: moving
sigma_a2 keeps the samples, choosing another family keeps the kernel and its eigenvalues.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from multiprocessing import get_context
from typing import Any, Generic, TypeVar

import numpy as np

from notsodeep.cli import scenario
from notsodeep.cli.scenario import Law, Prediction, PreparedSamples
from notsodeep.designs import Design, TwinDistances, design, twin_distances
from notsodeep.equivalents import LimitingSpectrum, limiting_density
from notsodeep.models import DEQ, ConvDEQ
from notsodeep.validation import Array
from notsodeep_lab.explorer.choice import FORMULA, Choice, PageData
from notsodeep_lab.explorer.images import small_images

T = TypeVar("T")
# Number of samples on which a twin is fitted, and of rows on which its kernel is compared with the DEQ's.
ROWS_TO_FIT, IMAGES_TO_FIT = 150, 20
ROWS_COMPARED = 400


@lru_cache(maxsize=8)
def samples_of(data: PageData) -> PreparedSamples:
    """Return the samples of a data source."""
    return data.samples()


@lru_cache(maxsize=4)
def images_of(data: PageData) -> PreparedSamples:
    """Return the samples as downscaled images."""
    return small_images(data)


def samples_for(choice: Choice) -> PreparedSamples:
    """Return the samples in the form that the chosen network takes: rows or images."""
    return images_of(choice.data) if choice.images else samples_of(choice.data)


def judged_model(choice: Choice) -> DEQ | ConvDEQ:
    """Return the DEQ of the verdict: a centred dense DEQ, or the convolutional one, which needs no centring."""
    return choice.image_model if choice.images else centred_model(choice)


def centred_model(choice: Choice) -> DEQ:
    """Return the DEQ centred at the norm of the samples, docs/theory.md (2.11)."""
    return choice.model.centred(samples_of(choice.data).tau0)


def design_of(choice: Choice) -> Design:
    """Design the explicit network with the DEQ's kernel."""
    if choice.images:
        return _image_design(choice.image_model, choice.data, choice.kernel)
    return _design(centred_model(choice), choice.data, choice.kernel, choice.family, fits_rows(choice))


@lru_cache(maxsize=64)
def _design(model: DEQ, data: PageData, kernel: str, family: str, fit: bool) -> Design:
    samples = samples_of(data)
    rows = samples.rows[::2][:ROWS_TO_FIT] if fit else None
    return design(model, samples.tau0, kernel, family, X=rows)


@lru_cache(maxsize=64)
def _image_design(model: ConvDEQ, data: PageData, kernel: str) -> Design:
    return design(model, 1.0, kernel, X=images_of(data).rows[:IMAGES_TO_FIT])


def fits_rows(choice: Choice) -> bool:
    """Whether the design is fitted to the samples, not to their norm alone.

    A design for a typed formula is not, unless its family requires it: every network tried on the samples would
    need tables of its own, which takes seconds.
    """
    if choice.activation == FORMULA and choice.family != "injected":
        return False
    rows = samples_of(choice.data).rows
    return scenario.rows_to_fit(rows, choice.kernel, choice.family) is not None


@lru_cache(maxsize=6)
def kernel_of(model: Any, data: PageData, kernel: str) -> Array:
    """Compute the exact kernel of the samples."""
    matrix = scenario.compute_kernel(model, samples_of(data).rows, kernel)
    matrix.setflags(write=False)
    return matrix


# --- spectrum -----------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class KernelSpectrum(Prediction):
    """Eigenvalues of the DEQ's kernel and their prediction.

    Attributes:
        exact: eigenvalues of the exact kernel, in ascending order.
        distance: distance of the prediction from them, see `Prediction.distance_to`.
    """

    exact: Array
    distance: float


def spectrum_of(choice: Choice) -> KernelSpectrum:
    """Compute the exact spectrum and its prediction."""
    return _spectrum(centred_model(choice), choice.data, choice.shown_kernel)


def start_prediction(choice: Choice) -> None:
    """Start the slowest step, the prediction without data, in another process; `spectrum_of` waits for it."""
    samples = samples_of(choice.data)
    _started(centred_model(choice), samples.law, len(samples.rows), choice.shown_kernel)


@lru_cache(maxsize=32)
def _spectrum(model: DEQ, data: PageData, kernel: str) -> KernelSpectrum:
    exact = np.asarray(np.linalg.eigvalsh(kernel_of(model, data, kernel)), dtype=np.float64)
    samples = samples_of(data)
    started = _started(model, samples.law, len(samples.rows), kernel)
    predicted = (
        scenario.predict(model, samples, kernel) if started is None else Prediction(started.result(), None)
    )
    return KernelSpectrum(predicted.limit, predicted.equivalent, exact, predicted.distance_to(exact))


@lru_cache(maxsize=32)
def _started(model: DEQ, law: Law | None, n: int, kernel: str) -> Started[LimitingSpectrum] | None:
    """Start the prediction from the distribution of the data; None if that is unknown."""
    if law is None:
        return None
    return in_other_process(limiting_density, model, law, n, kernel, form="refined")


@dataclass(frozen=True, eq=False)
class Started(Generic[T]):
    """A task that runs in another process, or in this one if that process was killed."""

    task: Callable[[], T]
    future: Future[T] | None

    def result(self) -> T:
        """Wait for the result."""
        try:
            return self.task() if self.future is None else self.future.result()
        except BrokenProcessPool:
            return self.task()


def in_other_process(task: Callable[..., T], *args: Any, **settings: Any) -> Started[T]:
    """Start a task in another process."""
    bound = partial(task, *args, **settings)
    try:
        return Started(bound, _process().submit(bound))
    except BrokenProcessPool:
        return Started(bound, None)


@lru_cache(maxsize=1)
def _process() -> ProcessPoolExecutor:
    """The worker process for predictions: threads would compete for the interpreter lock."""
    return ProcessPoolExecutor(1, mp_context=get_context("spawn"))


# --- distances ----------------------------------------------------------------------------------------


def distances_of(choice: Choice) -> TwinDistances:
    """Compare the kernels of the twin and of plain layers with the DEQ's on a subset of the samples."""
    return _distances(design_of(choice), choice.data, choice.shown_kernel)


@lru_cache(maxsize=64)
def _distances(designed: Design, data: PageData, kernel: str) -> TwinDistances:
    rows = samples_of(data).rows
    part = np.unique(np.linspace(0, len(rows) - 1, min(len(rows), ROWS_COMPARED)).astype(int))

    def exact(model: Any, samples: Array, name: str) -> Array:
        # The DEQ's kernel is cached: its spectrum needs it too.
        if model == designed.model:
            return np.asarray(kernel_of(model, data, name)[np.ix_(part, part)])
        return scenario.compute_kernel(model, samples, name)

    return twin_distances(designed, rows[part], kernel, exact=exact)


def warm_up() -> None:
    """Compile and import what the first page needs."""
    small = Choice(data=PageData(n=60, p=40))
    for name in ("tanh", "relu"):
        choice = replace(small, activation=name)
        design_of(choice), spectrum_of(choice)
