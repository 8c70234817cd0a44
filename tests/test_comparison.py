"""The comparison page: losses are marked from the numbers, and the contestants compute the right kernels."""

from __future__ import annotations

import functools
import importlib
import math
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from tolerances import Oracle, assert_close

from notsodeep.kernels import both_kernels
from notsodeep.models import DEQ

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "comparison.md"
VARIANCES = {"sigma_a2": 0.2, "sigma_b2": 0.8}
SECTIONS = ("kernels", "approximations", "estimators", "networks", "abilities")


@pytest.fixture(scope="module")
def peers() -> Iterator[Any]:
    """Imports a script of benchmarks/peers by name."""
    folders = [str(ROOT / "benchmarks" / part) for part in ("peers", ".", "peers/torchdeq")]
    sys.path[:0] = folders
    try:
        yield importlib.import_module
    finally:
        for folder in folders:
            sys.path.remove(folder)


@pytest.fixture(scope="module")
def verdicts(peers: Any) -> ModuleType:
    return peers("verdicts")  # type: ignore[no-any-return]


@pytest.fixture(scope="module")
def rows() -> np.ndarray:
    return np.random.default_rng(0).standard_normal((30, 40)) / np.sqrt(40)


def row(contestant: str, seconds: float, error: float = 1e-15, **more: Any) -> dict[str, Any]:
    errors = {"CK error": error, "NTK error": error}
    return {"φ": "relu", "n": 10, "contestant": contestant, "seconds": seconds, **errors, **more}


# --- marks ---------------------------------------------------------------------------------------------


def test_every_kind_of_loss_is_named(verdicts: ModuleType) -> None:
    ours = row("notsodeep", 3.0, 1e-6, **{"extra GB": 2.0})
    peer = row("peer", 1.0, 1e-9, **{"extra GB": 1.0})
    [mine, other] = verdicts.marked([ours, peer], verdicts.KERNEL_MEASURES, ("φ", "n"))
    assert mine[verdicts.REMARK] == (
        "slower than peer (3×); more memory than peer (2×); less accurate CK than peer (1e+03×); "
        "less accurate NTK than peer (1e+03×)"
    )
    assert other[verdicts.REMARK] == ""
    assert verdicts.losses([mine, other], ("φ", "n")) == [f"relu, 10, notsodeep: {mine[verdicts.REMARK]}"]
    assert "**slower than peer (3×)" in verdicts.table([mine, other])
    assert "- relu, 10, notsodeep: slower" in verdicts.listed([mine, other], ("φ", "n"))


UNMEASURED = {"φ": "relu", "n": 10, "contestant": "peer", "not measured": "no environment"}
RBF = {"contestant": "RBF", "test accuracy": 0.92, "test rows": 400}
NTK = {"contestant": "notsodeep: NTK", "test accuracy": 0.90, "test rows": 400}
NOISE = 200 * math.sqrt((0.9 * 0.1 + 0.92 * 0.08) / 400)
REMARKS: dict[str, tuple[list[dict[str, Any]], str, tuple[str, ...], str]] = {
    "rounding, and another group": (
        [row("notsodeep", 1.0, 9e-14), row("peer", 1.0, 1e-16), row("peer", 0.1) | {"n": 20}],
        "KERNEL_MEASURES",
        ("φ", "n"),
        "",
    ),
    "overlapping times": (
        [
            row("notsodeep", 2.0, **{"all seconds": [1.0, 2.0, 3.0]}),
            row("peer", 1.5, **{"all seconds": [1.4, 1.5, 1.6]}),
        ],
        "TIME_AND_MEMORY",
        ("n",),
        "slower than peer (1.3×, ranges overlap)",
    ),
    "accuracy is better when it is larger": (
        [NTK, RBF],
        "ACCURACY",
        (),
        f"less accurate than RBF by 2.00 points (± {NOISE:.2f})",
    ),
    "a peer that was not measured": ([row("notsodeep", 1.0), UNMEASURED], "KERNEL_MEASURES", ("φ", "n"), ""),
}


@pytest.mark.parametrize(("rows", "measures", "by", "remark"), REMARKS.values(), ids=list(REMARKS))
def test_remarks(
    verdicts: ModuleType, rows: list[Any], measures: str, by: tuple[str, ...], remark: str
) -> None:
    chosen = getattr(verdicts, measures)
    made = verdicts.marked(rows, chosen if isinstance(chosen, tuple) else (chosen,), by)
    assert made[0][verdicts.REMARK] == (remark or verdicts.NOTHING)
    assert len(verdicts.losses(made, by)) == bool(remark)


# --- the page ------------------------------------------------------------------------------------------


def test_every_section_has_its_marks_once_and_in_order(peers: Any) -> None:
    pages = peers("pages")
    text = PAGE.read_text(encoding="utf-8")
    assert tuple(pages.SECTIONS) == SECTIONS
    marks = [mark for section in SECTIONS for mark in pages.marks(section)]
    assert [text.count(mark) for mark in marks] == [1] * len(marks)
    places = [text.index(mark) for mark in marks]
    assert places == sorted(places)


# --- contestants ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["relu", "erf", "tanh"])
def test_numpy_is_the_kernel_up_to_its_depth(peers: Any, rows: np.ndarray, name: str) -> None:
    """20 layers are the limit; 3 layers miss it, by no more than the contraction allows."""
    recursion = peers("recursion")
    # The contestant's 32 terms leave 1e-9 on the diagonal; the series itself has to be right.
    series = functools.partial(recursion.tanh_dual_by_series, terms=100)
    dual = series if name == "tanh" else recursion.DUALS[name]
    exact = both_kernels(DEQ(name, sigma_a2=0.2), rows)
    deep, shallow = (recursion.unrolled_kernels(rows, dual, depth=depth, **VARIANCES) for depth in (20, 3))
    for found, rough, truth in zip(deep, shallow, exact, strict=False):
        assert_close(found, truth, Oracle.QUADRATURE)
        missed = np.abs(rough - truth).max() / np.abs(truth).max()
        assert 1e-9 < missed < 0.2**2
