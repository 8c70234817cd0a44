"""The misprints of the papers, each with the number that shows it: docs/errata.md.

Two kinds of evidence. A scalar of an equivalent is a derivative of the exact kernel of one pair of samples,
which finite differences find to seven digits. And the operator norm of exact kernel minus equivalent falls with
n for a right formula and stalls for a wrong one. Mixture of all kernel errors: two classes of equal size,
μ_1 = e_1, μ_2 = e_9 (norm 1), C_1 = I, C_2 = (1 + 4/√p) I, p = 0.8 n; σ_a² = 0.2, σ_b² = 0.8; mean of three draws.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.sparse.linalg import eigsh, svds

from notsodeep.data import GaussianMixture, MixtureStatistics
from notsodeep.equivalents.coefficients import Coefficients, LayerMoments, coefficients
from notsodeep.gaussian import activation
from notsodeep.gaussian.activations import Activation
from notsodeep.gaussian.moments import mean_derivative, second_moment
from notsodeep.kernels import conjugate_kernel, exact_kernel, tangent_kernel
from notsodeep.models import DEQ, Explicit
from notsodeep_lab.papers.experiment import Row

Array = NDArray[np.float64]
Model = DEQ | Explicit
Formula = Callable[[Any, float], Coefficients]  # of a DEQ or of an Explicit, and τ0
Tables = list[list[Row]]

SIGMA_A2 = 0.2


@dataclass(frozen=True)
class Size:
    """How much is computed: samples and draws of the mixture, widths of the random networks."""

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
    """One scalar at τ0 = 1: as printed, by our formula, and as the exact kernel has it."""
    return {
        "scalar": label,
        "printed": getattr(printed(model, 1.0), name),
        "right": getattr(coefficients(model, 1.0, kernel), name),
        "of the exact kernel": scalars_by_differences(model, 1.0, kernel)[name],
    }


# --- evidence from many samples: operator norms --------------------------------------------------------


@dataclass(frozen=True)
class Sample:
    """Data of the mixture, with the exact kernels computed on them so far."""

    X: Array
    statistics: MixtureStatistics
    kernels: dict[tuple[Model, str], Array] = field(default_factory=dict)

    @classmethod
    def draw(cls, n: int, seed: int) -> Sample:
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
        low_rank = informative @ core @ informative.T
        found: Array = scalars.linear * self.X @ self.X.T + low_rank + scalars.identity * np.eye(len(self.X))
        return found


Distance = Callable[[Sample], Array]


def to_equivalent(model: Callable[[float], Model], kernel: str, formula: Formula) -> Distance:
    """Exact kernel minus the equivalent with the scalars of the formula."""

    def difference(sample: Sample) -> Array:
        tau0 = sample.statistics.tau0
        return sample.exact(model(tau0), kernel) - sample.equivalent(formula(model(tau0), tau0))

    return difference


def norm_rows(size: Size, what: str, distances: Mapping[str, Distance]) -> list[Row]:
    """Operator norm by n, mean over the draws, and the exponent of n."""
    found: dict[str, dict[int, float]] = {name: {} for name in distances}
    for n in size.samples:
        samples = [Sample.draw(n, seed) for seed in range(size.draws)]
        for name, distance in distances.items():
            found[name][n] = float(np.mean([operator_norm(distance(sample)) for sample in samples]))
    return [
        {what: name, **{f"n = {n}": error for n, error in errors.items()}, "exponent": exponent(errors)}
        for name, errors in found.items()
    ]


def operator_norm(matrix: Array) -> float:
    start = np.ones(len(matrix))
    return float(abs(eigsh(matrix, 1, which="LM", tol=1e-5, v0=start, return_eigenvectors=False)[0]))


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


def leaky_layer(slope2: float, curvature2: float) -> Activation:
    """The Leaky-ReLU with ((a+b)/2)² = slope2 and (a-b)²/2π = curvature2, (7.5)."""
    mean, half_gap = np.sqrt(slope2), np.sqrt(np.pi * curvature2 / 2.0)
    return leaky(mean + half_gap, mean - half_gap)


BEND = np.pi / 2.0 - 1.0  # what (7.5) multiplies e² by


def layer_of_printed_system(target: Coefficients) -> list[Activation]:
    """Slopes from ICLR's two equations: (a-b)² = 4 α1², and its second one with `ab`; linear in (a+b)²."""
    tau2, gap2 = target.tau0**2, 4.0 * target.linear**2
    wanted = target.diagonal / tau2 - target.linear

    def second_equation(total2: float) -> float:
        squares, product = (total2 + gap2) / 2.0, (total2 - gap2) / 4.0
        return ((np.pi - 1.0) * squares + product) / (2.0 * np.pi) - total2 / 4.0 - wanted

    return [leaky_layer(float(brentq(second_equation, 0.0, 1e3)) / 4.0, gap2 / (2.0 * np.pi))]


