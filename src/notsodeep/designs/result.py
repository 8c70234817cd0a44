"""A design: the network, the numbers that it was to match and that it matches, an explanation, and its JSON text."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from notsodeep.designs.matching_equations import EXACT, relative_residuals
from notsodeep.display import Shown
from notsodeep.equivalents.coefficients import SYMBOLS, Coefficients
from notsodeep.errors import InputError
from notsodeep.gaussian.activations import rebuilt
from notsodeep.gaussian.serial import mapping, number
from notsodeep.models import ConvExplicit, Explicit, Model, as_tau, model_from_dict
from notsodeep.models.protocol import HasActivations
from notsodeep.validation import one_of

KERNELS = ("ck", "ntk", "ntk_paper", "both")
FORMAT, VERSION = "notsodeep.designs", 3
_KERNEL_WORDS = dict(
    zip(KERNELS, ("conjugate kernel", "tangent kernel", "papers' tangent kernel", "two kernels"), strict=True)
)
_EQUATION_WORDS = {
    "diagonal": "the diagonal",
    "linear": "the coefficient of XXᵀ",
    "norm": "the coefficient of the norms",
    "trace": "the coefficient of T",
}


@dataclass(frozen=True)
class Attempt:
    """A family that was tried: the largest relative residual it reached, and why it is not smaller."""

    family: str
    residual: float
    reason: str


@dataclass(frozen=True, repr=False)
class Design(Shown):
    """An explicit network with the kernel scalars of a model, or with its kernels: docs/theory.md section 7.

    Attributes:
        network: the explicit network, a `ConvExplicit` for a `ConvDEQ`; if the model is centred, each layer is, at its
            own scale.
        model: the model that it replaces; None after loading one with a custom activation.
        tau0: the norm of a typical input; of images, at a typical position.
        kernel: "ck", "ntk", "ntk_paper" or "both".
        family: the family in words, such as "2 × leaky_relu".
        target, reached: the scalars of the model and of the network; of the conjugate kernel for "both". None where the
            model is not centred: it has no such scalars, and an injected network does without them.
        tried: families that were tried before, with their residuals.
        reason: why the family cannot do better, for a design that is not exact.
        misfit: for an injected network, the distance of its kernels from the model's at norms and angles around tau0.
            For images: at those it was fitted to, or at images of one colour around tau0 if there were none.
        fitted_to: number of samples that an injected network was fitted to; 0 for a design without data.
        bias2: variance of the bias of the model. With one, `target` and `reached` are the scalars of the kernels after
            centring their rows and columns; what centring removes, a readout with an intercept does not see.
    """

    _shown = ("family", "kernel", "exact", "residual", "tau0", "network", "model")

    # Explicit, or ConvExplicit for a model of images.
    network: Explicit | Any
    model: Model | None
    tau0: float
    kernel: str
    family: str
    target: Coefficients | None
    reached: Coefficients | None
    tried: tuple[Attempt, ...] = ()
    reason: str = ""
    misfit: float | None = None
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
        """Explain whether the four numbers agree, which equation is off, why, and what to try."""
        parts = [_headline(self)]
        if not self.exact and self.misfit is None:
            parts += [_equations_off(self), f"Why: {self.reason}." if self.reason else "", _remedy(self)]
        if self.tried:
            tried = (f"{entry.family} (off by {entry.residual:.1e}: {entry.reason})" for entry in self.tried)
            parts.append("Tried before: " + "; ".join(tried) + ".")
        if self.fitted_to:
            parts.append(f"It was fitted to {self.fitted_to} samples.")
        elif isinstance(self.network, ConvExplicit):
            parts.append("It was not fitted to images: pass some as X.")
        return "\n".join(part for part in parts if part)

    def layer_words(self) -> list[str]:
        """Describe each layer, with the variances of its weights where these are not 1 and 0."""
        lines = []
        for layer in self.network.inputs:
            weights = "" if self.network.is_plain else f", weights of variance {layer.weight:.6g}"
            again = f", input again with {layer.inject:.6g}" if layer.inject else ""
            lines.append(f"{layer.phi}{weights}{again}")
        return lines

    # --- text -----------------------------------------------------------------------------------------------------

    def to_json(self) -> str:
        """JSON text with every number, from which `from_json` makes an equal design."""
        model = self.model
        named = not isinstance(model, HasActivations) or all(map(rebuilt, model.activations))
        content = {
            **{entry.name: getattr(self, entry.name) for entry in fields(self)},
            "format": FORMAT,
            "version": VERSION,
            "network": self.network.to_dict(),
            # An activation that is a custom callable has no text.
            "model": model.to_dict() if model is not None and named else None,
            "target": None if self.target is None else asdict(self.target),
            "reached": None if self.reached is None else asdict(self.reached),
            "tried": [[entry.family, entry.residual, entry.reason] for entry in self.tried],
        }
        return json.dumps(content, indent=2, ensure_ascii=False)

    @classmethod
    def from_json(cls, text: str) -> Design:
        """Read the design that `to_json` wrote; nothing in it is executed.

        Raises:
            InputError: if the text is not a design, or lacks or adds an entry.
        """
        data = _parsed(text)
        network = model_from_dict(data["network"])
        if not isinstance(network, Explicit | ConvExplicit):
            raise InputError(f"A design has an explicit network, not a {type(network).__name__}.")
        model = None if data["model"] is None else model_from_dict(data["model"])
        tau0 = as_tau(number(data["tau0"], "tau0"))
        kernel = one_of(data["kernel"], KERNELS, "kernel")
        misfit = data["misfit"]
        target, reached = (_stored_scalars(data[name], tau0, kernel) for name in ("target", "reached"))
        if misfit is None and (target is None or reached is None):
            raise InputError("A design without a misfit has a target and the scalars that it reached.")
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
            reason=str(data["reason"]),
            misfit=None if misfit is None else number(misfit, "misfit"),
            fitted_to=int(number(data["fitted_to"], "fitted_to")),
            bias2=number(data["bias2"], "bias2"),
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
        lines = [f"{self.family} for the {what}: {verdict}"]
        lines += [f"  layer {place}: {words}" for place, words in enumerate(self.layer_words(), 1)]
        if self.target is not None and self.reached is not None:
            lines += _table(self.target, self.reached, self.residuals)
        return "\n".join(lines)


# --- explanations -----------------------------------------------------------------------------------------------------

INJECTED_IN_WORDS = (
    "An injected network is a few ordinary layers with the DEQ's own activation, in which every layer looks at the "
    "input again; only the sizes of its random weights are designed, to give it the DEQ's kernel."
)


def _table(target: Coefficients, reached: Coefficients, residuals: Mapping[str, float]) -> list[str]:
    rows = [f"  {'':14}{'target':>16}{'reached':>16}{'relative residual':>20}"]
    for name, off in residuals.items():
        symbol = SYMBOLS[target.kernel][name]
        values = f"{getattr(target, name):16.9g}{getattr(reached, name):16.9g}"
        rows.append(f"  {symbol + ' ' + name:14}{values}{off:20.1e}")
    return rows


def _where(design: Design) -> tuple[str, str]:
    """Where the kernels of an injected network were compared, in few words and in more."""
    if not isinstance(design.network, ConvExplicit):
        return "around tau0", "norms and angles around tau0"
    if not design.fitted_to:
        return "on images of one colour", "images of one colour, norms and angles around tau0"
    return "on images", "pairs of the images that it was fitted to"


def _headline(design: Design) -> str:
    model = design.model
    what = f"The network {design.family} for the {_KERNEL_WORDS[design.kernel]} of {model or 'the model'}"
    if design.misfit is not None:
        return (
            f"{what} keeps the activation of the DEQ and sees the input again in every layer. "
            f"Its kernels are within {design.misfit:.1e} of the DEQ's (root mean square over {_where(design)[1]})."
        )
    if design.exact:
        centred = " after centring the kernels" if design.bias2 else ""
        return (
            f"{what}: the four numbers agree{centred}, the worst to {design.residual:.1e}. "
            "Kernel errors on data: notsodeep.twin_distances(design, X), or --data in the shell. With samples (X=rows) "
            "injected networks are tried, too."
        )
    return f"{what} is the best approximation of this family: the four numbers do not all agree."


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


# --- reading stored designs -------------------------------------------------------------------------------------------


def _parsed(text: str) -> Mapping[str, Any]:
    """The entries of a design from JSON text without NaN."""

    def refuse_constant(word: str) -> float:
        raise InputError(f"The text holds {word}, which is not a number that a design can have.")

    try:
        data = mapping(json.loads(text, parse_constant=refuse_constant), "a design")
    except (json.JSONDecodeError, RecursionError) as error:
        raise InputError(f"This is not the JSON text of a design: {error}.") from None
    if data.get("format") != FORMAT or data.get("version") != VERSION:
        raise InputError(
            f"The text is not a design of format {FORMAT!r}, version {VERSION}: it says "
            f"{data.get('format')!r}, version {data.get('version')!r}."
        )
    return mapping(data, "a design", ("format", "version", *(entry.name for entry in fields(Design))))


def _stored_scalars(data: Any, tau0: float, kernel: str) -> Coefficients | None:
    if data is None:
        return None
    names = tuple(entry.name for entry in fields(Coefficients))
    stored = mapping(data, "coefficients", names)
    if stored["kernel"] != ("ck" if kernel == "both" else kernel) or stored["tau0"] != tau0:
        raise InputError("The stored scalars belong to another kernel or another tau0 than the design.")
    values = {name: number(stored[name], name) for name in names if name != "kernel"}
    return Coefficients(kernel=str(stored["kernel"]), **values)


def _stored_attempt(entry: Any) -> Attempt:
    if not isinstance(entry, list) or len(entry) != 3:
        raise InputError(f"An entry of 'tried' is [family, residual, reason], not {entry!r}.")
    return Attempt(str(entry[0]), number(entry[1], "residual"), str(entry[2]))
