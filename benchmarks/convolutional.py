"""Kernels of convolutional equilibrium models: time, memory, and errors at finite width.

    python benchmarks/convolutional.py                                  # flatten 32×32 and pool 16×16, every activation
    python benchmarks/convolutional.py --activation relu tanh --again   # some of them once more
    python benchmarks/convolutional.py --publish                        # what was measured, into docs/convolutional.md
    python benchmarks/convolutional.py --widths --picture docs/images/convolutional_widths.png

CK and NTK together.  A measurement is the least disturbed of four runs after a small one, which compiles; it goes as a
line into benchmarks/results/convolutional.jsonl at once, and what stands there is not measured again.  "core ms per
pair" is the processor time of the process for each pair of images that is computed, "ms per entry" that time on two
cores for each entry of the n × n result.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
from pathlib import Path

import numpy as np
from convolutional_images import cifar10
from harness import RESULTS, ROOT, extra_megabytes, filled, load_average, markdown_table, write_atomically

import notsodeep as nsd

FEEDBACK, CORES, RUNS = 0.3, 2, 4
# The residual for which the aims are set.
TOLERANCE = 1e-8
FILE = RESULTS / "convolutional.jsonl"
PAGE = ROOT / "docs" / "convolutional.md"
MARKS = "<!-- measured: cost -->", "<!-- end: cost -->"
# Milliseconds for each entry that are aimed at.
AIMS = {("flatten", True): 0.06, ("flatten", False): 0.15, ("pool", True): 3.0, ("pool", False): 3.0}
ACTIVATIONS = (
    "relu", "leaky_relu", "abs", "tanh", "erf", "sigmoid", "gelu", "swish", "mish", "softplus", "arctan", "softsign",
    "sin", "cos", "elu", "hard_tanh", "hard_sigmoid", "callable",
)  # fmt: skip


def activation(name: str) -> nsd.Activation:
    """A built-in activation, or a function that is known by its values."""
    return (
        nsd.custom_activation(lambda x: x * np.exp(-(x**2) / 4))
        if name == "callable"
        else nsd.activation(name)
    )


def read() -> dict[tuple[str, str], dict[str, object]]:
    """The last measurement of each readout and activation."""
    lines = FILE.read_text(encoding="utf-8").splitlines() if FILE.exists() else []
    return {(row["readout"], row["φ"]): row for row in map(json.loads, lines)}


def measure(name: str, readout: str, images: np.ndarray) -> dict[str, object]:
    """Time, memory and evidence of one model."""
    model, n = nsd.ConvDEQ(activation(name), FEEDBACK, readout=readout, tolerance=TOLERANCE), len(images)
    found = []
    nsd.both_kernels(model, images[: min(n, 40)] if readout == "flatten" else images[:3])
    cpu = []
    for _ in range(RUNS):
        start = time.process_time()
        memory = extra_megabytes(lambda: found.append(nsd.both_kernels(model, images, return_info=True)[2]))
        cpu.append(time.process_time() - start)
    info = found[-1]
    return {
        "readout": readout, "φ": name, "side": images.shape[-1], "n": n, "core seconds": min(cpu),
        "way": " and ".join(info.ways), "steps": info.iterations, "residual": info.residual, "bound": info.error_bound,
        "megabytes": memory, "load": load_average(),
    }  # fmt: skip


def times(arguments: argparse.Namespace) -> None:
    """Measure what is not in the file yet."""
    for readout, side, n in (("flatten", 32, arguments.n), ("pool", 16, arguments.pooled)):
        images = cifar10(n, side)
        for name in arguments.activation:
            if arguments.again or (readout, name) not in read():
                row = measure(name, readout, images)
                with FILE.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(row, ensure_ascii=False) + "\n")
                print(line(row), flush=True)


def line(row: dict[str, object]) -> dict[str, object]:
    """A measurement as the page shows it."""
    n, seconds = int(row["n"]), float(row["core seconds"])  # type: ignore[call-overload]
    entry = 1e3 * seconds / CORES / n**2
    aim = AIMS[str(row["readout"]), row["φ"] == "relu"]
    return {
        "readout": f"{row['readout']}, {row['side']}×{row['side']}×3", "φ": row["φ"], "F by": row["way"],
        "core ms per pair": f"{1e3 * seconds / (n * (n + 1) / 2):.2g}", "ms per entry": f"{entry:.2g}",
        "aim": f"{aim:g}" + ("" if entry <= aim else ", missed"), "Newton steps": row["steps"],
        "residual": f"{row['residual']:.0e}", "error bound": f"{row['bound']:.0e}",
        "MB": f"{row['megabytes']:.0f}",
    }  # fmt: skip


def published() -> str:
    """The table, and which aims were missed."""
    rows = read()
    lines = [line(rows[key]) for readout in ("flatten", "pool") for key in rows if key[0] == readout]
    missed = [
        f"{one['φ']} ({one['readout']}): {one['ms per entry']}"
        for one in lines
        if "missed" in str(one["aim"])
    ]
    loads = [float(row["load"][0]) for row in rows.values() if row["load"]]  # type: ignore[index]
    sizes = {readout: row["n"] for (readout, _), row in rows.items()}
    return (
        f"{sizes.get('flatten')} images for flatten, {sizes.get('pool')} for pool; load of the machine (two cores) "
        f"{min(loads):.0f} to {max(loads):.0f} while it was measured, by one thread.\n\n{markdown_table(lines)}\n\n"
        + ("Missed: " + "; ".join(missed) + "." if missed else "No aim is missed.")
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
    parser.add_argument("--n", type=int, default=100, help="images for the readout flatten")
    parser.add_argument("--pooled", type=int, default=16, help="images for the readout pool")
    parser.add_argument("--activation", nargs="+", choices=ACTIVATIONS, default=list(ACTIVATIONS))
    parser.add_argument("--again", action="store_true", help="measure also what was measured before")
    parser.add_argument(
        "--publish", action="store_true", help="write what is there into docs/convolutional.md"
    )
    parser.add_argument("--widths", action="store_true", help="errors of random networks")
    parser.add_argument("--picture", type=Path, help="where the figure of --widths goes")
    arguments = parser.parse_args()
    if arguments.publish:
        page = PAGE.read_text(encoding="utf-8")
        write_atomically(PAGE, filled(page, *MARKS, published()))
        return
    (width_errors if arguments.widths else times)(arguments)


if __name__ == "__main__":
    main()
