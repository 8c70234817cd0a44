"""The kernel after learning compared with networks that learn, and what learning features changes in test error."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import sqrt
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from notsodeep.data import GaussianMixture
from notsodeep.designs import design
from notsodeep.feature_learning import adaptive_kernel
from notsodeep.feature_learning.adaptive import alignment
from notsodeep.kernels import conjugate_kernel
from notsodeep.models import DEQ
from notsodeep.records import chosen
from notsodeep.validation import Array
from notsodeep_lab.papers.experiment import Expectation, Experiment, Row, Task, claims_by, grid
from notsodeep_lab.papers.experiment_settings import DEQSpec
from notsodeep_lab.papers.row_statistics import mean

# A network of this many times the number of samples should have the kernel of the theory up to this relative error.
_CLOSE = 0.05
TARGETS = ("single index", "mixture")


@dataclass(frozen=True)
class FeaturesSpec(DEQSpec):
    """Networks that learn, compared with their theory."""

    ridge: float  # γ²/β, the ridge of the lazy limit
    richness: tuple[float, ...]  # values of γ
    dimension: int  # number of inputs
    sizes: tuple[int, ...]  # numbers of samples whose weights are sampled by Hamiltonian Monte Carlo
    widths: tuple[int, ...]  # widths of these networks
    moves: int  # Monte Carlo moves after half as many for tuning
    samples: int  # number of samples of the test errors, and of noisy gradient descent
    test_samples: int  # number of test samples
    descent_width: int  # width of the network trained by noisy gradient descent
    descent_steps: int  # steps of it


class LearnedFeatures(Experiment[FeaturesSpec]):
    """Kernels and outputs after learning; test errors against richness."""

    name = "features"
    paper = "ours"
    summary = "Kernel after learning against networks that learn; test error against richness, DEQ and twin"
    minutes = MappingProxyType({"quick": 2.0, "full": 25.0})
    quick = FeaturesSpec(
        0.4,
        ("tanh",),
        seeds=1,
        ridge=0.25,
        richness=(0.1, 0.3),
        dimension=8,
        sizes=(4,),
        widths=(100,),
        moves=100,
        samples=16,
        test_samples=50,
        descent_width=100,
        descent_steps=600,
    )
    full = replace(
        quick,
        richness=(0.03, 0.1, 0.3, 0.6),
        sizes=(4, 16),
        widths=(100, 200),
        moves=300,
        samples=32,
        test_samples=200,
        descent_width=200,
        descent_steps=3000,
    )

    def tasks(self, spec: FeaturesSpec) -> list[Task]:
        shared: dict[str, Any] = {"activation": spec.activations, "richness": spec.richness[-2:]}
        sampled = grid(
            "{kind} {activation} n={n} m={width} richness={richness}",
            lambda n, width, **_: n * (width / 100) ** 2,
            kind=("posterior",),
            n=spec.sizes,
            width=spec.widths,
            **shared,
        )
        descent = grid(
            "{kind} {activation} richness={richness}",
            lambda **_: 10.0,
            kind=("descent",),
            activation=spec.activations,
            richness=spec.richness[-2:-1],
        )
        errors = grid(
            "{kind} {activation} {target} richness={richness} seed={seed}",
            lambda **_: 5.0,
            kind=("error",),
            target=TARGETS,
            seed=range(spec.seeds),
            activation=spec.activations,
            richness=spec.richness,
        )
        return sampled + descent + errors

    def run(self, spec: FeaturesSpec, task: Task, data_dir: Path | None) -> list[Row]:
        deq, gamma = DEQ(task["activation"], spec.sigma_a2), task["richness"]
        beta = gamma**2 / spec.ridge
        if task["kind"] == "error":
            X, y = labelled(task["target"], spec.samples + spec.test_samples, spec.dimension, task["seed"])
            return list(error_rows(deq, X, y, spec.samples, gamma, beta))
        n = task["n"] if task["kind"] == "posterior" else spec.samples
        X, y = labelled("single index", n + 8, spec.dimension, 0)
        theory = adaptive_kernel(deq, X[:n], y[:n], gamma, beta)
        if task["kind"] == "posterior":
            from notsodeep_lab.papers.weight_posterior import WeightPosterior

            width = task["width"]
            weights = WeightPosterior(deq, X[:n], y[:n], width, gamma, beta)
            kernel, outputs, _ = weights.sample(X[n:], spec.moves, spec.moves // 2, 4, 0)
        else:
            width = spec.descent_width
            kernel, outputs = noisy_descent(deq, X, y[:n], width, gamma, beta, spec.descent_steps)
        return [comparison(theory, X, kernel, outputs) | {"kind": task["kind"], "width": width}]

    def expectations(self, spec: FeaturesSpec, rows: Sequence[Row]) -> list[Expectation]:
        networks = [row for row in rows if row["kind"] in ("posterior", "descent")]
        fields = ("kind", "n", "width", "richness")
        axes = {name: sorted({row[name] for row in networks}) for name in fields}
        errors = chosen(rows, kind="error")
        return [
            *claims_by(_agrees, networks, **axes),
            *claims_by(_errors, errors, target=TARGETS, richness=spec.richness),
        ]


def labelled(target: str, n: int, p: int, seed: int) -> tuple[Array, Array]:
    """Samples of unit mean square norm and targets ±1: the sign of one coordinate, or the class of a mixture."""
    if target == "mixture":
        means = np.zeros((2, p))
        means[:, 0] = -2.0, 2.0
        X, y = GaussianMixture(means, [1.0, 1.0]).sample(n, seed=seed)
        X, y = X / sqrt(np.mean(np.sum(X**2, axis=1))), 2.0 * y - 1.0
        order = np.random.default_rng(seed).permutation(n)
        return X[order], y[order]
    X = np.random.default_rng(seed).standard_normal((n, p)) / sqrt(p)
    return X, np.sign(X[:, 0])


def comparison(theory: Any, X: Array, kernel: Array, outputs: Array) -> Row:
    """Kernel, alignment and outputs of networks (chains first) beside theory and the lazy limit."""
    n, posterior = len(theory.y), theory.solutions[0].posterior
    measured, means = kernel.mean(axis=0)[:n, :n], outputs.mean(axis=0)
    lazy = conjugate_kernel(theory.model, X, X[:n]) @ posterior.residuals(theory.lazy_kernel)[:, 0]
    predicted = np.concatenate([theory.outputs, theory.predict(X[n:])])
    size, count = np.linalg.norm(measured), sqrt(len(kernel))
    return {
        "n": n,
        "richness": posterior.richness,
        "kernel_error": float(np.linalg.norm(theory.kernel - measured) / size),
        "lazy_kernel_error": float(np.linalg.norm(theory.lazy_kernel - measured) / size),
        "sampling_error": float(np.linalg.norm(kernel.std(axis=0, ddof=1)[:n, :n]) / count / size),
        "alignment": alignment(measured, theory.y),
        "theory_alignment": theory.alignment,
        "lazy_alignment": theory.lazy_alignment,
        "outputs": means.tolist(),
        "theory_outputs": predicted.tolist(),
        "lazy_outputs": (lazy / posterior.richness**2).tolist(),
    }


def noisy_descent(
    deq: DEQ, X: Array, y: Array, width: int, gamma: float, beta: float, steps: int, rate: float = 0.005
) -> tuple[Array, Array]:
    """Average over gradient descent with noise and weight decay, in thirds after the first quarter.

    The loss is (mβ/2)|y − f|² + |weights|²/2 at temperature 1.
    """
    import torch

    from notsodeep.nets import DEQNet

    net = DEQNet(
        deq, X.shape[1], width, 1, seed=0, scaling="ntk", dtype=torch.float64, output_scale=1.0 / (gamma * sqrt(width))
    )
    every, targets = torch.from_numpy(X), torch.from_numpy(y)
    generator = torch.Generator().manual_seed(1)
    sums, first = [[np.zeros((len(X), len(X))), np.zeros(len(X)), 0] for _ in range(3)], steps // 4
    for step in range(steps):
        net.zero_grad()
        loss = 0.5 * width * beta * (net(every[: len(y)])[:, 0] - targets).square().sum()
        loss.backward()
        with torch.no_grad():
            for weights in net.parameters():
                noise = torch.randn(weights.shape, generator=generator, dtype=weights.dtype)
                weights.add_(-rate * (weights + weights.grad) + sqrt(2.0 * rate) * noise)
            if step >= first and step % 10 == 0:
                features = net.features(every)
                part = sums[min(3 * (step - first) // (steps - first), 2)]
                part[0] += (features @ features.mT).numpy()
                part[1] += net.outputs(features)[:, 0].numpy()
                part[2] += 1
    return np.stack([kernel / count for kernel, _, count in sums]), np.stack([f / count for _, f, count in sums])


def error_rows(deq: DEQ, X: Array, y: Array, n: int, gamma: float, beta: float) -> Iterator[Row]:
    """Test errors of the DEQ and of its twin, lazy and after learning."""
    twin = design(deq, 1.0, "ck").network
    kernels = {}
    for name, model in (("deq", deq), ("twin", twin)):
        after = adaptive_kernel(model, X[:n], y[:n], gamma, beta, starts=("lazy",), chains=64)
        kernels[name] = after
        residuals = after.solutions[0].posterior.residuals(after.lazy_kernel)[:, 0]
        outputs = {
            "lazy": conjugate_kernel(model, X[n:], X[:n]) @ residuals / gamma**2,
            "after": after.predict(X[n:]),
        }
        distances = {
            f"{kind}_distance": float(np.linalg.norm(one - other) / np.linalg.norm(other))
            for kind, one, other in (
                ("lazy", after.lazy_kernel, kernels["deq"].lazy_kernel),
                ("kernel", after.kernel, kernels["deq"].kernel),
            )
        }
        yield {
            "kind": "error",
            "model": name,
            "change": after.change,
            "alignment": after.alignment,
            "lazy_alignment": after.lazy_alignment,
            "rate": after.rate,
            "converged": after.converged,
            **distances,
            **{f"{kind}_mse": float(np.mean((f - y[n:]) ** 2)) for kind, f in outputs.items()},
            **{f"{kind}_accuracy": float(np.mean(f * y[n:] > 0.0)) for kind, f in outputs.items()},
        }


def _agrees(rows: list[Row], kind: str, n: int, width: int, richness: float) -> Iterator[Expectation]:
    row = rows[0]
    off = {
        name: float(np.sqrt(np.mean((np.array(row[name]) - np.array(row["outputs"])) ** 2)))
        for name in ("theory_outputs", "lazy_outputs")
    }
    yield Expectation(
        f"relative error of the kernel after learning, {kind}, n = {n}, width {width}, richness {richness:g}",
        None,
        row["kernel_error"],
        bool(row["kernel_error"] <= _CLOSE),
        f"yes if at most {_CLOSE:g}; lazy kernel {row['lazy_kernel_error']:.3g}; sampling error of the network "
        f"{row['sampling_error']:.2g}; alignment {row['alignment']:.3f}, theory {row['theory_alignment']:.3f}, lazy "
        f"{row['lazy_alignment']:.3f}; outputs off by {off['theory_outputs']:.2g}, lazy {off['lazy_outputs']:.2g}",
    )


def _errors(rows: list[Row], target: str, richness: float) -> Iterator[Expectation]:
    deq, twin = (chosen(rows, model=name) for name in ("deq", "twin"))
    yield Expectation(
        f"test error after learning − lazy, {target}, richness {richness:g}",
        None,
        mean(deq, "after_mse") - mean(deq, "lazy_mse"),
        None,
        f"DEQ {mean(deq, 'after_mse'):.3f}, lazy {mean(deq, 'lazy_mse'):.3f}; twin {mean(twin, 'after_mse'):.3f}, lazy "
        f"{mean(twin, 'lazy_mse'):.3f}; distance of the two kernels {mean(twin, 'kernel_distance'):.2g}, lazy "
        f"{mean(twin, 'lazy_distance'):.2g}; kernel of the DEQ changed by {mean(deq, 'change'):.2g}",
    )
