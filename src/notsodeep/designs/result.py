"""A design: the network, what it was to match, what it matches, the words for it, and its text."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np

from notsodeep.designs import stored_values
from notsodeep.designs.evidence import HeldOut, evidence_to_dict, stored_held_out
from notsodeep.designs.matching_equations import EQUATIONS, EXACT, design_scalars, relative_residuals
from notsodeep.display import Shown
from notsodeep.equivalents.coefficients import Coefficients
from notsodeep.errors import InputError
from notsodeep.gaussian.activations import Activation
from notsodeep.models import DEQ, ConvDEQ, ConvExplicit, Explicit, Model, as_tau
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
class Curve:
    """An activation over the range where its pre-activations live: standard deviation `scale`."""

    label: str
    scale: float
    x: Array
    y: Array


@dataclass(frozen=True, repr=False)
class Design(Shown):
    """An explicit network with the kernel scalars of a model, or with its kernels: docs/theory.md section 7.

    Attributes:
        network: the explicit network, a `ConvExplicit` for a `ConvDEQ`; if the model is centred, each layer is, at its
            own scale.
        model: what it stands for; None after loading one with a custom activation.
        tau0: the norm of a typical input; of images, at a typical position.
        kernel: "ck", "ntk", "ntk_paper" or "both".
        family: the family in words, such as "2 × leaky_relu".
        target, reached: the scalars wanted and found; of the conjugate kernel for "both". None where the model is not
            centred: it has no such scalars, and an injected network does without them.
        tried: families that were tried before, with their residuals.
        drift: how differently the two kernels follow a norm that changes by a quarter, relative to the diagonal.
        misfit: for an injected network, the distance of its kernels from the model's at norms and angles around tau0.
            For images: at those it was fitted to, or at images of one colour around tau0 if there were none.
        held_out: for an injected network fitted to samples, distances on other samples.
        fitted_to: for an injected network that was fitted to samples and not judged on others, how many.
        bias2: variance of the bias of the model. With one, `target` and `reached` are the scalars of the kernels after
            centring their rows and columns; what centring removes, a readout with an intercept does not see.
        reason: why the family cannot do better, for a design that is not exact.
    """

    # Explicit, or ConvExplicit: which of them follows from the model, and callers know theirs.
    network: Explicit | Any
    model: Model | None
    tau0: float
    kernel: str
    family: str
    target: Coefficients | None
    reached: Coefficients | None
    tried: tuple[Attempt, ...] = ()
    drift: float = 0.0
    reason: str = ""
    misfit: float | None = None
    held_out: HeldOut | None = None
    fitted_to: int = 0
    bias2: float = 0.0

    @property
    def residuals(self) -> dict[str, float]:
        """Relative residual of each equation: diagonal, linear, norm, trace; none for a model that is not centred."""
        if self.target is None or self.reached is None:
            return {}
        return relative_residuals(self.target, self.reached)

    @property
    def residual(self) -> float:
        """The largest relative residual; for an injected network, matched to whole kernels, their distance `misfit`."""
        return max(self.residuals.values()) if self.misfit is None else self.misfit

    @property
    def exact(self) -> bool:
        """Whether the four numbers that decide the kernel in high dimension agree to 1e-9; on data it still differs."""
        return self.residual <= EXACT

    def explain(self) -> str:
        """The verdict in words: whether the four numbers agree, which equation is off, why, and what to try."""
        parts = [_headline(self)]
        if not self.exact and self.misfit is None:
            parts += [_equations_off(self), f"Why: {self.reason}." if self.reason else "", _remedy(self)]
        if self.tried:
            tried = (f"{entry.family} (off by {entry.residual:.1e}: {entry.reason})" for entry in self.tried)
            parts.append("Tried before: " + "; ".join(tried) + ".")
        if self.held_out is not None:
            parts.append(f"It was fitted to {self.held_out.samples} samples; {self.held_out}.")
        elif self.fitted_to:
            parts.append(f"It was fitted to {self.fitted_to} samples.")
        elif isinstance(self.network, ConvExplicit):
            parts.append(
                "It was not judged on images: with X=images it is fitted to some and judged on others."
            )
        return "\n".join(part for part in parts if part)

    def layer_words(self) -> list[str]:
        """The layers in words; with the variances of their weights where these are not 1 and 0."""
        lines = []
        for layer in self.network.inputs:
            weights = "" if self.network.is_plain else f", weights of variance {layer.weight:.6g}"
            again = f", input again with {layer.inject:.6g}" if layer.inject else ""
            lines.append(f"{layer.phi}{weights}{again}")
        return lines

    def scalar_columns(self) -> tuple[list[float], list[float]]:
        """The scalars wanted and reached, in the order of `residuals`; none for a model that is not centred."""
        if self.target is None or self.reached is None:
            return [], []
        return self.target.as_array().tolist(), self.reached.as_array().tolist()

    def curves(self, points: int = 401, reach: float = 3.5) -> tuple[Curve, ...]:
        """The model's activations and the designed ones, over ±reach standard deviations of what enters them."""
        drawn = _layer_curves("layer", self.network, self.tau0, points, reach)
        if isinstance(self.model, DEQ | ConvDEQ):
            phi = self.model.activation
            scale = float(np.sqrt(self.model.preactivation_variance(self.tau0)))
            return (_curve(f"DEQ: {phi}", phi, scale, points, reach), *drawn)
        if isinstance(self.model, Explicit):
            return (*_layer_curves("model, layer", self.model, self.tau0, points, reach), *drawn)
        return drawn

    def to_json(self) -> str:
        """JSON text with every number, from which `from_json` makes an equal design."""
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
            "reason": self.reason,
            "bias2": self.bias2,
        }
        if self.misfit is not None:
            variances = {"weights": list(self.network.weights), "inject": list(self.network.inject)}
            content |= {**variances, "misfit": self.misfit, "held_out": evidence_to_dict(self.held_out)}
        if self.fitted_to:
            content["fitted_to"] = self.fitted_to
        if isinstance(self.network, ConvExplicit):
            content["images"] = {name: getattr(self.network, name) for name in _IMAGES}
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
        injected = "misfit" in data
        optional = [name for name in ("images", "fitted_to") if name in data]
        keys = (*_KEYS, *(_INJECTED if injected else ()), *optional)
        data = stored_values.mapping(dict(data), "a design", keys)
        network = _stored_network(data)
        model = None if data["model"] is None else stored_values.model_from_dict(data["model"])
        tau0, kernel = (
            as_tau(stored_values.number(data["tau0"], "tau0")),
            one_of(data["kernel"], KERNELS, "kernel"),
        )
        matched = "ck" if kernel == "both" else kernel
        bias2 = stored_values.number(data["bias2"], "bias2")
        if model is not None and getattr(model, "bias2", 0.0) != bias2:
            raise InputError("The stored bias2 is not that of the stored model.")
        target = _stored_target(data["target"], model, tau0, matched, bias2 > 0.0)
        reached = stored_values.coefficients_from_dict(data["reached"])
        if reached is not None:
            _agree(reached, design_scalars(network, tau0, matched, has_bias=bias2 > 0.0), "network")
        if (target is None or reached is None) and not injected:
            raise InputError("A design that was matched to scalars has a target and what it reached.")
        if kernel == "both" and not injected:
            raise InputError("A design for both kernels is an injected network.")
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
            reason=str(data["reason"]),
            bias2=bias2,
            misfit=stored_values.number(data["misfit"], "misfit") if injected else None,
            held_out=stored_held_out(data["held_out"]) if injected else None,
            fitted_to=int(stored_values.number(data["fitted_to"], "fitted_to")) if "fitted_to" in data else 0,
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
        verdict = "the four numbers agree" if self.exact else f"off by {self.residual:.1e}"
        if self.misfit is not None:
            verdict = f"kernels within {self.misfit:.1e} {_where(self)[0]}"
        what = f"{_KERNEL_WORDS[self.kernel]} of {self.model or 'a model'} at tau0 = {self.tau0:g}"
        head = f"{self.family} for the {what}: {verdict}"
        lines = [head, *(f"  layer {number}: {words}" for number, words in enumerate(self.layer_words(), 1))]
        if self.target is not None and self.reached is not None:
            lines += _table(self.target, self.reached, self.residuals)
        return "\n".join(lines if self.held_out is None else [*lines, f"  {self.held_out}"])

    def _facts(self) -> dict[str, Any]:
        return {
            "family": self.family,
            "kernel": self.kernel,
            "exact": self.exact,
            "residual": self.residual,
            "tau0": self.tau0,
            "network": self.network,
            "model": self.model or "a custom activation",
            "drift": self.drift,
        }


