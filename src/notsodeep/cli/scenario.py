"""A model, data, and what is to be seen of them: what the command line and the explorer have in common."""

from __future__ import annotations

import zipfile
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy.sparse.linalg import aslinearoperator

from notsodeep.data import (
    SCALES,
    GaussianMixture,
    MixtureStatistics,
    Preprocessing,
    Table,
    UnitSphere,
    as_images,
    inspect_rows,
    load,
    open_table,
    parse_spec,
)
from notsodeep.data.datasets import IMAGES, NAMES
from notsodeep.data.table_files import is_table, open_labels, split_member
from notsodeep.designs.distances import ExactKernel
from notsodeep.equivalents import LimitingSpectrum, equivalent, limiting_density
from notsodeep.errors import InputError
from notsodeep.gaussian.activations import Activation, activation
from notsodeep.kernels import exact_kernel
from notsodeep.linalg.block_lanczos import operator_norm
from notsodeep.models import DEQ, Model
from notsodeep.scale.sample_sources import open_rows
from notsodeep.validation import Array, one_of, root_mean_square_norm

Law = GaussianMixture | UnitSphere

DRAWN = ("mixture", "sphere")
SMALLEST = 20
# Sizes at which the error of the equivalents is measured, as shares of n.
_SHARES = (0.125, 0.25, 0.5, 1.0)
_DRAWN_SAMPLES = 1000
# Norms beyond which fourth powers, which designs and spectra take, leave the range of double precision.
_SMALLEST_NORM, _LARGEST_NORM = 1e-50, 1e50
# Of data that come in one part every fifth row of a class tests.
_TEST_EVERY = 5


def read_activation(text: str) -> Activation:
    """An activation as it is typed: tanh, leaky_relu:a=1,b=0.1, polynomial:coefficients=0;1, or a formula in x.

    What has no colon and is not a single word, such as x*sigmoid(x), is a formula; so is formula:x*sigmoid(x).
    """
    name, colon, rest = text.partition(":")
    if name == "formula":
        return activation(name, expression=rest)
    if not colon and (text.strip() == "x" or not text.strip().isidentifier()):
        return activation("formula", expression=text)
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
                "as in polynomial:coefficients=0;1;0.5, and a formula as in 'x*sigmoid(x)'."
            )
        parameters[key.strip()] = numbers if ";" in value else numbers[0]
    return activation(name, **parameters)


def read_model(text: str, sigma_a2: float) -> DEQ:
    """The DEQ with an activation as it is typed."""
    if sigma_a2 > 1.0:
        raise InputError(
            f"--sigma-a2 {sigma_a2:g} is too large: the input weights have the variance that it leaves of 1. Take a "
            "number from 0 to 1."
        )
    return DEQ(read_activation(text), sigma_a2)


def is_data(source: str) -> bool:
    """Whether a text names samples: a law, a data set or a table; an NPZ file with an array W has weights."""
    path, member = split_member(source)
    if path.suffix.lower() == ".npz" and member is None and zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as archive:
            return "W.npy" not in archive.namelist()
    return source.partition(":")[0] in (*DRAWN, *NAMES) or is_table(source) or path.suffix == ".zarr"


@dataclass(frozen=True, eq=False)
class Samples:
    """Rows, and what is known about them.

    Attributes:
        rows: samples in rows (n, p).
        labels: their classes or targets, where the law or the file has some.
        law: what they were drawn from, where it is known.
        tau0: the norm of a typical row, docs/theory.md (4.2).
        notes: what was done to make rows of a file and to scale them, in sentences.
        advice: what is unusual about the rows as they are now, with a remedy; empty if nothing is.
    """

    rows: Array
    labels: NDArray[Any] | None
    law: Law | None
    tau0: float
    notes: tuple[str, ...] = ()
    advice: str = ""

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


def scaled_samples(table: Table, scale: str) -> Samples:
    """The rows of a table, looked at, scaled, and looked at again; its notes say what was found and done."""
    rows = np.asarray(Preprocessing.named(scale, table.rows).apply(table.rows), dtype=np.float64)
    norm = root_mean_square_norm(rows)
    if not _SMALLEST_NORM < norm < _LARGEST_NORM:
        raise InputError(
            f"The rows have norm {norm:.3g} with scale {scale!r}: their squares leave the range of numbers, or they "
            "are all zero. Use scale 'auto', which brings them to norm 1."
        )
    notes = tuple(note for note in (table.note, Preprocessing.note(scale, table.rows)) if note)
    return Samples(rows, table.labels, None, norm, notes, inspect_rows(rows).advice)


