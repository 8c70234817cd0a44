"""A design: the network, what it was to match, what it matches, and the words for it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from notsodeep.design import serial
from notsodeep.design.goal import EQUATIONS, NEGLIGIBLE
from notsodeep.equivalents.coefficients import Coefficients
from notsodeep.errors import InputError
from notsodeep.gaussian.activations import Activation
from notsodeep.gaussian.moments import second_moment
from notsodeep.models import DEQ, Explicit

Array = NDArray[np.float64]

# Largest relative residual of an exact design.
EXACT = 1e-9
FORMAT, VERSION = "notsodeep.design", 1
_SYMBOLS = {
    "ck": ("γ²", "α₁", "α₂", "α₃"),
    "ntk": ("κ²", "θ₁", "θ₂", "θ₃"),
    "ntk_paper": ("κ²", "β₁", "β₂", "β₃"),
}


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
        """The largest of them."""
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
        tangent: for "both", the multipliers and the tangent kernel's scalars.
        polish: for a design polished on data, by how much it helped.
        reason: why the family cannot do better, for a design that is not exact.
    """

    network: Explicit
    model: DEQ | Explicit | None
    tau0: float
    kernel: str
    family: str
    target: Coefficients
    reached: Coefficients
    tried: tuple[Attempt, ...] = ()
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
        """The verdict in words."""
        from notsodeep.design.verdict import explain

        return explain(self)

    def curves(self, points: int = 401, reach: float = 3.5) -> tuple[Curve, ...]:
        """The model's activations and the designed ones, over ±reach standard deviations of what enters them."""
        return (*self._model_curves(points, reach), *_curves("layer", self.network, self.tau0, points, reach))

    def _model_curves(self, points: int, reach: float) -> tuple[Curve, ...]:
        if isinstance(self.model, DEQ):
            return (
                _curve(
                    f"DEQ: {self.model.activation}",
                    self.model.activation,
                    self.target.tau_star,
                    points,
                    reach,
                ),
            )
        return () if self.model is None else _curves("model, layer", self.model, self.tau0, points, reach)

    def to_json(self) -> str:
        """JSON text with every number, from which `from_json` makes an equal design."""
        tangent = None
        if self.tangent is not None:
            tangent = {
                "multipliers": list(self.tangent.multipliers),
                "target": serial.coefficients_to_dict(self.tangent.target),
            }
        return json.dumps(
            {
                "format": FORMAT,
                "version": VERSION,
                "model": None if self.model is None else serial.model_to_dict(self.model),
                "tau0": self.tau0,
                "kernel": self.kernel,
                "family": self.family,
                "layers": [serial.activation_to_dict(layer) for layer in self.network.layers],
                "target": serial.coefficients_to_dict(self.target),
                "reached": serial.coefficients_to_dict(self.reached),
                "tried": [[entry.family, entry.residual, entry.reason] for entry in self.tried],
                "tangent": tangent,
                "polish": None if self.polish is None else vars(self.polish),
                "reason": self.reason,
            },
            indent=2,
            ensure_ascii=False,
        )

    @classmethod
    def from_json(cls, text: str) -> Design:
        """The design that `to_json` wrote down; numbers that contradict each other are refused."""
        from notsodeep.design.load import design_from_json

        return design_from_json(text)

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
        head = f"{self.family} for the {self.kernel} of {self.model or 'a model'} at tau0 = {self.tau0:g}: {verdict}"
        lines = [head, *(f"  layer {i}: {layer}" for i, layer in enumerate(self.network.layers, 1))]
        lines += _table(self.target, self.reached, self.residuals)
        if self.tangent is not None:
            rates = ", ".join(f"{rate:.6g}" for rate in self.tangent.multipliers)
            lines += [f"  learning-rate multipliers (layers, readout): {rates}"]
            lines += _table(self.tangent.target, self.tangent.reached, self.tangent.residuals)
        if self.polish is not None:
            lines.append(f"  {self.polish}")
        return "\n".join(lines)


def relative_residuals(target: Coefficients, reached: Coefficients) -> dict[str, float]:
    """|reached - target|/|target| for each equation; for a target of zero, relative to the diagonal's scale."""
    square = target.tau0**2
    units = target.diagonal / np.array([1.0, square, square**2, square**2])
    wanted, found = target.as_array(), reached.as_array()
    scales = np.where(np.abs(wanted) > NEGLIGIBLE * units, np.abs(wanted), units)
    return dict(zip(EQUATIONS, (np.abs(found - wanted) / scales).tolist(), strict=True))


def _table(target: Coefficients, reached: Coefficients, residuals: Mapping[str, float]) -> list[str]:
    symbols = _SYMBOLS[target.kernel]
    rows = [f"  {'':14}{'wanted':>16}{'reached':>16}{'relative residual':>20}"]
    for name, symbol, wanted, found in zip(
        EQUATIONS, symbols, target.as_array(), reached.as_array(), strict=True
    ):
        rows.append(f"  {symbol + ' ' + name:14}{wanted:16.9g}{found:16.9g}{residuals[name]:20.1e}")
    return rows


def _curve(label: str, phi: Activation, scale: float, points: int, reach: float) -> Curve:
    x = np.linspace(-reach * scale, reach * scale, points)
    return Curve(label, scale, x, phi(x))


def _curves(word: str, network: Explicit, tau0: float, points: int, reach: float) -> tuple[Curve, ...]:
    found, q = [], tau0**2
    for position, layer in enumerate(network.layers, 1):
        found.append(_curve(f"{word} {position}: {layer}", layer, float(np.sqrt(q)), points, reach))
        q = float(second_moment(layer, q))
    return tuple(found)


__all__ = ["EXACT", "Attempt", "Curve", "Design", "Polish", "Tangent", "relative_residuals"]
