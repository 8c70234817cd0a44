"""From a choice to what is shown: samples, design, spectra, distances. Pure functions with caches.

A page asks for everything again whenever a control moves, so each step remembers its last few answers by exactly what
it depends on: moving sigma_a2 keeps the samples, choosing another family keeps the kernel and its eigenvalues.
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
from notsodeep.cli.scenario import ErrorPoint, Law, Prediction, PreparedSamples
from notsodeep.designs import Design, TwinDistances, design, twin_distances
from notsodeep.equivalents import LimitingSpectrum, limiting_density
from notsodeep.models import DEQ, ConvDEQ
from notsodeep.validation import Array
from notsodeep_lab.explorer.choice import FORMULA, Choice, Data
from notsodeep_lab.explorer.images import small_images

T = TypeVar("T")
# Rows and images on which a twin is fitted and judged, and rows on which its kernel is compared with the DEQ's.
ROWS_TO_FIT, IMAGES_TO_FIT = 150, 20
ROWS_COMPARED = 400


@lru_cache(maxsize=8)
def samples_of(data: Data) -> PreparedSamples:
    """The samples of a choice of data."""
    return data.samples()


@lru_cache(maxsize=4)
def images_of(data: Data) -> PreparedSamples:
    """The samples as images, made small."""
    return small_images(data)


def samples_for(choice: Choice) -> PreparedSamples:
    """The samples as the chosen network takes them: rows or images."""
    return images_of(choice.data) if choice.images else samples_of(choice.data)


def judged_model(choice: Choice) -> DEQ | ConvDEQ:
    """The DEQ that is judged: of rows centred, of images as it is, since its twins need no mean of zero."""
    return choice.image_model if choice.images else centred_model(choice)


def centred_model(choice: Choice) -> DEQ:
    """The DEQ, centred at the norm of the samples, docs/theory.md (2.11)."""
    return choice.model.centred(samples_of(choice.data).tau0)


def design_of(choice: Choice) -> Design:
    """The explicit network with the DEQ's kernel."""
    if choice.images:
        return _image_design(choice.image_model, choice.data, choice.kernel)
    return _design(centred_model(choice), choice.data, choice.kernel, choice.family, fits_rows(choice))


@lru_cache(maxsize=64)
def _design(model: DEQ, data: Data, kernel: str, family: str, fit: bool) -> Design:
    samples = samples_of(data)
    # How close it is on the page's own samples, the verdict measures.
    rows = samples.rows[:ROWS_TO_FIT] if fit else None
    return design(model, samples.tau0, kernel, family, X=rows, evidence=False)


@lru_cache(maxsize=64)
def _image_design(model: ConvDEQ, data: Data, kernel: str) -> Design:
    return design(model, 1.0, kernel, X=images_of(data).rows[:IMAGES_TO_FIT], evidence=False)


def fits_rows(choice: Choice) -> bool:
    """Whether the design looks at the samples, and not at their norm alone.

    With a typed formula it does not, unless its family needs them: every network that is tried on the samples would
    need tables of its own, which takes seconds.
    """
    if choice.activation == FORMULA and choice.family != "injected":
        return False
    rows = samples_of(choice.data).rows
    return scenario.rows_to_fit(rows, choice.kernel, choice.family) is not None


@lru_cache(maxsize=6)
def kernel_of(model: Any, data: Data, kernel: str) -> Array:
    """The exact kernel of the samples."""
    matrix = scenario.compute_kernel(model, samples_of(data).rows, kernel)
    matrix.setflags(write=False)
    return matrix


# --- spectrum -----------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Spectrum(Prediction):
    """Eigenvalues of the DEQ's kernel, and what was predicted of them.

    Attributes:
        exact: eigenvalues of the exact kernel, in ascending order.
        distance: of the prediction to them, see `Prediction.distance_to`.
    """

    exact: Array
    distance: float


def spectrum_of(choice: Choice) -> Spectrum:
    """The exact spectrum and its prediction."""
    return _spectrum(centred_model(choice), choice.data, choice.shown_kernel)


