"""Misprints of the papers: for each, a number by the printed formula, by ours, and by a third route (docs/errata.md).

Scalars of an equivalent are derivatives of the exact kernel of one pair of samples, which finite differences compute
to seven digits; the other numbers come from networks, gradients by differences, or exact kernels of many samples.
Unless stated otherwise σ_a² = 0.2, σ_b² = 0.8, τ0 = 1.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
from scipy.optimize import brentq

from notsodeep.equivalents.coefficients import Coefficients, LayerMoments, coefficients
from notsodeep.gaussian import activation
from notsodeep.gaussian.activations import Activation
from notsodeep.gaussian.moments import mean_derivative, second_moment
from notsodeep.kernels import conjugate_kernel, exact_kernel, tangent_kernel
from notsodeep.models import DEQ, Explicit, Model
from notsodeep.validation import Array
from notsodeep_lab.papers.experiment import Expectation, Experiment, Row, Task
from notsodeep_lab.papers.experiment_settings import Spec
from notsodeep_lab.papers.measures import (
    BEND,
    leaky_layer_for,
    leaky_relu,
    mixture_sample,
    norm_of,
    printed_leaky_layer_for,
)

SIGMA_A2 = 0.2
NORMALISED_RELU = activation("relu").scaled(np.sqrt(2.0))
QUADRATIC_NAMES = ("tanh", "arctan", "relu", "leaky_relu", "elu", "swish", "gelu", "softplus", "cos")


@dataclass(frozen=True)
class ErrataSpec(Spec):
    """Sizes of the computations."""

    samples: int  # samples of the mixture whose exact kernels decide
    width: int  # width of the random networks


@dataclass(frozen=True)
class Number:
    """A quantity by the printed formula, by ours, and by a route that uses neither; None where there is none."""

    what: str
    printed: float | None
    right: float
    decides: float | None


class Errata(Experiment[ErrataSpec]):
    """Compare each printed formula with ours and with a number that decides: the table of docs/errata.md."""

    name = "errata"
    paper = "all four papers"
    summary = "Misprinted formulas compared with the correct ones and with exact kernels"
    minutes = MappingProxyType({"quick": 0.1, "full": 0.3})
    quick = ErrataSpec(300, 300)
    full = ErrataSpec(2000, 1000)

    def models(self, spec: ErrataSpec) -> list[Model]:
        return [DEQ(name, SIGMA_A2) for name in ("relu", "tanh")]

    def tasks(self, spec: ErrataSpec) -> list[Task]:
        return [Task.named("{erratum}", erratum=name) for name in ERRATA]

    def run(self, spec: ErrataSpec, task: Task, data_dir: Path | None) -> list[Row]:
        name = task["erratum"]
        return [{"kind": name, **_rounded(number)} for number in ERRATA[name](spec)]

    def expectations(self, spec: ErrataSpec, rows: Sequence[Row]) -> list[Expectation]:
        return [
            Expectation(
                f"{row['kind']}: {row['what']}",
                row["printed"],
                row["right"],
                None,
                "" if row["decides"] is None else f"decided by {row['decides']:.6g}",
            )
            for row in rows
        ]


def _rounded(number: Number) -> dict[str, Any]:
    """Round to ten digits: the last ones depend on the machine."""
    return {k: float(f"{v:.10g}") if isinstance(v, float) else v for k, v in vars(number).items()}


# --- scalars of equivalents ----------------------------------------------------------------------------


def scalars_by_differences(model: DEQ | Explicit, kernel: str = "ck", step: float = 4e-3) -> dict[str, float]:
    """The scalars of (4.7) at τ0 = 1 from the exact kernel k(r_1, r_2, c) of two samples, by finite differences.

    With squared norms r and inner product c: ∂k/∂c, ∂²k/∂r_1∂r_2, ½ ∂²k/∂c² at r = 1, c = 0, and k(1, 1, 1).
    """
    first = np.array([1.0, -8.0, 0.0, 8.0, -1.0]) / (12.0 * step)
    second = np.array([-1.0, 16.0, -30.0, 16.0, -1.0]) / (12.0 * step**2)
    moves = step * np.arange(-2, 3)
    turned = np.column_stack([moves, np.sqrt(1.0 - moves**2)])
    of_inner = exact_kernel(model, np.array([[1.0, 0.0]]), turned, kernel=kernel)[0]
    lengths = np.sqrt(1.0 + moves)[:, None]
    of_norms = exact_kernel(model, lengths * [1.0, 0.0], lengths * [0.0, 1.0], kernel=kernel)
    return {
        "linear": float(first @ of_inner),
        "norm": float(first @ of_norms @ first),
        "trace": float(second @ of_inner) / 2.0,
        "diagonal": float(exact_kernel(model, np.array([[1.0, 0.0]]), kernel=kernel)[0, 0]),
    }


def _scalar(what: str, model: DEQ | Explicit, name: str, printed: float, kernel: str = "ck") -> Number:
    ours = float(getattr(coefficients(model, 1.0, kernel), name))
    return Number(what, float(printed), ours, scalars_by_differences(model, kernel)[name])


def deq(name: str) -> DEQ:
    """The centred DEQ of the comparisons."""
    return DEQ(name, SIGMA_A2).centred(1.0)


def two_relu_layers() -> Explicit:
    """Two centred ReLU layers."""
    return Explicit(["relu", "relu"]).centred(1.0)


def icml_alpha2(spec: ErrataSpec) -> Iterator[Number]:
    """Erratum 1: α_{*,4} in the place of its square."""
    scalars = coefficients(deq("relu"), 1.0)
    yield _scalar("α₂, ReLU", deq("relu"), "norm", scalars.norm / scalars.variance_slope)


def icml_kappa(spec: ErrataSpec) -> Iterator[Number]:
    """Erratum 2: τ_*² in the place of γ²."""
    scalars, features = coefficients(deq("tanh"), 1.0, "ntk_paper"), coefficients(deq("tanh"), 1.0)
    printed = scalars.diagonal * features.tau_star**2 / features.diagonal
    yield _scalar("κ², tanh", deq("tanh"), "diagonal", printed, "ntk_paper")


def icml_beta3(spec: ErrataSpec) -> Iterator[Number]:
    """Erratum 3: β_{*,3} = (α3 + β1 (σ_a² M_2² + σ_b²) α1)/d."""
    for name in ("tanh", "relu"):
        model = deq(name)
        scalars, features = coefficients(model, 1.0, "ntk_paper"), coefficients(model, 1.0)
        moments = LayerMoments.of(model.activation, features.tau_star**2)
        factor = model.sigma_a2 * moments.curvature**2 + model.sigma_b2
        gain = 1.0 - model.sigma_a2 * moments.slope**2
        printed = (features.trace + scalars.linear * factor * features.linear) / gain
        yield _scalar(f"β₃, {name}", model, "trace", printed, "ntk_paper")


def explicit_recursion(*, square4: bool, square1: bool, half: bool) -> Coefficients:
    """(4.14) of two ReLU layers, with or without α̃4², α̃1² and the ½ in α̃4; the print lacks all three."""
    model = two_relu_layers()
    linear, norm, trace, slope, q = 1.0, 0.0, 0.0, 1.0, 1.0
    for layer in model.layers:
        moments = LayerMoments.of(layer, q)
        m1, m2 = moments.slope**2, moments.curvature**2
        norm = m1 * norm + m2 * slope ** (2 if square4 else 1) / 4.0
        trace = m1 * trace + m2 * linear ** (2 if square1 else 1) / 2.0
        linear, slope, q = m1 * linear, moments.energy_slope * slope * (1 if half else 2), moments.energy
    return replace(coefficients(model, 1.0), linear=linear, norm=norm, trace=trace)


def icml_explicit(spec: ErrataSpec) -> Iterator[Number]:
    """Erratum 4: two squares and a factor ½ in the recursion of explicit networks."""
    printed = explicit_recursion(square4=False, square1=False, half=False)
    for name, label in (("norm", "α̃₂"), ("trace", "α̃₃")):
        yield _scalar(f"{label}, two ReLU layers", two_relu_layers(), name, getattr(printed, name))


def icml_centring(spec: ErrataSpec) -> Iterator[Number]:
    """Erratum 5: the shift with τ̃_l, the scale of what leaves the layer, in the place of what enters it."""
    first, second = two_relu_layers().layers
    entering = float(np.sqrt(second_moment(first, 1.0)))
    printed = activation("relu").shifted(-float(np.sqrt(second_moment(second, entering**2) / (2.0 * np.pi))))
    left, right = (float(mean_derivative(phi, entering**2, 0)) for phi in (printed, second))
    yield Number("mean of the second ReLU layer", left, right, 0.0)


def iclr_identity(spec: ErrataSpec) -> Iterator[Number]:
    """Erratum 6: the coefficient of the identity with -τ0⁴ α3, seen in the mean of the diagonal of Λ."""
    sample = mixture_sample(spec.samples, int(0.8 * spec.samples), 0)
    tau0, known = sample.tau0, sample.statistics
    model = DEQ("relu", SIGMA_A2).centred(tau0)
    scalars = coefficients(model, tau0, "ck_preactivations")
    deviation = np.append(known.t, 1.0)
    core = scalars.norm * np.outer(deviation, deviation)
    core[:-1, :-1] += scalars.trace * known.T
    informative = np.column_stack([known.one_hot / np.sqrt(known.p), known.psi])
    rest = scalars.linear * np.sum(sample.X**2, axis=1)
    rest += np.einsum("ia,ab,ib->i", informative, core, informative)
    decides = float(np.mean(np.diag(exact_kernel(model, sample.X, kernel="ck_preactivations")) - rest))
    printed = scalars.identity - tau0**4 * scalars.trace
    yield Number("coefficient of the identity, Λ, ReLU", float(printed), float(scalars.identity), decides)


def input_scale(spec: ErrataSpec) -> Iterator[Number]:
    """Erratum 7: mean squared pre-activation of a √2·ReLU DEQ on unit inputs, by the place of 1/√m."""
    rng = np.random.default_rng(spec.width)
    recurrent = rng.standard_normal((spec.width, spec.width)) * np.sqrt(SIGMA_A2 / spec.width)
    drive = np.sqrt(1.0 - SIGMA_A2) * rng.standard_normal((spec.width, 8))  # B x for eight orthonormal x
    squares = []
    for scale in (spec.width**-0.5, 1.0):
        h = drive * scale
        for _ in range(60):
            h = recurrent @ (np.sqrt(2.0) * np.maximum(h, 0.0)) + drive * scale
        squares.append(float(np.mean(h**2)))
    yield Number(f"mean squared pre-activation, width {spec.width}", squares[0], squares[1], 1.0)


def quadratic_ratio(model: DEQ | Explicit, tau0: float) -> float:
    """(2α2 - α3) τ0⁴ / (γ² - α1 τ0² - α3 τ0⁴), which two quadratic layers put between 2 and 4."""
    scalars = coefficients(model, tau0)
    beyond = scalars.diagonal - scalars.linear * tau0**2 - scalars.trace * tau0**4
    return float((2.0 * scalars.norm - scalars.trace) * tau0**4 / beyond)


def iclr_quadratic(spec: ErrataSpec) -> Iterator[Number]:
    """Erratum 8: a ratio that two quadratic layers put into [2, 4) and no DEQ that we tried reaches."""
    layers = [activation("polynomial", coefficients=[0.0, 0.7, 0.4])] * 2
    yield Number(
        "ratio of two quadratic layers", None, quadratic_ratio(Explicit(layers).centred(1.0), 1.0), None
    )
    values = [quadratic_ratio(DEQ(n, v).centred(1.0), 1.0) for n in QUADRATIC_NAMES for v in (0.1, 0.2, 0.5)]
    yield Number("largest ratio of 27 DEQs", 2.0, max(values), None)


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


def iclr_leaky(spec: ErrataSpec) -> Iterator[Number]:
    """Erratum 9: the equations of one Leaky-ReLU layer, and what one layer cannot do."""
    yield Number(
        "E[φ''(ξ)], ReLU",
        0.0,
        float(1.0 / np.sqrt(2.0 * np.pi)),
        float(mean_derivative(activation("relu"), 1.0, 2)),
    )
    linear = Explicit([activation("leaky_relu", a=1.0, b=1.0)]).centred(1.0).layers[0]
    printed, right = (((np.pi - 1.0) * 2.0 + weight) / (2.0 * np.pi) for weight in (1, 2))
    yield Number("E[σ²] of a = b = 1", printed, right, float(second_moment(linear, 1.0)))
    sample = mixture_sample(spec.samples, int(0.8 * spec.samples), 0)
    model, tau0 = DEQ("relu", SIGMA_A2).centred(sample.tau0), sample.tau0
    features = coefficients(model, tau0)
    networks = {
        "Λ": (printed_leaky_layer_for(model, tau0), leaky_layer_for(model, tau0, "preactivations")),
        "G": (leaky_layer_for(model, tau0, "features"), Explicit(two_leaky_layers(features)).centred(tau0)),
    }
    names = {"Λ": ("ck_preactivations", "one layer"), "G": ("ck", "one layer, and two by (7.6)")}
    for name, pair in networks.items():
        kernel, layers = names[name]
        target = exact_kernel(model, sample.X, kernel=kernel)
        errors = [norm_of(target - exact_kernel(network, sample.X, kernel="ck")) for network in pair]
        yield Number(f"‖{name} − Σ‖, {layers}, n = {spec.samples}", errors[0], errors[1], 0.0)


# --- tangent kernels -----------------------------------------------------------------------------------


def arc_cosine(x: float) -> tuple[float, float]:
    """f and f' of (8.1)."""
    slope = (np.pi - np.arccos(x)) / np.pi
    return np.sqrt(1.0 - x**2) / np.pi + slope * x, slope


