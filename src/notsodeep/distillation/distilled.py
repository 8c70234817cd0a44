"""What `distill` returns: the chosen network, how often it agrees with the teacher, and all candidates.

The network can be written as an ONNX file: a DEQ cannot be exported without its loop, its steps can.
"""

from __future__ import annotations

import copy
import logging
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import floor
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from scipy.special import betaincinv

from notsodeep.display import Shown
from notsodeep.distillation.guard import ErrorEstimate
from notsodeep.distillation.student_networks import AcceleratedCell, Student
from notsodeep.distillation.teachers import rows_for_tests
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
        InputError: if the file exists and `overwrite` is False, or the network has no form in ONNX.
        ConvergenceError: if the file does not compute what the module does; it is not written then.
    """
    runtime = [needed(name, "Export to ONNX") for name in ("onnx", "onnxscript", "onnxruntime")][-1]
    file, log = Path(path), logging.getLogger("torch.onnx")
    if file.exists() and not overwrite:
        raise InputError(f"{file} exists. Name another file, or pass overwrite=True.")
    if isinstance(network, AcceleratedCell):
        raise InputError(
            "This network iterates until it converges, which ONNX has no form for. Export another candidate, such as "
            "small.export(path, next(one for one in small.candidates if one.certain and one.steps))."
        )
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
            with warnings.catch_warnings(), torch.no_grad():
                warnings.simplefilter("ignore")
                # Strict: a number of rows that a user's cell reads by len(x) stays open.
                shapes = ({0: torch.export.Dim("rows")},)
                program = torch.export.export(module, (traced,), dynamic_shapes=shapes, strict=True)
                torch.onnx.export(program, (), temporary, dynamo=True, **options)
            session = runtime.InferenceSession(str(temporary), providers=["CPUExecutionProvider"])
            (outputs,) = session.run(None, {"X": compared.numpy()})
        except Exception as problem:
            raise InputError(
                "This network cannot be exported for any number of samples. Inside cell=, readout= and z0= use "
                f"operations of torch alone, and no branches on values. {str(problem).strip().splitlines()[0]}"
            ) from problem
        finally:
            log.setLevel(level)
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
# Numbers of samples that certify are looked for up to this one, in steps of this factor.
_MOST_ROWS, _FACTOR = 10**8, 1.1


@dataclass(frozen=True, repr=False, eq=False)
class Candidate(Shown):
    """A network that was tried in place of the teacher.

    Attributes:
        name: description in words.
        kind: "cut" (the teacher's cell stopped early), "refitted" (cut, with a refitted readout), "relaxed" (one
            relaxation factor for each step and a refitted readout), "accelerated" (the cell by Anderson acceleration to
            a loose tolerance), "closed form" (own steps of a DEQ fitted in closed form), "trained" (the same, then all
            weights) or "mlp".
        network: the module.
        agreement: share of test rows with the teacher's class; for a single output the share of variance explained.
        interval: bounds of the agreement, each wrong with the chance `tested_risk`; of 5 % without a test.
        risk: the smallest risk at which it is certain that the agreement reaches the target.
        relative_error: root mean square error of the outputs over the standard deviation of the teacher's.
        seconds: measured time of one batch.
        expected_error: estimated on validation rows, by which candidates are ordered.
        tested_risk: the risk that its test had; None if it was not tested, because a faster one promised as much.
    """

    name: str
    kind: str
    network: Student = field(repr=False)
    agreement: float
    interval: tuple[float, float]
    risk: float
    relative_error: float
    seconds: float
    expected_error: float
    tested_risk: float | None = None

    @property
    def steps(self) -> int | None:
        """Number of steps of the teacher's cell; None for an MLP and for an accelerated cell."""
        return self.network.steps

    @property
    def certain(self) -> bool:
        """Whether its test was passed: it reaches the target, certain to 95 % for all candidates together."""
        return self.tested_risk is not None and self.risk <= self.tested_risk


class Choice(NamedTuple):
    """The place of the chosen candidate, whether it is certain, and the risk of each test; None without a test."""

    place: int
    certain: bool
    risks: tuple[float | None, ...]


def choose(candidates: Sequence[Candidate]) -> Choice:
    """Choose the fastest candidate that certainly reaches the target; docs/theory.md (12.5).

    The fastest of many candidates that pass a test on the same rows would often be a lucky one. Candidates are
    therefore tested in an order that does not depend on the test rows, the most faithful on validation rows first. The
    first test gets most of the risk of 5 % and each other one a part of the rest; a test that is passed hands its risk
    on to the next one (the fallback procedure). Candidates that a faster one equals in expected error are not tested.
    If none passes, the fastest of those tested that the rows cannot tell from the most faithful one is chosen.
    """
    tested: list[int] = []
    for place in sorted(range(len(candidates)), key=lambda place: candidates[place].seconds):
        if all(candidates[other].expected_error > candidates[place].expected_error for other in tested):
            tested.append(place)
    risks: list[float | None] = [None] * len(candidates)
    risk, passed = 0.0, list[int]()
    for number, place in enumerate(reversed(tested)):
        risk += RISK * (_FIRST if number == 0 else (1.0 - _FIRST) / (len(tested) - 1))
        risks[place] = RISK if len(tested) == 1 else risk
        if candidates[place].risk <= (risks[place] or 0.0):
            passed.append(place)
        else:
            risk = 0.0
    if passed:
        return Choice(passed[-1], True, tuple(risks))
    best = candidates[tested[-1]]
    ties = (
        place
        for place in tested
        if candidates[place].expected_error <= _NEARLY * best.expected_error
        and candidates[place].interval[1] >= best.agreement
    )
    return Choice(next(ties), False, tuple(risks))


