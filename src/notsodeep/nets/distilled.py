"""What a distillation gives: the student, its fidelity, and the whole front of cost against fidelity."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from notsodeep.display import Shown
from notsodeep.nets.doubt import Calibration, Doubt
from notsodeep.nets.fidelity import Fidelity
from notsodeep.nets.student_choice import rows_for_certainty
from notsodeep.nets.students import StepsNet
from notsodeep.nets.teacher_answers import rows_with


@dataclass(frozen=True, repr=False)
class Candidate(Shown):
    """One network of the front.

    Attributes:
        name: what it is, in words.
        kind: "cut" (the DEQ stopped early, nothing fitted), "closed form" (steps and readout fitted in closed form) or
            "fitted" (then all weights).
        network: the module.
        start: what its fit started from.
        expected: the share of rows with another class that is expected on the rows that stop fits, of a single output
            the relative error: the order in which candidates are tested, the smallest first.
        score: on the rows that choose among candidates: agreement, or explained variance for a single output.
        lower: what it is at least, but for a chance of 5 %, on the same rows.
        fidelity: on rows that were never looked at before.
    """

    name: str
    kind: str
    network: StepsNet
    start: str
    expected: float
    score: float
    lower: float
    fidelity: Fidelity

    @property
    def operations(self) -> int:
        """Multiplications with weights for one sample: candidates are ordered by it, since times differ by chance."""
        return self.network.operations

    def _facts(self) -> Mapping[str, Any]:
        return {"name": self.name, **self.fidelity._facts()}


@dataclass(frozen=True, repr=False)
class Distilled(Shown):
    """An explicit network that answers as its teacher does, and how well.

    Attributes:
        network: the cheapest candidate that is sure to reach `until`, or the most faithful one if none is.
        name: what it is, in words.
        fidelity: on rows that it has not seen.
        front: all candidates, the cheapest first, the DEQ cut after a few steps among them; `figures.plot_front` draws
            them.
        until: the score that was asked for.
        reached: whether it is sure that the network reaches `until`: wrong with a chance of at most 5 %, docs/theory.md
            (12.5), on rows like those of the distillation.
        choosing_rows: number of the rows by which it was chosen.
        doubt: estimates where the network is likely to differ from the teacher; `guarded` uses it. None for a single
            output.
        calibration: these estimates beside what happened, on rows that it has not seen; None for a single output.
        held_out: share of the rows on which the teacher did not converge or was not finite; they were not used.
    """

    network: StepsNet
    name: str
    fidelity: Fidelity
    front: tuple[Candidate, ...]
    until: float
    reached: bool
    choosing_rows: int
    doubt: Doubt | None = field(repr=False)
    calibration: tuple[Calibration, ...] | None
    held_out: float

    @property
    def certainty(self) -> str:
        """Whether it is sure that `until` is reached, in words, and what would make it so."""
        (own,) = (one for one in self.front if one.name == self.name)
        least = f"at least {own.lower:.2%}, by {self.choosing_rows} rows that chose it"
        if self.reached:
            return f"It reaches the wanted {self.until:.2%} with 95 % certainty ({least})."
        words = (
            f"No candidate reaches the wanted {self.until:.2%} with 95 % certainty; this is the most faithful one "
            f"({least})."
        )
        needed = rows_for_certainty(self.until)
        if self.fidelity.agreement is not None and needed is not None and needed > self.choosing_rows:
            words += (
                f" To be sure, {needed} rows would have to agree without exception, three of ten rows: give at least "
                f"{rows_with(needed)}, or ask for less."
            )
        return words

    @property
    def expected_disagreement(self) -> float | None:
        """Share of rows on which it expects another class, to compare with 1 - `fidelity.agreement`."""
        if self.calibration is None:
            return None
        rows = sum(one.rows for one in self.calibration)
        return sum(one.rows * one.expected for one in self.calibration) / rows

    def rows(self) -> list[dict[str, Any]]:
        """The front as plain rows: name, kind, start, operations, times and fidelity of every candidate."""
        return [
            {
                "kind": "candidate",
                "name": one.name,
                "fit": one.kind,
                "start": one.start,
                "chosen": one.name == self.name,
                "operations": one.operations,
                "agreement": one.fidelity.agreement,
                "interval": None if one.fidelity.interval is None else list(one.fidelity.interval),
                "lower": one.lower,
                "relative_error": one.fidelity.relative_error,
                "error_interval": list(one.fidelity.error_interval),
                "rows": one.fidelity.rows,
                "milliseconds": one.fidelity.milliseconds,
                "teacher_milliseconds": one.fidelity.teacher_milliseconds,
            }
            for one in self.front
        ]

    def explain(self) -> str:
        """The result in words, and the front as a table."""
        lines = [f"{self.name}: {self.fidelity}.", self.certainty]
        if self.expected_disagreement is not None and self.fidelity.agreement is not None:
            lines.append(
                f"It expects to differ from the teacher on {self.expected_disagreement:.2%} of the rows, and did on "
                f"{1.0 - self.fidelity.agreement:.2%}."
            )
        if self.held_out:
            lines.append(
                f"The teacher had no answer on {self.held_out:.2%} of the rows, which were left out."
            )
        width = max(len(one.name) for one in self.front)
        lines.append(f"  {'candidate, the cheapest first':{width}}  ms/1000  agreement  error")
        for one in self.front:
            found = one.fidelity
            same = "" if found.agreement is None else f"{found.agreement:.2%}"
            mark = "→" if one.name == self.name else " "
            lines.append(
                f"{mark} {one.name:{width}}  {found.milliseconds:7.3g}  {same:>9}  {found.relative_error:.2%}"
            )
        return "\n".join(lines)

    def export(self, path: str | Path, *, overwrite: bool = False) -> Path:
        """Write the network as ONNX, for any number of rows, and compare it with torch; needs the extra "onnx"."""
        from notsodeep.nets.onnx_export import export_onnx

        return export_onnx(self.network, path, overwrite=overwrite)

    def _facts(self) -> Mapping[str, Any]:
        return {"name": self.name, "reached": self.reached, **self.fidelity._facts()}


__all__ = ["Candidate", "Distilled"]
