"""What `distill` returns: the chosen network, how often it agrees with the teacher, and all candidates.

The network can be written as an ONNX file: a DEQ cannot be exported without its loop, its steps can.
"""

from __future__ import annotations

import copy
import logging
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import ceil, log
from pathlib import Path
from typing import Any

import numpy as np
import torch

from notsodeep.display import Shown
from notsodeep.distillation.guard import ErrorEstimate
from notsodeep.distillation.student_networks import Student
from notsodeep.distillation.teachers import MOST_TEST
from notsodeep.errors import ConvergenceError, InputError
from notsodeep.extras import needed
from notsodeep.files import atomic_write
from notsodeep.intervals import RISK

# Largest difference from torch, relative to the largest output.
_TOLERANCE = 1e-4


def export_onnx(network: Student, path: str | Path, *, overwrite: bool = False) -> Path:
    """Write a student as ONNX, for any number of samples, and compare it with torch on random ones.

    Raises:
        MissingExtraError: where the extra "onnx" is not installed.
        InputError: if the file exists and `overwrite` is False.
        ConvergenceError: if the file does not compute what the module does; it is not written then.
    """
    runtime = [needed(name, "Export to ONNX") for name in ("onnx", "onnxscript", "onnxruntime")][-1]
    file, log = Path(path), logging.getLogger("torch.onnx")
    if file.exists() and not overwrite:
        raise InputError(f"{file} exists. Name another file, or pass overwrite=True.")
    module = copy.deepcopy(network).eval().to("cpu")
    generator, dtype = torch.Generator().manual_seed(0), next(module.parameters()).dtype
    # Traced with another number of samples than it is compared on.
    traced, compared = (
        torch.randn(rows, *module.sample_shape, generator=generator).to(dtype) for rows in (3, 7)
    )
    options: dict[str, Any] = {
        "input_names": ["X"],
        "output_names": ["outputs"],
        "external_data": False,
        "verbose": False,
    }
    level = log.level
    with atomic_write(file) as temporary:
        try:
            # Without the exporter's remarks on packages that are not needed.
            log.setLevel(logging.ERROR)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                shapes = ({0: torch.export.Dim("rows")},)
                torch.onnx.export(module, (traced,), temporary, dynamic_shapes=shapes, dynamo=True, **options)
        finally:
            log.setLevel(level)
        session = runtime.InferenceSession(str(temporary), providers=["CPUExecutionProvider"])
        (outputs,) = session.run(None, {"X": compared.numpy()})
        with torch.no_grad():
            target = module(compared).numpy()
        error = float(np.abs(outputs - target).max() / max(np.abs(target).max(), 1e-30))
        if not error <= _TOLERANCE:
            raise ConvergenceError(
                f"The ONNX file differs from the module by {error:.1e} of the largest output.",
                "Export in float64, or use the module itself.",
            )
    return file


# Candidates tie with the most faithful one if their expected error is at most so many times as large.
_NEARLY = 1.25
# The share of the risk that the first test gets; the others share the rest.
_FIRST = 0.8


@dataclass(frozen=True, repr=False, eq=False)
class Candidate(Shown):
    """A network that was tried in place of the teacher.

    Attributes:
        name: description in words.
        kind: "cut" (the teacher's cell stopped early), "refitted" (cut, with a refitted readout), "relaxed" (one
            relaxation factor for each step and a refitted readout), "closed form" (own steps of a DEQ fitted in closed
            form), "trained" (the same, then all weights) or "mlp".
        network: the module.
        agreement: share of test rows with the teacher's class; for a single output the share of variance explained.
        interval: bounds of the agreement, each certain to 95 %.
        risk: the smallest risk at which it is certain that the agreement reaches the target.
        relative_error: root mean square error of the outputs over the standard deviation of the teacher's.
        seconds: measured time of one batch.
        operations: multiplications with weights for one sample.
        expected_error: estimated on validation rows, by which candidates are ordered.
    """

    name: str
    kind: str
    network: Student = field(repr=False)
    agreement: float
    interval: tuple[float, float]
    risk: float
    relative_error: float
    seconds: float
    operations: int
    expected_error: float

    @property
    def steps(self) -> int | None:
        """Number of steps of the teacher's cell; None for an MLP."""
        return self.network.steps

    @property
    def certain(self) -> bool:
        """Whether it certainly reaches the target by itself; the choice allows for the number of candidates as well."""
        return self.risk <= RISK


def choose(candidates: Sequence[Candidate]) -> tuple[Candidate, bool]:
    """Choose the fastest candidate that certainly reaches the target, and True; docs/theory.md (12.5).

    The fastest of many candidates that pass a test on the same rows would often be a lucky one. Candidates are
    therefore tested in an order that does not depend on the test rows, the most faithful on validation rows first. The
    first test gets most of the risk of 5 % and each other one a part of the rest; a test that is passed hands its risk
    on to the next one (the fallback procedure). Candidates that a faster one equals in expected error are not tested.
    If none passes, the fastest of those that the rows cannot tell from the most faithful one is returned, with
    False.
    """
    tested: list[Candidate] = []
    for one in sorted(candidates, key=lambda one: one.seconds):
        if all(other.expected_error > one.expected_error for other in tested):
            tested.append(one)
    passed, risk = [], 0.0
    for number, one in enumerate(reversed(tested)):
        risk += RISK * (_FIRST if number == 0 else (1.0 - _FIRST) / (len(tested) - 1))
        if one.risk <= (RISK if len(tested) == 1 else risk):
            passed.append(one)
        else:
            risk = 0.0
    if passed:
        return passed[-1], True
    best = min(candidates, key=lambda one: (one.expected_error, one.seconds))
    ties = [
        one
        for one in candidates
        if one.expected_error <= _NEARLY * best.expected_error and one.interval[1] >= best.agreement
    ]
    return min(ties, key=lambda one: one.seconds), False


