"""A design: the network, what it was to match, what it matches, the words for it, and its text."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np

from notsodeep.designs import stored_values
from notsodeep.designs.learning_rates import tangent_coefficients
from notsodeep.designs.matching_equations import EQUATIONS, EXACT, relative_residuals
from notsodeep.equivalents.coefficients import Coefficients, coefficients
from notsodeep.errors import InputError
from notsodeep.gaussian.activations import Activation
from notsodeep.models import DEQ, Explicit, Model, as_tau
from notsodeep.validation import Array, one_of

KERNELS = ("ck", "ntk", "ntk_paper", "both")
FORMAT, VERSION = "notsodeep.designs", 1
_KERNEL_WORDS = dict(
    zip(KERNELS, ("conjugate kernel", "tangent kernel", "papers' tangent kernel", "two kernels"), strict=True)
)
_EQUATION_WORDS = {
    "diagonal": "the diagonal",
    "linear": "the coefficient of XXᵀ",
    "norm": "the coefficient of the norms",
    "trace": "the coefficient of T",
}
_SYMBOLS = {
    "ck": ("γ²", "α₁", "α₂", "α₃"),
    "ntk": ("κ²", "θ₁", "θ₂", "θ₃"),
    "ntk_paper": ("κ²", "β₁", "β₂", "β₃"),
}
# Numbers survive the text to the last bit; the moments may differ by rounding between machines.
_SAME = 1e-9


@dataclass(frozen=True)
class Attempt:
    """A family that was tried: the largest relative residual it reached, and why no less."""

    family: str
    residual: float
    reason: str


@dataclass(frozen=True)
class Polish:
    """What polishing on data did: relative Frobenius distances of the exact kernels.

    Attributes:
        samples: rows that the parameters were polished on, and as many others that they were tried on.
        before, after: distance on the rows that were polished on.
        held_out_before, held_out_after: distance on the others.
    """

    samples: int
    before: float
    after: float
    held_out_before: float
    held_out_after: float

    def __str__(self) -> str:
        return (
            f"polished on {self.samples} rows: distance of the exact kernels {self.before:.3g} → {self.after:.3g}, "
            f"on other rows {self.held_out_before:.3g} → {self.held_out_after:.3g}"
        )


@dataclass(frozen=True)
class Tangent:
    """The tangent kernel of a design for both kernels: learning-rate multipliers, target and what they reach."""

    multipliers: tuple[float, ...]
    target: Coefficients
    reached: Coefficients

    @property
    def residuals(self) -> dict[str, float]:
        """Relative residual of each tangent equation."""
        return relative_residuals(self.target, self.reached)

    @property
    def residual(self) -> float:
        """The largest relative residual of the tangent equations."""
        return max(self.residuals.values())


@dataclass(frozen=True)
class Curve:
    """An activation over the range where its pre-activations live: standard deviation `scale`."""

    label: str
    scale: float
    x: Array
    y: Array


@dataclass(frozen=True)
class Design:
    """An explicit network with the kernel scalars of a model, docs/theory.md section 7.

    Attributes:
        network: the explicit network, each layer centred at its own scale.
        model: what it stands for (centred); None after loading one with a custom activation.
        tau0: the norm of a typical input.
        kernel: "ck", "ntk", "ntk_paper" or "both".
        family: the family in words, such as "2 × leaky_relu".
        target, reached: the scalars wanted and found; of the conjugate kernel for "both".
        tried: families that were tried before, with their residuals.
        drift: how differently the two kernels follow a norm that changes by a quarter, relative to the diagonal.
        tangent: for "both", the multipliers and the tangent kernel's scalars.
        polish: for a design polished on data, by how much it helped.
        reason: why the family cannot do better, for a design that is not exact.
    """

    network: Explicit
    model: Model | None
    tau0: float
    kernel: str
    family: str
    target: Coefficients
    reached: Coefficients
    tried: tuple[Attempt, ...] = ()
    drift: float = 0.0
    tangent: Tangent | None = None
    polish: Polish | None = None
    reason: str = ""

    @property
    def residuals(self) -> dict[str, float]:
        """Relative residual of each equation: diagonal, linear, norm, trace."""
        return relative_residuals(self.target, self.reached)

    @property
    def residual(self) -> float:
        """The largest relative residual; for "both" that of the tangent kernel counts as well."""
        largest = max(self.residuals.values())
        return largest if self.tangent is None else max(largest, self.tangent.residual)

    @property
    def exact(self) -> bool:
        """Whether every equation holds to 1e-9."""
        return self.residual <= EXACT

    @property
    def multipliers(self) -> tuple[float, ...] | None:
        """Learning-rate multipliers of the layers' weights and of the readout, for kernel="both"."""
        return None if self.tangent is None else self.tangent.multipliers

    def explain(self) -> str:
        """The verdict in words: exact or not, which equation is off, why, and what to try."""
        parts = [_headline(self)]
        if not self.exact:
            parts += [_equations_off(self), f"Why: {self.reason}." if self.reason else "", _remedy(self)]
        if self.tried:
            tried = (f"{entry.family} (off by {entry.residual:.1e}: {entry.reason})" for entry in self.tried)
            parts.append("Tried before: " + "; ".join(tried) + ".")
        if self.tangent is not None:
            parts.append(_tangent_words(self.tangent))
        if self.polish is not None:
            parts.append(f"It was then {self.polish}; the scalars are off by what the table shows.")
        return "\n".join(part for part in parts if part)

    def curves(self, points: int = 401, reach: float = 3.5) -> tuple[Curve, ...]:
        """The model's activations and the designed ones, over ±reach standard deviations of what enters them."""
        drawn = _layer_curves("layer", self.network, self.tau0, points, reach)
        if isinstance(self.model, DEQ):
            phi = self.model.activation
            return (_curve(f"DEQ: {phi}", phi, self.target.tau_star, points, reach), *drawn)
        if isinstance(self.model, Explicit):
            return (*_layer_curves("model, layer", self.model, self.tau0, points, reach), *drawn)
        return drawn

    def to_json(self) -> str:
        """JSON text with every number, from which `from_json` makes an equal design."""
        tangent = None
        if self.tangent is not None:
            target = stored_values.coefficients_to_dict(self.tangent.target)
            tangent = {"multipliers": list(self.tangent.multipliers), "target": target}
        content = {
            "format": FORMAT,
            "version": VERSION,
            "model": stored_values.model_to_dict(self.model),
            "tau0": self.tau0,
            "kernel": self.kernel,
            "family": self.family,
            "layers": [stored_values.activation_to_dict(layer) for layer in self.network.layers],
            "target": stored_values.coefficients_to_dict(self.target),
            "reached": stored_values.coefficients_to_dict(self.reached),
            "tried": [[entry.family, entry.residual, entry.reason] for entry in self.tried],
            "drift": self.drift,
            "tangent": tangent,
            "polish": None if self.polish is None else asdict(self.polish),
            "reason": self.reason,
        }
        return json.dumps(content, indent=2, ensure_ascii=False)

    @classmethod
    def from_json(cls, text: str) -> Design:
        """The design that `to_json` wrote down.

        Raises:
            InputError: if the text is not a design, lacks or adds an entry, or if its layers do not have the scalars
                that it claims.
        """
        data = stored_values.parse(text, "a design")
        if data.get("format") != FORMAT or data.get("version") != VERSION:
            raise InputError(
                f"The text is not a design of format {FORMAT!r}, version {VERSION}: it says "
                f"{data.get('format')!r}, version {data.get('version')!r}."
            )
        data = stored_values.mapping(dict(data), "a design", _KEYS)
        network = Explicit.from_dict({"kind": "explicit", "layers": data["layers"]})
        model = None if data["model"] is None else stored_values.model_from_dict(data["model"])
        tau0, kernel = (
            as_tau(stored_values.number(data["tau0"], "tau0")),
            one_of(data["kernel"], KERNELS, "kernel"),
        )
        matched = "ck" if kernel == "both" else kernel
        target = _stored_target(data["target"], model, tau0, matched)
        reached = stored_values.coefficients_from_dict(data["reached"])
        _agree(reached, coefficients(network, tau0, matched), "network")
        if (data["tangent"] is not None) != (kernel == "both"):
            raise InputError("A design for both kernels, and no other, has a tangent part.")
        if not isinstance(data["tried"], list):
            raise InputError(f"'tried' must be a list, not {data['tried']!r}.")
        return cls(
            network=network,
            model=model,
            tau0=tau0,
            kernel=kernel,
            family=str(data["family"]),
            target=target,
            reached=reached,
            tried=tuple(_stored_attempt(entry) for entry in data["tried"]),
            drift=stored_values.number(data["drift"], "drift"),
            tangent=_stored_tangent(data["tangent"], network, model, tau0),
            polish=_stored_polish(data["polish"]),
            reason=str(data["reason"]),
        )

    def save(self, path: str | Path) -> None:
        """Write `to_json()` to a file."""
        Path(path).write_text(self.to_json() + "\n", encoding="utf-8")

    @classmethod
    def load(cls, path: str | Path) -> Design:
        """Read a file written by `save`."""
        try:
            text = Path(path).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise InputError(f"{path} cannot be read as a design: {error}.") from None
        return cls.from_json(text)

    def __str__(self) -> str:
        verdict = "exact" if self.exact else f"not exact, {self.residual:.1e} off"
        what = f"{_KERNEL_WORDS[self.kernel]} of {self.model or 'a model'} at tau0 = {self.tau0:g}"
        head = f"{self.family} for the {what}: {verdict}"
        lines = [head, *(f"  layer {i}: {layer}" for i, layer in enumerate(self.network.layers, 1))]
        lines += _table(self.target, self.reached, self.residuals)
        if self.tangent is not None:
            rates = ", ".join(f"{rate:.6g}" for rate in self.tangent.multipliers)
            lines += [f"  learning-rate multipliers (layers, readout): {rates}"]
            lines += _table(self.tangent.target, self.tangent.reached, self.tangent.residuals)
        if self.polish is not None:
            lines.append(f"  {self.polish}")
        return "\n".join(lines)


