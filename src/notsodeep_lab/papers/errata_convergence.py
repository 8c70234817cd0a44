"""Misprints in the convergence proof of the AISTATS submission, each with the number that shows it: docs/errata.md."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from scipy.sparse.linalg import svds

from notsodeep.kernels import conjugate_kernel
from notsodeep.models import DEQ
from notsodeep_lab.papers.errata_formulas import Array, Size, Tables
from notsodeep_lab.papers.errata_tangent import NORMALISED_RELU, arc_cosine
from notsodeep_lab.papers.experiment import Row


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
        gradient = gradient_by_lemma(network, X, y, selector.astype(np.float64)) if fits else None
        row["relative error of ∇_W Φ"] = (
            None if gradient is None else float(np.linalg.norm(gradient - exact) / np.linalg.norm(exact))
        )
        rows.append(row)
    return [rows]


@dataclass(frozen=True)
class Initialisation:
    """A setting of Condition 1: n samples of norm √d, and a readout of norm about `readout`."""

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
    """Return the bound (8.27) for the step (8.20), and 1 - ηλ_0/2; λ_0 is `surplus` times the bound of (8.19).

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


MEASURES: dict[str, Callable[[Size], Tables]] = {
    "aistats-lemma2": aistats_lemma2,
    "aistats-lemma3": aistats_lemma3,
    "aistats-condition": aistats_condition,
    "aistats-step": aistats_step,
}
