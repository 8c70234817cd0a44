"""Explicit twins of convolutional DEQs on held-out images, beside the DEQ cut and a plain layer.

  python benchmarks/convolutional_twins.py                          everything that is not done yet (hours on one core)
  python benchmarks/convolutional_twins.py --data mnist --sigma 0.3 some of it
  python benchmarks/convolutional_twins.py --minutes 3              as much as fits; the next call goes on
  python benchmarks/convolutional_twins.py --side 32 --readout flatten --activation relu tanh gelu --sigma 0.3
                                                                    images of full size
  python benchmarks/convolutional_twins.py --summary                the tables from what is done, and the worst rows
  python benchmarks/convolutional_twins.py --publish                the same into docs/convolutional.md
  NOTSODEEP_DATA names the folder with the data sets

A task is a data set, an activation, σ_a², a readout and a size. Images lose their mean image, are scaled to |x(s)|² = 1
on average, and made smaller by averages over blocks of pixels: to at most --side positions along an axis for "flatten",
--pool-side for "pool". Networks of two and three layers for CK, NTK and both are fitted to --images of them
(--pool-images for "pool"), to Gaussian images with the moments of 5 × 5 patches of 500 others (3 × 3 where images
are smaller), and to images of one colour; all are judged on as many other images. A distance is relative, in the
operator norm: as it is, and with the best constant factor. For "pool" below σ_a² = 0.3 each activation is run on one
data set, in rotation; --complete runs it on all.
Results: convolutional_twins.jsonl in --out, one line for each distance, finished tasks in one piece.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import time
import warnings
from collections.abc import Iterator
from itertools import product
from pathlib import Path

from cases import ACTIVATIONS
from harness import RESULTS, ROOT, Row, filled, markdown_table, write_atomically

from notsodeep.data import PatchMoments
from notsodeep.designs.evidence import Distance
from notsodeep.designs.families import Task
from notsodeep.designs.injected import InjectedFamily, kernels_of
from notsodeep.errors import ConvergenceError, InputError
from notsodeep.files import atomic_append
from notsodeep.gaussian import activation
from notsodeep.kernels import both_kernels
from notsodeep.models import ConvDEQ, ConvExplicit
from notsodeep_lab.papers.conv_twins import TARGETS, small_images
from notsodeep.validation import Array

DATA = ("cifar10", "fashion_mnist", "mnist")
# The strongest feedback first: it is where the targets are hardest.
VARIANCES = (0.3, 0.2, 0.1)
READOUTS = ("flatten", "pool")
GOALS = ("ck", "ntk", "both")
PAGE = ROOT / "docs" / "convolutional.md"
MARKS = "<!-- twins -->", "<!-- end: twins -->"
TASK = ("data", "activation", "sigma_a2", "readout", "side")
NETWORKS = ("fitted", "moments", "unfitted", "cut", "plain")
# Images whose patches are averaged for the design without images.
PATCH_IMAGES = 500


def task_rows(options: argparse.Namespace, about: Row) -> Iterator[Row]:
    """All distances of one task."""
    count = options.images if about["readout"] == "flatten" else options.pool_images
    X = small_images(about["data"], 2 * count + PATCH_IMAGES, about["side"])
    some, others, rest = X[:count], X[count : 2 * count], X[2 * count :]
    gaussian = PatchMoments.of(rest, size=5 if min(X.shape[2:]) >= 5 else 3).images(count, X.shape[2:])
    phi = activation(about["activation"], **ACTIVATIONS[about["activation"]])
    model = ConvDEQ(phi, about["sigma_a2"], readout=about["readout"])
    wanted = kernels(model, others)
    plain = kernels(model.network([phi]), others)
    for layers in TARGETS:
        cut = kernels(model.unrolled(layers), others)
        for goal in GOALS:
            task = Task(model, 1.0, goal, centre=False)
            start = time.process_time()
            unfitted = InjectedFamily(layers).solve(task, thorough=False)
            fitted = unfitted.fitted_to(task, some)
            seconds = time.process_time() - start
            found = {
                "fitted": kernels(fitted.network, others),
                "unfitted": kernels(unfitted.network, others),
                "cut": cut,
                "plain": plain,
            }
            # Pooled kernels cost the square of the positions: there the moments are tried for both kernels alone.
            if about["readout"] == "flatten" or goal == "both":
                found["moments"] = kernels(unfitted.fitted_to(task, gaussian).network, others)
            about_fit = {"layers": layers, "for": goal, "positions": X.shape[-1], "images": count}
            for network, matrices in found.items():
                for kernel in kernels_of(goal):
                    apart = Distance.between(wanted[kernel], matrices[kernel])
                    yield {
                        **about_fit, "seconds": seconds, "network": network, "kernel": kernel, **vars(apart),
                    }  # fmt: skip


def kernels(model: ConvDEQ | ConvExplicit, images: Array) -> dict[str, Array]:
    """Both exact kernels by name."""
    return dict(zip(("ck", "ntk"), both_kernels(model, images), strict=True))


# --- running and reading ------------------------------------------------------------------------------------------


def done(path: Path) -> list[Row]:
    """The rows of finished tasks."""
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def run(options: argparse.Namespace, path: Path) -> None:
    """The tasks that are not done yet, until time is up."""
    finished = {tuple(row[key] for key in TASK) for row in done(path)}
    limit = time.monotonic() + 60.0 * options.minutes
    sides = {"flatten": options.side, "pool": options.pool_side}
    wanted = product(options.readout, options.sigma, options.activation, options.data)
    for readout, sigma, name, data in wanted:
        if not (options.complete or in_subset(readout, sigma, name, data)):
            continue
        task = (data, name, sigma, readout, sides[readout])
        if task in finished or time.monotonic() > limit:
            continue
        about, start = dict(zip(TASK, task, strict=True)), time.process_time()
        try:
            rows = [{**about, **row} for row in task_rows(options, about)]
        except (ConvergenceError, InputError) as error:
            rows = [{**about, "network": "none", "verdict": str(error)}]
        atomic_append(path, "".join(json.dumps(row) + "\n" for row in rows).encode())
        print(*task, f"{time.process_time() - start:.1f} s", flush=True)


def in_subset(readout: str, sigma: float, name: str, data: str) -> bool:
    """Everything for "flatten" and for the strongest feedback; else each activation on one data set, in rotation."""
    turn = list(ACTIVATIONS).index(name) + VARIANCES.index(sigma)
    return readout == "flatten" or sigma == max(VARIANCES) or DATA[turn % len(DATA)] == data


def per_cent(value: float) -> str:
    return f"{100.0 * value:.2g} %"


def worst_of(rows: list[Row], field: str) -> Row:
    return max(rows, key=lambda row: float(row[field]))


def where(row: Row) -> str:
    """The task of a row in words."""
    return f"{row['activation']}, {row['sigma_a2']}, {row['data']}"


def table(rows: list[Row]) -> list[Row]:
    """Medians and worst distances by number of layers and what was matched."""
    shown = []
    for layers in TARGETS:
        for goal in GOALS:
            part = [row for row in rows if (row["layers"], row["for"]) == (layers, goal)]
            by = {name: [row for row in part if row["network"] == name] for name in NETWORKS}
            if not part:
                continue
            top = worst_of(by["fitted"], "plain")
            shown.append(
                {
                    "layers": layers,
                    "matched": {"ck": "CK", "ntk": "NTK", "both": "both, one network"}[goal],
                    "twin, median": per_cent(statistics.median(row["plain"] for row in by["fitted"])),
                    "twin, worst": f"{per_cent(top['plain'])} ({where(top)})",
                    "× factor": per_cent(worst_of(by["fitted"], "scaled")["scaled"]),
                    "moments of patches": per_cent(worst_of(by["moments"], "plain")["plain"])
                    if by["moments"]
                    else "–",
                    "images of one colour": per_cent(worst_of(by["unfitted"], "plain")["plain"]),
                    "DEQ cut": per_cent(worst_of(by["cut"], "plain")["plain"]),
                    "cut × factor": per_cent(worst_of(by["cut"], "scaled")["scaled"]),
                    "plain layer × factor": per_cent(worst_of(by["plain"], "scaled")["scaled"]),
                }
            )
    return shown


def group_text(rows: list[Row]) -> list[str]:
    """The table of one readout and size, and what misses its target."""
    names, sigmas, data = (sorted({row[key] for row in rows}) for key in ("activation", "sigma_a2", "data"))
    tasks = len({tuple(row[key] for key in TASK) for row in rows})
    sizes = " and ".join(f"{side}×{side}" for side in sorted({row["positions"] for row in rows}))
    count = " or ".join(map(str, sorted({row["images"] for row in rows})))
    who = f"{len(names)} activations" if len(names) > 3 else ", ".join(names)
    lines = [
        f"**{rows[0]['readout']}, {sizes}.** {tasks} tasks: {who}; σ_a² {', '.join(map(str, sigmas))}; "
        f"{', '.join(data)}; {count} images to fit to and as many to judge by. All columns but the first are "
        "the worst of all tasks.",
        "",
        markdown_table(table(rows)).rstrip(),
        "",
    ]
    for layers, target in TARGETS.items():
        ours = [row for row in rows if row["network"] == "fitted" and row["layers"] == layers]
        missed = sorted((row for row in ours if row["plain"] > target), key=lambda row: -row["plain"])
        worse = "; ".join(
            f"{where(row)}, {row['for']}: {row['kernel']} {per_cent(row['plain'])}" for row in missed
        )
        words = f" Beyond it: {worse}." if missed else ""
        lines.append(
            f"{layers} layers are within the target of {100 * target:g} % in {len(ours) - len(missed)} of {len(ours)} "
            f"distances.{words}"
        )
    return [*lines, *_beside_the_cut(rows), ""]


def _beside_the_cut(rows: list[Row]) -> list[str]:
    """Where the twin is further away than the DEQ cut after as many steps."""
    key = (*TASK, "layers", "for", "kernel")
    cuts = {tuple(row[name] for name in key): row["plain"] for row in rows if row["network"] == "cut"}
    ours = [row for row in rows if row["network"] == "fitted"]
    # Where the cut has the kernel to rounding, there is nothing left to gain.
    behind = [row for row in ours if row["plain"] > max(cuts[tuple(row[name] for name in key)], 1e-7)]
    lines = [
        f"The twin is further away than the DEQ cut after as many steps in {len(behind)} of {len(ours)} distances."
    ]
    return lines + [
        f"- {where(row)}, {row['layers']} layers, {row['for']}: {row['kernel']} {per_cent(row['plain'])}"
        for row in behind
    ]


def summary(every: list[Row]) -> str:
    """A table for each readout and size."""
    rows = [row for row in every if row["network"] != "none"]
    if not rows:
        return "Nothing is measured yet.\n"
    lines: list[str] = []
    for readout, side in sorted({(row["readout"], row["side"]) for row in rows}, key=str):
        lines += group_text([row for row in rows if (row["readout"], row["side"]) == (readout, side)])
    lines += [f"- not done: {where(row)}: {row['verdict']}" for row in every if row["network"] == "none"]
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", nargs="+", choices=DATA, default=DATA)
    parser.add_argument("--activation", nargs="+", choices=list(ACTIVATIONS), default=list(ACTIVATIONS))
    parser.add_argument("--sigma", nargs="+", type=float, choices=VARIANCES, default=VARIANCES)
    parser.add_argument("--readout", nargs="+", choices=READOUTS, default=READOUTS)
    parser.add_argument("--images", type=int, default=20, help="images to fit to, and to judge by, flatten")
    parser.add_argument("--pool-images", type=int, default=8, help="the same, pool")
    parser.add_argument("--side", type=int, default=8, help="most positions along an axis, flatten")
    parser.add_argument("--pool-side", type=int, default=8, help="most positions along an axis, pool")
    parser.add_argument("--complete", action="store_true", help="pool at all σ_a² on all data sets")
    parser.add_argument("--minutes", type=float, default=math.inf, help="start no task after so many")
    parser.add_argument("--summary", action="store_true", help="only show what is done")
    parser.add_argument(
        "--publish", action="store_true", help="write what is done into docs/convolutional.md"
    )
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    path = options.out / "convolutional_twins.jsonl"
    warnings.simplefilter("ignore")
    if not (options.summary or options.publish):
        options.out.mkdir(parents=True, exist_ok=True)
        run(options, path)
    found = summary(done(path))
    print(found)
    if options.publish:
        write_atomically(PAGE, filled(PAGE.read_text(encoding="utf-8"), *MARKS, found))


if __name__ == "__main__":
    main()
