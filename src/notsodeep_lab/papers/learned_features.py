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
from notsodeep.feature_learning.adaptive import AdaptiveKernel, alignment
from notsodeep.kernels import conjugate_kernel
from notsodeep.models import DEQ
from notsodeep.validation import Array
from notsodeep_lab.papers.experiment import Expectation, Experiment, Row, Task, claims_by, grid
from notsodeep_lab.papers.experiment_settings import DEQSpec
from notsodeep_lab.papers.row_statistics import mean
from notsodeep_lab.plots.row_selection import chosen

# Relative error up to which the kernel of a network counts as that of the theory; step of noisy descent.
_CLOSE, _RATE = 0.05, 0.005
_TARGETS = ("single index", "mixture")


@dataclass(frozen=True)
class FeaturesSpec(DEQSpec):
    """Networks that learn, compared with their theory."""

    ridge: float  # γ²/β, the ridge of the lazy limit
    richness: tuple[float, ...]  # values of γ; networks learn at the last two
    dimension: int  # number of inputs
    sizes: tuple[int, ...]  # numbers of samples of networks whose weights are sampled
    widths: tuple[int, ...]  # their widths
    moves: int  # Monte Carlo moves, after half as many for tuning
    samples: int  # number of samples of test errors and of noisy gradient descent
    test_samples: int  # number of test samples
    descent_width: int  # width of the network trained by noisy gradient descent
    descent_steps: int  # its steps


