"""The evidence pages show what is in the files, losses are counted, and the contestants compute the right kernels."""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tolerances import Oracle, assert_close

from notsodeep.kernels import both_kernels
from notsodeep.models import DEQ

ROOT = Path(__file__).resolve().parents[1]
EVIDENCE = ROOT / "docs" / "evidence"
with_results = pytest.mark.skipif(
    not (ROOT / "benchmarks" / "results").exists(), reason="the source distribution has no raw results"
)


@pytest.fixture(scope="module")
def scripts() -> Iterator[Any]:
    """Imports a script of benchmarks by name."""
    folders = [str(ROOT / "benchmarks" / part) for part in (".", "peers/neural_tangents")]
    sys.path[:0] = folders
    try:
        yield importlib.import_module
    finally:
        for folder in folders:
            sys.path.remove(folder)


@pytest.fixture(scope="module")
def rows() -> np.ndarray:
    return np.random.default_rng(0).standard_normal((30, 40)) / np.sqrt(40)


def row(contestant: str, seconds: float | None, error: float = 1e-15, n: int = 10) -> dict[str, Any]:
    return {"φ": "relu", "n": n, "contestant": contestant, "seconds": seconds, "CK error": error}


# --- losses --------------------------------------------------------------------------------------------


def test_every_comparable_pair_has_a_ratio(scripts: Any) -> None:
    figures = scripts("kept")
    rows = [
        row("notsodeep", 3.0, 1e-6),
        row("NumPy, 20 layers", 1.0, 1e-9),
        row("neural-tangents, 20 layers", 6.0, 1e-3),
        row("NumPy, 20 layers", 0.1, n=20),  # nothing of ours to compare with
        row("neural-tangents, 20 layers", None),
    ]
    tasks = [("kernel", ("φ", "n"), rows)]
    times = figures.ratios("seconds", tasks)
    assert times == {"kernel: NumPy": [1.0 / 3.0], "kernel: neural-tangents": [2.0]}
    errors = figures.ratios("CK error", tasks)
    assert errors["kernel: NumPy"] == pytest.approx([1e-3])


def test_rounding_is_not_compared(scripts: Any) -> None:
    rows = [row("notsodeep", 1.0, 9e-14), row("NumPy", 1.0, 1e-16)]
    assert scripts("kept").ratios("CK error", [("kernel", ("φ", "n"), rows)]) == {}


def test_losses_are_counted(scripts: Any) -> None:
    lost = scripts("kept")._lost
    assert lost([0.5, 0.8, 1.0, 2.0]) == "2 of 4, up to 2×"
    assert lost([1.5]) == "0 of 1"
    assert lost([]) == "–"


def test_tables_survive_a_round_trip(scripts: Any, tmp_path: Path) -> None:
    harness = scripts("harness")
    rows = [{"a": 1.5, "b": "x, y", "list": [1]}, {"a": None, "b": "", "c": True}]
    harness.write_rows(tmp_path / "table.csv", rows, "one\nnote")
    note, read = harness.read_rows(tmp_path / "table.csv")
    assert note == "one note"
    assert read == [{"a": 1.5, "b": "x, y", "c": None}, {"a": None, "b": None, "c": True}]


# --- the pages -----------------------------------------------------------------------------------------


def _drawing(scripts: Any) -> Any:
    """The registry of figures and tables, filled by every script that draws one."""
    for path in (ROOT / "benchmarks").glob("*.py"):
        if "@drawn(" in path.read_text(encoding="utf-8"):
            scripts(path.stem)
    return scripts("drawing")


@with_results
def test_marked_tables_are_those_of_the_files(scripts: Any) -> None:
    tables = _drawing(scripts).TABLES
    assert len(tables) >= 3
    for (page, mark), (_, rows) in tables.items():
        text = (EVIDENCE / f"{page}.md").read_text(encoding="utf-8")
        (part,) = re.findall(f"<!-- table: {mark} -->(.*)<!-- end: {mark} -->", text, flags=re.DOTALL)
        assert part.strip() == scripts("harness").markdown_table(rows()).strip()


@with_results
def test_every_figure_is_drawn_shown_and_small(scripts: Any) -> None:
    files = {path.stem: path.stat().st_size for path in (ROOT / "docs/images/evidence").iterdir()}
    shown = [
        re.findall(r"images/evidence/([a-z-]+)\.svg", page.read_text()) for page in EVIDENCE.glob("*.md")
    ]
    assert set(files) == set(_drawing(scripts).FIGURES) == {name for part in shown for name in part}
    assert max(files.values()) <= 150_000


# --- contestants ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["relu", "erf", "tanh"])
def test_numpy_is_the_kernel_up_to_its_depth(scripts: Any, rows: np.ndarray, name: str) -> None:
    """20 layers are the limit; 3 layers miss it, by no more than the contraction allows."""
    exact = both_kernels(DEQ(name, sigma_a2=0.2), rows)
    deep, shallow = (scripts("compare").unrolled_kernels(rows, name, depth) for depth in (20, 3))
    for found, rough, truth in zip(deep, shallow, exact, strict=False):
        assert_close(found, truth, Oracle.QUADRATURE)
        missed = np.abs(rough - truth).max() / np.abs(truth).max()
        assert 1e-9 < missed < 0.2**2
