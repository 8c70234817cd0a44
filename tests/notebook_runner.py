"""Run the notebooks of docs/notebooks, in an empty folder each, as a reader would.

    python tests/notebook_runner.py docs/notebooks/tour.ipynb      # run one; write its output into it

Notebooks are kept with their output, so that the site can show them without running anything; what differs from run to
run beyond that (counters, times, warnings) is not kept.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient

NOTEBOOKS = Path(__file__).parents[1] / "docs" / "notebooks"


def run(path: Path, checks: str = "") -> Any:
    """The notebook with its output; `checks` is code that runs after the last cell."""
    notebook = nbformat.read(path, as_version=4)
    if checks:
        notebook.cells.append(nbformat.v4.new_code_cell(checks))
    with tempfile.TemporaryDirectory() as folder:
        NotebookClient(notebook, timeout=300, resources={"metadata": {"path": folder}}).execute()
    return notebook


def kept(notebook: Any) -> str:
    """The text of a notebook with its output as it is committed."""
    for number, cell in enumerate((cell for cell in notebook.cells if cell.cell_type == "code"), start=1):
        cell.execution_count = number
        cell.metadata = {}
        cell.outputs = [output for output in cell.outputs if output.get("name") != "stderr"]
        for output in cell.outputs:
            if "execution_count" in output:
                output.execution_count = number
            output.pop("metadata", None)
            if output.output_type in ("execute_result", "display_data"):
                output.metadata = {}
    notebook.metadata = {
        "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
        "language_info": {"name": "python"},
    }
    nbformat.validate(notebook)
    return json.dumps(json.loads(nbformat.writes(notebook)), indent=1, ensure_ascii=False) + "\n"


def main(paths: list[str]) -> None:
    """Run notebooks and write their output into them."""
    for path in map(Path, paths or sorted(map(str, NOTEBOOKS.glob("*.ipynb")))):
        path.write_text(kept(run(path)), encoding="utf-8")
        print(path)


if __name__ == "__main__":
    main(sys.argv[1:])
