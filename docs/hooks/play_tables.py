"""Twins for the page Play: the networks that `notsodeep.design` finds, at every position of its slider.

    python docs/hooks/play_tables.py                 # writes docs/assets/play_twins.js, some minutes

Everything else on that page is computed in the browser from formulas (docs/assets/play_theory.js). A design is found by
a search, which is too much for a page, so its result is looked up. The table is a script and not JSON, because a page
that is opened from the disk may load scripts but no data.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from rich.progress import track

import notsodeep as nsd

TARGET = Path(__file__).parents[1] / "assets" / "play_twins.js"
ACTIVATIONS = ("relu", "leaky_relu", "gelu", "swish", "elu", "tanh", "erf", "hard_tanh", "sin")
# σ_a² in hundredths, and the norm of a typical sample.
FIRST, LAST = 2, 90
TAU0 = 1.0
DIGITS = 9


def twins(activation: str, sigma_a2: float) -> dict[str, Any]:
    """The papers' design of a DEQ and its injected twin of two layers, both for the conjugate kernel."""
    deq = nsd.DEQ(activation, sigma_a2)
    papers = nsd.design(deq, TAU0, family="papers")
    injected = nsd.design(deq.centred(TAU0), TAU0, family="injected", layers=2).network
    return {
        "exact": papers.exact,
        "papers": [layer_row(layer) for layer in papers.network.layers],
        "injected": {
            "weights": rounded(injected.weights),
            "inject": rounded(injected.inject),
            "amplitudes": rounded([layer.amplitude for layer in injected.layers]),
            "offsets": rounded([layer.offset for layer in injected.layers]),
        },
    }


def layer_row(layer: nsd.Activation) -> dict[str, Any]:
    """A layer with straight pieces by its knots, slopes and value at 0, a polynomial by its coefficients."""
    if layer.name == "polynomial":
        constant, *powers = dict(layer.parameters)["coefficients"]
        return {"powers": rounded([constant + layer.offset, *powers])}
    if layer.name not in ("leaky_relu", "hard_tanh"):
        raise ValueError(f"The page knows straight pieces and polynomials, not {layer}.")
    knots = np.array(layer.kinks, dtype=np.float64)
    between = np.concatenate([[knots[0] - 1.0], (knots[1:] + knots[:-1]) / 2.0, [knots[-1] + 1.0]])
    return {
        "knots": rounded(knots),
        "slopes": rounded(layer.derivative(between)),
        "at_zero": rounded(layer([0.0]))[0],
    }


def rounded(values: Any) -> list[float]:
    """Numbers with as many digits as the page needs."""
    return [float(f"{value:.{DIGITS}g}") for value in np.asarray(values, dtype=np.float64)]


def compact(row: dict[str, Any]) -> str:
    """A row as JSON without spaces."""
    return json.dumps(row, separators=(",", ":"))


def main() -> None:
    """Write the table."""
    positions = range(FIRST, LAST + 1)
    tasks = [(activation, position) for activation in ACTIVATIONS for position in positions]
    table: dict[str, list[dict[str, Any]]] = {activation: [] for activation in ACTIVATIONS}
    for activation, position in track(tasks, "Designing twins"):
        table[activation].append(twins(activation, position / 100.0))
    lists = [f'"{name}": [\n' + ",\n".join(map(compact, rows)) + "]" for name, rows in table.items()]
    text = (
        "// Twins by activation, one for each hundredth of sigma_a2. Made by `python docs/hooks/play_tables.py`.\n"
        f"window.playTwins = {{first: {FIRST}, last: {LAST}, table: {{\n" + ",\n".join(lists) + "}};\n"
    )
    TARGET.write_text(text, encoding="utf-8")
    print(f"{TARGET.name}: {len(text.encode()) / 1000:.0f} kB")


if __name__ == "__main__":
    main()
