"""Neural ODEs: error of their equivalents by sample size, kernel errors of their twins, and training."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from notsodeep.models import Explicit, Model, NeuralODE
from notsodeep_lab.papers.experiment import Expectation, Experiment, Row, Task, claims_by, grid
from notsodeep_lab.papers.experiment_settings import Spec
from notsodeep_lab.papers.loops import shuffled
from notsodeep_lab.papers.measures import mixture_sample
from notsodeep_lab.papers.row_statistics import values_of
from notsodeep_lab.plots.row_selection import chosen

# How far the slope of log error against log n may be from -1/2, and layers of the twin that is trained.
_AWAY, _LAYERS = 0.15, 3


@dataclass(frozen=True)
class NeuralODEsSpec(Spec):
    """Neural ODEs of duration 1 on mixtures and on data sets."""

    activations: tuple[str, ...]  # activations of the equivalents
    sizes: tuple[int, ...]  # numbers of samples of the equivalents; dimensions are 0.8 times as many
    strengths: tuple[float, ...]  # variances sigma_w2 of the tanh models with twins; the last one is trained
    layers: tuple[int, ...]  # layers of the twins
    data: tuple[str, ...]  # data sets
    fit: int  # samples for a fit, and held-out samples
    train: int  # training samples, and test samples
    width: int  # width of trained networks
    epochs: int  # passes over the training samples
    seeds: int  # number of repetitions


class NeuralODEs(Experiment[NeuralODEsSpec]):
    """Equivalents and twins of neural ODEs."""

    name = "neural-odes"
    paper = "ours"
    summary = "Neural ODEs: equivalents by sample size, twins compared with Euler steps and plain networks, training"
    minutes = MappingProxyType({"quick": 1.0, "full": 15.0})
    quick = NeuralODEsSpec(
        ("tanh",),
        (100, 200, 400),
        (4.0,),
        (2, 3),
        ("digits",),
        fit=100,
        train=700,
        width=128,
        epochs=5,
        seeds=1,
    )
    full = replace(
        quick,
        activations=("tanh", "softplus", "relu"),
        sizes=(100, 200, 400, 800, 1600),
        strengths=(1.0, 4.0, 9.0),
        layers=(2, 3, 4),
        data=("mnist", "fashion_mnist"),
        fit=150,
        train=2000,
        width=256,
        epochs=10,
        seeds=2,
    )
    timed = True

    def models(self, spec: NeuralODEsSpec) -> list[Model]:
        return [NeuralODE("tanh", strength) for strength in spec.strengths]

    def tasks(self, spec: NeuralODEsSpec) -> list[Task]:
        on_mixtures = {"activation": spec.activations, "kernel": ("ck", "ntk"), "n": spec.sizes}
        seeds = range(spec.seeds)
        twins = {"data": spec.data, "strength": spec.strengths, "layers": spec.layers}
        trained = {"data": spec.data, "strength": spec.strengths[-1:]}
        return [
            *grid("twin {data} strength={strength} layers={layers}", lambda **_: 3.0, **twins),
            *grid("training {data} strength={strength} seed={seed}", lambda **_: 9.0, **trained, seed=seeds),
            *grid(
                "{activation} {kernel} n={n} seed={seed}", lambda n, **_: n / 400, **on_mixtures, seed=seeds
            ),
        ]

    def run(self, spec: NeuralODEsSpec, task: Task, data_dir: Path | None) -> list[Row]:
        if "n" in task.parameters:
            return [_equivalent_row(task)]
        rows = _twin_rows if "layers" in task.parameters else _training_rows
        return list(rows(spec, task, data_dir))

    def expectations(self, spec: NeuralODEsSpec, rows: Sequence[Row]) -> list[Expectation]:
        names, kernels = spec.activations, ("ck", "ntk")
        data = {"data": spec.data, "strength": spec.strengths, "layers": spec.layers, "kernel": kernels}
        return [
            *claims_by(_falls, chosen(rows, kind="ode-equivalent"), activation=names, kernel=kernels),
            *claims_by(_closer, chosen(rows, kind="ode-twin"), **data),
            *claims_by(_trained, chosen(rows, kind="ode-training"), data=spec.data),
        ]


def _equivalent_row(task: Task) -> Row:
    from notsodeep.equivalents import equivalence_error

    sample = mixture_sample(task["n"], round(0.8 * task["n"]), task["seed"])
    model = NeuralODE(task["activation"]).centred(sample.tau0)
    error = equivalence_error(model, sample.X, sample.statistics, task["kernel"])
    return {"kind": "ode-equivalent", **task.parameters, "relative": float(error)}


def _networks(spec: NeuralODEsSpec, strength: float, layers: int, X: Any) -> dict[str, Any]:
    """The neural ODE, its twin fitted to rows, Euler's method and a plain network with as many steps and layers."""
    from notsodeep.designs import design

    model = NeuralODE("tanh", strength)
    twin = design(model, X=X, kernel="both", layers=layers, samples=spec.fit).network
    return {"ode": model, "twin": twin, "euler": model.unrolled(layers), "plain": Explicit(["tanh"] * layers)}


