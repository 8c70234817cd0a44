"""Certificates that gradient descent trains a network to zero loss: each hypothesis verified for the network drawn."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike

from notsodeep.convergence.condition import (
    Constants,
    Inequality,
    Start,
    best_delta,
    inequalities,
    printed_step,
    proved_step,
)
from notsodeep.convergence.network import PaperNetwork, TangentSpectrum, paper_model, tangent_spectrum
from notsodeep.convergence.population import PopulationGram, as_sigma_w2, as_sphere, gram_of_model
from notsodeep.convergence.remedy import ExpectedStart, Remedy, find_remedy
from notsodeep.convergence.verified import (
    UNIT,
    Enclosure,
    frobenius_norm,
    gamma,
    least_gram_eigenvalue,
    spectral_norm,
)
from notsodeep.errors import InputError
from notsodeep.progress import progress_bar
from notsodeep.results import Result, plain
from notsodeep.validation import Array, as_count, as_number, as_targets


@dataclass(frozen=True)
class Measured:
    """The network at initialisation, every number enclosed between two others.

    Attributes:
        least: λ_0 = λ_min(Zᵀ Z); the error of the equilibrium itself is part of it.
        recurrent: ||W||₂.
        inputs: ||U||₂.
        readout: ||a||.
        data: ||X||_F.
        residual: ||ŷ - y||.
        equilibrium_error: ||Z - Z_computed||_F ≤ residual of the equation/(1 - ||W||₂).
    """

    least: Enclosure
    recurrent: Enclosure
    inputs: Enclosure
    readout: Enclosure
    data: Enclosure
    residual: Enclosure
    equilibrium_error: float

    def start(self) -> Start:
        """The bounds that the condition needs: λ_0 from below, all other numbers from above."""
        return Start(
            self.least.lower,
            self.recurrent.upper,
            self.inputs.upper,
            self.readout.upper,
            self.data.upper,
            self.residual.upper,
        )


@dataclass(frozen=True, repr=False)
class Certificate(Result):
    """Whether the conclusions of docs/theory.md (8.21) are proved for one network, and what is missing if not.

    Attributes:
        certified: every hypothesis was verified, and `step` is positive.
        inequalities: docs/theory.md (8.17)–(8.19), both sides and their ratio.
        delta: δ of docs/theory.md (8.16), chosen to maximise the smallest ratio.
        constants: docs/theory.md (8.16).
        measured: the network at initialisation, with numerical errors.
        step: every learning rate up to this one is covered by the proof, docs/theory.md (8.28); 0 if none is.
        printed_step: the paper's bound, docs/theory.md (8.20).
        ceiling: what left over right of docs/theory.md (8.19) cannot exceed at any width with this ||a||, (8.29).
        gram: the population Gram matrix and λ_*.
        tangent: the extreme eigenvalues of H, compared with the paper's bound.
        remedy: the width, readout scale and labels that would be enough.
        width: m.
        readout_scale: factor on the readout of docs/theory.md (8.11).
        sigma_w2: σ_w².
        seed: random seed of the weights.
    """

    _plain = (
        "certified", "width", "sigma_w2", "readout_scale", "seed", "delta", "step", "printed_step", "rate", "ceiling",
        "constants", "measured", "remedy",
    )  # fmt: skip
    _shown = ("certified", "width", "sigma_w2", "step", "delta", "readout_scale", "seed")

    certified: bool
    inequalities: tuple[Inequality, Inequality, Inequality]
    delta: float
    constants: Constants
    measured: Measured
    step: float
    printed_step: float
    ceiling: float
    gram: PopulationGram
    tangent: TangentSpectrum
    remedy: Remedy
    width: int
    readout_scale: float
    sigma_w2: float
    seed: int

    @property
    def rate(self) -> float:
        """1 - ηλ_0/2 with η = `step`: each step multiplies the loss by this or less, docs/theory.md (8.21)."""
        return min(1.0, (1.0 - 0.5 * self.step * self.measured.least.lower) * (1.0 + 4.0 * UNIT))

    @property
    def failing(self) -> tuple[Inequality, ...]:
        """The inequalities that do not hold."""
        return tuple(inequality for inequality in self.inequalities if not inequality.holds)

    def to_dict(self) -> dict[str, Any]:
        """All numbers, with the explanation, as plain JSON values."""
        checks = [{**plain(one), "ratio": plain(one.ratio), "holds": one.holds} for one in self.inequalities]
        return super().to_dict() | {
            "explanation": self.explain(),
            "inequalities": checks,
            "lambda_star": plain(self.gram.least),
            "tangent_least": self.tangent.least,
            "tangent_largest": self.tangent.largest,
        }

    def explain(self) -> str:
        """Say whether the network is certified, which inequalities fail and what would help."""
        if self.certified:
            return (
                f"Certified. Gradient descent with any learning rate up to {self.step:.3g} keeps ||W||₂ below 1 and "
                f"multiplies the loss by {self.rate:.6g} or less at each step. In practice: 1/λ_max(H) = "
                f"{self.tangent.step:.3g}."
            )
        lines = ["Not certified."]
        for inequality in self.failing:
            lines.append(
                f"({inequality.number}), {inequality.printed} in the paper, so that {inequality.meaning}: "
                f"the left side is {inequality.ratio:.3g} of the right."
            )
        return " ".join([*lines, *self._advice()])

    def _advice(self) -> list[str]:
        remedy, lines = self.remedy, []
        if self.ceiling <= 1.0:
            lines.append(
                f"With this readout scale no width is enough: with ||a|| = {self.measured.readout.estimate:.3g}, "
                f"(8.19) cannot exceed {self.ceiling:.3g}, by (8.29)."
            )
        elif remedy.width is None:
            lines.append(
                f"With this readout scale no width is expected to be enough: (8.19) tends to {remedy.limit:.3g} or "
                "less."
            )
        else:
            lines.append(f"Width {_whole(remedy.width)} is expected to be enough with this readout scale.")
        if remedy.readout_scale is not None:
            lines.append(
                f"At this width a readout scale of {remedy.readout_scale:.3g} or less is expected to be enough."
            )
        elif remedy.smallest_width is not None:
            labels = (
                "" if remedy.label_factor is None else f", or labels multiplied by {remedy.label_factor:.3g}"
            )
            lines.append(
                f"With a readout that starts near zero, width {_whole(remedy.smallest_width)} is expected to be enough"
                f"{labels}."
            )
        return lines


@progress_bar("certificate")
def certificate(
    X: ArrayLike,
    y: ArrayLike,
    width: int,
    sigma_w2: float,
    *,
    seed: int = 0,
    readout_scale: float = 1.0,
    normalise: bool = False,
) -> Certificate:
    """Draw a network, verify the condition of docs/theory.md (8.17)–(8.19) for it, and say what would satisfy it.

    Args:
        X: samples in rows (n, d), of norm √d and no two parallel.
        y: one label for each sample.
        width: m.
        sigma_w2: σ_w² < 1/8.
        seed: random seed of the weights; `PaperNetwork.draw` with the same seed returns the certified network.
        readout_scale: factor on the readout of docs/theory.md (8.11); 0 starts with outputs of zero.
        normalise: scale the rows of X to norm √d.
    """
    rows = as_sphere(X, normalise=normalise)
    labels = as_targets(y, len(rows))
    width, sigma_w2, readout_scale = (
        as_count(width, "width"),
        as_sigma_w2(sigma_w2),
        as_number(readout_scale, "readout_scale"),
    )
    network = PaperNetwork.draw(width, rows.shape[1], sigma_w2, seed=seed, readout_scale=readout_scale)
    measured = measure(network, rows, labels)
    start = measured.start()
    if start.recurrent >= 1.0:
        raise InputError(
            f"||W||₂ of this draw is {start.recurrent:.4g}, not below 1. Lower sigma_w2, or raise the width: "
            "||W||₂ → 2√2 σ_w."
        )
    delta = best_delta(start)
    checks = inequalities(start, delta)
    gram = gram_of_model(paper_model(sigma_w2), rows)
    step = proved_step(start, delta) if start.least > 0 and all(c.holds for c in checks) else 0.0
    return Certificate(
        certified=step > 0,
        inequalities=checks,
        delta=delta,
        constants=Constants.of(start, delta),
        measured=measured,
        step=step,
        printed_step=printed_step(start, delta) if start.least > 0 else 0.0,
        ceiling=_ceiling(measured, len(rows)),
        gram=gram,
        tangent=tangent_spectrum(network, torch.from_numpy(rows)),
        remedy=find_remedy(
            ExpectedStart(gram, rows.shape[1], sigma_w2, float(np.linalg.norm(labels))), width, readout_scale
        ),
        width=width,
        readout_scale=readout_scale,
        sigma_w2=sigma_w2,
        seed=seed,
    )


def measure(network: PaperNetwork, rows: Array, labels: Array) -> Measured:
    """Compute norms and λ_0 of a network, with bounds on all rounding errors."""
    W, U, a = (t.numpy() for t in (network.recurrent, network.inputs, network.readout))
    Z = network.features(torch.from_numpy(rows)).numpy()
    recurrent, inputs, data = spectral_norm(W), spectral_norm(U), frobenius_norm(rows)
    error = equilibrium_error(W, U, rows, Z, recurrent.upper)
    return Measured(
        least=_moved(least_gram_eigenvalue(Z), error),
        recurrent=recurrent,
        inputs=inputs,
        readout=frobenius_norm(a),
        data=data,
        residual=_residual(Z, a, labels, error),
        equilibrium_error=error,
    )


def equilibrium_error(W: Array, U: Array, rows: Array, Z: Array, norm: float) -> float:
    """A bound on ||Z - Z_computed||_F: residual of the equation over 1 - ||W||₂, rounding included."""
    if norm >= 1.0:
        return np.inf
    left = np.maximum(Z @ W.T + rows @ U.T, 0.0) - Z
    sizes = [frobenius_norm(M).upper for M in (W, Z, U, rows, left)]
    rounding = gamma(len(W) + rows.shape[1] + 2) * (sizes[0] * sizes[1] + sizes[2] * sizes[3])
    return float((sizes[4] * (1.0 + UNIT) + rounding) / (1.0 - norm) * (1.0 + 1e-14))


def _moved(computed: Enclosure, error: float) -> Enclosure:
    """λ_min of the Gram matrix of the true features: its root moves by ||Z - Z_computed|| at most."""
    roots = [float(np.sqrt(max(value, 0.0))) for value in (computed.lower, computed.upper)]
    lower = max(roots[0] - error, 0.0) ** 2 * (1.0 - 8.0 * UNIT)
    return Enclosure(min(lower, computed.estimate), computed.estimate, (roots[1] + error) ** 2)


def _residual(Z: Array, a: Array, labels: Array, error: float) -> Enclosure:
    difference = Z @ a - labels
    norm_a, norm_z = frobenius_norm(a).upper, frobenius_norm(Z).upper
    slack = norm_a * error + gamma(len(a) + 2) * (norm_a * norm_z + frobenius_norm(labels).upper)
    norm = frobenius_norm(difference)
    return Enclosure(max(norm.lower - slack, 0.0), norm.estimate, norm.upper + slack)


def _whole(number: int) -> str:
    return str(number) if number < 10**7 else f"{number:.1e}"


def _ceiling(measured: Measured, n: int) -> float:
    """1/(4 n ||a||²), docs/theory.md (8.29) with whatever W, rounded up."""
    if measured.readout.lower == 0:
        return np.inf
    return float((1.0 + 1e-14) / (4.0 * n * measured.readout.lower**2))
