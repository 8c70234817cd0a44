"""Distil a trained DEQ into a few of its own steps: agreement on test data and time, compared with the cut DEQ."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

from notsodeep.models import DEQ
from notsodeep_lab.papers.experiment import Expectation, Experiment, Row, Task, claims_by, grid
from notsodeep_lab.papers.experiment_settings import DEQSpec
from notsodeep_lab.papers.row_statistics import mean
from notsodeep_lab.plots.row_selection import chosen

# Largest loss of accuracy of a student; share of samples that the guard passes to the teacher.
_LOST, _ASKED = 0.002, 0.05


@dataclass(frozen=True)
class DistillSpec(DEQSpec):
    """Teachers are trained with labels, students fitted to them without."""

    data: str  # data set
    samples: int | None  # number of training samples, half of them with labels; all if None
    width: int  # width of the teacher
    epochs: int  # epochs of training all weights of the teacher
    passes: int  # epochs of fitting all weights of a student
    target_agreement: float  # target agreement with the teacher


class Distill(Experiment[DistillSpec]):
    """Agreement and speed of distilled DEQs."""

    name = "distill"
    paper = "ours"
    summary = (
        "A trained DEQ distilled into a few of its own steps: agreement and time, compared with the cut DEQ"
    )
    minutes = MappingProxyType({"quick": 0.5, "full": 2.0})
    cut = "Few samples and one seed."
    timed = True
    quick = DistillSpec(
        0.5, ("relu", "tanh"), 1, "digits", samples=None, width=128, epochs=5, passes=6, target_agreement=0.98
    )
    full = replace(
        quick, data="fashion_mnist", samples=8000, width=256, epochs=3, passes=6, target_agreement=0.99
    )

    def tasks(self, spec: DistillSpec) -> list[Task]:
        axes = {"activation": spec.activations, "seed": range(spec.seeds)}
        return grid(f"{spec.data} {{activation}} seed={{seed}}", lambda **_: 1.0, **axes)

    def run(self, spec: DistillSpec, task: Task, data_dir: Path | None) -> list[Row]:
        import torch

        from notsodeep.distillation import distill, guarded
        from notsodeep.nets import DEQNet, SolverOptions, fit
        from notsodeep_lab.papers.training_rows import parts_of

        parts, seed = parts_of(spec.data, spec.samples, data_dir), task["seed"]
        model, half = DEQ(task["activation"], spec.sigma_a2), len(parts.X) // 2
        solver = SolverOptions(tolerance=1e-4, max_steps=500)
        teacher = DEQNet(
            model, parts.X.shape[1], spec.width, parts.classes, seed=seed, solver=solver, on_failure="ignore"
        )
        with warnings.catch_warnings():
            # Training may exceed the bound that guarantees a unique equilibrium.
            warnings.simplefilter("ignore", RuntimeWarning)
            fit(teacher, (parts.X[:half], parts.y[:half]), epochs=spec.epochs, seed=seed)
        small = distill(
            teacher, parts.X, target_agreement=spec.target_agreement, epochs=spec.passes, seed=seed
        )
        networks = {one.name: one.network for one in small.candidates}
        safe = guarded(small, teacher, max_fallback_share=_ASKED)
        with torch.no_grad():
            own, guard = teacher(parts.X_test).argmax(1), safe(parts.X_test).argmax(1)
            classes = {name: network(parts.X_test).argmax(1) for name, network in networks.items()}
        common = {
            "data": spec.data,
            **task.parameters,
            "target_agreement": spec.target_agreement,
            "teacher_accuracy": _agreement(own, parts.y_test),
            "guarded": _agreement(guard, own),
            "asked": safe.last_share,
            "rows": len(own),
        }
        return [
            {
                **{
                    field: value
                    for field, value in row.items()
                    if field not in ("interval", "relative_error", "lower")
                },
                **common,
                "agreement": _agreement(classes[row["name"]], own),
                "accuracy": _agreement(classes[row["name"]], parts.y_test),
            }
            # In an order that does not depend on measured times.
            for row in sorted(small.rows(), key=lambda row: str(row["name"]))
        ]

    def expectations(self, spec: DistillSpec, rows: Sequence[Row]) -> list[Expectation]:
        candidates = chosen(rows, kind="candidate")
        return claims_by(
            lambda part, **key: _claims(part, spec.target_agreement, **key),
            candidates,
            activation=spec.activations,
        )


def _agreement(first: Any, second: Any) -> float:
    return float((first == second).double().mean())


def _claims(rows: list[Row], target_agreement: float, activation: str) -> Iterator[Expectation]:
    students = chosen(rows, chosen=True)
    agreement, accuracy = mean(students, "agreement"), mean(students, "accuracy")
    faster = mean(students, "teacher_milliseconds") / mean(students, "milliseconds")
    names = ", ".join(dict.fromkeys(row["name"] for row in students))
    yield Expectation(
        f"agreement with the teacher, {activation}",
        None,
        agreement,
        bool(agreement >= target_agreement),
        f"yes if at least {target_agreement:g}, on the test part; {names}; {faster:.2g} times as fast as the DEQ",
    )
    lost = mean(students, "teacher_accuracy") - accuracy
    yield Expectation(
        f"accuracy of the teacher − accuracy of the student, {activation}",
        None,
        lost,
        bool(lost <= _LOST),
        f"yes if at most {_LOST:g}; the teacher: {mean(students, 'teacher_accuracy'):.4f}",
    )
    for cut in chosen(chosen(rows, fit="cut"), seed=students[0]["seed"])[:3]:
        affordable = [
            row
            for row in rows
            if row["fit"] != "cut" and row["operations"] <= cut["operations"] and row["seed"] == cut["seed"]
        ]
        best = max(row["agreement"] for row in affordable)
        yield Expectation(
            f"agreement of the best student at the cost of the {cut['name']}, {activation}",
            None,
            best,
            bool(best >= cut["agreement"]),
            f"yes if at least that of the cut DEQ: {cut['agreement']:.4f}",
        )
    yield Expectation(
        f"agreement with a guard that uses the DEQ on {mean(students, 'asked'):.1%} of the samples, {activation}",
        None,
        mean(students, "guarded"),
        bool(mean(students, "guarded") >= agreement),
        "yes if at least that of the student alone",
    )