def _twin_rows(spec: NeuralODEsSpec, task: Task, data_dir: Path | None) -> Iterator[Row]:
    """Kernel errors on held-out rows."""
    from notsodeep.equivalents import kernel_distance
    from notsodeep.kernels import both_kernels

    X, _ = shuffled(task["data"], 2 * spec.fit, data_dir)
    networks = _networks(spec, task["strength"], task["layers"], X[: spec.fit])
    targets = both_kernels(networks.pop("ode"), X[spec.fit :])
    for name, network in (networks | {"linear": Explicit(["identity"])}).items():
        matrices = both_kernels(network, X[spec.fit :])
        for kernel, target, matrix in zip(("ck", "ntk"), targets, matrices, strict=True):
            distance = kernel_distance(target, matrix)
            errors = {"relative": distance.relative, "up_to_factor": distance.up_to_factor}
            yield {"kind": "ode-twin", **task.parameters, "kernel": kernel, "network": name, **errors}


def _training_rows(spec: NeuralODEsSpec, task: Task, data_dir: Path | None) -> Iterator[Row]:
    """Accuracy, agreement with the neural ODE and time of networks that are trained alike."""
    import torch

    from notsodeep.nets.measure import inference_seconds
    from notsodeep.nets.modules import network_of
    from notsodeep.nets.training import fit

    X, y = shuffled(task["data"], 2 * spec.train, data_dir)
    inputs, labels = torch.as_tensor(X, dtype=torch.float32), torch.as_tensor(y, dtype=torch.int64)
    train, test, answers = slice(0, spec.train), slice(spec.train, None), {}
    for name, network in _networks(spec, task["strength"], _LAYERS, X[train]).items():
        net = network_of(network, X.shape[1:], spec.width, int(y.max()) + 1, seed=task["seed"])
        history = fit(net, (inputs[train], labels[train]), epochs=spec.epochs, seed=task["seed"])
        with torch.no_grad():
            answers[name] = net(inputs[test]).argmax(dim=1).numpy()
        yield {
            "kind": "ode-training",
            **task.parameters,
            "network": name,
            "accuracy": float(np.mean(answers[name] == y[test])),
            "agreement": float(np.mean(answers[name] == answers["ode"])),
            "training_seconds": float(sum(epoch.seconds for epoch in history.rows)),
            "inference_seconds": inference_seconds(net, inputs[test]),
        }


def _falls(rows: list[Row], activation: str, kernel: str) -> Iterator[Expectation]:
    """The slope of log error against log n, fitted to each seed."""
    sizes, slopes = values_of(rows, "n"), []
    for seed in values_of(rows, "seed"):
        errors = [chosen(rows, n=n, seed=seed)[0]["relative"] for n in sizes]
        slopes.append(float(np.polyfit(np.log(sizes), np.log(errors), 1)[0]))
    slope, means = (
        float(np.mean(slopes)),
        [np.mean([row["relative"] for row in chosen(rows, n=n)]) for n in sizes],
    )
    spread = f" ± {np.std(slopes, ddof=1) / len(slopes) ** 0.5:.2g}" if len(slopes) > 1 else ""
    what = f"power of n by which the error of the equivalent falls, {activation}, {kernel}"
    words = f"yes if within {_AWAY:g} of -1/2; {slope:.2f}{spread}; errors {', '.join(f'{one:.2g}' for one in means)}"
    yield Expectation(what, None, slope, abs(slope + 0.5) <= _AWAY, words)


def _closer(rows: list[Row], data: str, strength: float, layers: int, kernel: str) -> Iterator[Expectation]:
    part = {row["network"]: row for row in rows}
    twin, euler = part["twin"]["relative"], part["euler"]["relative"]
    plain, linear = part["plain"]["up_to_factor"], part["linear"]["up_to_factor"]
    words = (
        f"yes if less than Euler's with as many steps ({euler:.2g}) and than that of plain layers with their best "
        f"factor ({plain:.2g}); a linear kernel with its best factor {linear:.2g}"
    )
    what = f"kernel error of {layers} layers, {data}, sigma_w2 = {strength:g}, {kernel}"
    yield Expectation(what, None, twin, bool(twin < min(euler, plain)), words)


def _trained(rows: list[Row], data: str) -> Iterator[Expectation]:
    for name in values_of(rows, "network"):
        fields = ("accuracy", "agreement", "training_seconds", "inference_seconds")
        part = [[row[field] for row in chosen(rows, network=name)] for field in fields]
        accuracy, agreement, training, inference = (float(np.mean(values)) for values in part)
        words = f"agreement with the neural ODE {agreement:.1%}; training {training:.1f} s, "
        words += f"{1000 * inference:.1f} ms per 1000 samples"
        yield Expectation(f"test accuracy in %, {name}, {data}", None, 100.0 * accuracy, None, words)
