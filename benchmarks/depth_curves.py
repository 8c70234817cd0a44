"""How many steps tasks need: depth curves of chains of several lengths and of a data set.

    python benchmarks/depth_curves.py                  # about five minutes
    python benchmarks/depth_curves.py --samples 300    # a quick look

A chain has a mark ±1 at both ends and noise between them; the class is whether the marks are equal.
"""

from __future__ import annotations

import argparse

import numpy as np

import notsodeep as nsd
from notsodeep.data import Preprocessing, load


def chain(n: int, length: int) -> tuple[np.ndarray, np.ndarray]:
    """Sequences (n, 1, length) and whether their ends are equal."""
    generator = np.random.default_rng(length)
    X = 0.3 * generator.standard_normal((n, 1, length))
    X[:, 0, [0, -1]] = generator.choice([-1.0, 1.0], (n, 2))
    return X, (X[:, 0, 0] == X[:, 0, -1]).astype(int)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--samples", type=int, default=1200)
    parser.add_argument("--lengths", type=int, nargs="*", default=[3, 5, 7, 9])
    parser.add_argument("--data", default="digits", help="a data set of notsodeep.data.load")
    options = parser.parse_args()
    model = nsd.ConvDEQ("relu", 0.9, 0.5, tolerance=1e-5)
    tasks = [(f"chain of {one}", model, chain(options.samples, one)) for one in options.lengths]
    rows = load(options.data, split="train", n=options.samples)
    labelled = Preprocessing.fit(rows.X).apply(rows.X), rows.y
    tasks += [
        (f"{options.data}, {deq}", deq, labelled) for deq in (nsd.DEQ("relu", 0.5), nsd.DEQ("tanh", 0.8))
    ]
    for name, one, data in tasks:
        curve = nsd.depth_curve(one, data)
        accuracies = " ".join(f"{100.0 * value:.1f}" for value in curve.accuracy)
        print(f"{name}: {curve.steps_needed} steps needed; accuracy in %: {accuracies}", flush=True)


if __name__ == "__main__":
    main()
