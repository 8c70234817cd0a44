"""The model, the data and the comparisons of the command line."""

from __future__ import annotations

import zipfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from notsodeep.data import (
    SCALES,
    GaussianMixture,
    MixtureStatistics,
    Samples,
    UnitSphere,
    as_images,
    load,
    open_table,
    parse_spec,
)
from notsodeep.data.datasets import IMAGES, NAMES
from notsodeep.data.table_files import cut_notes, is_table, open_labels, split_member
from notsodeep.errors import InputError
from notsodeep.gaussian.activations import Activation, activation
from notsodeep.models import DEQ
from notsodeep.scale.sample_sources import open_rows
from notsodeep.validation import one_of

DRAWN = ("mixture", "sphere")
SMALLEST = 20
_DRAWN_SAMPLES = 1000
# Eigenvalues and distances of kernels with more rows take minutes and gigabytes.
_LARGEST_DENSE = 10_000


def read_activation(text: str) -> Activation:
    """Parse an activation: tanh, leaky_relu:a=1,b=0.1, polynomial:coefficients=0;1, or a formula in x.

    A text without a colon that is not a single word, such as x*sigmoid(x), is a formula; so is formula:x*sigmoid(x).
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
                f"--activation {text}: {part!r} is not a parameter. Write leaky_relu:a=1,b=0.1, lists as in "
                "polynomial:coefficients=0;1;0.5, formulas as in 'x*sigmoid(x)'."
            )
        parameters[key.strip()] = numbers if ";" in value else numbers[0]
    return activation(name, **parameters)


def read_model(text: str, sigma_a2: float) -> DEQ:
    """Construct the DEQ with an activation as it is typed."""
    if sigma_a2 > 1.0:
        raise InputError(f"--sigma-a2 {sigma_a2:g} is too large: σ_a² + σ_b² = 1. Use a number from 0 to 1.")
    return DEQ(read_activation(text), sigma_a2)


def is_data(source: str) -> bool:
    """Tell whether a text names samples: a law, a data set or a table; an NPZ file with an array W holds weights."""
    path, member = split_member(source)
    if path.suffix.lower() == ".npz" and member is None and zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as archive:
            return "W.npy" not in archive.namelist()
    return source.partition(":")[0] in (*DRAWN, *NAMES) or is_table(source) or path.suffix == ".zarr"


@dataclass(frozen=True)
class Data:
    """The source of the samples: the data options of every command.

    Attributes:
        source: "mixture" (Gaussian classes as in the papers), "sphere" (unit vectors), a data set ("digits",
            "mnist:6,8"), or a file with samples in rows (.csv, .npy, .npz, .zarr).
        n: number of samples, the first ones of a file; all (1000 drawn samples) if None.
        p: dimension of mixture and sphere.
        classes: number of classes of the mixture.
        mean: norm of the class means of the mixture.
        gap: covariance gap of the mixture: class a has C = (1 + gap · a/√p) I.
        seed: random seed; ignored for files.
        label_column: the column of a file that holds labels, see `data.open_table`.
        labels: a file with one label for each row.
        scale: scaling of files and data sets, see `Preprocessing.fit`.
    """

    source: str = "mixture"
    n: int | None = None
    p: int = 800
    classes: int = 2
    mean: float = 8.0
    gap: float = 8.0
    seed: int = 0
    label_column: str | None = None
    labels: Path | None = None
    scale: str = "auto"

    @property
    def is_drawn(self) -> bool:
        """Whether samples are drawn from a known law."""
        return self.source in DRAWN

    @property
    def is_file(self) -> bool:
        """Whether samples are read from a file of the user."""
        return is_table(self.source) or Path(self.source).suffix == ".zarr"

    def for_weights(self) -> Self:
        """Return the data for a trained network: "auto" leaves the rows as they were during training."""
        return replace(self, scale="none") if self.scale == "auto" else self

    def samples(self, largest: int | None = None) -> Samples:
        """Draw or read the samples, and scale them.

        Args:
            largest: number of samples beyond which an error asks for a smaller --n.
        """
        one_of(self.scale, SCALES, "scale")
        if not self.is_drawn:
            table = self._read()
            _refuse_many(len(table.X), largest, self.source)
            return table.scaled(self.scale)
        if self.scale not in ("auto", "none"):
            raise InputError(f"Samples of {self.source} are scaled already: leave --scale {self.scale} out.")
        n = self.n or _DRAWN_SAMPLES
        _refuse_many(n, largest, self.source)
        if self.source == "sphere":
            sphere = UnitSphere(self.p)
            return Samples(sphere.sample(n, self.seed), np.zeros(n, dtype=np.intp), law=sphere)
        mixture = GaussianMixture.paper(self.p, classes=self.classes, mean=self.mean, gap=self.gap)
        rows, labels = mixture.sample(n, self.seed)
        return Samples(rows, labels, law=mixture, tau0=MixtureStatistics.of(mixture, rows, labels).tau0)

    def dense_samples(self) -> Samples:
        """Draw or read the samples for computations that grow with n³; more than 10 000 are refused."""
        return self.samples(_LARGEST_DENSE)

    def images(self) -> Samples:
        """Read images (n, channels, height, width), scaled so that |x(s)|² = 1 on average over positions."""
        return self._read_images().scaled(self.scale)

    def required_labels(self, samples: Samples) -> NDArray[Any]:
        """Return the labels of the samples, or say how to name them."""
        if samples.y is None:
            raise InputError(
                f"{self.source} has no labels. Name their column (--label-column), or a file with one label per row "
                "(--labels y.npy)."
            )
        return np.asarray(samples.y)

    def _read(self) -> Samples:
        """Read rows and labels of the file or the data set."""
        if not self.is_file:
            return self._named()
        if Path(self.source).suffix == ".zarr":
            return self._with_labels(self._stored())
        return self._with_labels(open_table(self.source, self.n, self.label_column))

    def _named(self) -> Samples:
        """Load rows and labels of a data set by name."""
        name, classes = parse_spec(self.source)
        return load(name, classes=classes, n=self.n, seed=self.seed)

    def _read_images(self) -> Samples:
        """Read images (n, channels, height, width) of a data set, or of a .npy or .zarr file, with their labels."""
        if not self.is_drawn and not self.is_file:
            table = self._named()
            return replace(table, X=as_images(parse_spec(self.source)[0], table.X))
        if Path(self.source).suffix not in (".npy", ".zarr"):
            raise InputError(
                f"{self.source} has no images. Give a data set ({', '.join(IMAGES)}), or a .npy or .zarr file of "
                "shape (n, channels, height, width)."
            )
        table = self._with_labels(self._stored())
        if table.X.ndim not in (3, 4):
            raise InputError(
                f"{self.source} has shape {table.X.shape}; images are (n, channels, height, width), sequences "
                "(n, channels, length)."
            )
        return table

    def _stored(self) -> Samples:
        """Read the first samples of a .npy or .zarr file."""
        stored = open_rows(self.source)
        total = stored.shape[0]
        return Samples(stored.read(slice(0, self.n)), None, cut_notes(self.n, total), total)

    def _with_labels(self, table: Samples) -> Samples:
        """Add the labels of --labels, if there are any."""
        if self.labels is None:
            return table
        if self.label_column is not None:
            raise InputError(
                "Give the labels as a column (--label-column) or as a file (--labels), not both."
            )
        labels, notes = open_labels(self.labels, table.total, self.n)
        return replace(table, y=labels, notes=(*table.notes, *notes))


def _refuse_many(n: int, largest: int | None, source: str) -> None:
    if largest is not None and n > largest:
        raise InputError(f"{source} has {n} samples; at most {largest} are possible here. Add --n 1000.")


# --- next step ----------------------------------------------------------------------------------------


def command_after_verdict(
    answer: str, labels: Any, *, images: bool = False, trained: bool = False, solved: bool = True
) -> str:
    """The name of the command that goes on from a verdict.

    Args:
        answer: "replace", "keep" or "unsure".
        labels: labels of the samples; None if there are none.
        images: the model is convolutional.
        trained: a trained network was judged.
        solved: the model has an equilibrium on the samples.
    """
    if trained:
        return "distill"
    if not solved:
        return "verdict"  # with weaker feedback
    if answer == "replace" and not images:
        return "design"
    if labels is None:
        return "verdict"  # with labels
    return "kernel" if images else "predict"
