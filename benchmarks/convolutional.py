"""Kernels of convolutional equilibrium models: time, memory, and errors at finite width.

    python benchmarks/convolutional.py                                  # flatten 32×32 and pool 16×16: ms per entry
    python benchmarks/convolutional.py --widths --picture docs/images/convolutional_widths.png

Times are for CK and NTK together. "core ms per pair" is the processor time of this process for each pair of images
that is computed (half of the entries of a square kernel), which other programs on the machine disturb less.
"""

from __future__ import annotations

import argparse
import math
import resource
import sys
import time
from pathlib import Path

import numpy as np

import notsodeep as nsd

ROOT = Path(__file__).resolve().parents[1]
FEEDBACK = 0.3


def cifar10(n: int, side: int = 32) -> np.ndarray:
    """Images (n, 3, side, side) less their mean image, with |x(s)|² = 1 on average."""
    data = nsd.data.load("cifar10", n=n)
    images = nsd.data.as_images("cifar10", data.X)
    step = 32 // side
    images = images.reshape(len(images), 3, side, step, side, step).mean(axis=(3, 5))
    images = images - images.mean(axis=0)
    return np.asarray(images / math.sqrt(np.mean(np.sum(images**2, axis=1))))


def times(arguments: argparse.Namespace) -> None:
    """Milliseconds for each entry of the n × n result, and the evidence."""
    print(
        "| readout | side | φ | n | ms per entry | core ms per pair | steps | residual | error bound | memory |"
    )
    print("|---|---|---|---|---|---|---|---|---|---|")
    for readout, side, n in (
        ("flatten", 32, arguments.n[0]),
        ("pool", 16, min(arguments.n[0], arguments.pooled)),
    ):
        images = cifar10(n, side)
        for name in arguments.activation:
            model = nsd.ConvDEQ(name, FEEDBACK, readout=readout)
            # Compiles, and makes the table of the activation.
            nsd.both_kernels(model, images[: min(n, 40)] if readout == "flatten" else images[:3])
            before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
            start, cpu = time.perf_counter(), time.process_time()
            *_, info = nsd.both_kernels(model, images, return_info=True)
            wall, cpu = time.perf_counter() - start, time.process_time() - cpu
            grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
            print(
                f"| {readout} | {side} | {name} | {n} | {1e3 * wall / n**2:.3f} | {1e3 * cpu / (n * (n + 1) / 2):.3f} "
                f"| {info.iterations} | {info.residual:.0e} | {info.error_bound:.0e} | +{grown:.0f} MB |",
                flush=True,
            )


def width_errors(arguments: argparse.Namespace) -> None:
    """Relative errors (Frobenius, root mean square over draws) of random networks against the exact kernels."""
    sys.path.insert(0, str(ROOT / "tests"))
    from conv_networks import random_kernels
    from sklearn.datasets import load_digits

    images = load_digits().images[:4][:, None]
    images = images - images.mean(axis=0)
    images /= math.sqrt(np.mean(images**2))
    channels, draws, rows = (16, 32, 64, 128), 20, []
    print("| readout | kernel | " + " | ".join(f"{m} channels" for m in channels) + " | slope |")
    print("|---|---|" + "---|" * (len(channels) + 1))
    for readout in ("flatten", "pool"):
        model = nsd.ConvDEQ("relu", FEEDBACK, readout=readout)
        exact = nsd.both_kernels(model, images)
        found = {m: [random_kernels(model, images, m, seed) for seed in range(draws)] for m in channels}
        for number, kernel in enumerate(("CK", "NTK")):
            size = np.linalg.norm(exact[number])
            errors = [
                math.sqrt(
                    np.mean([(np.linalg.norm(one[number] - exact[number]) / size) ** 2 for one in found[m]])
                )
                for m in channels
            ]
            slope = np.polyfit(np.log(channels), np.log(errors), 1)[0]
            rows.append((f"{kernel}, {readout}", errors))
            print(
                f"| {readout} | {kernel} | "
                + " | ".join(f"{100 * e:.2f} %" for e in errors)
                + f" | {slope:.2f} |"
            )
    if arguments.picture is not None:
        draw_widths(channels, rows, arguments.picture)


def draw_widths(channels: tuple[int, ...], rows: list[tuple[str, list[float]]], path: Path) -> None:
    """Errors against the number of channels, beside the rate of the theory."""
    import matplotlib as mpl

    from notsodeep import figures
    from notsodeep.figures.style import point_style

    with mpl.rc_context(figures.STYLE):
        figure, (axes,) = figures.new_figure()
        for number, (label, errors) in enumerate(rows):
            axes.plot(channels, 100 * np.array(errors), label=label, **point_style(number))
        guide = np.array(channels, dtype=float)
        axes.plot(guide, 120 * guide**-0.5, color="0.4", linestyle=":", label="channels$^{-1/2}$")
        axes.set(xscale="log", yscale="log", xlabel="channels", ylabel="relative error of a random network")
        axes.set_xticks(channels, [str(m) for m in channels])
        axes.set_yticks([5, 10, 20, 30], ["5%", "10%", "20%", "30%"])
        axes.minorticks_off()
        axes.legend()
        figures.save(figure, path)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--n", type=int, nargs="+", default=[100])
    parser.add_argument("--pooled", type=int, default=12, help="images for the readout pool, at most")
    parser.add_argument("--activation", nargs="+", default=["relu", "tanh"])
    parser.add_argument("--widths", action="store_true", help="errors of random networks")
    parser.add_argument("--picture", type=Path, help="where the figure of --widths goes")
    arguments = parser.parse_args()
    (width_errors if arguments.widths else times)(arguments)


if __name__ == "__main__":
    main()