def layer_of_right_system(target: Coefficients) -> list[Activation]:
    """(a+b)² = 4 α1, and the second equation with 2ab."""
    return [leaky_layer(target.linear, (target.diagonal / target.tau0**2 - target.linear) / BEND)]


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
    return [leaky_layer(1.0 - BEND * bend1, bend1), leaky_layer(*second_layer(bend1))]


@dataclass(frozen=True)
class Recipe:
    """Leaky-ReLU layers made for a kernel of the ReLU DEQ: the pre-activations' (ICLR) or the features' (ICML)."""

    kernel: str
    layers: Callable[[Coefficients], Sequence[Activation]]

    def target(self, tau0: float) -> Coefficients:
        return coefficients(deq("relu")(tau0), tau0, self.kernel)

    def network(self, tau0: float) -> Model:
        return Explicit(self.layers(self.target(tau0))).centred(tau0)

    def difference(self, sample: Sample) -> Array:
        tau0 = sample.statistics.tau0
        return sample.exact(deq("relu")(tau0), self.kernel) - sample.exact(self.network(tau0), "ck")


RECIPES = {
    "Λ, one layer, printed equations": Recipe("ck_preactivations", layer_of_printed_system),
    "Λ, one layer, right equations": Recipe("ck_preactivations", layer_of_right_system),
    "G, one layer, right equations": Recipe("ck", layer_of_right_system),
    "G, two layers (7.6)": Recipe("ck", two_leaky_layers),
}


