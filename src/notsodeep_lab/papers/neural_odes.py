"""Neural ODEs: error of their equivalents by sample size, kernel errors of their twins, and training."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from notsodeep.data import Preprocessing, load
from notsodeep.models import Explicit, Model, NeuralODE
from notsodeep.records import chosen
from notsodeep_lab.papers.experiment import Expectation, Experiment, Row, Task, claims_by, grid
from notsodeep_lab.papers.experiment_settings import Spec
from notsodeep_lab.papers.measures import mixture_sample
from notsodeep_lab.papers.row_statistics import values_of

# The slope of log error against log n, and how far a measured one may be from it.
_SLOPE, _AWAY = -0.5, 0.15


@dataclass(frozen=True)
class NeuralODEsSpec(Spec):
    """Neural ODEs on mixtures and on data sets."""

    activations: tuple[str, ...]  # activations of the equivalents
    sizes: tuple[int, ...]  # numbers of samples of the equivalents; dimensions are 0.8 times as many
    strengths: tuple[float, ...]  # variances sigma_w2 of the tanh models with twins; all have duration 1
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
    minutes = MappingProxyType({"quick": 3.0, "full": 25.0})
    quick = NeuralODEsSpec(
        activations=("tanh",),
        sizes=(100, 200, 400),
        strengths=(4.0,),
        layers=(2, 3),
        data=("digits",),
        fit=100,
        train=700,
        width=128,
        epochs=5,
        seeds=1,
    )
    full = replace(
        quick,
        activations=("tanh", "softplus"),
        sizes=(200, 400, 800, 1600),
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
        errors = grid(
            "equivalent {activation} {kernel} n={n} seed={seed}",
            lambda n, **_: (n / 400) ** 2,
            activation=spec.activations,
            kernel=("ck", "ntk"),
            n=spec.sizes,
            seed=range(spec.seeds),
        )
        twins = grid(
            "twin {data} strength={strength} layers={layers}",
            lambda **_: 3.0,
            data=spec.data,
            strength=spec.strengths,
            layers=spec.layers,
        )
        trained = grid(
            "training {data} strength={strength} seed={seed}",
            lambda **_: 10.0,
            data=spec.data,
            strength=spec.strengths[-1:],
            seed=range(spec.seeds),
        )
        return errors + twins + trained

    def run(self, spec: NeuralODEsSpec, task: Task, data_dir: Path | None) -> list[Row]:
        if "n" in task.parameters:
            return [_equivalent_row(task)]
        rows = _twin_rows if "layers" in task.parameters else _training_rows
        return list(rows(spec, task, data_dir))

    def expectations(self, spec: NeuralODEsSpec, rows: Sequence[Row]) -> list[Expectation]:
        names, kernels = spec.activations, ("ck", "ntk")
        data = {"data": spec.data, "strength": spec.strengths}
        return [
            *claims_by(_falls, chosen(rows, kind="ode-equivalent"), activation=names, kernel=kernels),
            *claims_by(_closer, chosen(rows, kind="ode-twin"), **data, layers=spec.layers, kernel=kernels),
            *claims_by(_trained, chosen(rows, kind="ode-training"), data=spec.data),
        ]


def _equivalent_row(task: Task) -> Row:
    from notsodeep.equivalents import equivalence_error

    sample = mixture_sample(task["n"], round(0.8 * task["n"]), task["seed"])
    model = NeuralODE(task["activation"]).centred(sample.tau0)
    error = equivalence_error(model, sample.X, sample.statistics, task["kernel"])
    return {"kind": "ode-equivalent", **task.parameters, "relative": error.relative}


def _rows_of(data: str, count: int, data_dir: Path | None) -> tuple[Any, Any]:
    loaded = load(data, n=count, seed=0, data_dir=data_dir)
    order = np.random.default_rng(0).permutation(len(loaded.X))
    return Preprocessing.fit(loaded.X).apply(loaded.X)[order], np.asarray(loaded.y)[order]


def _twin_rows(spec: NeuralODEsSpec, task: Task, data_dir: Path | None) -> Iterator[Row]:
    """Kernel errors of a twin, of Euler's method and of plain layers on held-out rows."""
    from notsodeep.designs import design
    from notsodeep.designs.evidence import split_samples
    from notsodeep.equivalents import kernel_distance
    from notsodeep.kernels import both_kernels

    X, _ = _rows_of(task["data"], 2 * spec.fit, data_dir)
    model, layers = NeuralODE("tanh", task["strength"]), task["layers"]
    twin = design(model, X=X, kernel="both", layers=layers, samples=spec.fit, evidence=False)
    held_out = split_samples(model.check_samples(X), spec.fit)[1]
    networks = {
        "twin": twin.network,
        "euler": model.unrolled(layers),
        "plain": Explicit(["tanh"] * layers),
        "linear": Explicit(["identity"]),
    }
    targets = dict(zip(("ck", "ntk"), both_kernels(model, held_out), strict=True))
    for name, network in networks.items():
        for (kernel, target), matrix in zip(targets.items(), both_kernels(network, held_out), strict=True):
            distance = kernel_distance(target, matrix)
            yield {
                "kind": "ode-twin",
                **task.parameters,
                "kernel": kernel,
                "network": name,
                "relative": distance.relative,
                "up_to_factor": distance.up_to_factor,
            }


