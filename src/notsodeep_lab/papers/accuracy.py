"""Accuracy of DEQs, twins and plain networks by width: the common part of two figures."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from notsodeep_lab.papers.experiment import Expectation, Experiment, Row, Task, claims_by, grid
from notsodeep_lab.papers.experiment_settings import DEQSpec
from notsodeep_lab.papers.row_statistics import NEGLIGIBLE_GAP, accuracy_gap, values_of
from notsodeep_lab.plots.row_selection import chosen

# Stable, and training is nearly complete for every network. Features have norm about ½ here, √m times less than in
# the papers, whose learning rates are 1 and, for CIFAR-10, 0.1.
LEARNING_RATES = {"digits": 30.0, "mnist": 30.0, "fashion_mnist": 30.0, "cifar10_vgg19": 10.0}


# Number of training samples relative to MNIST, for the cost of a task.
_SIZES = {"digits": 0.03, "mnist": 1.0, "fashion_mnist": 1.0, "cifar10_vgg19": 0.33}


@dataclass(frozen=True)
class AccuracySpec(DEQSpec):
    """Train the readouts of three networks of the same width."""

    data: tuple[str, ...]  # data sets
    widths: tuple[int, ...]  # widths of all networks
    epochs: int  # epochs of SGD
    batch_size: int  # batch size of SGD
    samples: int | None  # number of training samples; all if None
    designed: str  # "leaky": ICLR's one Leaky-ReLU layer; "ck": ICML's match of all four scalars


A = TypeVar("A", bound=AccuracySpec)

CUT = (
    "Widths up to 1024 instead of 8192, and 20 epochs instead of 100 with a larger learning rate; CIFAR-10 as 20 000 "
    "VGG-19 features."
)


def both_sizes(kind: type[A], activations: tuple[str, ...], designed: str) -> tuple[A, A]:
    """Return the quick and the full settings."""
    quick = kind(
        0.2,
        activations,
        3,
        ("digits",),
        (32, 128, 512),
        epochs=20,
        batch_size=32,
        samples=None,
        designed=designed,
    )
    data, widths = ("mnist", "fashion_mnist", "cifar10_vgg19"), (32, 128, 512, 1024)
    return quick, replace(quick, data=data, widths=widths, seeds=2, batch_size=128)


class AccuracyExperiment(Experiment[A]):
    """Accuracy by width, as in two of the papers."""

    def tasks(self, spec: A) -> list[Task]:
        """One task per data set, activation, width and seed; each compares the three networks."""

        def cost(data: str, width: int, **_: Any) -> float:
            return _SIZES[data] * (spec.epochs * (0.4 + width / 300) + 20 * (width / 1000) ** 2)

        return grid(
            "{data} {activation} m={width} seed={seed}",
            cost,
            data=spec.data,
            activation=spec.activations,
            width=spec.widths,
            seed=range(spec.seeds),
        )

    def run(self, spec: A, task: Task, data_dir: Path | None) -> list[Row]:
        from notsodeep_lab.papers.training_rows import accuracy_rows, parts_of, three_networks

        data, name = task["data"], task["activation"]
        parts = parts_of(data, spec.samples, data_dir)
        models = three_networks(name, spec.sigma_a2, parts.tau0, spec.designed)
        training = {"lr": LEARNING_RATES[data], "epochs": spec.epochs, "batch_size": spec.batch_size}
        rows = accuracy_rows(models, parts, task["width"], training | {"seed": task["seed"]})
        return [{**row, "data": data, "activation": name} for row in rows]

    def expectations(self, spec: A, rows: Sequence[Row]) -> list[Expectation]:
        """At the largest width: does the twin reach the accuracy of the DEQ, and does the plain network not?"""
        trained = chosen(rows, kind="accuracy")
        return claims_by(_two_claims, trained, data=spec.data, activation=spec.activations)


def _two_claims(rows: list[Row], data: str, activation: str) -> Iterator[Expectation]:
    widths = sorted(values_of(rows, "width"))
    widest = chosen(rows, width=widths[-1])
    twin, plain = accuracy_gap(widest, "twin"), accuracy_gap(widest, "plain")
    where = f"{activation} on {data}, m = {widths[-1]}"
    yield Expectation(
        f"accuracy of the DEQ − accuracy of its twin, {where}",
        "closely matches",
        str(twin),
        twin.negligible,
        f"yes if at most half a point; by width: {_by_width(rows, widths, 'twin')}",
    )
    yield Expectation(
        f"accuracy of the DEQ − accuracy of a plain network, {where}",
        "a noticeable gap",
        str(plain),
        bool(plain.value > NEGLIGIBLE_GAP and plain.value - 2.0 * plain.error > abs(twin.value)),
        "yes if more than half a point, and more than the twin's by two standard errors; "
        f"by width: {_by_width(rows, widths, 'plain')}",
    )


def _by_width(rows: list[Row], widths: list[int], model: str) -> str:
    gaps = {width: accuracy_gap(chosen(rows, width=width), model).value for width in widths}
    return ", ".join(f"{100 * gap:+.2f} (m = {width})" for width, gap in gaps.items())
