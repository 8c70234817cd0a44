"""Results at a prompt and in a notebook: short, complete, and safe to put on a page."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
import torch

import notsodeep as nsd
from notsodeep import convergence, display, nets
from notsodeep.results import KernelInfo

X = np.random.default_rng(0).standard_normal((24, 12)) / 12**0.5
SPHERE = 12**0.5 * X / np.linalg.norm(X, axis=1, keepdims=True)
MODEL = nsd.DEQ("relu", 0.2).centred(1.0)
MIXTURE = nsd.GaussianMixture(np.zeros((1, 12)), 1.0)
STATISTICS = nsd.MixtureStatistics.of(MIXTURE, X, np.zeros(24, dtype=int))


def _net() -> nets.DEQNet:
    net = nets.DEQNet(MODEL, 12, 16, 2, seed=0)
    net(torch.as_tensor(X, dtype=torch.float32))
    return net


def _fitted() -> nets.History:
    return nets.fit(
        nets.ExplicitNet(nsd.Explicit(["relu"]), 12, 8, 2, seed=0), (X, np.arange(24) % 2), epochs=1
    )


# What makes the result, a fact that its repr states, and whether it comes with a drawing.
RESULTS: dict[str, tuple[Callable[[], Any], str, bool]] = {
    "Design": (lambda: nsd.design(MODEL, 1.0), "exact=True", True),
    "LimitingSpectrum": (lambda: nsd.limiting_density(MODEL, MIXTURE, 24), "n=24, p=12", True),
    "KernelInfo": (lambda: nsd.conjugate_kernel(MODEL, X, return_info=True)[1], "ways=fit", True),
    "Certificate": (lambda: convergence.certificate(SPHERE[:4], np.ones(4), 50, 0.05), "certified=False", True),
    "PopulationGram": (lambda: convergence.population_gram(SPHERE, 0.05), "matrix=array(24×24)", False),
    "Coefficients": (lambda: nsd.coefficients(MODEL, 1.0), "kernel=ck", False),
    "OperatorDistance": (lambda: nsd.equivalence_error(MODEL, X, STATISTICS), "relative=0.", False),
    "MixtureStatistics": (lambda: STATISTICS, "n=24, p=12", False),
    "GaussianMixture": (lambda: MIXTURE, "classes=1, p=12", False),
    "Twin": (lambda: nets.explicit_twin(_net(), X, evidence=False, seed=0), "kernel=ntk", False),
    "SolveReport": (lambda: _net().last_solve, "converged=True", False),
    "EmpiricalKernels": (
        lambda: nets.empirical_kernels(_net(), torch.as_tensor(X, dtype=torch.float32)), "ck=array(24×24)", False
    ),
    "History": (_fitted, "epochs=1", False),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("name", RESULTS)
def test_results_are_short_at_a_prompt_and_well_formed_in_a_notebook(name: str) -> None:
    make, fact, drawn = RESULTS[name]
    result = make()
    text = repr(result)
    assert text.startswith(f"{name}(")
    assert fact in text
    assert len(text) <= 220
    assert "\n" not in text
    page = ElementTree.fromstring(result._repr_html_())
    assert page.find("table") is not None
    figures = page.findall("figure")
    assert len(figures) == drawn
    numbers = [word for figure in figures for word in ElementTree.tostring(figure, "unicode").split('"')]
    assert not any(word.strip().lower() in ("nan", "inf", "-inf") for word in numbers)


@pytest.mark.slow
def test_the_density_that_is_drawn_is_that_of_the_spectrum() -> None:
    spectrum = nsd.limiting_density(MODEL, MIXTURE, 24)
    line = ElementTree.fromstring(spectrum._repr_html_()).find(".//polyline")
    assert line is not None
    points = np.array([pair.split(",") for pair in line.attrib["points"].split()], dtype=float)
    chosen = np.flatnonzero(np.isfinite(spectrum.density))[:: max(1, len(spectrum.grid) // 300)]
    # Axes point right and up: screen coordinates are an affine image of the values, to their one decimal.
    for screen, values in ((points[:, 0], spectrum.grid[chosen]), (-points[:, 1], spectrum.density[chosen])):
        slope, start = np.polyfit(values, screen, 1)
        assert slope > 0.0
        assert np.abs(slope * values + start - screen).max() <= 0.11


@dataclass(frozen=True, repr=False)
class Note(display.Shown):
    text: str
    values: Any = 0


def test_text_is_escaped() -> None:
    note = Note("<script>alert('x')</script> & more")
    assert "<script>" not in note._repr_html_()
    assert "&lt;script&gt;" in note._repr_html_()
    assert "<b" not in display.curves([("<b>", [0, 1], [0, 1]), ("c", [0, 1], [1, 0])], title="<b>")
    assert "<i" not in display.bars([("<i>", 1.0)], title="<i>")


def test_long_values_are_cut_and_long_lists_are_counted() -> None:
    assert len(repr(Note("word " * 200))) < 100
    assert repr(Note("a", list(range(1000)))) == "Note(text=a, values=1000 entries)"
    assert repr(Note("a", np.zeros((3, 4)))) == "Note(text=a, values=array(3×4))"
    assert repr(Note("a", np.array([1.0, 1.0 / 3.0]))) == "Note(text=a, values=[1, 0.3333])"


@pytest.mark.parametrize(
    "info", [KernelInfo(0, 0.0, 0.0, 0), KernelInfo(3, 1e-9, np.inf, 2, ("series",), "if <x>")]
)
def test_zeros_and_infinities_are_drawn_without_harm(info: KernelInfo) -> None:
    ElementTree.fromstring(info._repr_html_())
    assert ("caveat" in repr(info)) == bool(info.caveat)


@pytest.mark.slow
def test_no_library_is_needed_to_draw() -> None:
    code = (
        "import sys, notsodeep as nsd; nsd.design(nsd.DEQ('tanh'), 1.0)._repr_html_(); "
        "print('matplotlib' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "False\n"
