"""The notebooks run from top to bottom as a reader would run them, and the site shows what they gave."""

from __future__ import annotations

import importlib.util
import json
import re
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("nbclient", reason="the extra dev is not installed")

from notebook_runner import NOTEBOOKS, run

ROOT = NOTEBOOKS.parents[1]
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


@pytest.mark.parametrize("name", NAMES)
def test_links_of_a_notebook_lead_somewhere(name: str) -> None:
    text = (NOTEBOOKS / f"{name}.ipynb").read_text(encoding="utf-8")
    links = re.findall(r"\]\(([^)#:\s]+)(?:#[^)]*)?\)", text)
    assert links
    assert [link for link in links if not (NOTEBOOKS / link).exists()] == []


def test_a_notebook_becomes_a_page() -> None:
    cells = [
        {"cell_type": "markdown", "source": ["# Title\n", "\n", "See [other](other.ipynb)."]},
        {
            "cell_type": "code",
            "source": ["print(1)\n", "table"],
            "outputs": [
                {"output_type": "stream", "text": ["1\n"]},
                {
                    "output_type": "execute_result",
                    "data": {"text/html": ["<b>t</b>"], "text/plain": ["t"]},
                },
            ],
        },
        {
            "cell_type": "code",
            "source": ["2"],
            "outputs": [{"output_type": "execute_result", "data": {"text/plain": ["2"]}}],
        },
    ]
    page = hook().on_page_markdown(hook().page_of(json.dumps({"cells": cells}), "one.ipynb"))
    title, file, *rest = page.split("\n\n")
    assert title == "# Title"
    assert "](one.ipynb){download}" in file
    assert rest == [
        "See [other](other.md).",
        "```python\nprint(1)\ntable\n```",
        "```text\n1\n```",
        '<div class="notebook-output"><b>t</b></div>',
        "```python\n2\n```",
        "```text\n2\n```",
    ]


def code_cells(name: str) -> list[dict[str, Any]]:
    notebook = json.loads((NOTEBOOKS / f"{name}.ipynb").read_text(encoding="utf-8"))
    return [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]


def hook() -> Any:
    spec = importlib.util.spec_from_file_location(
        "notebooks_hook", Path(ROOT) / "docs" / "hooks" / "notebooks.py"
    )
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
