"""The figure at the top of the README: how close each network is, and the predicted spectrum.

  python benchmarks/overview.py                       about half a minute; writes docs/images/overview.png

Left, how far exact kernels are from that of the DEQ on digits, each times its best factor: the papers' design, the
injected twin (two layers that see the input again, designed without data), one plain layer of the DEQ's own activation,
and as many plain layers as the papers' design has. Right, the spectrum of the exact
kernel of a ReLU DEQ on the papers' mixture, with the one predicted without data.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from notsodeep import figures
from notsodeep.data import GaussianMixture, MixtureStatistics, Preprocessing, load
from notsodeep.designs import TwinDistances, design, twin_distances
from notsodeep.equivalents import limiting_density
from notsodeep.figures.style import point_style
from notsodeep.kernels import conjugate_kernel
from notsodeep.models import DEQ

TARGET = Path(__file__).parent.parent / "docs" / "images" / "overview.png"
ACTIVATIONS = {"ReLU": "relu", "GELU": "gelu", "Swish": "swish", "tanh": "tanh"}
SIGMA_A2, SAMPLES, DIMENSION = 0.2, 2000, 1600


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, default=TARGET)
    arguments = parser.parse_args()
    with mpl.rc_context(figures.STYLE):
        print(figures.save(drawn(), arguments.out))


def drawn() -> Figure:
    drawing, (worth, spectrum) = figures.new_figure(2, height=3.0)
    digits = load("digits")
    rows = Preprocessing.fit(digits.X).apply(digits.X)
    deqs = {name: DEQ(phi, SIGMA_A2).centred(1.0) for name, phi in ACTIVATIONS.items()}
    found = {name: twin_distances(design(deq, 1.0, family="papers"), rows) for name, deq in deqs.items()}
    injected = {
        name: twin_distances(design(deq, 1.0, family="injected", layers=2), rows)
        for name, deq in deqs.items()
    }
    for name, one in found.items():
        print(f"{name}: {one}\n  injected: {injected[name].twin}")
    draw_distances(worth, found, [one.twin.up_to_factor for one in injected.values()])
    mixture = GaussianMixture.paper(DIMENSION)
    drawn_rows, labels = mixture.sample(SAMPLES, seed=0)
    deq = DEQ("relu", SIGMA_A2).centred(MixtureStatistics.of(mixture, drawn_rows, labels).tau0)
    exact = np.linalg.eigvalsh(conjugate_kernel(deq, drawn_rows))
    predicted = limiting_density(deq, mixture, SAMPLES, form="refined")
    figures.plot_spectrum(predicted, exact, spectrum, title="eigenvalues of a ReLU DEQ's kernel")
    return drawing


def draw_distances(axes: Axes, found: dict[str, TwinDistances], injected: list[float]) -> None:
    """One row for each activation, one marker for each network."""
    places = np.arange(len(found))[::-1]
    deepest = [one.plain[max(one.plain)].up_to_factor for one in found.values()]
    networks = {
        "twin of the papers": [one.twin.up_to_factor for one in found.values()],
        "one plain layer": [one.plain[1].up_to_factor for one in found.values()],
        "as many plain layers": deepest,
        "injected twin, 2 layers": injected,
    }
    for number, (name, values) in enumerate(networks.items()):
        style = point_style(number) | {"linestyle": "none", "markersize": 7 - 0.7 * number}
        axes.plot(100 * np.array(values), places, label=name, **style)
    axes.set_yticks(places, list(found))
    axes.set(xscale="log", xlim=(1e-3, 40.0), ylim=(-0.6, len(found) - 0.4))
    axes.set_xticks([0.001, 0.01, 0.1, 1.0, 10.0], ["0.001%", "0.01%", "0.1%", "1%", "10%"])
    axes.set(xlabel="kernel differs from the DEQ's, up to a factor", title="what the design is worth")
    axes.grid(axis="y", color="0.9")
    axes.set_axisbelow(True)
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.22), ncols=2)


if __name__ == "__main__":
    main()
