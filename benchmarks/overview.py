"""The picture at the top of the README: a DEQ and its explicit twin.

  python benchmarks/overview.py                       about half a minute; writes docs/images/overview.png

Left, the activation of a tanh DEQ and the one designed for a single layer. Middle, the spectrum of its exact kernel on
the papers' mixture, with the one predicted without data. Right, time and agreement after training on digits.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import matplotlib as mpl
import numpy as np
import torch
from matplotlib.figure import Figure

from notsodeep import figures
from notsodeep.data import GaussianMixture, load
from notsodeep.designs import design
from notsodeep.equivalents import limiting_density
from notsodeep.kernels import conjugate_kernel
from notsodeep.models import DEQ
from notsodeep.nets.race import RaceSettings, race

TARGET = Path(__file__).parent.parent / "docs" / "images" / "overview.png"
SAMPLES, DIMENSION, WIDTH = 2000, 1600, 2048


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, default=TARGET)
    arguments = parser.parse_args()
    torch.set_num_threads(1)  # as in `notsodeep demo`: threads that wait for each other measure nothing
    with mpl.rc_context(figures.STYLE):
        print(figures.save(drawn(), arguments.out))


def drawn() -> Figure:
    deq = DEQ("tanh", 0.2)
    drawing, (shapes, spectrum, time) = figures.new_figure(3, height=2.9)

    made = design(deq, 1.0)
    figures.plot_design(made, shapes)
    shapes.set_title("infinite depth, and one layer")

    mixture = GaussianMixture.paper(DIMENSION)
    rows, _ = mixture.sample(SAMPLES, seed=0)
    exact = np.linalg.eigvalsh(conjugate_kernel(deq, rows))
    predicted = limiting_density(deq, mixture, SAMPLES, form="refined")
    figures.plot_spectrum(predicted, exact, spectrum, title="eigenvalues of its exact kernel")

    parts = [load("digits", split=split, dtype="float32") for split in ("train", "test")]
    settings = RaceSettings(width=WIDTH, seeds=2, epochs=10)
    result = race(deq, *((part.X, part.y) for part in parts), settings, progress=True)
    figures.plot_race(
        [{"kind": "race", "data": "digits", **row} for row in result.as_dicts()], "inference_seconds", time
    )
    time.legend(loc="upper center", bbox_to_anchor=(0.5, -0.12))
    same = next(one.agreement for one in result.standings if one.model == "twin")
    time.set_title(f"{same:.0%} the same class")
    return drawing


if __name__ == "__main__":
    main()
