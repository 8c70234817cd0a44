"""Convolutional kernels beside neural-tangents: the same numbers, and the time of each.

    python benchmarks/peers/neural_tangents/convolutional.py            # needs the environment that compare.py makes

Four layers on small images, both readouts and paddings, are held to the peer's; then 20 layers of ReLU on images of
CIFAR-10, and beside them the equilibrium, which the peer does not have.  The peer runs in a process of its own:
`convolutional.py --peer` is what its environment runs.  Times are processor seconds of the second call.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).resolve().parent


def peer(source: str, activation: str, depth: int, readout: str, padding: str) -> None:
    """CK and NTK by neural-tangents, written beside the images; prints the time as JSON."""
    os.environ["JAX_ENABLE_X64"] = "1"
    import resource

    import jax
    from neural_tangents import stax

    images = np.load(source)
    # Colours last; its first layer divides by the number of channels.
    images = np.sqrt(images.shape[1]) * images.transpose(0, 2, 3, 1)
    border = {"zeros": "SAME", "circular": "CIRCULAR"}[padding]
    layers: list[Any] = []
    for _ in range(depth):
        layers.append(stax.Conv(1, (3, 3), padding=border, W_std=1.0, b_std=None, parameterization="ntk"))
        layers.append({"relu": stax.Relu, "erf": stax.Erf}[activation]())
    layers.append(stax.Flatten() if readout == "flatten" else stax.GlobalAvgPool())
    _, _, kernel = stax.serial(*layers, stax.Dense(1, W_std=1.0, b_std=None))
    compiled = jax.jit(kernel, static_argnames="get")
    for _ in range(2):
        start, cpu = time.perf_counter(), time.process_time()
        found = compiled(images, None, get=("nngp", "ntk"))
        ck, ntk = np.asarray(found.nngp), np.asarray(found.ntk)
        seconds, cpu = time.perf_counter() - start, time.process_time() - cpu
    np.savez(Path(source).with_suffix(".npz"), ck=ck, ntk=ntk)
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(json.dumps({"seconds": seconds, "cpu": cpu, "megabytes": memory}))


def by_peer(
    python: Path, images: np.ndarray, *arguments: str
) -> tuple[np.ndarray, np.ndarray, dict[str, float]]:
    """The kernels of the other process, and its time."""
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "images.npy"
        np.save(source, images)
        command = [str(python), str(Path(__file__).resolve()), "--peer", str(source), *arguments]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        with np.load(source.with_suffix(".npz")) as found:
            return found["ck"], found["ntk"], json.loads(done.stdout.strip().splitlines()[-1])


def compare(python: Path, n: int, depth: int) -> None:
    """Differences on small images, then times on CIFAR-10."""
    import notsodeep as nsd

    small = np.random.default_rng(0).standard_normal((4, 2, 6, 5)) / np.sqrt(2.0)
    print("| φ | readout | padding | CK | NTK off the diagonal | NTK on it |\n|---|---|---|---|---|---|")
    for name in ("relu", "erf"):
        for readout in ("flatten", "pool"):
            for padding in ("zeros", "circular"):
                ck, ntk, _ = by_peer(python, small, name, "4", readout, padding)
                K, T = nsd.both_kernels(nsd.ConvExplicit([name] * 4, readout=readout, padding=padding), small)
                off = np.abs(ntk - T) / np.abs(T).max()
                on = float(np.diag(off).max())
                np.fill_diagonal(off, 0.0)
                first = np.abs(ck - K).max() / np.abs(K).max()
                print(
                    f"| {name} | {readout} | {padding} | {first:.0e} | {off.max():.0e} | {on:.0e} |",
                    flush=True,
                )
    data = nsd.data.load("cifar10", n=n)
    images = nsd.data.as_images("cifar10", data.X)
    images = images - images.mean(axis=0)
    images /= np.sqrt(np.mean(np.sum(images**2, axis=1)))
    _, _, facts = by_peer(python, images, "relu", str(depth), "flatten", "zeros")
    print(f"\n| {n} images, 32×32×3, ReLU, flatten, CK and NTK | core ms per entry |\n|---|---|")
    print(
        f"| neural-tangents, {depth} layers ({facts['megabytes']:.0f} MB) | {1e3 * facts['cpu'] / n**2:.3f} |"
    )
    for name, model in (
        (f"`ConvExplicit`, {depth} layers", nsd.ConvExplicit(["relu"] * depth)),
        ("`ConvDEQ`, infinitely many", nsd.ConvDEQ("relu", 0.3)),
    ):
        nsd.both_kernels(model, images[:3])
        cpu = time.process_time()
        nsd.both_kernels(model, images)
        print(f"| {name} | {1e3 * (time.process_time() - cpu) / n**2:.3f} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--peer", nargs=5, help="images, activation, depth, readout, padding")
    parser.add_argument("--python", type=Path, default=HERE / ".venv" / "bin" / "python")
    parser.add_argument("--n", type=int, default=40)
    parser.add_argument("--depth", type=int, default=20)
    arguments = parser.parse_args()
    if arguments.peer:
        source, activation, depth, readout, padding = arguments.peer
        peer(source, activation, int(depth), readout, padding)
        return
    if not arguments.python.exists():
        sys.exit(f"There is no {arguments.python}: run compare.py first, which makes it, or give --python.")
    compare(arguments.python, arguments.n, arguments.depth)


if __name__ == "__main__":
    main()
