"""Kernels of convolutional equilibrium models on CIFAR-10: time per entry, and errors.

    python benchmarks/convolutional.py                              # flatten 32×32 and pool 16×16, every activation
    python benchmarks/convolutional.py --activation relu tanh --readout flatten

CK and NTK together, at the residual for which the limits are set.  "ms per entry" is the processor time of the process,
divided by two cores and by the n × n entries of the result: the least disturbed of several runs after a small one,
which compiles.  The table goes to benchmarks/results/convolutional.csv when all rows were measured.
"""

from __future__ import annotations

import argparse
import math
import time

import numpy as np
from harness import RESULTS, load_average, write_rows

import notsodeep as nsd
from notsodeep_lab.papers.data_files import load

FEEDBACK, TOLERANCE, CORES, RUNS = 0.3, 1e-8, 2, 2
# Milliseconds for each entry, for ReLU and for the others.
LIMITS = {"flatten": (0.06, 0.3), "pool": (3.0, 8.0)}
SIZES = {"flatten": (32, 128), "pool": (16, 12)}
ACTIVATIONS = (
    "relu", "abs", "tanh", "erf", "sigmoid", "gelu", "swish", "mish", "softplus", "arctan", "softsign", "sin", "elu",
    "hard_tanh", "hard_sigmoid", "callable",
)  # fmt: skip


def activation(name: str) -> nsd.Activation:
    """A built-in activation, or a custom function."""
    if name == "callable":
        return nsd.custom_activation(lambda x: x * np.exp(-(x**2) / 4))
    return nsd.activation(name)


def cifar10(n: int, side: int) -> np.ndarray:
    """Images (n, 3, side, side) less their mean image, with |x(s)|² = 1 on average."""
    images = nsd.data.as_images("cifar10", load("cifar10", n=n).X)
    step = 32 // side
    images = images.reshape(n, 3, side, step, side, step).mean(axis=(3, 5))
    images = images - images.mean(axis=0)
    return np.asarray(images / math.sqrt(np.mean(np.sum(images**2, axis=1))))


def measure(name: str, readout: str) -> dict[str, object]:
    """One row of the table."""
    side, n = SIZES[readout]
    images, model = (
        cifar10(n, side),
        nsd.ConvDEQ(activation(name), FEEDBACK, readout=readout),
    )
    few = images[:40] if readout == "flatten" else images[:3]
    nsd.kernels.both_kernels(model, few, tolerance=TOLERANCE)
    seconds = math.inf
    for _ in range(RUNS):
        start = time.process_time()
        info = nsd.kernels.both_kernels(model, images, tolerance=TOLERANCE, return_info=True)[2]
        seconds = min(seconds, time.process_time() - start)
    entry, limit = 1e3 * seconds / CORES / n**2, LIMITS[readout][name != "relu"]
    return {
        "readout": f"{readout}, {side}×{side}×3", "φ": name, "n": n, "F by": " and ".join(info.methods),
        "ms per entry": f"{entry:.2g}", "limit": f"{limit:g}" + ("" if entry <= limit else ", missed"),
        "steps": info.iterations, "residual": f"{info.residual:.0e}", "error bound": f"{info.error_bound:.0e}",
        "largest difference": f"{info.largest_difference:.0e}",
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--activation", nargs="+", default=ACTIVATIONS)
    parser.add_argument("--readout", nargs="+", default=tuple(LIMITS), choices=tuple(LIMITS))
    arguments = parser.parse_args()
    rows = []
    for readout in arguments.readout:
        for name in arguments.activation:
            rows.append(measure(name, readout))
            print(rows[-1], flush=True)
    if arguments.activation == ACTIVATIONS and arguments.readout == tuple(LIMITS):
        note = f"Load average of the machine (two cores): {load_average()}."
        write_rows(RESULTS / "convolutional.csv", rows, note)


if __name__ == "__main__":
    main()
