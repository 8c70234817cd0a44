"""Made-up rows of experiments, to draw figures from."""

from __future__ import annotations

from typing import Any

import numpy as np

Row = dict[str, Any]


def spectra(sources: tuple[str, ...] = ("deq", "twin", "equivalent", "monte-carlo")) -> list[Row]:
    """Spectra of 202 eigenvalues on the sphere, and the distance of the first two."""
    generator, rows = np.random.default_rng(0), []
    fields = {"data": "sphere", "kernel": "preactivations", "n": 202, "p": 100}
    for source in sources:
        values = np.sort(np.concatenate([generator.chisquare(8, 200) / 10 + 0.05, [30.0, 45.0]]))
        rows.append(
            {"kind": "spectrum", "source": source, "label": "", "eigenvalues": values.tolist()} | fields
        )
    distance = {"kind": "distance", "first": sources[0], "second": sources[1], "seed": 0, "main": True}
    return [*rows, distance | fields | {"reading": "pre-activations", "absolute": 0.131, "relative": 0.004}]


def errors(forms: tuple[str, ...], kernels: tuple[str, ...]) -> list[Row]:
    """Relative errors that fall as n^{-1/2}."""
    generator = np.random.default_rng(4)
    return [
        {
            "kind": "error", "data": "mixture", "activation": activation, "kernel": kernel, "form": form, "n": n,
            "p": int(0.8 * n), "seed": seed, "norm": 1.0, "absolute": 1.0,
            "relative": float((1 + k) * 0.1**j * 3 * n**-0.5 * np.exp(0.1 * generator.standard_normal())),
        }
        for k, activation in enumerate(("tanh", "relu", "swish"))
        for kernel in kernels
        for j, form in enumerate(forms)
        for n in (250, 500, 1000, 2000, 4000)
        for seed in (0, 1, 2)
    ]  # fmt: skip


def accuracies() -> list[Row]:
    """Accuracy by width of a DEQ, its twin and a plain network."""
    generator = np.random.default_rng(5)
    return [
        {
            "kind": "accuracy", "data": data, "activation": "relu", "width": width, "seed": seed, "model": model,
            "accuracy": float(1 - gap - 2 / width**0.9 + 0.002 * generator.standard_normal()),
        }
        for data in ("mnist", "fashion_mnist")
        for model, gap in (("deq", 0.03), ("twin", 0.031), ("plain", 0.05))
        for width in (32, 64, 128, 256)
        for seed in (0, 1, 2)
    ]  # fmt: skip
