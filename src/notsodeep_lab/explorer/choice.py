"""The settings of all controls of the page, validated and frozen: everything shown is computed from them."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from functools import lru_cache

from notsodeep.cli import scenario
from notsodeep.cli.scenario import SMALLEST
from notsodeep.data import TableData, load
from notsodeep.designs import FAMILIES, KERNELS
from notsodeep.errors import InputError
from notsodeep.gaussian.activations import Activation, activation, default_parameters
from notsodeep.models import DEQ, ConvDEQ
from notsodeep.validation import one_of
from notsodeep_lab.explorer.uploads import Upload

FORMULA = "formula"
# Those of the papers first. Activations with lists as parameters are omitted: type them as a formula.
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
# The conjugate kernel describes training of the readout, the tangent kernel training of all weights.
MODES = {"ck": "readout", "both": "readout", "ntk": "all", "ntk_paper": "all"}
# The kernel by which the verdict is made: that of what is trained.
VERDICT_KERNELS = {"ck": "ck", "both": "ck", "ntk": "ntk", "ntk_paper": "ntk"}
IMAGE_KERNELS = ("ck", "ntk")
WIDTHS = (64, 128, 256, 512, 1024)


@dataclass(frozen=True)
class PageData(scenario.Data):
    """The data source of the page, with limits that keep the page fast.

    Attributes:
        source: "mixture" (the papers' two Gaussian classes), "sphere", "digits" or "file".
        upload: the uploaded file, if `source` is "file".
    """

    n: int = 1000
    upload: Upload | None = None

    def __post_init__(self) -> None:
        one_of(self.source, DATA, "data")
        _whole(self.n, "n", SMALLEST, LARGEST_N, "The page has to respond quickly")
        _whole(self.p, "p", SMALLEST, LARGEST_P, "The page has to respond quickly")
        _whole(self.seed, "seed", 0, 2**31 - 1, "A seed is a whole number")
        _between(self.mean, "mean", 0.0, LARGEST_MEAN)
        _between(self.gap, "gap", 0.0, LARGEST_GAP)
        if self.source == "file" and self.upload is None:
            raise InputError("No file yet. Upload a CSV or NPY file, or choose another data source.")

    @property
    def is_file(self) -> bool:
        """Whether the samples come from an uploaded file."""
        return self.source == "file"

    def _read(self) -> TableData:
        """Read the first n rows of the file or of the digits, or all if there are fewer."""
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
        parameters: parameters of the activation, such as (("a", 1.0), ("b", 0.1)).
        sigma_a2: variance of the recurrent weights; that of the input weights is 1 - sigma_a2.
        kernel: the kernel that the design matches: "ck", "ntk", "ntk_paper" or "both".
        family: family of the designed layers, or "auto".
        width: number of hidden units of the networks that are compared, timed and trained.
        images: whether the network is convolutional and the samples are images.
        data: the data source.
    """

    activation: str = "relu"
    expression: str = ""
    parameters: tuple[tuple[str, float], ...] = ()
    sigma_a2: float = 0.2
    kernel: str = "ck"
    family: str = "auto"
    width: int = 256
    images: bool = False
    data: PageData = field(default_factory=PageData)

    def __post_init__(self) -> None:
        one_of(self.kernel, IMAGE_KERNELS if self.images else KERNELS, "kernel")
        one_of(self.family, FAMILY_NAMES, "family")
        if self.images and self.activation == FORMULA:
            raise InputError(
                "A typed formula is too slow for images. Choose an activation by name, or use nsd.verdict with a "
                "ConvDEQ."
            )
        if self.width not in WIDTHS:
            raise InputError(f"width must be one of {', '.join(map(str, WIDTHS))}; got {self.width!r}.")
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
        """The dense DEQ, not yet centred."""
        return DEQ(self.phi, self.sigma_a2)

    @property
    def image_model(self) -> ConvDEQ:
        """The convolutional DEQ, with a readout of all positions."""
        return ConvDEQ(self.phi, self.sigma_a2, readout="flatten")

    @property
    def units(self) -> int:
        """Units of a hidden layer; for convolutional networks channels, a sixteenth of `width`."""
        return self.width // 16 if self.images else self.width

    @property
    def activation_text(self) -> str:
        """The activation as a command-line argument: tanh, leaky_relu:a=1,b=0.1, formula:x*sigmoid(x)."""
        if self.activation == FORMULA:
            return f"{FORMULA}:{self.expression}"
        inner = ",".join(f"{name}={value!r}" for name, value in self.parameters)
        return f"{self.activation}:{inner}" if inner else self.activation

    @property
    def shown_kernel(self) -> str:
        """The kernel whose spectrum is shown: the conjugate kernel if both are matched."""
        return "ck" if self.kernel == "both" else self.kernel


def _refuse_no_formula(expression: str) -> None:
    if not expression.strip():
        raise InputError("The formula is empty. Type a formula in x, for example x * sigmoid(x).")
    if len(expression) > LONGEST_FORMULA:
        raise InputError(
            f"The formula has {len(expression)} characters; at most {LONGEST_FORMULA} are allowed. Shorten it."
        )


def _listed(known: dict[str, float]) -> str:
    return ", ".join(known) or "none"


def _whole(value: int, name: str, low: int, high: int, reason: str) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise InputError(f"{name} must be a whole number between {low} and {high}; got {value!r}. {reason}.")


def _finite(value: float, name: str) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise InputError(f"{name} must be a finite number; got {value!r}.")


def _between(value: float, name: str, low: float, high: float) -> None:
    _finite(value, name)
    if not low <= value <= high:
        raise InputError(f"{name} must be between {low:g} and {high:g}; got {value!r}.")