def rows_to_certify(
    target_agreement: float, agreement: float = 1.0, rows: int = 1, risk: float = RISK * _FIRST
) -> int | None:
    """About how many samples certify this target; None if no number does.

    Args:
        target_agreement: the target.
        agreement: share of test rows that agree.
        rows: number of samples that did not suffice.
        risk: the risk of the test.
    """
    if agreement <= target_agreement:
        return None
    while rows < _MOST_ROWS:
        rows = floor(_FACTOR * rows) + 1
        tests = rows_for_tests(rows, target_agreement)
        same = agreement * tests
        if betaincinv(same, tests - same + 1.0, risk) >= target_agreement:
            # Rounded up to two digits.
            unit = int(10.0 ** (len(str(rows)) - 2))
            return -(-rows // unit) * unit
    return None


def _below(share: float) -> str:
    """A lower bound in percent, rounded down: one that misses the target never looks like it."""
    return f"{floor(1e4 * share) / 100:.2f} %"


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
        teacher_seconds: measured time of one batch by the fastest way to the teacher's answers.
        teacher_way: what that is: the teacher's own forward pass, or for a network of this package also its plain loop
            or Anderson acceleration, stopped as early as 99.9 % of the answers allow.
        speedups: by number of samples of a batch, how many times as fast as that way the chosen network is.
        predicted_seconds: how long the distillation was expected to take when it began.
        unusable_share: share of the samples for which the teacher had no converged, finite output; they were not used.
        rows_used: number of the others.
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
    teacher_way: str
    speedups: Mapping[int, float]
    predicted_seconds: float
    unusable_share: float
    rows_used: int
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
        """Lower and upper bound of the agreement at the risk of its test, at most 5 % each."""
        return self.chosen.interval

    @property
    def steps(self) -> int | None:
        """Number of steps of the chosen network; None for an MLP."""
        return self.chosen.steps

    @property
    def speedup(self) -> float:
        """How many times as fast as `teacher_way` the chosen network is, for batches of `batch_size`."""
        return self.teacher_seconds / self.chosen.seconds

    @property
    def certainty(self) -> str:
        """Whether the target is certainly reached, in words, and what would help if it is not."""
        target = f"{100.0 * self.target_agreement:.4g} %"
        risk = RISK if self.chosen.tested_risk is None else self.chosen.tested_risk
        tested = sum(one.tested_risk is not None for one in self.candidates)
        bound = f"at least {_below(self.agreement_interval[0])} at a risk of {risk:.2g}"
        if self.certain:
            return f"It reaches {target} agreement with 95 % certainty ({bound})."
        words = (
            f"No candidate is certain to reach {target}; this is the most faithful and fast one ({bound}: the 0.05 are "
            f"shared by {tested} tests)."
        )
        needed = rows_to_certify(self.target_agreement, self.agreement, self.rows_used, risk)
        if self.single_output or needed is None:
            return words
        return f"{words} Certifying it takes about {needed} rows in place of {self.rows_used}."

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
                "agreement": one.agreement,
                "interval": list(one.interval),
                "tested_risk": one.tested_risk,
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
        speeds = ", ".join(f"{factor:.1f} ({size})" for size, factor in self.speedups.items())
        lines = [
            f"{self.name}: {what} {self.agreement:.2%} {of} {self.test_rows} test rows ({_below(low)} to {high:.2%}).",
            f"Times as fast as the {self.teacher_way}: {self.speedup:.1f} for batches of {self.batch_size}; {speeds}.",
            self.certainty,
        ]
        if self.unusable_share:
            lines.append(
                f"The teacher had no converged output for {self.unusable_share:.2%} of the rows; these were not used."
            )
        width = max(len(one.name) for one in self.candidates)
        lines.append(f"  {'candidate':{width}}  ms/1000  agreement  bounds, where it was tested")
        for one, row in zip(self.candidates, self.rows(), strict=True):
            mark = "→" if one is self.chosen else "✓" if one.certain else " "
            bounds = (
                "" if one.tested_risk is None else f"  {_below(one.interval[0])} to {one.interval[1]:.2%}"
            )
            lines.append(
                f"{mark} {one.name:{width}}  {row['milliseconds']:7.3g}  {one.agreement:9.2%}{bounds}"
            )
        lines.append(f"  {'the teacher':{width}}  {1e6 / self.batch_size * self.teacher_seconds:7.3g}")
        return "\n".join(lines)

    def plot(self, ax: Any = None) -> Any:
        """Draw time against disagreement for all candidates; returns the Axes."""
        from notsodeep.figures import plot_front

        return plot_front(self, ax)

    def export(
        self, path: str | Path, candidate: Candidate | None = None, *, overwrite: bool = False
    ) -> Path:
        """Write a candidate, the chosen one if None, as ONNX for any number of samples; needs the extra "onnx"."""
        return export_onnx((candidate or self.chosen).network, path, overwrite=overwrite)

    def _facts(self) -> Mapping[str, Any]:
        return {
            "name": self.name,
            "agreement": self.agreement,
            "agreement_interval": self.agreement_interval,
            "certain": self.certain,
            "speedup": self.speedup,
        }
