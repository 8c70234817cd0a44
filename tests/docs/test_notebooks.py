"""The notebooks run from top to bottom as a reader would run them, and the site shows what they gave."""

from __future__ import annotations

import json
from typing import Any

import pytest

pytest.importorskip("nbclient", reason="the extra dev is not installed")

from notebook_runner import NOTEBOOKS, run

NAMES = sorted(path.stem for path in NOTEBOOKS.glob("*.ipynb"))
# What must be true when the last cell has run: code that is run in the notebook's own session.
CHECKS = {
    "tour": """
assert verdict.answer == "replace"
assert nsd.twin_distances(twin, X).gain > 100
assert curve.extrapolated.tolist() == [False] * 4 + [True]
""",
    "my_data": """
assert verdict.answer in ("replace", "unsure")              # 400 rows: another processor may round a row over
assert inspect_rows(X).advice == ""
assert abs(accuracy - predicted) < 0.05                     # 169 rows: standard error 0.013
""",
    "my_trained_deq": """
assert verdict.distilled is not None
assert (net(X) - answers(X)).abs().max() < 1e-3
assert small.agreement > 0.95
assert guarded >= alone
""",
}


def test_there_are_three() -> None:
    assert sorted(CHECKS) == NAMES


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_a_notebook_runs(name: str) -> None:
    notebook = run(NOTEBOOKS / f"{name}.ipynb", CHECKS[name])
    assert all(cell.execution_count for cell in notebook.cells if cell.cell_type == "code")


@pytest.mark.parametrize("name", NAMES)
def test_output_is_kept_and_no_cell_failed(name: str) -> None:
    cells = code_cells(name)
    assert [cell["execution_count"] for cell in cells] == list(range(1, len(cells) + 1))
    kinds = {output["output_type"] for cell in cells for output in cell["outputs"]}
    assert kinds <= {"stream", "execute_result"}


def code_cells(name: str) -> list[dict[str, Any]]:
    notebook = json.loads((NOTEBOOKS / f"{name}.ipynb").read_text(encoding="utf-8"))
    return [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