def _table(target: Coefficients, reached: Coefficients, residuals: Mapping[str, float]) -> list[str]:
    rows = [f"  {'':14}{'wanted':>16}{'reached':>16}{'relative residual':>20}"]
    numbers = zip(target.as_array(), reached.as_array(), residuals.values(), strict=True)
    for name, symbol, (wanted, found, off) in zip(EQUATIONS, _SYMBOLS[target.kernel], numbers, strict=True):
        rows.append(f"  {symbol + ' ' + name:14}{wanted:16.9g}{found:16.9g}{off:20.1e}")
    return rows


def _curve(label: str, phi: Activation, scale: float, points: int, reach: float) -> Curve:
    x = np.linspace(-reach * scale, reach * scale, points)
    return Curve(label, scale, x, phi(x))


def _layer_curves(word: str, network: Explicit, tau0: float, points: int, reach: float) -> tuple[Curve, ...]:
    layers = zip(network.layers, np.sqrt(network.preactivation_variances(tau0)), strict=True)
    return tuple(
        _curve(f"{word} {position}: {layer}", layer, float(scale), points, reach)
        for position, (layer, scale) in enumerate(layers, 1)
    )


# --- words --------------------------------------------------------------------------------------------------------


def _headline(design: Design) -> str:
    of = f"the {_KERNEL_WORDS[design.kernel]} of {design.model or 'the model'}"
    what = f"The network {design.family} for {of}"
    if design.exact:
        return f"{what} is exact: every scalar agrees, the worst to {design.residual:.1e}."
    if design.tangent is not None and max(design.residuals.values()) <= EXACT:
        return f"{what} has the conjugate kernel exactly and the tangent kernel approximately."
    return f"{what} is the best approximation of this family, not exact."


