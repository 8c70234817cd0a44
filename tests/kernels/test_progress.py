"""Progress of kernels in memory: told tile by tile, a bar if one is asked for, and a way to stop."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr
from io import StringIO
from time import sleep
from typing import Any

import numpy as np
import pytest

import notsodeep as nsd
from notsodeep import kernels, progress
from notsodeep.models import tiling as tiles

DEQ = nsd.DEQ("relu", 0.2)
X = np.random.default_rng(0).standard_normal((600, 10)) / np.sqrt(10)
FUNCTIONS = (nsd.conjugate_kernel, nsd.tangent_kernel)


@pytest.fixture
def titles(monkeypatch) -> list[str]:
    """Titles of the bars that are shown."""
    shown: list[str] = []

    @contextmanager
    def bar(title: str) -> Iterator[progress.Report]:
        shown.append(title)
        yield progress.silent

    monkeypatch.setattr(progress, "progress_bar", bar)
    return shown


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("compute", [*FUNCTIONS, kernels.both_kernels])
def test_each_tile_is_told(compute: Callable[..., Any], threads: int, monkeypatch) -> None:
    monkeypatch.setattr(tiles, "threads", lambda: threads)
    seen: list[tuple[int, int, str]] = []
    found = compute(DEQ, X, progress=lambda done, total, news: seen.append((done, total, news())))
    # Three by three tiles; the lower half is computed.
    assert [done for done, _, _ in seen] == list(range(7))
    assert {total for _, total, _ in seen} == {6}
    np.testing.assert_array_equal(found, compute(DEQ, X))
    seen.clear()
    compute(DEQ, X, X[:300], progress=lambda done, total, news: seen.append((done, total, news())))
    assert [done for done, _, _ in seen] == list(range(7))


@pytest.mark.parametrize(
    "compute",
    [
        lambda: kernels.both_kernels(DEQ, X[:20], progress=True),
        lambda: nsd.design(DEQ, 1.0, progress=True),
        lambda: nsd.twin_distances(nsd.design(DEQ, 1.0), X[:20], progress=True),
        lambda: nsd.limiting_density(DEQ.centred(1.0), nsd.UnitSphere(30), 40, progress=True),
        lambda: nsd.equivalent(DEQ, X[:20], form="refined", progress=True),
        lambda: nsd.equivalence_error(DEQ, X[:20], form="refined", progress=True),
    ],
)
def test_true_is_a_bar_everywhere(compute: Callable[[], Any], titles: list[str]) -> None:
    compute()
    assert titles


def test_the_bar_of_blocks(tmp_path, titles: list[str]) -> None:
    nsd.conjugate_kernel(DEQ, X, out=tmp_path / "G.zarr", progress=True)
    assert titles == ["kernel"]


class Stopped(Exception):
    """Raised by a page that was closed."""


@pytest.mark.parametrize("threads", [1, 3])
def test_a_report_that_raises_ends_the_work(threads: int, monkeypatch) -> None:
    monkeypatch.setattr(tiles, "threads", lambda: threads)
    seen: list[int] = []

    def stop(done: int, total: int, news: object) -> None:
        seen.append(done)
        if done == 2:
            raise Stopped

    with pytest.raises(Stopped):
        nsd.tangent_kernel(DEQ, X, progress=stop)
    assert seen == [0, 1, 2]


class Terminal(StringIO):
    """What a terminal has been sent."""

    def isatty(self) -> bool:
        return True


def on_terminal(compute: Callable[[], Any], monkeypatch: pytest.MonkeyPatch, patience: float) -> str:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(progress, "_SECONDS_BEFORE_BAR", patience)
    with redirect_stderr(Terminal()) as seen:
        compute()
    return seen.getvalue()


SLOW: dict[str, Callable[[], Any]] = {
    "verdict": lambda: nsd.verdict(nsd.ConvDEQ("relu", 0.5, readout="pool"), X[:60].reshape(60, 1, 10)),
    "depth curve": lambda: nsd.depth_curve(DEQ, (X, np.arange(600) % 2)),
    "learning curve": lambda: nsd.learning_curve(DEQ, (X, np.arange(600) % 2), [100]),
    "kernel": lambda: nsd.tangent_kernel(nsd.DEQ("tanh", 0.2), X),
}


@pytest.mark.slow
@pytest.mark.parametrize("title", SLOW)
def test_what_takes_long_has_one_bar_on_a_terminal_by_default(
    title: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert title in on_terminal(SLOW[title], monkeypatch, 0.0)
    assert on_terminal(SLOW[title], monkeypatch, 600.0) == ""  # nothing before its time


def test_a_bar_inside_a_bar_is_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    def compute() -> None:
        with progress.progress_bar("outer"), progress.progress_bar("inner") as report:
            sleep(0.2)
            report(1, 1, lambda: "")

    said = on_terminal(compute, monkeypatch, 0.0)
    assert "outer" in said
    assert "inner" not in said
