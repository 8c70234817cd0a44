"""How close is the kernel of each network to that of its DEQ?

  python benchmarks/twins.py        about five minutes on one core; writes benchmarks/results/twins-kernels.csv

Real data of norm 1, ReLU, tanh and GELU, σ_a² = 0.2 and 0.5: the exact conjugate kernel of a centred DEQ beside those
of the papers' twin, of twins of two and three injected layers, of the DEQ cut after three steps and of plain layers,
each with its best constant factor, which a readout learns by itself. Injected twins are fitted to samples that are not
compared.
"""

from __future__ import annotations

import argparse
import itertools

import numpy as np
from drawing import column, downwards, drawn, legend_below, marked, publish, rows_of, with_figure_only
from harness import RESULTS, Provenance, Row, markdown_provenance, write_rows
from matplotlib.axes import Axes
from verdicts import samples_of

import notsodeep as nsd
from notsodeep.designs import design, twin_distances
from notsodeep.figures import COLOURS
from notsodeep_lab.plots.row_selection import chosen, title

DATA = ("mnist", "fashion_mnist", "cifar10", "cifar10_vgg19", "usps", "letter")
SAMPLES, LAYERS = 600, 3


def compared(name: str, activation: str, sigma_a2: float) -> list[Row]:
    X, _ = samples_of(name, 2 * SAMPLES, 0, (), 1, train=SAMPLES)
    seen, others = X[:SAMPLES], X[SAMPLES:]
    model = nsd.DEQ(activation, sigma_a2).centred(float(np.sqrt(np.mean(np.sum(seen**2, axis=1)))))
    papers = twin_distances(design(model, X=seen, family="papers"), others)
    two, injected = (
        twin_distances(design(model, X=seen, family="injected", layers=layers), others)
        for layers in (2, LAYERS)
    )
    unfitted = design(model, tau0=seen, family="injected", layers=LAYERS)
    depth = max(papers.plain)
    errors = {
        "twin of the papers": papers.twin,
        "plain network of its depth": papers.plain[depth],
        "injected twin, 2 layers": two.twin,
        "injected twin, 3 layers": injected.twin,
        "injected twin, from the norm alone": twin_distances(unfitted, others, depths=[]).twin,
        "DEQ cut after 3 steps": injected.cut,
        "1 plain layer": injected.plain[1],
    }
    about = {"data": name, "activation": activation, "sigma_a2": sigma_a2, "depth of the papers' twin": depth}
    return [
        {**about, "network": network, "kernel error": error.up_to_factor, "without factor": error.relative}
        for network, error in errors.items()
    ]


@drawn("twin-errors", 3.8)
def twin_errors(axes: Axes) -> None:
    """Kernel errors of all networks, data and activations."""
    rows = rows_of("twins-kernels")
    networks = list(dict.fromkeys(row["network"] for row in rows))
    activations = list(dict.fromkeys(row["activation"] for row in rows))
    for number, activation in enumerate(activations):
        for strength, face in ((0.2, COLOURS[number]), (0.5, "none")):
            part = chosen(rows, activation=activation, sigma_a2=strength)
            places = [networks.index(row["network"]) + 0.2 * (number - 1) for row in part]
            label = f"{title(activation)}, $\\sigma_a^2$ = {strength}"
            style = marked(number, markerfacecolor=face, label=label)
            axes.plot(100 * column(part, "kernel error"), places, **style)
    downwards(axes, [name.replace(" of ", "\nof ") for name in networks])
    axes.set(xscale="log", xlabel="kernel error (%)")
    legend_below(axes, columns=3)


def main() -> None:
    with_figure_only(
        argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    )
    provenance, rows = Provenance(), []
    for case in itertools.product(DATA, ("relu", "tanh", "gelu"), (0.2, 0.5)):
        rows += compared(*case)
        print(*case, *(f"{row['kernel error']:.2g}" for row in rows[-7:]), flush=True)
        write_rows(RESULTS / "twins-kernels.csv", rows, markdown_provenance(provenance.record()))
    publish()


if __name__ == "__main__":
    main()