def _training_rows(spec: NeuralODEsSpec, task: Task, data_dir: Path | None) -> Iterator[Row]:
    """Accuracy, agreement with the neural ODE and time of networks that are trained alike."""
    import torch

    from notsodeep.designs import design
    from notsodeep.nets.measure import inference_seconds
    from notsodeep.nets.modules import network_of
    from notsodeep.nets.training import fit

    X, y = _rows_of(task["data"], 2 * spec.train, data_dir)
    inputs, labels = torch.as_tensor(X, dtype=torch.float32), torch.as_tensor(y, dtype=torch.int64)
    train, test = slice(0, spec.train), slice(spec.train, None)
    model, layers = NeuralODE("tanh", task["strength"]), 3
    twin = design(model, X=X[train], kernel="both", layers=layers, samples=spec.fit, evidence=False)
    networks: dict[str, Any] = {
        "ode": model,
        "twin": twin.network,
        "euler": model.unrolled(layers),
        "plain": Explicit(["tanh"] * layers),
    }
    answers = {}
    for name, network in networks.items():
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
            "stopped": history.stopped,
            "training_seconds": float(sum(epoch.seconds for epoch in history.rows)),
            "inference_seconds": inference_seconds(net, inputs[test]),
        }


def _falls(rows: list[Row], activation: str, kernel: str) -> Iterator[Expectation]:
    sizes = values_of(rows, "n")
    errors = [float(np.mean([row["relative"] for row in chosen(rows, n=n)])) for n in sizes]
    slope = float(np.polyfit(np.log(sizes), np.log(errors), 1)[0])
    yield Expectation(
        f"power of n by which the error of the equivalent falls, {activation}, {kernel}",
        None,
        slope,
        abs(slope - _SLOPE) <= _AWAY,
        f"yes if within {_AWAY:g} of -1/2; errors {', '.join(f'{error:.2g}' for error in errors)}",
    )


def _closer(rows: list[Row], data: str, strength: float, layers: int, kernel: str) -> Iterator[Expectation]:
    part = {row["network"]: row for row in rows}
    twin, others = part["twin"], [part[name] for name in ("euler", "plain", "linear")]
    yield Expectation(
        f"kernel error of {layers} layers, {data}, sigma_w2 = {strength:g}, {kernel}",
        None,
        twin["relative"],
        bool(twin["relative"] < min(others[0]["relative"], others[1]["up_to_factor"])),
        f"yes if less than Euler's with as many steps ({others[0]['relative']:.2g}) and than that of plain layers with "
        f"their best factor ({others[1]['up_to_factor']:.2g}); a linear kernel with its best factor "
        f"{others[2]['up_to_factor']:.2g}",
    )


def _trained(rows: list[Row], data: str) -> Iterator[Expectation]:
    for name in values_of(rows, "network"):
        part = chosen(rows, network=name)
        means = {
            field: float(np.mean([row[field] for row in part]))
            for field in ("accuracy", "agreement", "training_seconds", "inference_seconds")
        }
        yield Expectation(
            f"test accuracy in %, {name}, {data}",
            None,
            100.0 * means["accuracy"],
            None,
            f"agreement with the neural ODE {means['agreement']:.1%}; training {means['training_seconds']:.1f} s, "
            f"{1000 * means['inference_seconds']:.1f} ms per 1000 samples",
        )