def _table(target: Coefficients, reached: Coefficients, residuals: Mapping[str, float]) -> list[str]:
    rows = [f"  {'':14}{'wanted':>16}{'reached':>16}{'relative residual':>20}"]
    numbers = zip(target.as_array(), reached.as_array(), residuals.values(), strict=True)
    for name, symbol, (wanted, found, off) in zip(EQUATIONS, _SYMBOLS[target.kernel], numbers, strict=True):
        rows.append(f"  {symbol + ' ' + name:14}{wanted:16.9g}{found:16.9g}{off:20.1e}")
    return rows


def _curve(label: str, phi: Activation, scale: float, points: int, reach: float) -> Curve:
    x = np.linspace(-reach * scale, reach * scale, points)
    return Curve(label, scale, x, phi(x))


def _layer_curves(
    word: str, network: Explicit | ConvExplicit, tau0: float, points: int, reach: float
) -> tuple[Curve, ...]:
    layers = zip(network.layers, np.sqrt(network.preactivation_variances(tau0)), strict=True)
    return tuple(
        _curve(f"{word} {position}: {layer}", layer, float(scale), points, reach)
        for position, (layer, scale) in enumerate(layers, 1)
    )


# What an injected network is, for a reader who has heard of neither word.
INJECTED_IN_WORDS = (
    "An injected network is a few ordinary layers with the DEQ's own activation, in which every layer looks at the "
    "input again; only the sizes of its random weights are designed, so that it has the DEQ's kernel."
)


