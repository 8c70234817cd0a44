"""What the reader of the page has chosen, checked once and frozen: everything shown follows from it."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from functools import lru_cache

from notsodeep.cli import scenario
from notsodeep.cli.scenario import SMALLEST
from notsodeep.data import Table, load
from notsodeep.designs import FAMILIES, KERNELS
from notsodeep.errors import InputError
from notsodeep.gaussian.activations import Activation, activation, default_parameters
from notsodeep.models import DEQ, ConvDEQ
from notsodeep.validation import one_of
from notsodeep_lab.explorer.uploads import Upload

FORMULA = "formula"
# Those of the papers first. Activations whose parameters are lists are better typed as a formula.
ACTIVATIONS = (
    "relu", "tanh", "swish", "leaky_relu", "abs", "arctan", "cos", "elu", "erf", "gelu", "hard_sigmoid", "hard_tanh",
    "identity", "mish", "sigmoid", "sin", "softplus", "softsign",
)  # fmt: skip
PARAMETERS: dict[str, dict[str, float]] = {
    name: parameters for name in ACTIVATIONS if (parameters := default_parameters(name))
}
DATA = ("mixture", "sphere", "digits", "file")
FAMILY_NAMES = ("auto", *FAMILIES)
LARGEST_N, LARGEST_P = 2000, 2000
LARGEST_MEAN = LARGEST_GAP = 20.0
LONGEST_FORMULA = 200
# What is trained follows the kernel that is matched: the readout has the conjugate kernel, all weights the tangent one.
MODES = {"ck": "readout", "both": "readout", "ntk": "all", "ntk_paper": "all"}
# The kernel by which the verdict is made: that of what is trained.
VERDICT_KERNELS = {"ck": "ck", "both": "ck", "ntk": "ntk", "ntk_paper": "ntk"}
IMAGE_KERNELS = ("ck", "ntk")
WIDTHS = (64, 128, 256, 512, 1024)


@dataclass(frozen=True)
class Data(scenario.Data):
    """Where the samples come from, within the limits of a page.

    Attributes:
        source: "mixture" (the papers' two Gaussian classes), "sphere", "digits" or "file".
        upload: a file's rows.
    """

    n: int = 1000
    upload: Upload | None = None

    def __post_init__(self) -> None:
        one_of(self.source, DATA, "data")
        _whole(self.n, "n", SMALLEST, LARGEST_N, "The page should answer while a slider moves")
        _whole(self.p, "p", SMALLEST, LARGEST_P, "The page should answer while a slider moves")
        _whole(self.seed, "seed", 0, 2**31 - 1, "A seed is a whole number")
        _between(self.mean, "mean", 0.0, LARGEST_MEAN)
        _between(self.gap, "gap", 0.0, LARGEST_GAP)
        if self.source == "file" and self.upload is None:
            raise InputError("There is no file yet. Upload a CSV or NPY file, or choose other data.")

    @property
    def is_file(self) -> bool:
        """Whether samples come from a file of the user's."""
        return self.source == "file"

    def _read(self) -> Table:
        """The first rows of the file, or digits; all of them if there are fewer than n."""
        if self.upload is not None:
            table = self.upload.table
            labels = None if table.labels is None else table.labels[: self.n]
            return replace(table, rows=table.rows[: self.n], labels=labels)
        return replace(self, n=min(self.n, _digits()))._named()


@lru_cache(maxsize=1)
def _digits() -> int:
    return len(load("digits").y)


@dataclass(frozen=True)
class Choice:
    """The settings of all controls of the page.

    Attributes:
        activation: a name of `notsodeep.activation`, or "formula".
        expression: the formula in x; only for activation "formula".
        parameters: of the activation, such as (("a", 1.0), ("b", 0.1)).
        sigma_a2: variance of the recurrent weights; that of the input weights is 1 - sigma_a2.
        kernel: what the design matches: "ck", "ntk", "ntk_paper" or "both".
        family: the designed layers: "auto" or a family by name.
        width: units of the networks that are judged, timed and trained.
        images: whether the network is convolutional, and the samples are images.
        data: where the samples come from.
    """

    activation: str = "relu"
    expression: str = ""
    parameters: tuple[tuple[str, float], ...] = ()
    sigma_a2: float = 0.2
    kernel: str = "ck"
    family: str = "auto"
    width: int = 256
    images: bool = False
    data: Data = field(default_factory=Data)

    def __post_init__(self) -> None:
        one_of(self.kernel, IMAGE_KERNELS if self.images else KERNELS, "kernel")
        one_of(self.family, FAMILY_NAMES, "family")
        if self.images and self.activation == FORMULA:
            raise InputError(
                "A typed formula takes too long for images on a page. Choose an activation by name, or use nsd.verdict "
                "with a ConvDEQ."
            )
        if self.width not in WIDTHS:
            raise InputError(f"width came as {self.width!r}; take one of {', '.join(map(str, WIDTHS))}.")
        _between(self.sigma_a2, "sigma_a2", 0.0, 1.0)
        if self.activation == FORMULA:
            _refuse_no_formula(self.expression)
        else:
            one_of(self.activation, ACTIVATIONS, "activation")
        known = PARAMETERS.get(self.activation, {})
        for name, value in self.parameters:
            if name not in known:
                raise InputError(f"{self.activation} has no parameter {name!r}. It has: {_listed(known)}.")
            _finite(value, name)

    @property
    def phi(self) -> Activation:
        """The activation of the DEQ."""
        if self.activation == FORMULA:
            return activation(FORMULA, expression=self.expression)
        return activation(self.activation, **dict(self.parameters))

    @property
    def model(self) -> DEQ:
        """The DEQ of rows, not yet centred."""
        return DEQ(self.phi, self.sigma_a2)

    @property
    def image_model(self) -> ConvDEQ:
        """The convolutional DEQ, whose readout sees every position."""
        return ConvDEQ(self.phi, self.sigma_a2, readout="flatten")

    @property
    def units(self) -> int:
        """Units of a hidden layer; of a convolutional one channels, a sixteenth as many."""
        return self.width // 16 if self.images else self.width

    @property
    def activation_text(self) -> str:
        """The activation as the command line takes it: tanh, leaky_relu:a=1,b=0.1, formula:x*sigmoid(x)."""
        if self.activation == FORMULA:
            return f"{FORMULA}:{self.expression}"
        inner = ",".join(f"{name}={value!r}" for name, value in self.parameters)
        return f"{self.activation}:{inner}" if inner else self.activation

    @property
    def shown_kernel(self) -> str:
        """The kernel whose spectrum and errors are shown: the conjugate kernel where both are matched."""
        return "ck" if self.kernel == "both" else self.kernel


def _refuse_no_formula(expression: str) -> None:
    if not expression.strip():
        raise InputError("The formula is empty. Type one in x, for example x * sigmoid(x).")
    if len(expression) > LONGEST_FORMULA:
        raise InputError(
            f"The formula has {len(expression)} characters; the page takes {LONGEST_FORMULA}. Shorten it."
        )


def _listed(known: dict[str, float]) -> str:
    return ", ".join(known) or "none"


def _whole(value: int, name: str, low: int, high: int, reason: str) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise InputError(f"{name} came as {value!r}. {reason}: take a whole number between {low} and {high}.")


def _finite(value: float, name: str) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise InputError(f"{name} came as {value!r}; it must be a finite number.")


def _between(value: float, name: str, low: float, high: float) -> None:
    _finite(value, name)
    if not low <= value <= high:
        raise InputError(f"{name} came as {value!r}; take a number between {low:g} and {high:g}.")
