"""Convolutional kernels beside neural-tangents: the same numbers, and the time of each.

    python benchmarks/peers/neural_tangents/convolutional.py            # measures, and writes docs/comparison.md
    python benchmarks/peers/neural_tangents/convolutional.py --publish  # only writes what was measured

Four layers on small images, both readouts and paddings, are held to the peer's.  Then images of CIFAR-10: 20 layers of
ReLU with the readout flatten and 12 with pool, and beside them the equilibrium, which the peer does not have.  The peer
runs in the environment that environments.py makes, in a process of its own: `convolutional.py --peer` is what it runs.
Times are processor seconds of the second call, of all threads.  Results: neural_tangents_convolutional.json.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).resolve().parent
LAYERS, SIDES = {"flatten": 20, "pool": 12}, {"flatten": 32, "pool": 16}


def peer(source: str, tasks: list[str]) -> None:
    """CK and NTK by neural-tangents for each "activation,depth,readout,padding", beside the images; prints times."""
    os.environ["JAX_ENABLE_X64"] = "1"
    import resource

    import jax
    from neural_tangents import stax

    images = np.load(source)
    # Colours last; its first layer divides by the number of channels.
    images = np.sqrt(images.shape[1]) * images.transpose(0, 2, 3, 1)
    for number, (activation, depth, readout, padding) in enumerate(task.split(",") for task in tasks):
        border = {"zeros": "SAME", "circular": "CIRCULAR"}[padding]
        layers: list[Any] = []
        for _ in range(int(depth)):
            layers.append(stax.Conv(1, (3, 3), padding=border, W_std=1.0, b_std=None, parameterization="ntk"))
            layers.append({"relu": stax.Relu, "erf": stax.Erf}[activation]())
        layers.append(stax.Flatten() if readout == "flatten" else stax.GlobalAvgPool())
        _, _, kernel = stax.serial(*layers, stax.Dense(1, W_std=1.0, b_std=None))
        compiled = jax.jit(kernel, static_argnames="get")
        for _ in range(2):
            start = time.process_time()
            found = compiled(images, None, get=("nngp", "ntk"))
            ck, ntk = np.asarray(found.nngp), np.asarray(found.ntk)
            cpu = time.process_time() - start
        np.savez(Path(source).with_name(f"{number}.npz"), ck=ck, ntk=ntk)
        memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        print(json.dumps({"cpu": cpu, "megabytes": memory}))


def by_peer(
    python: Path, images: np.ndarray, *tasks: str
) -> Iterator[tuple[np.ndarray, np.ndarray, dict[str, float]]]:
    """The kernels of the other process for every task, and its time."""
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "images.npy"
        np.save(source, images)
        command = [str(python), str(Path(__file__).resolve()), "--peer", str(source), *tasks]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        facts = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
        for number, fact in enumerate(facts):
            with np.load(source.with_name(f"{number}.npz")) as found:
                yield found["ck"], found["ntk"], fact


def agreement(python: Path) -> list[dict[str, object]]:
    """Differences of explicit networks on small images, relative to the largest entry."""
    import notsodeep as nsd

    small = np.random.default_rng(0).standard_normal((4, 2, 6, 5)) / np.sqrt(2.0)
    cases = list(itertools.product(("relu", "erf"), ("flatten", "pool"), ("zeros", "circular")))
    theirs = by_peer(python, small, *(f"{name},4,{readout},{padding}" for name, readout, padding in cases))
    rows: list[dict[str, object]] = []
    for (name, readout, padding), (ck, ntk, _) in zip(cases, theirs, strict=True):
        K, T = nsd.both_kernels(nsd.ConvExplicit([name] * 4, readout=readout, padding=padding), small)
        off = np.abs(ntk - T) / np.abs(T).max()
        on = float(np.diag(off).max())
        np.fill_diagonal(off, 0.0)
        rows.append({
            "φ": name, "readout": readout, "padding": padding,
            "CK": f"{np.abs(ck - K).max() / np.abs(K).max():.0e}",
            "NTK off the diagonal": f"{off.max():.0e}", "NTK on it": f"{on:.0e}",
        })  # fmt: skip
        print(rows[-1], flush=True)
    return rows


def times(python: Path, readout: str, n: int) -> list[dict[str, object]]:
    """Processor time of both kernels of images of CIFAR-10."""
    from convolutional_images import cifar10

    import notsodeep as nsd

    images, depth = cifar10(n, SIDES[readout]), LAYERS[readout]
    size = f"{n} images, {SIDES[readout]}×{SIDES[readout]}×3, {readout}"
    ((_, _, facts),) = by_peer(python, images, f"relu,{depth},{readout},zeros")
    rows = [(f"neural-tangents, {depth} layers", facts["cpu"], facts["megabytes"])]
    for name, model in (
        (f"`ConvExplicit`, {depth} layers", nsd.ConvExplicit(["relu"] * depth, readout=readout)),
        ("`ConvDEQ`, infinitely many tied layers", nsd.ConvDEQ("relu", 0.3, readout=readout)),
    ):
        nsd.both_kernels(model, images[:3])
        cpu = time.process_time()
        nsd.both_kernels(model, images)
        rows.append((name, time.process_time() - cpu, None))
    return [
        {
            "task": size, "contestant": name, "core ms per entry": f"{1e3 * cpu / n**2:.2g}",
            "peer / ours": f"{facts['cpu'] / cpu:.2g}", "memory of the peer": f"{memory:.0f} MB" if memory else "",
        }
        for name, cpu, memory in rows
    ]  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--peer", nargs="+", help="images, and tasks: activation,depth,readout,padding")
    parser.add_argument("--n", type=int, default=40, help="images for flatten")
    parser.add_argument("--pooled", type=int, default=8, help="images for pool")
    parser.add_argument("--publish", action="store_true", help="only write what was measured")
    arguments = parser.parse_args()
    if arguments.peer:
        peer(arguments.peer[0], arguments.peer[1:])
        return
    sys.path[:0] = [str(HERE.parents[1]), str(HERE.parent)]  # benchmarks/ and benchmarks/peers/
    from environments import environment
    from harness import RESULTS, ROOT, filled, load_average, markdown_table, write_atomically, write_json

    file, page = RESULTS / "neural_tangents_convolutional.json", ROOT / "docs" / "comparison.md"
    if not arguments.publish:
        python = environment("neural_tangents")
        found: dict[str, Any] = {"agreement": agreement(python)}
        found["times"] = [
            row
            for readout, n in (("flatten", arguments.n), ("pool", arguments.pooled))
            for row in times(python, readout, n)
        ]
        write_json(file, {**found, "load": load_average()})
    found = json.loads(file.read_text(encoding="utf-8"))
    text = page.read_text(encoding="utf-8")
    for name in ("agreement", "times"):
        marks = f"<!-- measured: convolutional {name} -->", f"<!-- end: convolutional {name} -->"
        text = filled(text, *marks, markdown_table(found[name]))
    write_atomically(page, text)


if __name__ == "__main__":
    main()