# --- words --------------------------------------------------------------------------------------------------------


def _where(design: Design) -> tuple[str, str]:
    """Where the kernels of an injected network were compared, in few words and in more."""
    if not isinstance(design.network, ConvExplicit):
        return "around tau0", "norms and angles around tau0"
    if design.held_out is None and not design.fitted_to:
        return "on images of one colour", "images of one colour, norms and angles around tau0"
    return "on images", "pairs of the images that it was fitted to"


def _linear_part(design: Design) -> str:
    """Words for a first layer that has more than the activation of the DEQ, (10.13)."""
    model, first = design.model, design.network.layers[0]
    own = isinstance(model, DEQ | ConvDEQ) and first.shape == model.activation.shape
    return "" if own else " (with a linear part in the first layer)"


def _headline(design: Design) -> str:
    of = f"the {_KERNEL_WORDS[design.kernel]} of {design.model or 'the model'}"
    what = f"The network {design.family} for {of}"
    if design.misfit is not None:
        return (
            f"{what} keeps the activation of the DEQ{_linear_part(design)} and sees the input again in every layer. "
            f"Its kernels are within {design.misfit:.1e} of the DEQ's (root mean square over {_where(design)[1]})."
        )
    if design.exact:
        return (
            f"{what}: the four numbers agree{_after_centring(design)}, the worst to {design.residual:.1e}. "
            "How far the kernels differ on data: notsodeep.twin_distances(design, X). With rows (X=rows, or --data in "
            "the shell) an injected network is weighed against it."
        )
    return f"{what} is the best approximation of this family: the four numbers do not all agree."


def _after_centring(design: Design) -> str:
    return " after centring the kernels" if design.bias2 else ""


def _equations_off(design: Design) -> str:
    off = {name: value for name, value in design.residuals.items() if value > EXACT}
    words = ", ".join(f"{_EQUATION_WORDS[name]} by {100 * value:.3g} %" for name, value in off.items())
    return f"Equations that are not met: {words}." if off else ""


def _remedy(design: Design) -> str:
    if design.kernel == "ntk_paper":
        return (
            "What to do: match the true tangent kernel, kernel='ntk' (--kernel ntk); the papers' one is that of no "
            "network."
        )
    return (
        "What to do: family='auto' (--family auto) takes the simplest family that matches; 'polynomial' reaches "
        "furthest."
    )


# --- reading what was stored --------------------------------------------------------------------------------------

# The layers stand for the network, with what a convolutional one has beside them.
_INJECTED = ("weights", "inject", "misfit", "held_out")
_IMAGES = ("bias2", "filter_size", "padding", "readout")
_KEYS = (
    *("format", "version", "layers"),
    *(entry.name for entry in fields(Design) if entry.name not in ("network", "fitted_to", *_INJECTED)),
)


def _stored_network(data: Mapping[str, Any]) -> Any:
    variances = {name: data[name] for name in ("weights", "inject") if name in data}
    if "images" not in data:
        if variances and data["bias2"]:
            variances["bias2"] = data["bias2"]
        return Explicit.from_dict({"kind": "explicit", "layers": data["layers"], **variances})
    images = stored_values.mapping(data["images"], "the images of a design", _IMAGES)
    return ConvExplicit.from_dict({"kind": "conv_explicit", "layers": data["layers"], **variances, **images})


def _agree(stored: Coefficients, computed: Coefficients, what: str) -> None:
    scale = np.maximum(np.abs(computed.as_array()), 1e-12 * computed.diagonal)
    if np.any(np.abs(stored.as_array() - computed.as_array()) > _SAME * scale):
        raise InputError(
            f"The stored {what} does not have the stored scalars: the text was changed or belongs to another design."
        )


def _stored_target(
    data: Any, model: Model | None, tau0: float, kernel: str, has_bias: bool
) -> Coefficients | None:
    target = stored_values.coefficients_from_dict(data)
    if target is None:
        return None
    if target.kernel != kernel or target.tau0 != tau0:
        raise InputError("The stored target belongs to another kernel or another tau0 than the design.")
    if model is not None:
        _agree(target, design_scalars(model, tau0, kernel, has_bias=has_bias), "model")
    return target


def _stored_attempt(entry: Any) -> Attempt:
    if not isinstance(entry, list) or len(entry) != 3:
        raise InputError(f"An entry of 'tried' is [family, residual, reason], not {entry!r}.")
    return Attempt(str(entry[0]), stored_values.number(entry[1], "residual"), str(entry[2]))