@dataclass(frozen=True)
class Data:
    """Where samples come from: what every command takes, and the explorer.

    Attributes:
        source: "mixture" (Gaussian classes as in the papers), "sphere" (unit vectors), a data set ("digits",
            "mnist:6,8"), or a file with samples in rows (.csv, .npy, .npz, .parquet, .zarr).
        n: number of samples, of a file the first ones; all (of drawn samples 1000) if not given.
        p: dimension of mixture and sphere; other data have their own.
        classes: of the mixture.
        mean: length of the class means of the mixture.
        gap: covariance gap of the mixture: class a has C = (1 + gap · a/√p) I.
        seed: of the draw; a file is read from its beginning.
        data_dir: folder of the data sets.
        label_column: the column of a file that holds labels, see `data.open_table`.
        labels: a file with one label for each row.
        scale: what is done to the rows of files and data sets, see `Preprocessing.named`.
    """

    source: str = "mixture"
    n: int | None = 1000
    p: int = 800
    classes: int = 2
    mean: float = 8.0
    gap: float = 8.0
    seed: int = 0
    data_dir: Path | None = None
    label_column: str | None = None
    labels: Path | None = None
    scale: str = "auto"

    @property
    def is_drawn(self) -> bool:
        """Whether samples are drawn from a law that is known."""
        return self.source in DRAWN

    @property
    def is_file(self) -> bool:
        """Whether samples come from a file of the user's."""
        return is_table(self.source) or Path(self.source).suffix == ".zarr"

    def for_weights(self) -> Self:
        """The same for a network that is trained: "auto" leaves rows as they are, as training has seen them."""
        return replace(self, scale="none") if self.scale == "auto" else self

    def samples(self) -> Samples:
        """Draw or read the samples, scaled."""
        one_of(self.scale, SCALES, "scale")
        if not self.is_drawn:
            table = self._read()
            return scaled_samples(table, self.scale)
        if self.scale not in ("auto", "none"):
            raise InputError(
                f"Samples that are drawn have the scale of their law: leave --scale {self.scale} out."
            )
        n = self.n or _DRAWN_SAMPLES
        if self.source == "sphere":
            sphere = UnitSphere(self.p)
            return Samples(sphere.sample(n, self.seed), np.zeros(n, dtype=np.intp), sphere, 1.0)
        mixture = GaussianMixture.paper(self.p, classes=self.classes, mean=self.mean, gap=self.gap)
        rows, labels = mixture.sample(n, self.seed)
        return Samples(rows, labels, mixture, MixtureStatistics.of(mixture, rows, labels).tau0)

    def _read(self) -> Table:
        """Rows and labels as they are in the file or the data set."""
        if not self.is_file:
            return self._named()
        if Path(self.source).suffix == ".zarr":
            stored = open_rows(self.source)
            table = Table(stored.read(slice(0, self.n)), total=stored.shape[0])
        else:
            table = open_table(self.source, self.n, self.label_column)
        if self.labels is None:
            return table
        if self.label_column is not None:
            raise InputError(
                "Labels come from a column (--label-column) or from a file (--labels): give one."
            )
        labels, note = open_labels(self.labels, table.total, self.n)
        return replace(table, labels=labels, note=f"{table.note} {note}".strip())

    def _named(self) -> Table:
        """Rows and labels of a data set by name."""
        name, classes = parse_spec(self.source)
        loaded = load(name, classes=classes, n=self.n, seed=self.seed, data_dir=self.data_dir)
        return Table(np.asarray(loaded.X, dtype=np.float64), loaded.y)

    def parts(self) -> tuple[tuple[NDArray[Any], NDArray[Any]], tuple[NDArray[Any], NDArray[Any]]]:
        """Training and test part, each rows and labels, not scaled.

        The published parts of a data set; of other data a fifth of each class, drawn by `seed`, is the test part.
        """
        if not self.is_drawn and not self.is_file:
            name, classes = parse_spec(self.source)
            train = load(
                name, classes=classes, n=self.n, seed=self.seed, data_dir=self.data_dir, dtype="float32"
            )
            test = load(name, classes=classes, split="test", data_dir=self.data_dir, dtype="float32")
            return (train.X, train.y), (test.X, test.y)
        return self._split(self.samples() if self.is_drawn else self._read())

    def image_parts(self) -> tuple[tuple[NDArray[Any], NDArray[Any]], tuple[NDArray[Any], NDArray[Any]]]:
        """Training and test part as images (n, channels, height, width), not scaled.

        Of a data set of images by name, or of a .npy or .zarr file whose labels are in a file of their own.
        """
        if not self.is_drawn and not self.is_file:
            name = parse_spec(self.source)[0]
            train, test = ((as_images(name, part[0]), part[1]) for part in self.parts())
            return train, test
        if Path(self.source).suffix not in (".npy", ".zarr"):
            raise InputError(
                f"{self.source} has no images: name a data set of images ({', '.join(IMAGES)}), or a .npy or .zarr "
                "file of the shape (n, channels, height, width) with --labels."
            )
        if self.labels is None:
            raise InputError(
                f"{self.source} comes without labels: name a file with one for each image (--labels)."
            )
        return self._split(self._image_table())

    def _image_table(self) -> Table:
        """Images of a .npy or .zarr file as they are, with their labels if there are any."""
        stored = open_rows(self.source)
        values = stored.read(slice(0, self.n))
        if values.ndim not in (3, 4):
            raise InputError(
                f"{self.source} has the shape {values.shape}; images are (n, channels, height, width), sequences "
                "(n, channels, length)."
            )
        labels, note = (
            (None, "") if self.labels is None else open_labels(self.labels, stored.shape[0], self.n)
        )
        return Table(values, labels, note)

    def images(self) -> Samples:
        """Images (n, channels, height, width), scaled so that |x(s)|² = 1 on average over positions; labels if any.

        Of a data set of images by name, or of a .npy or .zarr file.
        """
        if not self.is_file:
            found = self.samples()
            values = as_images(parse_spec(self.source)[0], found.rows)
        else:
            table = self._image_table()
            given = table.rows
            found = scaled_samples(replace(table, rows=given.reshape(len(given), -1)), self.scale)
            values = found.rows.reshape(given.shape)
        factor = 1.0 if self.scale == "none" else float(np.prod(values.shape[2:])) ** 0.5
        return replace(found, rows=factor * values)

    def _split(
        self, found: Table | Samples
    ) -> tuple[tuple[NDArray[Any], NDArray[Any]], tuple[NDArray[Any], NDArray[Any]]]:
        """A fifth of each class, drawn by `seed`, apart from the rest."""
        rows, labels = found.rows, self.needed_labels(found)
        if labels.dtype.kind == "f":
            raise InputError(
                f"The labels of {self.source} are numbers with fractions, not classes. Name another column, or turn "
                "them into classes."
            )
        order = np.random.default_rng(self.seed).permutation(len(rows))
        order = order[np.argsort(labels[order], kind="stable")]
        test_rows = np.zeros(len(rows), dtype=bool)
        test_rows[order[_TEST_EVERY - 1 :: _TEST_EVERY]] = True
        return (rows[~test_rows], labels[~test_rows]), (rows[test_rows], labels[test_rows])

    def needed_labels(self, found: Table | Samples) -> NDArray[Any]:
        """The labels of samples that must have some."""
        if found.labels is None:
            raise InputError(
                f"{self.source} comes without labels: name their column (--label-column), or a file with one for each "
                "row (--labels y.npy)."
            )
        return found.labels

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


def rows_to_fit(rows: Array, kernel: str, family: str) -> Array | None:
    """The rows on which `design` judges and fits an injected network; None where the family is not one of those."""
    return rows if family in ("auto", "injected") and kernel != "ntk_paper" else None


def compute_kernel(model: Model, rows: Array, kernel: str, progress: bool = False) -> Array:
    """The exact kernel of the rows."""
    return exact_kernel(model, rows, kernel=kernel, progress=progress)


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