def start_prediction(choice: Choice) -> None:
    """Start the longest step, a prediction without data, in another process; `spectrum_of` waits for it."""
    samples = samples_of(choice.data)
    _started(centred_model(choice), samples.law, len(samples.rows), choice.shown_kernel)


@lru_cache(maxsize=32)
def _spectrum(model: DEQ, data: Data, kernel: str) -> Spectrum:
    exact = np.asarray(np.linalg.eigvalsh(kernel_of(model, data, kernel)), dtype=np.float64)
    samples = samples_of(data)
    started = _started(model, samples.law, len(samples.rows), kernel)
    found = (
        scenario.predict(model, samples, kernel)
        if started is None
        else Prediction(started.result(), None)
    )
    return Spectrum(found.limit, found.equivalent, exact, found.distance_to(exact))


@lru_cache(maxsize=32)
def _started(model: DEQ, law: Law | None, n: int, kernel: str) -> Started[LimitingSpectrum] | None:
    """The prediction from the law, in another process; None where there is no law."""
    if law is None:
        return None
    return in_other_process(limiting_density, model, law, n, kernel, form="refined")


@dataclass(frozen=True, eq=False)
class Started(Generic[T]):
    """A task in another process, or here where that process was ended from outside."""

    task: Callable[[], T]
    future: Future[T] | None

    def result(self) -> T:
        """Wait for the other process."""
        try:
            return self.task() if self.future is None else self.future.result()
        except BrokenProcessPool:
            return self.task()


def in_other_process(task: Callable[..., T], *args: Any, **settings: Any) -> Started[T]:
    """Start a task beside the page."""
    bound = partial(task, *args, **settings)
    try:
        return Started(bound, _process().submit(bound))
    except BrokenProcessPool:
        return Started(bound, None)


@lru_cache(maxsize=1)
def _process() -> ProcessPoolExecutor:
    """The process that computes predictions; threads of one process would take turns at their many small steps."""
    return ProcessPoolExecutor(1, mp_context=get_context("spawn"))


# --- distances ----------------------------------------------------------------------------------------


def distances_of(choice: Choice) -> TwinDistances:
    """How far the kernels of the designed network and of plain layers are from the DEQ's on some of the samples."""
    return _distances(design_of(choice), choice.data, choice.shown_kernel)


@lru_cache(maxsize=64)
def _distances(made: Design, data: Data, kernel: str) -> TwinDistances:
    rows = samples_of(data).rows
    part = np.unique(np.linspace(0, len(rows) - 1, min(len(rows), ROWS_COMPARED)).astype(int))

    def exact(model: Any, samples: Array, name: str) -> Array:
        # The DEQ's kernel is needed for its spectrum, too; those of the others for this alone.
        if model == made.model:
            return np.asarray(kernel_of(model, data, name)[np.ix_(part, part)])
        return scenario.compute_kernel(model, samples, name)

    return twin_distances(made, rows[part], kernel, exact=exact)


def errors_of(choice: Choice) -> tuple[ErrorPoint, ...]:
    """How the equivalents' error falls with n: at a constant p/n where samples can be drawn, else on the first rows."""
    return tuple(
        point
        for data in error_sizes(choice.data)
        for point in _errors(choice.model, data, choice.shown_kernel)
    )


def error_sizes(data: Data) -> tuple[Data, ...]:
    """The data at an eighth, a quarter, a half and all of n, for the error curve."""
    return data.smaller(len(samples_of(data).rows))


@lru_cache(maxsize=256)
def _errors(model: DEQ, data: Data, kernel: str) -> tuple[ErrorPoint, ...]:
    samples = samples_of(data)
    return scenario.equivalent_errors(model, samples, kernel, _kernel_on(data))


def _kernel_on(data: Data) -> Callable[[Any, Array, str], Array]:
    """The exact kernels of these data, computed once."""
    return lambda model, _, name: kernel_of(model, data, name)


def warm_up() -> None:
    """Compile and load what the first page would have to wait for."""
    small = Choice(data=Data(n=60, p=40))
    for name in ("tanh", "relu"):
        choice = replace(small, activation=name)
        design_of(choice), spectrum_of(choice), errors_of(choice)