def rows_to_certify(target_agreement: float) -> int | None:
    """About how many samples certify this agreement if all test rows agree; None if no number does."""
    if target_agreement >= 1.0:
        return None
    rows = ceil(ceil(log(RISK) / log(target_agreement)) / MOST_TEST)
    return int(round(rows, 2 - len(str(rows))))


@dataclass(frozen=True, repr=False)
class Distilled(Shown):
    """An explicit network that gives the teacher's answers, how often it does, and what else was tried.

    Attributes:
        chosen: the fastest candidate that certainly reaches the target; if none does, the most faithful one, or a
            faster one that cannot be told from it.
        candidates: all candidates, the fastest first.
        target_agreement: the target given to `distill`.
        certain: whether the chosen network reaches it, with 95 % certainty and on samples like those of the
            distillation, docs/theory.md (12.5).
        test_rows: number of rows on which agreement was measured; no fit depends on them.
        batch_size: samples of a batch that was timed.
        teacher_seconds: measured time of one batch, teacher.
        unusable_share: share of the samples for which the teacher had no converged, finite output; they were not used.
        single_output: whether agreement is the share of variance explained.
        error_estimate: on which samples the chosen network is likely to be wrong; `guarded` uses it.
    """

    chosen: Candidate
    candidates: tuple[Candidate, ...]
    target_agreement: float
    certain: bool
    test_rows: int
    batch_size: int
    teacher_seconds: float
    unusable_share: float
    single_output: bool
    error_estimate: ErrorEstimate = field(repr=False)

    @property
    def network(self) -> Student:
        """The chosen network."""
        return self.chosen.network

    @property
    def name(self) -> str:
        """What the chosen network is, in words."""
        return self.chosen.name

    @property
    def agreement(self) -> float:
        """Share of test rows with the teacher's class; for a single output the share of variance explained."""
        return self.chosen.agreement

    @property
    def agreement_interval(self) -> tuple[float, float]:
        """Lower and upper bound of the agreement, each certain to 95 %."""
        return self.chosen.interval

    @property
    def steps(self) -> int | None:
        """Number of steps of the chosen network; None for an MLP."""
        return self.chosen.steps

    @property
    def speedup(self) -> float:
        """How many times as fast as the teacher the chosen network is."""
        return self.teacher_seconds / self.chosen.seconds

    @property
    def certainty(self) -> str:
        """Whether the target is certainly reached, in words, and what would help if it is not."""
        target = f"{100.0 * self.target_agreement:.4g} %"
        bound = f"at least {self.agreement_interval[0]:.2%}"
        if self.certain:
            return f"It reaches {target} agreement with 95 % certainty ({bound})."
        words = f"No candidate reaches {target} with 95 % certainty; this is the most faithful and fast one ({bound})."
        needed = None if self.single_output else rows_to_certify(self.target_agreement)
        if needed is not None and self.chosen.interval[1] >= self.target_agreement:
            words += f" Certifying {target} takes about {needed} rows."
        return words

    def rows(self) -> list[dict[str, Any]]:
        """All candidates as plain rows, for tables and figures; times are milliseconds for 1000 samples."""
        per_thousand = 1e6 / self.batch_size
        return [
            {
                "kind": "candidate",
                "name": one.name,
                "fit": one.kind,
                "steps": one.steps,
                "chosen": one is self.chosen,
                "certain": one.certain,
                "operations": one.operations,
                "agreement": one.agreement,
                "interval": list(one.interval),
                "relative_error": one.relative_error,
                "single_output": self.single_output,
                "rows": self.test_rows,
                "milliseconds": per_thousand * one.seconds,
                "teacher_milliseconds": per_thousand * self.teacher_seconds,
            }
            for one in self.candidates
        ]

    def explain(self) -> str:
        """The result in words, and a table of all candidates."""
        low, high = self.agreement_interval
        what = "explains" if self.single_output else "same class as the teacher on"
        of = "of the variance on" if self.single_output else "of"
        lines = [
            f"{self.name}: {what} {self.agreement:.2%} {of} {self.test_rows} test rows ({low:.2%} to {high:.2%}), "
            f"{self.speedup:.1f} times as fast.",
            self.certainty,
        ]
        if self.unusable_share:
            lines.append(
                f"The teacher had no converged output for {self.unusable_share:.2%} of the rows; these were not used."
            )
        width = max(len(one.name) for one in self.candidates)
        lines.append(f"  {'candidate':{width}}  ms/1000  agreement  certain to 95 %")
        for one, row in zip(self.candidates, self.rows(), strict=True):
            mark = "→" if one is self.chosen else " "
            low, high = one.interval
            lines.append(
                f"{mark} {one.name:{width}}  {row['milliseconds']:7.3g}  {one.agreement:9.2%}  {low:.2%} to {high:.2%}"
            )
        lines.append(f"  {'the teacher':{width}}  {1e6 / self.batch_size * self.teacher_seconds:7.3g}")
        return "\n".join(lines)

    def plot(self, ax: Any = None) -> Any:
        """Draw time against disagreement for all candidates; returns the Axes."""
        from notsodeep.figures import plot_front

        return plot_front(self, ax)

    def export(self, path: str | Path, *, overwrite: bool = False) -> Path:
        """Write the network as ONNX, for any number of samples, and compare it with torch; needs the extra "onnx"."""
        return export_onnx(self.network, path, overwrite=overwrite)

    def _facts(self) -> Mapping[str, Any]:
        return {
            "name": self.name,
            "agreement": self.agreement,
            "agreement_interval": self.agreement_interval,
            "certain": self.certain,
            "speedup": self.speedup,
        }
