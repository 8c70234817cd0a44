"""Misprints in the formulas of kernels, each with the number that shows it: docs/errata.md.

There are two kinds of evidence. A scalar of an equivalent is a derivative of the exact kernel of one pair of samples,
which finite differences compute to seven digits. And the operator norm of exact kernel minus equivalent falls with n
for a correct formula and stalls for a wrong one. Mixture of all kernel errors: two classes of equal size,
μ_1 = e_1, μ_2 = e_9 (norm 1), C_1 = I, C_2 = (1 + 4/√p) I, p = 0.8 n; σ_a² = 0.2, σ_b² = 0.8; mean of three draws.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq

from notsodeep.data import GaussianMixture, MixtureStatistics
from notsodeep.equivalents.coefficients import Coefficients, LayerMoments, coefficients
from notsodeep.gaussian import activation
from notsodeep.gaussian.activations import Activation
from notsodeep.gaussian.moments import mean_derivative, second_moment
from notsodeep.kernels import exact_kernel
from notsodeep.models import DEQ, Explicit
from notsodeep_lab.papers.experiment import Row
from notsodeep_lab.papers.measures import BEND, leaky_relu, matching_leaky_relu, norm_of, printed_leaky_relu

Array = NDArray[np.float64]
Model = DEQ | Explicit
Formula = Callable[[Any, float], Coefficients]  # of a DEQ or of an Explicit, and τ0
Tables = list[list[Row]]

SIGMA_A2 = 0.2


@dataclass(frozen=True)
class Size:
    """Sizes of the computations: samples and draws of the mixture, widths of the random networks."""

    samples: tuple[int, ...]
    draws: int
    widths: tuple[int, ...]


# --- evidence from one pair: the scalars are derivatives of the exact kernel ---------------------------


def scalars_by_differences(model: Model, tau0: float, kernel: str, step: float = 4e-3) -> dict[str, float]:
    """The scalars of (4.7) from the exact kernel k(r_1, r_2, c) of two samples, by finite differences.

    With squared norms r and inner product c: ∂k/∂c, ∂²k/∂r_1∂r_2, ½ ∂²k/∂c² at r = τ0², c = 0, and k(τ0², τ0², τ0²).
    """
    first = np.array([1.0, -8.0, 0.0, 8.0, -1.0]) / (12.0 * step)
    second = np.array([-1.0, 16.0, -30.0, 16.0, -1.0]) / (12.0 * step**2)
    moves = step * np.arange(-2, 3)
    turned = np.column_stack([moves / tau0, np.sqrt(tau0**2 - (moves / tau0) ** 2)])
    of_inner = exact_kernel(model, np.array([[tau0, 0.0]]), turned, kernel=kernel)[0]
    lengths = np.sqrt(tau0**2 + moves)[:, None]
    of_norms = exact_kernel(model, lengths * [1.0, 0.0], lengths * [0.0, 1.0], kernel=kernel)
    return {
        "linear": float(first @ of_inner),
        "norm": float(first @ of_norms @ first),
        "trace": float(second @ of_inner) / 2.0,
        "diagonal": float(exact_kernel(model, np.array([[tau0, 0.0]]), kernel=kernel)[0, 0]),
    }


def scalar_row(model: Model, kernel: str, printed: Formula, name: str, label: str) -> Row:
    """Return one scalar at τ0 = 1: as printed, by our formula, and from the exact kernel."""
    return {
        "scalar": label,
        "printed": getattr(printed(model, 1.0), name),
        "right": getattr(coefficients(model, 1.0, kernel), name),
        "of the exact kernel": scalars_by_differences(model, 1.0, kernel)[name],
    }


# --- evidence from many samples: operator norms --------------------------------------------------------


@dataclass(frozen=True)
class MixtureDraw:
    """A draw of the mixture, with a cache of its exact kernels."""

    X: Array
    statistics: MixtureStatistics
    kernels: dict[tuple[Model, str], Array] = field(default_factory=dict)

    @classmethod
    def draw(cls, n: int, seed: int) -> MixtureDraw:
        mixture = GaussianMixture.paper(int(0.8 * n), classes=2, mean=1.0, gap=4.0)
        X, y = mixture.sample(n, seed=seed)
        return cls(X, MixtureStatistics.of(mixture, X, y))

    def exact(self, model: Model, kernel: str) -> Array:
        if (model, kernel) not in self.kernels:
            self.kernels[model, kernel] = exact_kernel(model, self.X, kernel=kernel)
        return self.kernels[model, kernel]

    def equivalent(self, scalars: Coefficients) -> Array:
        """The matrix of docs/theory.md (4.7), written out."""
        known = self.statistics
        deviation = np.append(known.t, 1.0)
        core = scalars.norm * np.outer(deviation, deviation)
        core[:-1, :-1] += scalars.trace * known.T
        informative = np.column_stack([known.one_hot / np.sqrt(known.p), known.psi])
        full = scalars.linear * self.X @ self.X.T + scalars.identity * np.eye(len(self.X))
        return np.asarray(full + informative @ core @ informative.T, dtype=np.float64)


Distance = Callable[[MixtureDraw], Array]


def to_equivalent(model: Callable[[float], Model], kernel: str, formula: Formula) -> Distance:
    """Exact kernel minus the equivalent with the scalars of the formula."""

    def difference(sample: MixtureDraw) -> Array:
        tau0 = sample.statistics.tau0
        return sample.exact(model(tau0), kernel) - sample.equivalent(formula(model(tau0), tau0))

    return difference


def norm_rows(size: Size, what: str, distances: Mapping[str, Distance]) -> list[Row]:
    """Operator norm by n, mean over the draws, and the exponent of n."""
    norms: dict[str, dict[int, float]] = {name: {} for name in distances}
    for n in size.samples:
        samples = [MixtureDraw.draw(n, seed) for seed in range(size.draws)]
        for name, distance in distances.items():
            norms[name][n] = float(np.mean([norm_of(distance(sample)) for sample in samples]))
    return [
        {what: name, **{f"n = {n}": error for n, error in errors.items()}, "exponent": exponent(errors)}
        for name, errors in norms.items()
    ]


def exponent(errors: Mapping[int, float]) -> float:
    return float(np.polyfit(np.log(list(errors)), np.log(list(errors.values())), 1)[0])


def stalls(size: Size, name: str, kernel: str, printed: Formula) -> list[Row]:
    """Errors of the printed and of the right equivalent of a DEQ."""
    title = f"‖exact − equivalent‖, {name} DEQ, {KERNEL_NAMES[kernel]}"
    return norm_rows(
        size,
        title,
        {
            "printed": to_equivalent(deq(name), kernel, printed),
            "right": to_equivalent(deq(name), kernel, right(kernel)),
        },
    )


KERNEL_NAMES = {
    "ck": "G (3.3)",
    "ck_preactivations": "Λ (3.3)",
    "ntk_paper": "K (3.9)",
    "ntk_preactivations": "Π (3.10)",
}


def deq(name: str) -> Callable[[float], Model]:
    return lambda tau0: DEQ(name, SIGMA_A2).centred(tau0)


def right(kernel: str) -> Formula:
    return lambda model, tau0: coefficients(model, tau0, kernel)


# --- ICML ----------------------------------------------------------------------------------------------


def icml_alpha2_printed(model: Model, tau0: float) -> Coefficients:
    """α_{*,2} with α_{*,4} in the place of its square."""
    scalars = coefficients(model, tau0)
    return replace(scalars, norm=scalars.norm / scalars.variance_slope)


def icml_alpha2(size: Size) -> Tables:
    row = scalar_row(deq("relu")(1.0), "ck", icml_alpha2_printed, "norm", "α₂, ReLU")
    return [[row], stalls(size, "relu", "ck", icml_alpha2_printed)]


def icml_kappa_printed(model: Model, tau0: float) -> Coefficients:
    """κ_*² = τ_*²/(1 - σ_a² E1)."""
    scalars, features = coefficients(model, tau0, "ntk_paper"), coefficients(model, tau0)
    return replace(scalars, diagonal=scalars.diagonal * features.tau_star**2 / features.diagonal)


def icml_kappa(size: Size) -> Tables:
    row = scalar_row(deq("tanh")(1.0), "ntk_paper", icml_kappa_printed, "diagonal", "κ², tanh")
    return [[row], stalls(size, "tanh", "ntk_paper", icml_kappa_printed)]


def icml_beta3_printed(model: DEQ, tau0: float) -> Coefficients:
    """β_{*,3} = (α3 + β1 (σ_a² M_2² + σ_b²) α1)/d."""
    scalars, features = coefficients(model, tau0, "ntk_paper"), coefficients(model, tau0)
    moments = LayerMoments.of(model.activation, features.tau_star**2)
    factor = model.sigma_a2 * moments.curvature**2 + model.sigma_b2
    gain = 1.0 - model.sigma_a2 * moments.slope**2
    return replace(scalars, trace=(features.trace + scalars.linear * factor * features.linear) / gain)


def icml_beta3(size: Size) -> Tables:
    rows = [
        scalar_row(deq(name)(1.0), "ntk_paper", icml_beta3_printed, "trace", f"β₃, {name}")
        for name in ("tanh", "relu")
    ]
    return [rows, stalls(size, "tanh", "ntk_paper", icml_beta3_printed)]


def explicit_recursion(*, square4: bool, square1: bool, half: bool) -> Formula:
    """(4.14) with or without the square on α̃4, the square on α̃1 and the ½ in α̃4 that the print leaves out."""

    def formula(model: Explicit, tau0: float) -> Coefficients:
        linear, norm, trace, slope, q = 1.0, 0.0, 0.0, 1.0, tau0**2
        for layer in model.layers:
            moments = LayerMoments.of(layer, q)
            m1, m2 = moments.slope**2, moments.curvature**2
            norm = m1 * norm + m2 * slope ** (2 if square4 else 1) / 4.0
            trace = m1 * trace + m2 * linear ** (2 if square1 else 1) / 2.0
            linear, slope, q = m1 * linear, moments.energy_slope * slope * (1 if half else 2), moments.energy
        return replace(coefficients(model, tau0), linear=linear, norm=norm, trace=trace)

    return formula


EXPLICIT_READINGS = {
    "as printed": explicit_recursion(square4=False, square1=False, half=False),
    "α̃₄ for α̃₄² in α̃₂": explicit_recursion(square4=False, square1=True, half=True),
    "α̃₁ for α̃₁² in α̃₃": explicit_recursion(square4=True, square1=False, half=True),
    "E[(σ²)''] for ½E[(σ²)''] in α̃₄": explicit_recursion(square4=True, square1=True, half=False),
    "right": right("ck"),
}


def two_relu_layers(tau0: float) -> Explicit:
    return Explicit(["relu", "relu"]).centred(tau0)


def icml_explicit(size: Size) -> Tables:
    printed = EXPLICIT_READINGS["as printed"]
    rows = [
        scalar_row(two_relu_layers(1.0), "ck", printed, name, f"{label}, two ReLU layers")
        for name, label in (("norm", "α̃₂"), ("trace", "α̃₃"))
    ]
    distances = {
        name: to_equivalent(two_relu_layers, "ck", formula) for name, formula in EXPLICIT_READINGS.items()
    }
    return [rows, norm_rows(size, "‖Σ − Σ̄‖, two ReLU layers", distances)]


def relu_layers_as_printed(tau0: float) -> Explicit:
    """Two ReLU layers, each shifted by the mean at τ̃_l, the scale of its output, as printed."""
    shifted = []
    for layer in two_relu_layers(tau0).layers:
        output = float(np.sqrt(second_moment(layer, tau0**2)))
        shifted.append(activation("relu").shifted(-output / np.sqrt(2.0 * np.pi)))
        tau0 = output
    return Explicit(shifted)


def icml_centring(size: Size) -> Tables:
    rows, tau = [], 1.0
    layers = zip(relu_layers_as_printed(1.0).layers, two_relu_layers(1.0).layers, strict=True)
    for number, (printed, centred) in enumerate(layers, start=1):
        means = [float(mean_derivative(phi, tau**2, 0)) for phi in (printed, centred)]
        rows.append(
            {"layer": number, "τ̃ of its input": tau, "E[σ] printed": means[0], "E[σ] right": means[1]}
        )
        tau = float(np.sqrt(second_moment(centred, tau**2)))

    def scalars(model: Model, tau0: float) -> Coefficients:
        return coefficients(two_relu_layers(tau0), tau0)

    distances = {
        "printed": to_equivalent(relu_layers_as_printed, "ck", scalars),
        "right": to_equivalent(two_relu_layers, "ck", scalars),
    }
    return [rows, norm_rows(size, "‖Σ − Σ̄‖, two ReLU layers", distances)]


# --- ICLR ----------------------------------------------------------------------------------------------


def with_fourth_power(kernel: str) -> Formula:
    """The coefficient of the identity with -τ0⁴ α3 (β3)."""

    def formula(model: Model, tau0: float) -> Coefficients:
        scalars = coefficients(model, tau0, kernel)
        return replace(scalars, diagonal=scalars.diagonal - tau0**4 * scalars.trace)

    return formula


def iclr_identity(size: Size) -> Tables:
    kernels = ("ck_preactivations", "ntk_preactivations")
    return [stalls(size, "relu", kernel, with_fourth_power(kernel)) for kernel in kernels]


QUADRATIC_NAMES = ("tanh", "arctan", "relu", "leaky_relu", "elu", "swish", "gelu", "softplus", "cos")


def quadratic_ratio(model: Model, tau0: float) -> float:
    """(2α2 - α3) τ0⁴ / (γ² - α1 τ0² - α3 τ0⁴), which two quadratic layers put between 2 and 4."""
    scalars = coefficients(model, tau0)
    beyond = scalars.diagonal - scalars.linear * tau0**2 - scalars.trace * tau0**4
    return (2.0 * scalars.norm - scalars.trace) * tau0**4 / beyond


def iclr_quadratic(size: Size) -> Tables:
    rows: list[Row] = []
    for name in QUADRATIC_NAMES:
        ratios = {f"σ_a² = {v}": quadratic_ratio(DEQ(name, v).centred(1.0), 1.0) for v in (0.1, 0.2, 0.5)}
        rows.append({"DEQ": name, **ratios, "within [2, 4)": any(2.0 <= r < 4.0 for r in ratios.values())})
    two_layers = Explicit([activation("polynomial", coefficients=[0.0, 0.7, 0.4])] * 2).centred(1.0)
    rows.append({"DEQ": "none: two quadratic layers", "σ_a² = 0.2": quadratic_ratio(two_layers, 1.0)})
    rows[-1]["within [2, 4)"] = 2.0 <= rows[-1]["σ_a² = 0.2"] < 4.0
    return [rows]


def leaky(right_slope: float, left_slope: float) -> Activation:
    return activation("leaky_relu", a=right_slope, b=left_slope)


def two_leaky_layers(target: Coefficients) -> list[Activation]:
    """(7.6) with r_1 = 1: what remains is one equation, for e_1², since α2 then follows from γ² and α1."""
    total, tau2 = target.diagonal / target.tau0**2, target.tau0**2

    def second_layer(bend1: float) -> tuple[float, float]:
        slope2 = target.linear / (1.0 - BEND * bend1)
        return slope2, (total - slope2) / BEND

    def third_equation(bend1: float) -> float:
        slope2, bend2 = second_layer(bend1)
        return (slope2 * bend1 + bend2 * (1.0 - BEND * bend1) ** 2) / (2.0 * tau2) - target.trace

    largest = (1.0 - target.linear / total) / BEND
    bend1 = float(brentq(third_equation, 0.0, largest / 2.0, xtol=1e-14))
    return [leaky_relu(1.0 - BEND * bend1, bend1), leaky_relu(*second_layer(bend1))]


@dataclass(frozen=True)
class Recipe:
    """Leaky-ReLU layers that match a kernel of the ReLU DEQ: of pre-activations (ICLR) or of features (ICML)."""

    kernel: str
    layers: Callable[[Coefficients], Sequence[Activation]]

    def target(self, tau0: float) -> Coefficients:
        return coefficients(deq("relu")(tau0), tau0, self.kernel)

    def network(self, tau0: float) -> Model:
        return Explicit(self.layers(self.target(tau0))).centred(tau0)

    def difference(self, sample: MixtureDraw) -> Array:
        tau0 = sample.statistics.tau0
        return sample.exact(deq("relu")(tau0), self.kernel) - sample.exact(self.network(tau0), "ck")


RECIPES = {
    "Λ, one layer, printed equations": Recipe(
        "ck_preactivations", lambda target: [printed_leaky_relu(target)]
    ),
    "Λ, one layer, right equations": Recipe(
        "ck_preactivations", lambda target: [matching_leaky_relu(target)]
    ),
    "G, one layer, right equations": Recipe("ck", lambda target: [matching_leaky_relu(target)]),
    "G, two layers (7.6)": Recipe("ck", two_leaky_layers),
}


def mean_curvatures() -> list[Row]:
    kinds = (("relu", "piecewise linear"), ("cos", "even"), ("tanh", "odd"))
    means = [float(mean_derivative(activation(name), 1.0, 2)) for name, _ in kinds]
    return [
        {"φ": f"{name}, {kind}", "E[φ''(ξ)] printed": 0.0, "E[φ''(ξ)]": value}
        for (name, kind), value in zip(kinds, means, strict=True)
    ]


def energies() -> list[Row]:
    """E[σ²] of the centred Leaky-ReLU in the second equation, by the weight of ab."""
    rows = []
    for a, b in ((1.0, 1.0), (1.0, 0.0), (1.0, -1.0)):
        printed, correct = (
            ((np.pi - 1.0) * (a**2 + b**2) + weight * a * b) / (2.0 * np.pi) for weight in (1, 2)
        )
        exact = float(second_moment(Explicit([leaky(a, b)]).centred(1.0).layers[0], 1.0))
        rows.append(
            {"(a, b)": f"({a:g}, {b:g})", "printed, ab": printed, "right, 2ab": correct, "E[σ²]": exact}
        )
    return rows


def iclr_leaky(size: Size) -> Tables:
    rows: list[Row] = []
    for name, recipe in RECIPES.items():
        target: Row = {"scalars": f"ReLU DEQ, {KERNEL_NAMES[recipe.kernel]}", **_four(recipe.target(1.0))}
        rows += [] if target in rows else [target]
        rows.append({"scalars": name, **_four(coefficients(recipe.network(1.0), 1.0))})
    distances = {name: recipe.difference for name, recipe in RECIPES.items()}
    return [mean_curvatures(), energies(), rows, norm_rows(size, "‖kernel of the DEQ − Σ‖", distances)]


def _four(scalars: Coefficients) -> Row:
    return dict(zip(("γ²", "α₁", "α₂", "α₃"), map(float, scalars.as_array()), strict=True))


def input_scale(size: Size) -> Tables:
    """Mean squared pre-activation of a random √2·ReLU DEQ on unit inputs, by the place of 1/√m."""
    rows = []
    for width in size.widths:
        rng = np.random.default_rng(width)
        recurrent = rng.standard_normal((width, width)) * np.sqrt(SIGMA_A2 / width)
        drive = np.sqrt(1.0 - SIGMA_A2) * rng.standard_normal((width, 8))  # B x for eight orthonormal x
        printed, correct = (mean_square(recurrent, drive * scale) for scale in (width**-0.5, 1.0))
        rows.append({"width m": width, "printed": printed, "right": correct, "Λ_ii (3.4)": 1.0})
    return [rows]


def mean_square(recurrent: Array, drive: Array) -> float:
    h = drive
    for _ in range(60):
        h = recurrent @ (np.sqrt(2.0) * np.maximum(h, 0.0)) + drive
    return float(np.mean(h**2))


# --- all of them --------------------------------------------------------------------------------------

MEASURES: dict[str, Callable[[Size], Tables]] = {
    "icml-alpha2": icml_alpha2,
    "icml-kappa": icml_kappa,
    "icml-beta3": icml_beta3,
    "icml-explicit": icml_explicit,
    "icml-centring": icml_centring,
    "iclr-identity": iclr_identity,
    "iclr-quadratic": iclr_quadratic,
    "iclr-leaky": iclr_leaky,
    "input-scale": input_scale,
}
