"""Misprints of the papers: the printed formula, the correct one, and the number that decides (docs/errata.md)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from notsodeep.models import DEQ, Model
from notsodeep_lab.papers.experiment import Expectation, Experiment, Row, Task
from notsodeep_lab.papers.experiment_settings import Spec

_DECIDES = "of the exact kernel"


@dataclass(frozen=True)
class ErrataSpec(Spec):
    """Sizes of the computations."""

    samples: tuple[int, ...]  # numbers of samples on which equivalents are compared with exact kernels
    seeds: int  # number of draws of each mixture
    widths: tuple[int, ...]  # widths of the random networks


class Errata(Experiment[ErrataSpec]):
    """Compare each printed formula with the correct one; the rows are the tables of docs/errata.md."""

    name = "errata"
    paper = "all four papers"
    summary = "Misprinted formulas compared with the correct ones and with exact kernels"
    minutes = MappingProxyType({"quick": 0.2, "full": 2.0})
    quick = ErrataSpec((100, 200), 1, (100, 200))
    full = ErrataSpec((500, 1000, 2000), 3, (500, 1000, 2000, 4000))

    def models(self, spec: ErrataSpec) -> list[Model]:
        return [DEQ(name, 0.2) for name in ("relu", "tanh")]

    def tasks(self, spec: ErrataSpec) -> list[Task]:
        return [Task.named("{erratum}", erratum=name) for name in _measures()]

    def run(self, spec: ErrataSpec, task: Task, data_dir: Path | None) -> list[Row]:
        from notsodeep_lab.papers.errata_formulas import Size

        tables = _measures()[task["erratum"]](Size(spec.samples, spec.seeds, spec.widths))
        return [
            {
                "kind": task["erratum"],
                "table": number,
                **{name: _rounded(value) for name, value in row.items()},
            }
            for number, rows in enumerate(tables)
            for row in rows
        ]

    def expectations(self, spec: ErrataSpec, rows: Sequence[Row]) -> list[Expectation]:
        return [
            Expectation(
                f"{row['kind']}: {row['scalar']}",
                row["printed"],
                row["right"],
                None,
                f"{_DECIDES}: {row[_DECIDES]:.6g}",
            )
            for row in rows
            if {"scalar", "printed", "right", _DECIDES} <= row.keys()
        ]


def _measures() -> dict[str, Callable[..., Any]]:
    """The computations by the name of the erratum."""
    from notsodeep_lab.papers import errata_convergence, errata_formulas, errata_tangent

    return errata_formulas.MEASURES | errata_tangent.MEASURES | errata_convergence.MEASURES


def _rounded(value: Any) -> Any:
    """Round to ten digits: the last ones depend on the machine."""
    return float(f"{value:.10g}") if isinstance(value, float) else value
