"""A design: the network, what it was to match, what it matches, and the words for it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from notsodeep.designs import serial
from notsodeep.designs.goal import EQUATIONS
from notsodeep.designs.load import FORMAT, VERSION, stored_fields
from notsodeep.designs.parts import EXACT, Attempt, Curve, Polish, Tangent, relative_residuals
from notsodeep.designs.verdict import KERNEL_WORDS, explain
from notsodeep.equivalents.coefficients import Coefficients
from notsodeep.errors import InputError
from notsodeep.gaussian.activations import Activation
from notsodeep.gaussian.moments import second_moment
from notsodeep.models import DEQ, Explicit

Array = NDArray[np.float64]

_SYMBOLS = {
    "ck": ("γ²", "α₁", "α₂", "α₃"),
    "ntk": ("κ²", "θ₁", "θ₂", "θ₃"),
    "ntk_paper": ("κ²", "β₁", "β₂", "β₃"),
}


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
    model: DEQ | Explicit | None
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
        """The verdict in words."""
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
                "model": serial.model_to_dict(self.model),
                "tau0": self.tau0,
                "kernel": self.kernel,
                "family": self.family,
                "layers": [serial.activation_to_dict(layer) for layer in self.network.layers],
                "target": serial.coefficients_to_dict(self.target),
                "reached": serial.coefficients_to_dict(self.reached),
                "tried": [[entry.family, entry.residual, entry.reason] for entry in self.tried],
                "drift": self.drift,
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
        return cls(**stored_fields(text))

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
        what = f"{KERNEL_WORDS[self.kernel]} of {self.model or 'a model'} at tau0 = {self.tau0:g}"
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