class LearnedFeatures(Experiment[FeaturesSpec]):
    """Kernels and outputs after learning; test errors against richness."""

    name = "features"
    paper = "ours"
    summary = "Kernel after learning against networks that learn; test error against richness, DEQ and twin"
    minutes = MappingProxyType({"quick": 1.0, "full": 25.0})
    quick = FeaturesSpec(0.4, ("tanh",), 1, 0.25, (0.3,), 8, (4,), (50,), 60, 12, 50, 50, 200)
    full = replace(
        quick, richness=(0.03, 0.1, 0.3, 0.6), sizes=(4, 16), widths=(100, 200), moves=300,
        samples=32, test_samples=200, descent_width=200, descent_steps=3000,
    )  # fmt: skip

    def tasks(self, spec: FeaturesSpec) -> list[Task]:
        learned: dict[str, Any] = {"activation": spec.activations, "richness": spec.richness[-2:]}
        key = "{kind} {activation} n={n} m={width} richness={richness}"
        cases = [("posterior", n, width) for n in spec.sizes for width in spec.widths]
        tasks = []
        for kind, n, width in [*cases, ("descent", spec.samples, spec.descent_width)]:
            tasks += grid(
                key, lambda n, width, **_: n * width**2 / 1e5, kind=[kind], n=[n], width=[width], **learned
            )
        return tasks + grid(
            "{kind} {activation} {target} richness={richness} seed={seed}",
            lambda **_: 1.0,
            kind=["error"],
            target=_TARGETS,
            **(learned | {"richness": spec.richness}),
            seed=range(spec.seeds),
        )

    def run(self, spec: FeaturesSpec, task: Task, data_dir: Path | None) -> list[Row]:
        from notsodeep_lab.papers.weight_posterior import WeightPosterior

        deq, gamma = DEQ(task["activation"], spec.sigma_a2), task["richness"]
        beta = gamma**2 / spec.ridge
        if task["kind"] == "error":
            X, y = labelled(task["target"], spec.samples + spec.test_samples, spec.dimension, task["seed"])
            return [{**task.parameters, **row} for row in error_rows(deq, X, y, spec.samples, gamma, beta)]
        n, width = task["n"], task["width"]
        X, y = labelled("single index", n + 8, spec.dimension, 0)
        weights = WeightPosterior(deq, X[:n], y[:n], width, gamma, beta)
        if task["kind"] == "posterior":
            kernel, outputs = weights.sample(X[n:], spec.moves, spec.moves // 2, 4, 0)
        else:
            kernel, outputs = noisy_descent(weights, X, spec.descent_steps)
        theory = adaptive_kernel(deq, X[:n], y[:n], gamma, beta)
        return [{**task.parameters, **comparison(theory, X[n:], kernel[:, :n, :n], outputs)}]

    def expectations(self, spec: FeaturesSpec, rows: Sequence[Row]) -> list[Expectation]:
        networks = [row for row in rows if row["kind"] != "error"]
        axes = {name: sorted({row[name] for row in networks}) for name in ("kind", "n", "width", "richness")}
        return [
            *claims_by(_agrees, networks, **axes),
            *claims_by(_errors, chosen(rows, kind="error"), target=_TARGETS, richness=spec.richness),
        ]


def labelled(target: str, n: int, p: int, seed: int) -> tuple[Array, Array]:
    """Samples of mean square norm 1 and targets ±1: the sign of one coordinate, or the class of a mixture."""
    rng = np.random.default_rng(seed)
    if target == "single index":
        X = rng.standard_normal((n, p)) / sqrt(p)
        return X, np.asarray(np.sign(X[:, 0]), dtype=np.float64)
    means = np.zeros((2, p))
    means[:, 0] = -2.0, 2.0
    X, y = GaussianMixture(means, [1.0, 1.0]).sample(n, seed=seed)
    order = rng.permutation(n)
    return X[order] / sqrt(np.mean(np.sum(X**2, axis=1))), np.where(y[order] > 0, 1.0, -1.0)


def lazy_outputs(theory: AdaptiveKernel, X: Array) -> Array:
    """Ridge regression with the kernel before learning."""
    posterior = theory.solutions[0].posterior
    readout = posterior.residuals(theory.lazy_kernel)[:, 0] / posterior.richness**2
    return np.asarray(conjugate_kernel(theory.model, X, theory.X) @ readout)


def comparison(theory: AdaptiveKernel, X_test: Array, kernel: Array, outputs: Array) -> Row:
    """Kernel, alignment and outputs of networks (chains first) beside theory and the lazy limit."""
    measured, means = kernel.mean(axis=0), outputs.mean(axis=0)
    after = np.concatenate([theory.outputs, theory.predict(X_test)])
    lazy = lazy_outputs(theory, np.concatenate([theory.X, X_test]))
    error = kernel.std(axis=0, ddof=1) / sqrt(len(kernel))
    return {
        "kernel_error": _distance(theory.kernel, measured),
        "lazy_kernel_error": _distance(theory.lazy_kernel, measured),
        "sampling_error": float(np.linalg.norm(error) / np.linalg.norm(measured)),
        "alignment": alignment(measured, theory.y),
        "theory_alignment": theory.alignment,
        "lazy_alignment": theory.lazy_alignment,
        "output_error": float(np.sqrt(np.mean((after - means) ** 2))),
        "lazy_output_error": float(np.sqrt(np.mean((lazy - means) ** 2))),
    }


def _distance(one: Array, other: Array) -> float:
    return float(np.linalg.norm(one - other) / np.linalg.norm(other))


def noisy_descent(posterior: Any, X: Array, steps: int) -> tuple[Array, Array]:
    """Average a `DEQNet` over gradient descent with noise and weight decay, in thirds after the first quarter."""
    import torch

    from notsodeep.nets import DEQNet

    n, width = len(posterior.y), posterior.width
    options: dict[str, Any] = {"seed": 0, "scaling": "ntk", "dtype": torch.float64}
    scale = 1.0 / (posterior.richness * sqrt(width))
    net = DEQNet(posterior.model, X.shape[1], width, 1, output_scale=scale, **options)
    rows, targets, generator = torch.from_numpy(X), torch.from_numpy(posterior.y), torch.Generator()
    generator.manual_seed(1)
    kernels, outputs, first = [], [], steps // 4
    for step in range(steps):
        net.zero_grad()
        mismatch = net(rows[:n])[:, 0] - targets
        (0.5 * width * posterior.precision * mismatch.square().sum()).backward()
        with torch.no_grad():
            for weights in net.parameters():
                slope = torch.zeros_like(weights) if weights.grad is None else weights.grad
                noise = torch.randn(weights.shape, generator=generator, dtype=weights.dtype)
                weights.add_(-_RATE * (weights + slope) + sqrt(2.0 * _RATE) * noise)
            if step >= first and step % 10 == 0:
                features = net.features(rows)
                kernels.append((features @ features.mT).numpy())
                outputs.append(net.outputs(features)[:, 0].numpy())
    thirds = np.array_split(np.arange(len(kernels)), 3)
    parts = [
        [np.mean([values[i] for i in third], axis=0) for third in thirds] for values in (kernels, outputs)
    ]
    return np.stack(parts[0]), np.stack(parts[1])


def error_rows(deq: DEQ, X: Array, y: Array, n: int, gamma: float, beta: float) -> Iterator[Row]:
    """Test errors of the DEQ and of its twin, lazy and after learning; distances are from the DEQ's kernels."""
    first = None
    for name, model in (("deq", deq), ("twin", design(deq, 1.0, "ck").network)):
        after = adaptive_kernel(
            model, X[:n], y[:n], gamma, beta, starts=("lazy",), chains=256 if n > 8 else None
        )
        first = first or after
        outputs = {"lazy": lazy_outputs(after, X[n:]), "after": after.predict(X[n:])}
        yield {
            "model": name,
            **{
                key: getattr(after, key)
                for key in ("change", "alignment", "lazy_alignment", "rate", "converged")
            },
            "kernel_distance": _distance(after.kernel, first.kernel),
            "lazy_distance": _distance(after.lazy_kernel, first.lazy_kernel),
            **{f"{kind}_mse": float(np.mean((f - y[n:]) ** 2)) for kind, f in outputs.items()},
            **{f"{kind}_accuracy": float(np.mean(f * y[n:] > 0.0)) for kind, f in outputs.items()},
        }


def _agrees(rows: list[Row], kind: str, n: int, width: int, richness: float) -> Iterator[Expectation]:
    row = rows[0]
    yield Expectation(
        f"relative error of the kernel after learning, {kind}, n = {n}, width {width}, richness {richness:g}",
        None,
        row["kernel_error"],
        bool(row["kernel_error"] <= _CLOSE),
        f"yes if at most {_CLOSE:g}; lazy kernel {row['lazy_kernel_error']:.3g}; sampling error of networks "
        f"{row['sampling_error']:.2g}; alignment {row['alignment']:.3f}, theory {row['theory_alignment']:.3f}, lazy "
        f"{row['lazy_alignment']:.3f}; outputs off by {row['output_error']:.2g}, lazy {row['lazy_output_error']:.2g}",
    )


def _errors(rows: list[Row], target: str, richness: float) -> Iterator[Expectation]:
    deq, twin = ({key: mean(chosen(rows, model=name), key) for key in _SHOWN} for name in ("deq", "twin"))
    yield Expectation(
        f"test error after learning − lazy, {target}, richness {richness:g}",
        None,
        deq["after_mse"] - deq["lazy_mse"],
        None,
        f"DEQ {deq['after_mse']:.3f}, lazy {deq['lazy_mse']:.3f}; twin {twin['after_mse']:.3f}, lazy "
        f"{twin['lazy_mse']:.3f}; distance of the kernels {twin['kernel_distance']:.2g}, lazy "
        f"{twin['lazy_distance']:.2g}; kernel of the DEQ changed by {deq['change']:.2g}, twin {twin['change']:.2g}",
    )


_SHOWN = ("after_mse", "lazy_mse", "kernel_distance", "lazy_distance", "change")
