"""Tables for the page Play: twins that `notsodeep.design` finds, and the rates at which cells settle.

    python docs/hooks/play_tables.py        # writes docs/assets/play_twins.js and play_phases.js, some minutes

Everything else on that page is computed in the browser from formulas (docs/assets/play_theory.js). A design is found by
a search, and the rate of a cell needs the whole package: both are looked up. The tables are scripts and not JSON,
because a page that is opened from the disk may load scripts but no data.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.progress import track

import notsodeep as nsd
from notsodeep import cells

ASSETS = Path(__file__).parents[1] / "assets"
Array = NDArray[np.float64]

# --- twins ------------------------------------------------------------------------------------------------------

ACTIVATIONS = ("relu", "leaky_relu", "gelu", "swish", "elu", "tanh", "erf", "hard_tanh", "sin")
# σ_a² in hundredths: the positions of the slider. τ₀ is the norm of a typical sample.
POSITIONS = range(5, 91, 5)
TAU0 = 1.0
DIGITS = 9


def twins(activation: str, sigma_a2: float) -> dict[str, Any]:
    """The papers' design of a DEQ and its injected twin of two layers, both for the conjugate kernel."""
    deq = nsd.DEQ(activation, sigma_a2)
    papers = nsd.design(deq, TAU0, family="papers").network
    injected = nsd.design(deq.centred(TAU0), TAU0, family="injected", layers=2).network
    return {
        "papers": [layer_row(layer) for layer in papers.layers],
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


def twin_table() -> str:
    """The script with the twins of every activation at every position of the slider."""
    tasks = [(activation, position) for activation in ACTIVATIONS for position in POSITIONS]
    table: dict[str, dict[int, Any]] = {activation: {} for activation in ACTIVATIONS}
    for activation, position in track(tasks, "Designing twins"):
        table[activation][position] = twins(activation, position / 100.0)
    return script("playTwins", "Twins by activation and by hundredths of sigma_a2.", table)


# --- phase diagrams of cells --------------------------------------------------------------------------------------

# Strength of the feedback or branch, and root mean square of a coordinate of the input that a cell adds.
STRENGTHS = np.arange(1, 31) / 10.0
DIGITS_OF_A_DECADE = (1.0, 1.2, 1.4, 1.7, 2.0, 2.4, 2.9, 3.5, 4.2, 5.0, 6.0, 7.0, 8.5)
INPUTS = np.array([round(d * s, 3) for s in (0.01, 0.1, 1.0) for d in DIGITS_OF_A_DECADE])
INPUTS = INPUTS[(INPUTS >= 0.05) & (INPUTS <= 5.0)]
TOLERANCE = 1e-3
# Norms that `forecast` computes at once without interpolation.
AT_ONCE = 12


def tanh_deq(strength: float) -> nsd.DEQ:
    """z = tanh(√s A z + B x)."""
    return nsd.DEQ("tanh", sigma_a2=strength, sigma_b2=1.0)


def residual_cell(strength: float) -> nsd.Equilibrium:
    """z = RMSNorm(z + √s W₂ GELU(W₁ z) + B x)."""
    z, x = cells.state(), cells.input()
    branch = cells.dense(cells.activation(cells.dense(z, 1.0), "gelu"), strength)
    return nsd.Equilibrium(cells.norm(z + branch + cells.dense(x, 1.0)))


def swiglu_block(strength: float) -> nsd.Equilibrium:
    """Two sublayers y → RMSNorm(y + √s W₃ (SiLU(W₁ y) · W₂ y)) of y = z + B x."""

    def sublayer(y: cells.Node) -> cells.Node:
        gate = cells.activation(cells.dense(y, 1.0), "swish")
        return cells.norm(y + cells.dense(gate * cells.dense(y, 1.0), strength))

    z, x = cells.state(), cells.input()
    return nsd.Equilibrium(sublayer(sublayer(z + cells.dense(x, 1.0))))


CELLS: dict[str, Callable[[float], Any]] = {
    "deq": tanh_deq,
    "residual": residual_cell,
    "swiglu": swiglu_block,
}


def phases(make_cell: Callable[[float], Any], strength: float) -> tuple[Array, Array]:
    """Rates for all inputs, and steps to a relative residual of 1e-3; infinite where the cell does not settle.

    The variance of the input's weights is 1, so that the norm of x is the root mean square of what is added.
    """
    model = make_cell(strength)
    rate = np.array(
        [nsd.phase_diagram(lambda *_: model, [strength], [1.0], float(x)).rate[0, 0] for x in INPUTS]
    )
    steps = np.full(len(INPUTS), np.inf)
    settled = np.flatnonzero(rate < 1.0)
    for part in np.array_split(settled, max(1, -(-len(settled) // AT_ONCE))):
        if len(part):
            steps[part] = nsd.forecast(model, INPUTS[part, None]).steps(TOLERANCE)
    return rate, steps


def phase_table() -> str:
    """The script with rates in ten-thousandths and numbers of steps, 0 where a cell does not settle."""
    table: dict[str, Any] = {"strengths": STRENGTHS.tolist(), "inputs": INPUTS.tolist()}
    for name, make_cell in CELLS.items():
        columns = [phases(make_cell, float(strength)) for strength in track(STRENGTHS, f"Rates, {name}")]
        rate, steps = (np.array(part).T for part in zip(*columns, strict=True))
        table[name] = {
            "rate": np.rint(1e4 * rate).astype(int).tolist(),
            "steps": np.where(np.isfinite(steps), steps, 0.0).astype(int).tolist(),
        }
    return script("playPhases", "Rates and steps of cells: rows are inputs, columns strengths.", table)


# --- files --------------------------------------------------------------------------------------------------------


def script(name: str, what: str, table: dict[str, Any]) -> str:
    """A script that sets a global variable, one line of JSON for each entry of the table."""
    rows = (f'"{key}": {json.dumps(value, separators=(",", ":"))}' for key, value in table.items())
    lines = ",\n".join(rows)
    return f"// {what} Written by `python docs/hooks/play_tables.py`.\nwindow.{name} = {{\n{lines}\n}};\n"


def main() -> None:
    """Write both tables."""
    for name, make_table in {"play_phases.js": phase_table, "play_twins.js": twin_table}.items():
        text = make_table()
        (ASSETS / name).write_text(text, encoding="utf-8")
        print(f"{name}: {len(text.encode()) / 1000:.0f} kB")


if __name__ == "__main__":
    main()
