"""A model, data, and what is to be seen of them: what the command line and the explorer have in common."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy.sparse.linalg import aslinearoperator

from notsodeep.data import GaussianMixture, MixtureStatistics, Preprocessing, UnitSphere, load, parse_spec
from notsodeep.designs import Design, tangent_kernel_with_multipliers
from notsodeep.equivalents import LimitingSpectrum, equivalent, limiting_density
from notsodeep.errors import InputError
from notsodeep.gaussian.activations import Activation, activation
from notsodeep.interfaces.tables import ENDINGS, open_table
from notsodeep.kernels import exact_kernel
from notsodeep.linalg.block_lanczos import operator_norm
from notsodeep.models import DEQ, Explicit
from notsodeep.validation import Array

Law = GaussianMixture | UnitSphere

DRAWN = ("mixture", "sphere")
SMALLEST = 20
# Sizes at which the error of the equivalents is measured, as shares of n.
_SHARES = (0.125, 0.25, 0.5, 1.0)


def read_activation(text: str) -> Activation:
    """An activation as it is typed: tanh, leaky_relu:a=1,b=0.1, polynomial:coefficients=0;1, formula:x*sigmoid(x)."""
    name, _, rest = text.partition(":")
    if name == "formula":
        return activation(name, expression=rest)
    parameters: dict[str, Any] = {}
    for part in rest.split(",") if rest else []:
        key, equals, value = part.partition("=")
        try:
            numbers = [float(word) for word in value.split(";")]
        except ValueError:
            numbers = []
        if not (equals and numbers):
            raise InputError(
                f"--activation {text}: {part!r} is not a parameter. Write them as in leaky_relu:a=1,b=0.1, lists "
                "as in polynomial:coefficients=0;1;0.5, and a formula as in formula:x*sigmoid(x)."
            )
        parameters[key.strip()] = numbers if ";" in value else numbers[0]
    return activation(name, **parameters)


def read_rows(source: str, n: int | None, data_dir: Path | None, seed: int = 0) -> Array:
    """Rows of a .npy or .csv file as they are, or of a data set by name, centred and scaled to mean squared norm 1."""
    if Path(source).suffix.lower() in ENDINGS:
        return open_table(source, n)
    name, classes = parse_spec(source)
    loaded = load(name, classes=classes, n=n, seed=seed, data_dir=data_dir)
    return np.asarray(Preprocessing.fit(loaded.X).apply(loaded.X), dtype=np.float64)


def typical_norm(rows: Array) -> float:
    """The root mean square of the norms of the rows."""
    return float(np.sqrt(np.mean(np.einsum("ij,ij->i", rows, rows))))


@dataclass(frozen=True, eq=False)
class Samples:
    """Rows, and what is known about them.

    Attributes:
        rows: samples in rows (n, p).
        labels: their classes, where the law has some.
        law: what they were drawn from, where it is known.
        tau0: the norm of a typical row, docs/theory.md (4.2).
    """

    rows: Array
    labels: NDArray[np.intp] | None
    law: Law | None
    tau0: float

    @property
    def statistics(self) -> MixtureStatistics | None:
        """Statistics of the classes, from the law; a sphere in high dimension is one isotropic class."""
        if self.law is None or self.labels is None:
            return None
        law = self.law
        mixture = law if isinstance(law, GaussianMixture) else GaussianMixture(np.zeros((1, law.p)), 1.0)
        return MixtureStatistics.of(mixture, self.rows, self.labels)

    @property
    def square(self) -> str:
        """The form of X Xᵀ squared: inner products of drawn samples concentrate, those of real data want a sketch."""
        return "sketch" if self.law is None else "mixture"

    @property
    def forms(self) -> tuple[str, ...]:
        """The equivalents that can be computed: the asymptotic one needs to know the classes."""
        return ("refined",) if self.law is None else ("asymptotic", "refined")


@dataclass(frozen=True)
class Data:
    """Where samples come from.

    Attributes:
        source: "mixture" (Gaussian classes as in the papers), "sphere" (unit vectors), a data set ("digits",
            "mnist:6,8"), or a .npy or .csv file with samples in rows.
        n: number of samples; of a file the first ones.
        p: dimension of mixture and sphere; other data have their own.
        classes: of the mixture.
        mean: length of the class means of the mixture.
        gap: covariance gap of the mixture: class a has C = (1 + gap · a/√p) I.
        seed: of the draw; a file is read from its beginning.
        data_dir: folder of the data sets.
    """

    source: str = "mixture"
    n: int = 1000
    p: int = 800
    classes: int = 2
    mean: float = 8.0
    gap: float = 8.0
    seed: int = 0
    data_dir: Path | None = None

    @property
    def is_drawn(self) -> bool:
        """Whether samples are drawn from a law that is known."""
        return self.source in DRAWN

    def samples(self) -> Samples:
        """Draw or read the samples."""
        if self.source == "sphere":
            sphere = UnitSphere(self.p)
            return Samples(sphere.sample(self.n, self.seed), np.zeros(self.n, dtype=np.intp), sphere, 1.0)
        if self.source == "mixture":
            mixture = GaussianMixture.paper(self.p, classes=self.classes, mean=self.mean, gap=self.gap)
            rows, labels = mixture.sample(self.n, self.seed)
            return Samples(rows, labels, mixture, MixtureStatistics.of(mixture, rows, labels).tau0)
        rows = self._read()
        return Samples(rows, None, None, typical_norm(rows))

    def _read(self) -> Array:
        return read_rows(self.source, self.n, self.data_dir, self.seed)

    def smaller(self, total: int) -> tuple[Self, ...]:
        """The same at an eighth, a quarter, a half and all of `total` samples; drawn ones keep their p/n."""
        sizes = sorted({max(SMALLEST, round(share * total)) for share in _SHARES})
        if not self.is_drawn:
            return tuple(replace(self, n=n) for n in sizes)
        return tuple(replace(self, n=n, p=max(SMALLEST, round(self.p * n / total))) for n in sizes)


# --- spectrum -----------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Prediction:
    """A predicted spectrum.

    Attributes:
        limit: the prediction from the law alone, where it is known.
        equivalent: else the eigenvalues of the refined equivalent of the same rows, in ascending order.
    """

    limit: LimitingSpectrum | None
    equivalent: Array | None

    def distance_to(self, exact: Array) -> float:
        """How far it is from exact eigenvalues in ascending order.

        With a law, Kolmogorov's distance between the two distributions; else the largest difference between
        eigenvalues of the same rank, relative to the largest one.
        """
        if self.limit is None:
            return float(np.abs(exact - np.asarray(self.equivalent)).max() / exact[-1])
        steps = np.arange(len(exact) + 1) / len(exact)
        share = self.limit.cdf(exact)
        return float(np.maximum(np.abs(share - steps[1:]), np.abs(share - steps[:-1])).max())


def predict(model: DEQ, samples: Samples, kernel: str, form: str = "refined") -> Prediction:
    """Predict the spectrum of a kernel, without looking at the samples where their law is known."""
    if samples.law is not None:
        return Prediction(limiting_density(model, samples.law, len(samples.rows), kernel, form=form), None)
    found = equivalent(model, samples.rows, None, kernel, form, square=samples.square)
    return Prediction(None, np.sort(found.eigvalsh()))


# --- distances ----------------------------------------------------------------------------------------

ExactKernel = Callable[[DEQ | Explicit, Array, str], Array]


def compute_kernel(model: DEQ | Explicit, rows: Array, kernel: str) -> Array:
    """The exact kernel of the rows."""
    return exact_kernel(model, rows, kernel=kernel)


@dataclass(frozen=True)
class ErrorPoint:
    """The relative distance ‖K - K̄‖₂/‖K‖₂ between the exact kernel and an equivalent, docs/theory.md (4.8)."""

    form: str
    n: int
    p: int
    relative: float

    def as_row(self) -> dict[str, Any]:
        """The point as figures take it."""
        return {"kind": "error", **asdict(self)}


def equivalent_errors(
    model: DEQ, samples: Samples, kernel: str, exact: ExactKernel = compute_kernel
) -> tuple[ErrorPoint, ...]:
    """The error of each equivalent that these samples have; the model is centred at their norm."""
    centred = model.centred(samples.tau0)
    whole = aslinearoperator(exact(centred, samples.rows, kernel))
    norm, points = operator_norm(whole), []
    n, p = samples.rows.shape
    for form in samples.forms:
        other = equivalent(centred, samples.rows, samples.statistics, kernel, form, square=samples.square)
        apart = operator_norm(whole - aslinearoperator(other))
        points.append(ErrorPoint(form, n, p, apart / norm))
    return tuple(points)


def twin_distance(
    made: Design, rows: Array, kernel: str, exact: ExactKernel = compute_kernel
) -> tuple[float, float]:
    """How far the kernels of the designed network and of a plain one are from the model's: relative, in operator norm.

    The plain network is the model's own activation in one layer.
    """
    model: Any = made.model
    target = exact(model, rows, kernel)
    if kernel == "ntk" and made.multipliers is not None:
        twin = tangent_kernel_with_multipliers(made.network, rows, made.multipliers)
    else:
        twin = compute_kernel(made.network, rows, kernel)
    plain = compute_kernel(Explicit([model.activation]).centred(made.tau0), rows, kernel)
    norm = _norm(target)
    return _norm(twin - target) / norm, _norm(plain - target) / norm


def _norm(matrix: Array) -> float:
    return operator_norm(aslinearoperator(matrix))