def double_sum(c: float, depth: int, *, last_factor: bool) -> float:
    """Σ_{h=1}^{l+1} G^(h-1) Π_{h'=h}^{l+1} Ġ^(h') on the sphere, with or without the last factor Ġ^(l+1)."""
    kernel, total = c, 0.0
    for layer in range(1, depth + 2):
        value, slope = arc_cosine(kernel)
        factor = 1.0 if layer == depth + 1 and not last_factor else SIGMA_A2 * slope
        total = (total + kernel) * factor
        kernel = SIGMA_A2 * value + (1.0 - SIGMA_A2) * c
    return float(total)


def tangent_sum(spec: ErrataSpec) -> Iterator[Number]:
    """Erratum 10: a factor too many in the double sum of the NTK."""
    for c in (-0.5, 0.5):
        pair = np.array([[1.0, 0.0], [c, np.sqrt(1.0 - c**2)]])
        exact = tangent_kernel(DEQ(NORMALISED_RELU, SIGMA_A2), pair, of="preactivations")[0, 1]
        sums = [double_sum(c, 60, last_factor=last) for last in (True, False)]
        yield Number(f"Π at depth 60, x_i·x_j = {c}", sums[0], sums[1], float(exact))


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
    tangent: Array = features + (adjoint.T @ adjoint / width) * inner
    return tangent