def mean_curvatures() -> list[Row]:
    kinds = (("relu", "piecewise linear"), ("cos", "even"), ("tanh", "odd"))
    found = [float(mean_derivative(activation(name), 1.0, 2)) for name, _ in kinds]
    return [
        {"φ": f"{name}, {kind}", "E[φ''(ξ)] printed": 0.0, "E[φ''(ξ)]": value}
        for (name, kind), value in zip(kinds, found, strict=True)
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


# --- HLD, and what all papers share --------------------------------------------------------------------

NORMALISED_RELU = activation("relu").scaled(np.sqrt(2.0))


def arc_cosine(x: float) -> tuple[float, float]:
    """f and f' of (8.1)."""
    slope = (np.pi - np.arccos(x)) / np.pi
    return np.sqrt(1.0 - x**2) / np.pi + slope * x, slope


def sphere_kernel(c: float, sigma_a2: float) -> float:
    """Λ = g(c), the root of (8.2)."""
    return float(
        brentq(lambda x: x - sigma_a2 * arc_cosine(x)[0] - (1.0 - sigma_a2) * c, -1.0, 1.0, xtol=1e-15)
    )


def hld_slopes(sigma_a2: float) -> tuple[float, float]:
    """k'(0) as printed, (1-σ_a²) h'/(σ_a² f' - 1), and by (8.4)."""
    at_zero = sphere_kernel(0.0, sigma_a2)
    slope = arc_cosine(at_zero)[1]
    curvature = 1.0 / (np.pi * np.sqrt(1.0 - at_zero**2))
    remaining = 1.0 - sigma_a2 * slope
    of_h = 1.0 / remaining + at_zero * sigma_a2 * curvature / remaining**2
    return (1.0 - sigma_a2) * of_h / (sigma_a2 * slope - 1.0), (1.0 - sigma_a2) * of_h / remaining


def hld_slope(size: Size) -> Tables:
    rows = []
    for sigma_a2 in (0.1, 0.2, 0.5):
        printed, correct = hld_slopes(sigma_a2)
        model = DEQ(NORMALISED_RELU, sigma_a2)
        exact = scalars_by_differences(model, 1.0, "ntk_preactivations")["linear"]
        rows.append({"σ_a²": sigma_a2, "printed": printed, "right": correct, "of the exact kernel": exact})
    return [rows]


def double_sum(c: float, sigma_a2: float, depth: int, *, last_factor: bool) -> float:
    """Σ_{h=1}^{l+1} G^(h-1) Π_{h'=h}^{l+1} Ġ^(h') on the sphere, with or without the last factor Ġ^(l+1)."""
    kernel, total = c, 0.0
    for layer in range(1, depth + 2):
        value, slope = arc_cosine(kernel)
        factor = 1.0 if layer == depth + 1 and not last_factor else sigma_a2 * slope
        total = (total + kernel) * factor
        kernel = sigma_a2 * value + (1.0 - sigma_a2) * c
    return total


def tangent_sum(size: Size) -> Tables:
    rows = []
    for c in (-0.5, 0.0, 0.5):
        pair = np.array([[1.0, 0.0], [c, np.sqrt(1.0 - c**2)]])
        exact = tangent_kernel(DEQ(NORMALISED_RELU, SIGMA_A2), pair, of="preactivations")[0, 1]
        sums = [double_sum(c, SIGMA_A2, 60, last_factor=last) for last in (True, False)]
        rows.append({"x_i·x_j": c, "printed": sums[0], "without Ġ^(l+1)": sums[1], "Π (3.10)": float(exact)})
    return [rows]


def empirical_tangent(model: DEQ, X: Array, width: int, seed: int) -> Array:
    """∇f·∇f' over all weights of one random network (1.1), (1.2)."""
    rng = np.random.default_rng(seed)
    recurrent = np.sqrt(model.sigma_a2 / width) * rng.standard_normal((width, width))
    drive = np.sqrt(model.sigma_b2) * rng.standard_normal((width, X.shape[1])) @ X.T
    readout, h = rng.standard_normal(width), drive
    for _ in range(60):
        h = recurrent @ model.activation(h) + drive
    z, slopes = model.activation(h) / np.sqrt(width), model.activation.derivative(h)
    adjoint = np.empty_like(h)
    for i, slope in enumerate(slopes.T):
        adjoint[:, i] = slope * np.linalg.solve(np.eye(width) - recurrent.T * slope, readout)
    features = z.T @ z
    inner = model.sigma_a2 * features + model.sigma_b2 * X @ X.T
    found: Array = features + (adjoint.T @ adjoint / width) * inner
    return found


def tangent_reading(size: Size) -> Tables:
    """Which of the three kernels is the NTK of the network: distance to that of random networks."""
    X = np.random.default_rng(0).standard_normal((6, 4)) / 2.0
    width, readings = size.widths[min(1, len(size.widths) - 1)], {"network": "Θ (3.8)", "paper": "K (3.9)"}
    readings["preactivations"] = "Π (3.10)"
    rows: list[Row] = [{"kernel": label} for label in readings.values()]
    for name in ("tanh", "relu"):
        model = DEQ(name, SIGMA_A2)
        measured = np.mean([empirical_tangent(model, X, width, seed) for seed in range(8)], axis=0)
        for row, of in zip(rows, readings, strict=True):
            apart = np.linalg.norm(tangent_kernel(model, X, of=of) - measured) / np.linalg.norm(measured)
            row[f"distance to 8 networks of width {width}, {name}"] = float(apart)
    return [rows]


# --- AISTATS -------------------------------------------------------------------------------------------


def cosines(c: float, sigma_w2: float, depth: int) -> Row:
    """cos θ^(l) of Lemma 3 by its first formula, by its Eq. 13, by (8.14), and from the exact kernel."""
    variance, by_13, by_ours = 1.0, c, c  # ρ^(1) and cos θ^(1)
    gram = arc_cosine(c)[0]  # K_ij^(1)
    first = c
    for _ in range(2, depth + 1):
        first = (sigma_w2 * gram + c) / (sigma_w2 * gram + 1.0)
        by_13 = (1.0 - 1.0 / variance) * arc_cosine(by_13)[0] + c / variance
        variance = 1.0 + sigma_w2 * variance
        by_ours = (1.0 - 1.0 / variance) * arc_cosine(by_ours)[0] + c / variance
        gram = variance * arc_cosine(by_ours)[0]
    pair = np.array([[1.0, 0.0], [c, np.sqrt(1.0 - c**2)]])
    exact = conjugate_kernel(DEQ(NORMALISED_RELU, sigma_w2, 1.0), pair, of="preactivations", depth=depth)
    return {
        "depth l": depth,
        "printed, K_ij below": first,
        "printed, ρ^(l-1)": by_13,
        "right": by_ours,
        "of the exact kernel": float(exact[0, 1] / exact[0, 0]),
    }


def aistats_lemma3(size: Size) -> Tables:
    return [[cosines(-0.5, 0.1, depth) for depth in (2, 3, 4)]]


@dataclass(frozen=True)
class ReluNetwork:
    """Z = φ(W Z + U X), ŷ = aᵀ Z of (8.10), data in columns."""

    W: Array
    U: Array
    a: Array

    @classmethod
    def random(cls, width: int, d: int, sigma_w2: float, seed: int, readout: float = 1.0) -> ReluNetwork:
        rng = np.random.default_rng(seed)
        W = rng.standard_normal((width, width)) * np.sqrt(2.0 * sigma_w2 / width)
        U = rng.standard_normal((width, d)) * np.sqrt(2.0 / d)
        return cls(W, U, readout * rng.standard_normal(width) / np.sqrt(width))

    def features(self, X: Array) -> Array:
        drive = self.U @ X
        Z = np.maximum(drive, 0.0)
        for _ in range(60):
            Z = np.maximum(self.W @ Z + drive, 0.0)
        return Z

    def loss(self, X: Array, y: Array) -> float:
        return 0.5 * float(np.sum((self.a @ self.features(X) - y) ** 2))


def gradient_by_differences(network: ReluNetwork, X: Array, y: Array, step: float = 1e-6) -> Array:
    gradient = np.empty_like(network.W)
    for index in np.ndindex(network.W.shape):
        move = np.zeros_like(network.W)
        move[index] = step
        ends = [replace(network, W=network.W + sign * move).loss(X, y) for sign in (1, -1)]
        gradient[index] = (ends[0] - ends[1]) / (2.0 * step)
    return gradient


def gradient_by_lemma(network: ReluNetwork, X: Array, y: Array, selector: Array) -> Array:
    """∇_W Φ of (8.12) with R = selector · J⁻¹ D."""
    Z = network.features(X)
    width, n = Z.shape
    mask = np.diag((network.W @ Z + network.U @ X > 0).astype(float).ravel(order="F"))
    R = selector @ np.linalg.solve(np.eye(width * n) - mask @ np.kron(np.eye(n), network.W), mask)
    vector = np.kron(Z, np.eye(width)) @ R.T @ (network.a @ Z - y)
    return vector.reshape((width, width), order="F")


def aistats_lemma2(size: Size) -> Tables:
    width, n, d = 6, 4, 3
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((d, n)), rng.standard_normal(n)
    network = ReluNetwork.random(width, d, 0.1, seed=1)
    column, identity = network.a[:, None], np.eye(n)
    selectors = {
        "(a ⊗ I_n) J⁻¹ D, printed": np.kron(column, identity),
        "(aᵀ ⊗ I_n) J⁻¹ D": np.kron(column.T, identity),
        "(I_n ⊗ aᵀ) J⁻¹ D, right": np.kron(identity, column.T),
    }
    exact = gradient_by_differences(network, X, y)
    rows: list[Row] = []
    for name, selector in selectors.items():
        row: Row = {"R": name, "shapes": f"{selector.shape} · {(width * n, width * n)}"}
        fits = selector.shape[1] == width * n
        found = gradient_by_lemma(network, X, y, selector.astype(np.float64)) if fits else None
        row["relative error of ∇_W Φ"] = (
            None if found is None else float(np.linalg.norm(found - exact) / np.linalg.norm(exact))
        )
        rows.append(row)
    return [rows]


@dataclass(frozen=True)
class Initialisation:
    """A setting of AISTATS' Condition 1: n samples of norm √d, and a readout of norm about `readout`."""

    n: int
    sigma_w2: float
    delta: float
    readout: float
    d: int = 50

    def data(self) -> Array:
        X = np.random.default_rng(0).standard_normal((self.d, self.n))
        return np.asarray(X * np.sqrt(self.d) / np.linalg.norm(X, axis=0), dtype=np.float64)

    def third_inequality(self, width: int) -> float:
        """Left side over right side of the paper's (9), our (8.19), for one random network."""
        X = self.data()
        network = ReluNetwork.random(width, self.d, self.sigma_w2, seed=width, readout=self.readout)
        norms = [float(svds(M, k=1, return_singular_vectors=False)[0]) for M in (network.W, network.U)]
        rho_w, rho_u, rho_a = (v + self.delta for v in (*norms, float(np.linalg.norm(network.a))))
        c_w, c_u = rho_u * rho_a / (1.0 - rho_w) ** 2, rho_a / (1.0 - rho_w)
        Z = network.features(X)
        return float(np.linalg.eigvalsh(Z.T @ Z)[0]) / (4.0 * (c_w**2 + c_u**2) * float(np.sum(X**2)))

    def limit(self) -> float:
        """The same for infinite width: λ_0/m → λ_*, ‖U‖² d/m → 2, ‖W‖ → 2√2 σ_w, and c_u is negligible."""
        rows = self.data().T / np.sqrt(self.d)
        least = float(np.linalg.eigvalsh(conjugate_kernel(DEQ(NORMALISED_RELU, self.sigma_w2, 1.0), rows))[0])
        contraction = 1.0 - np.sqrt(8.0 * self.sigma_w2) - self.delta
        return float(least * contraction**4 / (8.0 * self.n * (self.readout + self.delta) ** 2))


INITIALISATIONS = {
    "as assumed: n = 4, σ_w² = 0.01, δ = 0.05, ‖a‖ ≈ 1": Initialisation(4, 0.01, 0.05, 1.0),
    "readout 50 times smaller: n = 2, σ_w² = 0.0025, δ = 0.03": Initialisation(2, 0.0025, 0.03, 0.02),
}


def aistats_condition(size: Size) -> Tables:
    rows: list[Row] = []
    for name, case in INITIALISATIONS.items():
        ratios = {f"m = {width}": case.third_inequality(width) for width in size.widths}
        rows.append({"λ_0 over the right side of (9)": name, **ratios, "m → ∞": case.limit()})
    return [rows]


def one_step(surplus: float, readout: float = 20.0) -> tuple[float, float]:
    """What (8.27) gives for the step (8.20), and 1 - ηλ_0/2; λ_0 is `surplus` times what (8.19) asks for.

    In units of (c_w² + c_u²) ||X||_F²; `readout` is c_a² ||X||_F² in them.
    """
    least, everything = 4.0 * surplus, 1.0 + readout
    eta = min(2.0 / least, 2.0 / everything**2)
    return 1.0 - eta * least + 2.0 * eta + (eta * everything) ** 2, 1.0 - 0.5 * eta * least


def aistats_step(size: Size) -> Tables:
    columns = {surplus: one_step(surplus) for surplus in (1.0, 1.5, 2.0, 4.0)}
    names = ("proved, (8.27)", "printed, 1 − ηλ_0/2")
    return [
        [
            {"Φ(τ+1)/Φ(τ) ≤": name, **{f"λ_0 = {k:g} × right side": pair[i] for k, pair in columns.items()}}
            for i, name in enumerate(names)
        ]
    ]


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
    "tangent-sum": tangent_sum,
    "tangent-reading": tangent_reading,
    "hld-slope": hld_slope,
    "aistats-lemma2": aistats_lemma2,
    "aistats-lemma3": aistats_lemma3,
    "aistats-condition": aistats_condition,
    "aistats-step": aistats_step,
}