def _equations_off(design: Design) -> str:
    off = {name: value for name, value in design.residuals.items() if value > EXACT}
    words = ", ".join(f"{_EQUATION_WORDS[name]} by {100 * value:.3g} %" for name, value in off.items())
    return f"Equations that are not met: {words}." if off else ""


def _remedy(design: Design) -> str:
    if design.tangent is not None or design.polish is not None:
        return ""
    if design.kernel == "ntk_paper":
        return (
            "What to do: match the true tangent kernel, kernel='ntk'; the papers' one is that of no network."
        )
    return "What to do: family='auto' takes the simplest family that matches; 'smooth' and 'cubic' reach furthest."


def _tangent_words(tangent: Tangent) -> str:
    if tangent.residual <= EXACT:
        return "With the multipliers the tangent kernel agrees as well."
    worst = max(tangent.residuals, key=tangent.residuals.__getitem__)
    return (
        f"With the multipliers the tangent kernel is off by {100 * tangent.residual:.3g} % in "
        f"{_EQUATION_WORDS[worst]}: the second-order equations ask for different sums of the same rates "
        "(docs/matching_both.md)."
    )


# --- reading what was stored --------------------------------------------------------------------------------------

# The layers stand for the network.
_KEYS = ("format", "version", "layers", *(entry.name for entry in fields(Design) if entry.name != "network"))


def _agree(stored: Coefficients, computed: Coefficients, what: str) -> None:
    scale = np.maximum(np.abs(computed.as_array()), 1e-12 * computed.diagonal)
    if np.any(np.abs(stored.as_array() - computed.as_array()) > _SAME * scale):
        raise InputError(
            f"The stored {what} does not have the stored scalars: the text was changed or belongs to another design."
        )


def _stored_target(data: Any, model: Model | None, tau0: float, kernel: str) -> Coefficients:
    target = stored_values.coefficients_from_dict(data)
    if target.kernel != kernel or target.tau0 != tau0:
        raise InputError("The stored target belongs to another kernel or another tau0 than the design.")
    if model is not None:
        _agree(target, coefficients(model, tau0, kernel), "model")
    return target


def _stored_attempt(entry: Any) -> Attempt:
    if not isinstance(entry, list) or len(entry) != 3:
        raise InputError(f"An entry of 'tried' is [family, residual, reason], not {entry!r}.")
    return Attempt(str(entry[0]), stored_values.number(entry[1], "residual"), str(entry[2]))


def _stored_tangent(data: Any, network: Explicit, model: Model | None, tau0: float) -> Tangent | None:
    if data is None:
        return None
    entry = stored_values.mapping(data, "the tangent part", ("multipliers", "target"))
    if not isinstance(entry["multipliers"], list):
        raise InputError(f"Multipliers must be a list, not {entry['multipliers']!r}.")
    rates = tuple(stored_values.number(rate, "a multiplier") for rate in entry["multipliers"])
    target = _stored_target(entry["target"], model, tau0, "ntk")
    return Tangent(rates, target, tangent_coefficients(network, tau0, rates))


def _stored_polish(data: Any) -> Polish | None:
    if data is None:
        return None
    names = [entry.name for entry in fields(Polish)]
    stored = stored_values.mapping(data, "the polish", tuple(names))
    samples, *distances = (stored_values.number(stored[name], name) for name in names)
    return Polish(int(samples), *distances)