def tangent_reading(spec: ErrataSpec) -> Iterator[Number]:
    """Erratum 11: the relative distance of K (3.9) and of Θ (3.8) to the mean NTK of random networks."""
    X, model = np.random.default_rng(0).standard_normal((6, 4)) / 2.0, DEQ("tanh", SIGMA_A2)
    measured = np.mean([empirical_tangent(model, X, spec.width, seed) for seed in range(8)], axis=0)
    apart = [
        float(np.linalg.norm(tangent_kernel(model, X, of=of) - measured) / np.linalg.norm(measured))
        for of in ("paper", "network")
    ]
    yield Number(f"distance to networks of width {spec.width}, tanh", apart[0], apart[1], 0.0)


def hld_slope(spec: ErrataSpec) -> Iterator[Number]:
    """Erratum 12: k'(0) = (1-σ_a²) h'/(σ_a² f' - 1) as printed, and by (8.4)."""
    at_zero = float(brentq(lambda x: x - SIGMA_A2 * arc_cosine(x)[0], -1.0, 1.0, xtol=1e-15))
    slope = arc_cosine(at_zero)[1]
    curvature = 1.0 / (np.pi * np.sqrt(1.0 - at_zero**2))
    remaining = 1.0 - SIGMA_A2 * slope
    of_h = 1.0 / remaining + at_zero * SIGMA_A2 * curvature / remaining**2
    right = float((1.0 - SIGMA_A2) * of_h / remaining)
    decides = scalars_by_differences(DEQ(NORMALISED_RELU, SIGMA_A2), "ntk_preactivations")["linear"]
    yield Number("k'(0), ReLU", -right, right, decides)


