"""The figure at the top of the README: predicted residuals of five loops through those of real networks.

  python benchmarks/overview.py                       about a minute; writes docs/images/forecast-{light,dark}.svg

Lines are `notsodeep.forecast(model, X)`, computed before a network exists. Points are medians of a few torch networks
with random weights, on the same samples.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure

import notsodeep as nsd
from notsodeep import cells, figures
from notsodeep.figures.style import COLOURS, MARKERS

FOLDER = Path(__file__).parent.parent / "docs" / "images"
SAMPLES, DIMENSION, WIDTH, NETWORKS, STEPS = 8, 50, 1024, 5, 60
# Text and lines of the axes; colours of the models that are too dark for a dark page, and what replaces them.
INK = {"light": "#24292f", "dark": "#e6e6e6"}
LIGHTER = {"#0072B2": "#56B4E9", "#D55E00": "#FF8A3D", "#009E73": "#2FD3A5", "#000000": "#e6e6e6"}


def models() -> dict[str, Any]:
    """Five loops that people write, from one that settles fast to one that does not settle."""
    z, x = cells.state(), cells.input()

    def gated(node: Any) -> Any:
        gate = cells.activation(cells.dense(node, 1.0), "swish")
        return cells.dense(gate * cells.dense(node, 1.0), 1.0)

    branch = cells.dense(cells.activation(cells.dense(z, 1.2), "gelu"), 0.8)
    injected = z + cells.dense(x, 2.0)
    middle = cells.norm(injected + gated(injected))
    return {
        "tanh DEQ, too strong": nsd.DEQ("tanh", 4.0, 0.5),
        "two SwiGLU sublayers": nsd.Equilibrium(cells.norm(middle + gated(middle))),
        "ReLU DEQ": nsd.DEQ("relu", 1.2, 0.5),
        "tanh DEQ": nsd.DEQ("tanh", 0.9, 0.5),
        "residual with RMSNorm": nsd.Equilibrium(cells.norm(z + branch + cells.dense(x, 3.0))),
    }


def samples() -> np.ndarray:
    X = np.random.default_rng(0).standard_normal((SAMPLES, DIMENSION))
    return X / np.linalg.norm(X, axis=1, keepdims=True)


def median_curve(residuals: np.ndarray) -> np.ndarray:
    """The median over samples, in a row of STEPS numbers; NaN after the last step."""
    curve = np.full(STEPS, np.nan)
    count = min(STEPS, residuals.shape[1])
    curve[:count] = np.median(residuals[:, :count], axis=0)
    return curve


def curves(model: Any) -> tuple[float, np.ndarray, np.ndarray]:
    """The predicted rate, predicted residuals, and the median of those of networks."""
    X = samples()
    predicted = nsd.forecast(model, X)
    inputs = torch.as_tensor(X, dtype=torch.float32)
    networks = (nsd.nets.network(model, DIMENSION, WIDTH, 1, seed=seed) for seed in range(NETWORKS))
    measured = [median_curve(nsd.forecast(network, inputs).residuals) for network in networks]
    return float(predicted.rate.max()), median_curve(predicted.residuals), np.median(measured, axis=0)


def drawn(rows: dict[str, tuple[float, np.ndarray, np.ndarray]], scheme: str) -> Figure:
    """One panel, 390 pixels wide, on a transparent background."""
    figure = Figure(figsize=(5.4, 3.7), layout="constrained")
    figure.patch.set_alpha(0.0)
    axes: Axes = figure.subplots()
    axes.patch.set_alpha(0.0)
    shown = np.arange(1, STEPS + 1)
    keys = []
    for number, (name, (rate, predicted, measured)) in enumerate(rows.items()):
        colour = COLOURS[number] if scheme == "light" else LIGHTER.get(COLOURS[number], COLOURS[number])
        style = {"color": colour, "marker": MARKERS[number], "markersize": 5.5}
        axes.plot(shown, predicted, color=colour)
        axes.plot(shown[::3], measured[::3], linestyle="none", **style)
        outcome = f"rate {rate:.2f}" if rate < 1.0 else "does not settle"
        keys += axes.plot([], [], label=f"{name}: {outcome}", **style)
    axes.set(yscale="log", xlim=(0, STEPS + 1), ylim=(2e-6, 2.0))
    axes.set_xlabel("step of the solver")
    axes.set_ylabel("relative change of the state")
    axes.add_artist(
        axes.legend(handles=keys, loc="upper right", bbox_to_anchor=(1.02, 0.93), labelspacing=0.25)
    )
    line = axes.plot([], [], color=INK[scheme], label="lines: predicted before the network exists")
    points = axes.plot([], [], "o", color=INK[scheme], label=f"points: networks of width {WIDTH}, measured")
    axes.legend(handles=line + points, loc="lower left", bbox_to_anchor=(-0.04, 1.0), labelspacing=0.25)
    return figure


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, default=FOLDER, help="folder of the two pictures")
    folder = parser.parse_args().out
    rows = {name: curves(model) for name, model in models().items()}
    for scheme, ink in INK.items():
        axis = ("axes.edgecolor", "axes.labelcolor", "xtick.color", "ytick.color", "text.color")
        sizes = {
            "font.size": 11.0,
            "legend.fontsize": 10.5,
            "legend.handlelength": 1.2,
            "axes.labelsize": 11.5,
            "xtick.labelsize": 10.5,
            "ytick.labelsize": 10.5,
        }
        with mpl.rc_context({**figures.STYLE, **sizes, **dict.fromkeys(axis, ink)}):
            figure = drawn(rows, scheme)
            print(figures.save(figure, folder / f"forecast-{scheme}.svg"))


if __name__ == "__main__":
    main()
