"""Golden kernels: some hundred small kernels of every kind of model, against which a new engine is compared.

    python tools/golden.py      # writes tests/kernels/golden.npz

An entry is named "model | data | kernel". `MODELS` and `DATA` rebuild both from the name, `compute` gives the
kernel: tests/kernels/test_golden.py recomputes every entry with the code of the checkout. The file holds for each
entry the values in float64, the bound that the kernel came with, the square roots of the diagonals that this bound is
relative to (of images: those of the readout "flatten"), and the seconds it took; and the samples themselves.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import notsodeep as nsd
from notsodeep import cells
from notsodeep.models import ConvExplicit, GraphExplicit, normalised_adjacency

Array = np.ndarray
Models = dict[str, Callable[[], Any]]
FILE = Path(__file__).resolve().parents[1] / "tests" / "kernels" / "golden.npz"


class Entry(NamedTuple):
    """One kernel with its evidence; `rows` and `columns` are the sizes that `bound` is relative to."""

    values: Array
    rows: Array
    columns: Array
    bound: float
    seconds: float


HOSTILE = "zero, duplicate, opposite, scaled"


def _samples() -> dict[str, tuple[Array, Array | None]]:
    """Samples X and Y by name; where Y is None the kernel is that of X with itself."""
    rng = np.random.default_rng(52)
    plain = rng.standard_normal((6, 5)) / np.sqrt(5)
    x, u = plain[0], rng.standard_normal(5) / np.sqrt(5)
    related = np.stack([0.0 * x, x, x, -x, 3.0 * x, 0.01 * x, plain[1], plain[1] + plain[2]])
    near = np.stack([x, *(x + apart * u for apart in (1e-4, 1e-6, 1e-8, 1e-10)), -x + 1e-8 * u])
    decades = 10.0 ** np.array([[-6.0], [-3.0], [-1.0], [0.0], [1.0], [3.0]]) * plain
    pixels = np.floor(256.0 * rng.random((4, 64)) ** 3)
    images = rng.standard_normal((3, 2, 4, 5)) / np.sqrt(2)
    images[2] = 0.0
    images[2, 0, :2, :2] = 1.5
    pictures = np.floor(256.0 * rng.random((3, 1, 4, 4)) ** 3)
    sequences = rng.standard_normal((4, 2, 7)) / np.sqrt(2)
    sequences[1], sequences[2], sequences[3] = sequences[0], sequences[0] + 1e-8, 0.0
    nodes = rng.standard_normal((7, 4)) / 2.0
    nodes[3], nodes[4] = nodes[2], -nodes[1]
    alone = {
        "plain": plain, HOSTILE: related, HOSTILE[6:]: related[[1, 2, 3, 4, 6, 7]], "1e-4 to 1e-10 apart": near,
        "norms over decades": decades, "pixels": pixels, "images": images, "pictures": pictures,
        "sequences": sequences, "nodes": nodes, "distant nodes": nodes * 10.0 ** np.linspace(-1.5, 1.0, 7)[:, None],
    }  # fmt: skip
    return {name: (samples, None) for name, samples in alone.items()} | {
        "rectangle": (plain[:4], np.stack([plain[1], 2.0 * plain[2], plain[4] - plain[3]])),
        "rectangle of images": (images[:2], images[1:]),
    }


DATA = _samples()
ROWS = ("plain", HOSTILE, "1e-4 to 1e-10 apart", "norms over decades", "rectangle")
# Beside rows of zeros or of tiny norm, cells with norms have no stable equilibrium.
MODERATE = ("plain", HOSTILE[6:], "1e-4 to 1e-10 apart", "rectangle")

RING = normalised_adjacency(np.roll(np.eye(7), 1, 0) + np.roll(np.eye(7), -1, 0) + np.diag([1.0] + [0.0] * 6))
Z, X = cells.state(), cells.input()
READS, BOTH = ("flatten", "pool"), ("ck", "ntk")
ALL = (*BOTH, "ck_preactivations", "ntk_paper", "ntk_preactivations")


def residual(phi: str = "tanh", kind: str = "rms") -> Any:
    """A residual block with a norm."""
    branch = cells.dense(cells.activation(cells.dense(Z, 0.5), phi), 0.6)
    return cells.norm(Z + branch + cells.dense(X, 4.0), kind)


def two_layers(inner: str, outer: str) -> Any:
    """Two layers in a step, with a bias between them."""
    first = cells.activation(cells.dense(Z, 0.4) + cells.dense(X, 0.7), inner)
    return cells.activation(cells.bias(cells.dense(first, 0.5), 0.1) + cells.dense(X, 0.3), outer)


def sublayer(y: Any) -> Any:
    """A skip around SwiGLU, and a norm."""
    gate = cells.activation(cells.dense(y, 1.0), "silu")
    return cells.norm(y + cells.dense(gate * cells.dense(y, 1.0), 1.0))


def filtered(read: str, padding: str) -> Any:
    """Filters of two sizes, a bias and LayerNorm around a skip."""
    branch = cells.conv(cells.activation(cells.bias(cells.conv(Z, 0.3, 1), 0.2), "gelu"), 0.4, 3, padding)
    return getattr(cells, read)(cells.norm(0.5 * Z + branch - cells.conv(X, 1.0, 3, padding), "layer"))


def sigmoid(state: float, read: float) -> Any:
    """A gate of its own."""
    return cells.activation(cells.dense(Z, state) + cells.dense(X, read), "sigmoid")


TANH_SKIP = Z + cells.dense(cells.activation(Z, "tanh"), 0.5) + cells.dense(X, 0.1)
RELU_SKIP = Z + cells.dense(cells.activation(Z, "relu"), 0.5) + cells.dense(X, 0.1)
GATED = cells.activation(cells.dense(Z, 0.8) + cells.dense(X, 1.0), "tanh") * sigmoid(0.7, 0.5)
SUBLAYERS = sublayer(sublayer(Z + cells.dense(X, 20.0)))
# A gate on a graph beside a skip.
SPREAD = cells.activation(cells.graph(Z, RING, 0.4) + cells.graph(X, RING, 1.0), "tanh") * sigmoid(0.3, 0.5)
PROPAGATED = cells.norm(Z + cells.graph(SPREAD, RING, 0.5) + cells.dense(X, 2.0))
# Skips with factors, differences, a bias around the state, and a gate that is linear in one factor.
BRANCH = cells.activation(cells.bias(cells.dense(Z, 0.3) - cells.dense(X, 0.4), 0.2), "gelu")
TERMS = sigmoid(0.2, 0.1) * cells.dense(X, 0.5) - cells.dense(BRANCH, 0.2) / 2.0
MIXED = cells.bias(0.5 * Z + TERMS + cells.dense(X, 0.04), 0.09)


def _deqs(names: str, label: str = "DEQ", variances: tuple[float, ...] = (0.2,)) -> Models:
    return {f"{label} {phi}": partial(nsd.DEQ, phi, *variances) for phi in names.split(", ")}


def _images(read: str) -> Models:
    circular = partial(nsd.ConvDEQ, padding="circular", readout=read)
    layers = partial(ConvExplicit, readout=read)
    return {
        f"ConvDEQ relu, {read}": lambda: nsd.ConvDEQ("relu", 0.4, 0.6, readout=read),
        f"ConvDEQ tanh, biased, circular, {read}": lambda: circular("tanh", 0.4, 0.6, 0.1),
        f"ConvExplicit relu tanh, {read}": lambda: layers(["relu", "tanh"], inject=[0.3], bias2=0.1),
        f"ConvExplicit gelu, 1 tap, {read}": lambda: layers(["gelu"], filter_size=1),
        f"Equilibrium filtered, {read}": lambda: nsd.Equilibrium(filtered(read, "circular")),
        f"Loop 2 filtered, {read}": lambda: nsd.Loop(filtered(read, "zeros"), 2),
    }


# Models, the samples on which they are computed, and the kernels.
GROUPS: tuple[tuple[Models, tuple[str, ...], tuple[str, ...]], ...] = (
    (_deqs("relu, abs, hard_tanh, tanh, erf, gelu, swish, softplus, elu, sin, cos, softsign"), ROWS, BOTH),
    ({
        "DEQ leaky_relu": lambda: nsd.DEQ(nsd.activation("leaky_relu", a=1.0, b=0.1), 0.2),
        "DEQ shifted gelu": lambda: nsd.DEQ(nsd.activation("gelu", amplitude=0.7, gain=1.5, offset=-0.2), 0.2),
    }, ROWS, BOTH),
    (_deqs("tanh(x) + 0.3*sin(x), x*sigmoid(x), relu(x - 1)"), ("plain", "rectangle"), BOTH),
    (_deqs("relu, tanh, gelu, hard_tanh", "biased DEQ", (0.5, 0.7, 0.2)), ROWS[:3], ALL),
    (_deqs("relu, softplus", "DEQ close to its edge,", (1.8, 0.3)), ("plain",), ALL),
    (_deqs("relu, tanh, erf, gelu, hard_tanh"), ("pixels",), BOTH),
    ({"DEQ tanh, 4 layers": lambda: nsd.DEQ("tanh", 0.6, 0.5, 0.1).unrolled(4)}, ROWS[:2], ALL),
    ({"DEQ relu, 3 layers": lambda: nsd.DEQ("relu", 0.3).unrolled(3)}, ROWS[:2], ALL),
    ({
        "Explicit relu": lambda: nsd.Explicit(["relu"]),
        "Explicit relu relu relu": lambda: nsd.Explicit(["relu"] * 3, weights=[0.8, 0.2, 0.2], inject=[0.8, 0.8]),
        "Explicit tanh gelu abs, biased": lambda: nsd.Explicit(["tanh", "gelu", "abs"], bias2=0.1),
        "Explicit gelu relu": lambda: nsd.Explicit(["gelu", "relu"], weights=[0.7, 0.4], inject=[0.6]),
    }, (*ROWS, "pixels"), BOTH),
    ({
        "NeuralODE tanh": lambda: nsd.NeuralODE("tanh"),
        "NeuralODE relu, decaying": lambda: nsd.NeuralODE("relu", 0.5, 2.0, 0.7, 0.4, 1.5),
        "NeuralODE erf, 3 Euler steps": lambda: nsd.NeuralODE("erf", 1.2, 1.5, 0.5, 0.2, steps=3),
    }, ("plain", "1e-4 to 1e-10 apart"), BOTH),
    (_images(READS[0]) | _images(READS[1]), ("images", "rectangle of images", "sequences"), BOTH),
    ({f"ConvDEQ gelu, {read}": partial(nsd.ConvDEQ, "gelu", readout=read) for read in READS}, ("pictures",), BOTH),
    ({
        "GraphDEQ relu": lambda: nsd.GraphDEQ(RING, "relu", 0.5, 0.5, 0.05),
        "GraphExplicit gelu relu": lambda: GraphExplicit(RING, ["gelu", "relu"], inject=[0.4], bias2=0.1),
        "Equilibrium propagated": lambda: nsd.Equilibrium(PROPAGATED),
        "Loop 3 propagated": lambda: nsd.Loop(PROPAGATED, 3),
    }, ("nodes",), BOTH),
    ({"GraphDEQ leaky_relu": lambda: nsd.GraphDEQ(RING, "leaky_relu", 0.6)}, ("distant nodes",), BOTH),
    ({
        "Equilibrium residual": lambda: nsd.Equilibrium(residual()),
        "Equilibrium residual relu, LayerNorm": lambda: nsd.Equilibrium(residual("relu", "layer")),
        "Equilibrium two sublayers": lambda: nsd.Equilibrium(SUBLAYERS),
        "Loop 3 two sublayers": lambda: nsd.Loop(SUBLAYERS, 3),
        "Equilibrium mixed": lambda: nsd.Equilibrium(MIXED),
    }, MODERATE, BOTH),
    ({
        "Equilibrium gated": lambda: nsd.Equilibrium(GATED),
        "Equilibrium two layers": lambda: nsd.Equilibrium(two_layers("tanh", "gelu")),
        "Equilibrium two layers with kinks": lambda: nsd.Equilibrium(two_layers("relu", "hard_tanh")),
        "Loop 1 residual": lambda: nsd.Loop(residual(), 1),
        "Loop 4 residual relu": lambda: nsd.Loop(residual("relu"), 4),
        "Loop 3 mixed": lambda: nsd.Loop(MIXED, 3),
        "Loop 3 skipping tanh": lambda: nsd.Loop(TANH_SKIP, 3),
        "Loop 4 skipping relu": lambda: nsd.Loop(RELU_SKIP, 4),
    }, ROWS, BOTH),
)  # fmt: skip
MODELS = {name: make for models, _, _ in GROUPS for name, make in models.items()}


def names() -> list[str]:
    """Names of all entries."""
    return [" | ".join(parts) for group in GROUPS for parts in product(*group)]


def compute(model: Any, X: Array, Y: Array | None, kernel: str) -> tuple[Array, float]:
    """One kernel and its stated bound."""
    function = nsd.conjugate_kernel if kernel.startswith("ck") else nsd.tangent_kernel
    values, info = function(model, X, Y, kernel, return_info=True)
    return values, info.error_bound


def entry(name: str) -> Entry:
    """Compute one entry with the engine of the checkout."""
    model, data, kernel = name.split(" | ")
    X, Y = DATA[data]
    begin = time.perf_counter()
    values, bound = compute(MODELS[model](), X, Y, kernel)
    seconds = time.perf_counter() - begin
    flat = MODELS[model.replace(", pool", ", flatten")]()
    sizes = [np.sqrt(np.diag(compute(flat, part, None, kernel)[0])) for part in (X, Y) if part is not None]
    return Entry(values, sizes[0], sizes[-1], bound, seconds)


def write(entries: dict[str, Entry]) -> None:
    """Write the entries to `FILE`, their arrays one after the other, and the samples."""
    every = list(entries.values())
    file: dict[str, Any] = {name: [getattr(one, name) for one in every] for name in ("bound", "seconds")}
    file |= {"names": list(entries), "shapes": [one.values.shape for one in every]}
    file["arrays"] = np.concatenate([part.ravel() for one in every for part in one[:3]])
    for name, pair in DATA.items():
        file |= {f"{name} {part}": Z for part, Z in zip("XY", pair, strict=True) if Z is not None}
    np.savez_compressed(FILE, **file)


def read() -> tuple[dict[str, Entry], dict[str, tuple[Array, Array | None]]]:
    """Read the entries of `FILE` and the samples that they belong to, both by name."""
    with np.load(FILE) as file:
        sizes = np.array([(n * k, n, k) for n, k in file["shapes"]])
        parts = iter(np.split(file["arrays"], np.cumsum(sizes.ravel())[:-1]))
        facts = zip(*(file[part] for part in ("names", "shapes", "bound", "seconds")), strict=True)
        entries = {
            str(name): Entry(next(parts).reshape(shape), next(parts), next(parts), bound, seconds)
            for name, shape, bound, seconds in facts
        }
        samples = {name: (file[f"{name} X"], file.get(f"{name} Y")) for name in DATA}
    return entries, samples


if __name__ == "__main__":
    computed = {name: entry(name) for name in names()}
    write(computed)
    print(f"{len(computed)} entries, {FILE.stat().st_size} bytes")