# --- the convergence proof -----------------------------------------------------------------------------


def aistats_lemma2(spec: ErrataSpec) -> Iterator[Number]:
    """Erratum 13: ∇_W Φ of (8.12) with (aᵀ ⊗ I_n) and with (I_n ⊗ aᵀ), against differences of the loss."""
    width, n, d, step = 6, 4, 3, 1e-6
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((d, n)), rng.standard_normal(n)
    W = rng.standard_normal((width, width)) * np.sqrt(0.2 / width)
    U, a = rng.standard_normal((width, d)) * np.sqrt(2.0 / d), rng.standard_normal(width) / np.sqrt(width)

    def features(weights: Array) -> Array:
        Z = np.maximum(U @ X, 0.0)
        for _ in range(60):
            Z = np.maximum(weights @ Z + U @ X, 0.0)
        return np.asarray(Z)

    def loss(weights: Array) -> float:
        return 0.5 * float(np.sum((a @ features(weights) - y) ** 2))

    moves = step * np.eye(width * width).reshape(-1, width, width)
    exact = np.array([(loss(W + move) - loss(W - move)) / (2.0 * step) for move in moves]).reshape(W.shape)
    Z = features(W)
    mask = np.diag((W @ Z + U @ X > 0).astype(float).ravel(order="F"))
    solved = np.linalg.solve(np.eye(width * n) - mask @ np.kron(np.eye(n), W), mask)
    errors = []
    for selector in (np.kron(a[None], np.eye(n)), np.kron(np.eye(n), a[None])):
        gradient = (np.kron(Z, np.eye(width)) @ (selector @ solved).T @ (a @ Z - y)).reshape(
            W.shape, order="F"
        )
        errors.append(float(np.linalg.norm(gradient - exact) / np.linalg.norm(exact)))
    yield Number("relative error of ∇_W Φ, aᵀ ⊗ I_n", errors[0], errors[1], 0.0)


