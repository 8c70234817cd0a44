"""Results at a prompt are short and show what matters first."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import notsodeep as nsd
from notsodeep import convergence, display
from notsodeep.results import KernelInfo

X = np.random.default_rng(0).standard_normal((24, 12)) / 12**0.5
SPHERE = 12**0.5 * X / np.linalg.norm(X, axis=1, keepdims=True)
MODEL = nsd.DEQ("relu", 0.2).centred(1.0)
MIXTURE = nsd.GaussianMixture(np.zeros((1, 12)), 1.0)
STATISTICS = nsd.MixtureStatistics.of(MIXTURE, X, np.zeros(24, dtype=int))


# What makes the result, and a fact that its repr states.
RESULTS: dict[str, tuple[Callable[[], Any], str]] = {
    "Design": (lambda: nsd.design(MODEL, 1.0), "exact=True"),
    "LimitingSpectrum": (lambda: nsd.limiting_density(MODEL, MIXTURE, 24), "n=24, p=12"),
    "KernelInfo": (lambda: nsd.conjugate_kernel(MODEL, X, return_info=True)[1], "methods=[closed form]"),
    "Certificate": (lambda: convergence.certificate(SPHERE[:4], np.ones(4), 50, 0.05), "certified=False"),
    "Coefficients": (lambda: nsd.coefficients(MODEL, 1.0), "kernel=ck"),
    "MixtureStatistics": (lambda: STATISTICS, "n=24, p=12"),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", RESULTS)
def test_results_are_short_at_a_prompt(name: str) -> None:
    make, fact = RESULTS[name]
    result = make()
    text = repr(result)
    assert text.startswith(f"{name}(")
    assert fact in text
    assert len(text) <= 220
    assert "\n" not in text


@dataclass(frozen=True, repr=False)
class Note(display.Shown):
    text: str
    values: Any = 0


def test_long_values_are_cut_and_long_lists_show_their_first_values() -> None:
    assert len(repr(Note("word " * 200))) < 100
    assert repr(Note("a", list(range(1000)))) == "Note(text=a, values=[0, 1, 2, … 1000 values])"
    assert (
        repr(Note("a", np.linspace(0.0, 1.0, 31)))
        == "Note(text=a, values=[0, 0.03333, 0.06667, … 31 values])"
    )
    assert repr(Note("a", np.zeros((3, 4)))) == "Note(text=a, values=array(3×4))"
    assert repr(Note("a", np.array([1.0, 1.0 / 3.0]))) == "Note(text=a, values=[1, 0.3333])"


@pytest.mark.parametrize(
    "info", [KernelInfo(0, 0.0, 0.0, 0), KernelInfo(3, 1e-9, np.inf, 2, ("series",), "if <x>")]
)
def test_zeros_and_infinities_are_shown(info: KernelInfo) -> None:
    assert f"error_bound={info.error_bound:.4g}" in repr(info)
    assert ("caveat" in repr(info)) == bool(info.caveat)