def cosines(c: float, sigma_w2: float, depth: int) -> tuple[Number, float]:
    """cos θ^(l) of Lemma 3 by its first formula, by (8.14) and from the exact kernel; by its Eq. 13 in addition."""
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
    number = Number(f"cos θ at depth {depth}", float(first), float(by_ours), float(exact[0, 1] / exact[0, 0]))
    return number, float(by_13)


def aistats_lemma3(spec: ErrataSpec) -> Iterator[Number]:
    """Erratum 14: K_ij in the place of K_ii."""
    yield cosines(-0.5, 0.1, 3)[0]


def third_inequality(n: int, sigma_w2: float, delta: float, readout: float, d: int = 50) -> float:
    """Left side over right side of the paper's (9), our (8.19), for infinite width: it must be at least 1.

    λ_0/m → λ_*, ‖U‖² d/m → 2, ‖W‖ → 2√2 σ_w, and c_u is negligible; n samples of norm √d, ‖a‖ → readout.
    """
    X = np.random.default_rng(0).standard_normal((d, n))
    rows = (X / np.linalg.norm(X, axis=0)).T
    least = float(np.linalg.eigvalsh(conjugate_kernel(DEQ(NORMALISED_RELU, sigma_w2, 1.0), rows))[0])
    contraction = 1.0 - np.sqrt(8.0 * sigma_w2) - delta
    return float(least * contraction**4 / (8.0 * n * (readout + delta) ** 2))


def aistats_condition(spec: ErrataSpec) -> Iterator[Number]:
    """Erratum 15: the quotient in the limit of wide networks; with a readout 50 times smaller it is above 1."""
    smaller = third_inequality(2, 0.0025, 0.03, 0.02)
    yield Number(
        "quotient of (9) at m → ∞, as assumed; readout / 50",
        third_inequality(4, 0.01, 0.05, 1.0),
        smaller,
        None,
    )


def one_step(surplus: float, readout: float = 20.0) -> tuple[float, float]:
    """Return the bound (8.27) for the step (8.20), and 1 - ηλ_0/2; λ_0 is `surplus` times the bound of (8.19).

    In units of (c_w² + c_u²) ||X||_F²; `readout` is c_a² ||X||_F² in them.
    """
    least, everything = 4.0 * surplus, 1.0 + readout
    eta = min(2.0 / least, 2.0 / everything**2)
    return 1.0 - eta * least + 2.0 * eta + (eta * everything) ** 2, 1.0 - 0.5 * eta * least


def aistats_step(spec: ErrataSpec) -> Iterator[Number]:
    """Erratum 16: the factor of the loss when (9) holds with equality: no decrease is proved."""
    proved, printed = one_step(1.0)
    yield Number("Φ(τ+1)/Φ(τ) with equality in (9)", printed, proved, None)


ERRATA: dict[str, Callable[[ErrataSpec], Iterator[Number]]] = {
    "icml-alpha2": icml_alpha2,
    "icml-kappa": icml_kappa,
    "icml-beta3": icml_beta3,
    "icml-explicit": icml_explicit,
    "icml-centring": icml_centring,
    "iclr-identity": iclr_identity,
    "input-scale": input_scale,
    "iclr-quadratic": iclr_quadratic,
    "iclr-leaky": iclr_leaky,
    "tangent-sum": tangent_sum,
    "tangent-reading": tangent_reading,
    "hld-slope": hld_slope,
    "aistats-lemma2": aistats_lemma2,
    "aistats-lemma3": aistats_lemma3,
    "aistats-condition": aistats_condition,
    "aistats-step": aistats_step,
}
