"""How often is the verdict right? Settings fixed beforehand, judged by `nsd.verdict`, then trained.

  python benchmarks/verdicts.py --judge          the verdicts, about 15 minutes; recorded before anything is trained
  python benchmarks/verdicts.py                  trains all judged settings, about 45 minutes; resumes after a stop
  python benchmarks/verdicts.py --development    with either: other settings, by which rules and script may be changed

Half of the settings are meant to need more than four steps. Every setting is drawn three times, and each time five
networks are trained alike, all weights by Adam, with the learning rate that is best on validation samples of the first
draw: the equilibrium, its first four steps, ordinary ReLU networks of 1, 2 and 4
layers. "replace" is right if the cheap network that is best on validation samples is at most one point behind the
equilibrium on test samples, else "keep" is; "unsure" is never right. Differences have paired intervals of 90 %.
Writes benchmarks/results/verdicts.json and verdicts-trained.json.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import site
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from drawing import CROSS, GREY, drawn, legend_below, marked, marked_table, publish, with_figure_only
from harness import RESULTS, Row, write_json
from matplotlib.axes import Axes
from scipy.sparse.csgraph import connected_components, shortest_path
from sklearn.decomposition import TruncatedSVD
from sklearn.feature_extraction.text import HashingVectorizer
from torch import Tensor, nn
from torch.nn import functional as F

import notsodeep as nsd
from notsodeep.data import Preprocessing
from notsodeep.figures import COLOURS, MARKERS
from notsodeep.intervals import paired_difference
from notsodeep.nets.torch_activation import TorchActivation
from notsodeep_lab.papers.data_files import load

TRAIN, VALIDATION, TEST = 600, 400, 2000
SEEDS, BATCH, TOLERANCE = 3, 100, 1e-2
# Learning rates to choose from, updates, and steps of the iteration; graphs need more of both.
RATES, UPDATES, MOST_STEPS = (3e-4, 3e-3), 40, 25
GRAPH_RATES, GRAPH_UPDATES, GRAPH_STEPS = (3e-4, 1e-3), 300, 40
WIDTHS = {"rows": 256, "graph": 64, "sequence": 40, "images": 16}
RIDGES = 10.0 ** np.arange(-9.0, 0.0)
# Steps or layers, and whether it is an ordinary network.
NETWORKS = {
    "equilibrium": (0, False), "4 steps": (4, False), "1 layer": (1, True), "2 layers": (2, True), "4 layers": (4, True)
}  # fmt: skip
Array = np.ndarray


# --- tasks ------------------------------------------------------------------------------------------------------
class Task(NamedTuple):
    """Samples, labels, the places that train, validate and test, and the matrix of a graph whose nodes they are."""

    X: Array
    y: Array
    parts: list[Array]
    graph: Array | None = None


def split(X: Array, y: Array) -> Task:
    return Task(X, y, np.split(np.arange(len(X)), [TRAIN, TRAIN + VALIDATION]))


def sequences(length: int, noise: float, seed: int, query: bool = False) -> Task:
    """Are the marks at both ends equal? With `query` the last mark says which one of the first two is copied."""
    rng = np.random.default_rng(seed)
    X = noise * rng.standard_normal((TRAIN + VALIDATION + TEST, 1, length))
    first, second, last = rng.choice([-1.0, 1.0], (3, len(X)))
    X[:, 0, 0], X[:, 0, -1] = first, last
    if query:
        X[:, 0, 1] = second
    y = np.where(last > 0, first, second) if query else first * last
    return split(X * np.sqrt(length / (2 + query)), (y > 0).astype(int))


def data_set(name: str, seed: int, shape: tuple[int, ...] = (), pooling: int = 1) -> Task:
    return split(*samples_of(name, TRAIN + VALIDATION + TEST, seed, shape, pooling))


def samples_of(
    name: str, n: int, seed: int, shape: tuple[int, ...], pooling: int, train: int = TRAIN
) -> tuple[Array, Array]:
    """Rows, or images averaged over squares of `pooling` pixels, in random order, scaled by the first `train`."""
    if name in ("letter", "usps"):
        stored = np.load(Path(os.environ["NOTSODEEP_DATA"], name, f"{name}.npz"))
        X, y = stored["X"].astype(float), np.unique(stored["y"], return_inverse=True)[1]
    else:
        found = load(name, n=n, seed=seed)
        X, y = found.X, found.y
    chosen = np.random.default_rng(seed).permutation(len(X))[:n]
    X, y = X[chosen], y[chosen]
    if not shape:
        return np.asarray(Preprocessing.fit(X[:train]).apply(X)), y
    images = F.avg_pool2d(torch.as_tensor(X).reshape(-1, *shape), pooling).numpy()
    images = images - images[:train].mean(axis=(0, 2, 3), keepdims=True)
    return images / np.sqrt(np.mean(np.sum(images[:train] ** 2, axis=1))), y


def text(seed: int) -> Task:
    """Which package does a docstring come from? 300 components of hashed words."""
    words, labels = [], []
    for label, package in enumerate(("numpy", "scipy", "sklearn", "torch", "matplotlib")):
        for file in sorted(Path(site.getsitepackages()[0], package).rglob("*.py"))[:150]:
            for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
                found = isinstance(node, ast.FunctionDef | ast.ClassDef) and ast.get_docstring(node)
                if found and len(found) > 80:
                    words.append(found.replace(package, ""))
                    labels.append(label)
    chosen = np.random.default_rng(seed).permutation(len(words))[: TRAIN + VALIDATION + TEST]
    counts = HashingVectorizer(n_features=2**12, alternate_sign=False).transform([words[i] for i in chosen])
    X = TruncatedSVD(300, random_state=0).fit(counts[:TRAIN]).transform(counts)
    return split(np.asarray(Preprocessing.fit(X[:TRAIN]).apply(X)), np.array(labels)[chosen])


def nodes(adjacency: Array, X: Array, y: Array, rng: Any, usable: Array | bool = True) -> Task:
    """Nodes of a graph: 40 % train, 10 % validate; nodes that are not usable do neither, nor test."""
    parts = np.split(rng.permutation(len(y)), [int(0.4 * len(y)), int(0.5 * len(y))])
    usable = np.broadcast_to(usable, len(y))
    graph = nsd.models.normalised_adjacency(adjacency)
    return Task(X, y.astype(int), [part[usable[part]] for part in parts], graph)


def path(length: int) -> Array:
    return np.eye(length, k=1) + np.eye(length, k=-1)


def ring(size: int, rng: Any) -> Array:
    return path(size) + np.eye(size, k=size - 1) + np.eye(size, k=1 - size)


def lattice(side: int, rng: Any) -> Array:
    return np.kron(path(side), np.eye(side)) + np.kron(np.eye(side), path(side))


def tree(size: int, rng: Any) -> Array:
    """A random tree: every node is linked to one of the six before it."""
    A = np.zeros((size, size))
    for node in range(1, size):
        parent = rng.integers(max(0, node - 6), node)
        A[node, parent] = A[parent, node] = 1.0
    return A


def copied(length: int, count: int, seed: int) -> Task:
    """Paths whose class is marked at their first node only."""
    rng = np.random.default_rng(seed)
    classes, X = rng.integers(0, 2, count), np.zeros((count * length, 2))
    X[np.arange(count) * length, classes] = 1.0
    return nodes(np.kron(np.eye(count), path(length)), X, np.repeat(classes, length), rng)


def nearest(make: Callable[..., Array], size: int, sources: int, seed: int) -> Task:
    """Is the nearest source of the first or of the second kind? Nodes as near to both kinds are left out."""
    rng = np.random.default_rng(seed)
    A = make(size, rng)
    places, X = rng.choice(len(A), (2, sources), replace=False), np.zeros((len(A), 2))
    X[places[0], 0] = X[places[1], 1] = 1.0
    first, second = (shortest_path(A, unweighted=True, indices=one).min(axis=0) for one in places)
    return nodes(A, X, second < first, rng, first != second)


def connected(make: Callable[..., Array], size: int, share: float, seed: int) -> Task:
    """Of which kind is the mark of a node's component? A graph that kept a share of its edges."""
    rng = np.random.default_rng(seed)
    A = make(size, rng)
    kept = np.triu(rng.random(A.shape) < share, 1)
    A *= kept | kept.T
    count, component = connected_components(A)
    marked, X = rng.random(count) < 0.5, np.zeros((len(A), 2))
    for one in range(count):
        X[rng.choice(np.flatnonzero(component == one)), int(marked[one])] = 1.0
    return nodes(A, X, marked[component], rng)


def communities(features: float, noise: float, radius: float, seed: int) -> Task:
    """Label propagation: points of a square linked to their neighbours; a share of the nodes shows its class."""
    rng = np.random.default_rng(seed)
    points = rng.random((400, 2))
    y = (np.floor(3 * points).sum(axis=1) % 2).astype(int)
    near = np.linalg.norm(points[:, None] - points, axis=2) < radius
    A = near * (rng.random(near.shape) < np.where(y[:, None] == y, 1.0, 0.1))
    shown = rng.random(400) < features
    X = shown[:, None] * (np.eye(2)[y] + noise * rng.standard_normal((400, 2)))
    return nodes(np.triu(A, 1) + np.triu(A, 1).T, X, y, rng)


# --- settings ---------------------------------------------------------------------------------------------------
# Kind of network, activation, σ_a², σ_b², task. On graphs a small bias gives a state to nodes that nothing reaches.
Setting = tuple[str, str, float, float, Callable[..., Task]]
SETTINGS: dict[str, Setting] = {
    "equal marks, chain of 11": ("sequence", "relu", 1.5, 1.0, partial(sequences, 11, 0.05)),
    "equal marks, chain of 12": ("sequence", "relu", 1.5, 1.0, partial(sequences, 12, 0.03)),
    "equal marks, chain of 13": ("sequence", "relu", 1.5, 1.0, partial(sequences, 13, 0.02)),
    "copy one of two, 12 positions": ("sequence", "relu", 1.5, 1.0, partial(sequences, 12, 0.05, query=True)),
    "copy one of two, 13 positions": ("sequence", "relu", 1.5, 1.0, partial(sequences, 13, 0.03, query=True)),
    "copy along paths of 15": ("graph", "relu", 1.6, 1.0, partial(copied, 15, 26)),
    "copy along paths of 20": ("graph", "tanh", 1.1, 1.0, partial(copied, 20, 20)),
    "copy along paths of 30": ("graph", "relu", 1.8, 1.0, partial(copied, 30, 13)),
    "nearest source, ring of 400": ("graph", "relu", 1.6, 1.0, partial(nearest, ring, 400, 8)),
    "nearest source, lattice": ("graph", "relu", 1.8, 1.0, partial(nearest, lattice, 20, 3)),
    "nearest source, tree": ("graph", "tanh", 1.1, 1.0, partial(nearest, tree, 400, 3)),
    "connected with a mark, lattice": ("graph", "tanh", 1.1, 1.0, partial(connected, lattice, 20, 0.5)),
    "connected with a mark, tree": ("graph", "relu", 1.6, 1.0, partial(connected, tree, 400, 0.93)),
    "communities, 3 % of nodes have features": ("graph", "relu", 1.6, 1.0, partial(communities, 0.03, 0.3, 0.105)),
    "equal marks, chain of 5": ("sequence", "relu", 0.9, 0.5, partial(sequences, 5, 0.3)),
    "equal marks, chain of 7": ("sequence", "relu", 1.5, 1.0, partial(sequences, 7, 0.1)),
    "copy along paths of 4": ("graph", "relu", 0.9, 1.0, partial(copied, 4, 100)),
    "communities, all nodes have features": ("graph", "tanh", 0.8, 0.5, partial(communities, 1.0, 0.5, 0.105)),
    "letter, ReLU": ("rows", "relu", 0.5, 0.5, partial(data_set, "letter")),
    "letter, tanh": ("rows", "tanh", 0.8, 0.5, partial(data_set, "letter")),
    "USPS": ("rows", "tanh", 0.5, 0.5, partial(data_set, "usps")),
    "MNIST": ("rows", "gelu", 0.5, 0.5, partial(data_set, "mnist")),
    "Fashion-MNIST": ("rows", "relu", 0.8, 0.5, partial(data_set, "fashion_mnist")),
    "VGG features": ("rows", "relu", 0.5, 0.5, partial(data_set, "cifar10_vgg19")),
    "text features": ("rows", "tanh", 0.5, 0.5, text),
    "MNIST images, 7 × 7": (
        "images", "relu", 0.5, 0.5, partial(data_set, "mnist", shape=(1, 28, 28), pooling=4)
    ),
    "Fashion-MNIST images, 7 × 7": (
        "images", "relu", 0.9, 0.5, partial(data_set, "fashion_mnist", shape=(1, 28, 28), pooling=4)
    ),
    "CIFAR-10 images, 8 × 8": (
        "images", "relu", 0.5, 0.5, partial(data_set, "cifar10", shape=(3, 32, 32), pooling=4)
    ),
}  # fmt: skip
DEVELOPMENT: dict[str, Setting] = {
    "equal marks, chain of 10": ("sequence", "relu", 1.6, 1.0, partial(sequences, 10, 0.1)),
    "copy along paths of 12": ("graph", "relu", 1.6, 1.0, partial(copied, 12, 50)),
    "nearest source, large lattice": ("graph", "relu", 1.8, 1.0, partial(nearest, lattice, 24, 3)),
    "digits": ("rows", "relu", 0.5, 0.5, partial(data_set, "digits")),
}


def model_of(setting: Setting, task: Task) -> Any:
    kind, activation, sigma_a2, sigma_b2, _ = setting
    if task.graph is not None:
        return nsd.GraphDEQ(task.graph, activation, sigma_a2, sigma_b2, bias2=0.01)
    return (nsd.DEQ if kind == "rows" else nsd.ConvDEQ)(activation, sigma_a2, sigma_b2)


# --- networks ---------------------------------------------------------------------------------------------------
class Network(nn.Module):
    """z = φ(W z + U x + b) at its equilibrium (depth 0) or after some steps; or `depth` ordinary ReLU layers.

    The gradient at the equilibrium is that of the implicit function theorem, its adjoint solved by iteration.
    """

    def __init__(self, model: Any, task: Task, width: int, depth: int, ordinary: bool, seed: int) -> None:
        super().__init__()
        torch.manual_seed(seed)
        taps, channels = (3,) * (task.X.ndim - 2), task.X.shape[1]
        self.graph = None if task.graph is None else torch.as_tensor(task.graph).float().to_sparse_csr()
        self.depth, self.ordinary, self.axes, self.converges = depth, ordinary, len(taps), True
        self.most = MOST_STEPS if task.graph is None else GRAPH_STEPS
        self.phi = torch.relu if ordinary else TorchActivation(model.activation)
        # Variances of a wide network: 2 for each ReLU layer, the model's own for the equilibrium and its steps.
        first, later = (2.0, 2.0 / width) if ordinary else (model.sigma_b2, model.sigma_a2 / width)
        shapes = [(width, channels), *[(width, width)] * (depth - 1 if ordinary else 1)]
        self.weights = nn.ParameterList(
            torch.randn(*shape, *taps) * ((later if number else first) / 3 ** len(taps)) ** 0.5
            for number, shape in enumerate(shapes)
        )
        self.biases = nn.ParameterList(torch.zeros(width, *[1] * len(taps)) for _ in shapes)
        if not ordinary and model.bias2:
            nn.init.normal_(self.biases[0], std=model.bias2**0.5)
        self.readout = nn.Linear(width * int(np.prod(task.X.shape[2:])), int(task.y.max()) + 1)

    def mixed(self, weight: Tensor, z: Tensor) -> Tensor:
        if self.axes:
            return (F.conv1d if self.axes == 1 else F.conv2d)(z, weight, padding="same")
        return z @ weight.T if self.graph is None else self.graph @ (z @ weight.T)

    def forward(self, X: Tensor) -> Tensor:
        return self.readout(self.features(X))

    def features(self, X: Tensor) -> Tensor:
        drive = self.mixed(self.weights[0], X) + self.biases[0]
        z = self.phi(drive)
        if self.ordinary:
            for weight, bias in zip(self.weights[1:], self.biases[1:], strict=True):
                z = self.phi(self.mixed(weight, z) + bias)
        elif self.depth:
            for _ in range(self.depth - 1):
                z = self.step(z, drive)
        else:
            z = self.equilibrium(z.detach(), drive)
        return z.flatten(1)

    def step(self, z: Tensor, drive: Tensor) -> Tensor:
        return self.phi(self.mixed(self.weights[1], z) + drive)

    def equilibrium(self, z: Tensor, drive: Tensor) -> Tensor:
        with torch.no_grad():
            z, self.converges = iterated(lambda z: self.step(z, drive), z, self.most)
        result = self.step(z, drive)
        if torch.is_grad_enabled():
            start = z.clone().requires_grad_()
            following = self.step(start, drive.detach())

            def adjoint(gradient: Tensor) -> Tensor:
                def back(v: Tensor) -> Tensor:
                    return torch.autograd.grad(following, start, v, retain_graph=True)[0] + gradient

                return iterated(back, gradient, self.most)[0]

            result.register_hook(adjoint)
        return result


def iterated(function: Callable[[Tensor], Tensor], z: Tensor, most: int) -> tuple[Tensor, bool]:
    """The fixed point of every row by plain iteration, and whether the last step was small."""
    for _ in range(most):
        before, z = z, function(z)
        sizes, change = z.flatten(1).norm(dim=1), (z - before).flatten(1).norm(dim=1)
        if bool((change <= TOLERANCE * (sizes + 1e-3 * sizes.max())).all()):
            break
    return z, bool((z - before).norm() <= 0.05 * z.norm())


def trained(setting: Setting, task: Task, depth: int, ordinary: bool, rate: float, seed: int) -> Network:
    """Adam on all weights, its learning rate falling to zero.

    Of rows and images the readout starts in closed form and the error is squared; of graphs, where closed forms
    amplify what hardly reaches a node, it starts at zero with the cross entropy.
    """
    X, y = torch.as_tensor(task.X, dtype=torch.float32), torch.as_tensor(task.y)
    net, Y = (
        Network(model_of(setting, task), task, WIDTHS[setting[0]], depth, ordinary, seed),
        F.one_hot(y).float(),
    )
    part, rng = task.parts[0], np.random.default_rng(seed)
    if task.graph is None:
        fits = ((net.features(X[one]).detach().double(), Y[one]) for one in task.parts[:2])
        fit_readout(net, *fits)
        updates = UPDATES
    else:
        nn.init.zeros_(net.readout.weight)
        updates = GRAPH_UPDATES
    optimizer = torch.optim.Adam(net.parameters(), lr=rate)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, updates)
    for _ in range(updates):
        optimizer.zero_grad()
        if task.graph is None:
            batch = rng.choice(part, BATCH, replace=False)
            loss = (net(X[batch]) - Y[batch]).square().mean()
        else:
            loss = F.cross_entropy(net(X)[part], y[part])
        loss.backward()
        nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        if not net.converges:  # keeps the equilibrium within reach of the iteration
            net.weights[1].data.mul_(0.98)
    return net


def fit_readout(net: Network, train: tuple[Tensor, Tensor], validation: tuple[Tensor, Tensor]) -> None:
    """Ridge regression; the ridge is the best of nine on the validation samples."""
    (Z, Y), (Z_new, Y_new) = train, validation
    mean, goal = Z.mean(0), Y.double().mean(0)
    gram, cross = (Z - mean).T @ (Z - mean), (Z - mean).T @ (Y - goal)
    unit = float(gram.diagonal().mean()) * torch.eye(len(gram), dtype=torch.float64)
    fits = [torch.linalg.solve(gram + ridge * unit, cross) for ridge in RIDGES]
    best = min(fits, key=lambda fit: float(((Z_new - mean) @ fit + goal - Y_new).square().sum()))
    with torch.no_grad():
        net.readout.weight.copy_(best.T)
        net.readout.bias.copy_(goal - mean @ best)


@torch.no_grad()
def scores(net: Network, task: Task, part: int) -> Array:
    """1 for every sample of the part whose class is right, else 0."""
    X, places = torch.as_tensor(task.X, dtype=torch.float32), task.parts[part]
    outputs = (
        net(X)[places] if task.graph is not None else torch.cat([net(one) for one in X[places].split(400)])
    )
    return (outputs.argmax(1).numpy() == task.y[places]).astype(float)


# --- verdict, truth, table --------------------------------------------------------------------------------------
def judged(setting: Setting) -> dict[str, Any]:
    """The verdict from the labelled training samples of the first draw."""
    task = setting[-1](seed=0)
    if task.graph is None:
        X, y = task.X[task.parts[0]], task.y[task.parts[0]]
    else:
        X, y = task.X, np.full(len(task.y), None, dtype=object)
        y[task.parts[0]] = task.y[task.parts[0]]
    found = nsd.verdict(model_of(setting, task), X, y)
    return {"answer": found.answer, "reason": found.reason, "steps needed": str(found.curve.steps_needed)}


def truth(setting: Setting) -> dict[str, Any]:
    """Test accuracies in percent, and by how much the equilibrium is ahead of the best cheap network."""
    kept: dict[str, list[Array]] = {}
    tasks = [setting[-1](seed=seed) for seed in range(SEEDS)]
    rates = RATES if tasks[0].graph is None else GRAPH_RATES
    for name, kind in NETWORKS.items():
        first = [trained(setting, tasks[0], *kind, rate, 0) for rate in rates]
        best = int(np.argmax([scores(net, tasks[0], 1).mean() for net in first]))
        later = [trained(setting, tasks[seed], *kind, rates[best], seed) for seed in range(1, SEEDS)]
        pairs = list(zip([first[best], *later], tasks, strict=True))
        kept[name] = [np.concatenate([scores(net, task, part) for net, task in pairs]) for part in (1, 2)]
    cheap = max(list(kept)[1:], key=lambda name: kept[name][0].mean())
    deep, other = kept["equilibrium"][1], kept[cheap][1]
    return {
        "accuracy": {name: 100.0 * float(test.mean()) for name, (_, test) in kept.items()},
        "cheap": cheap,
        "ahead": 100.0 * float(deep.mean() - other.mean()),
        "interval": [100.0 * end for end in paired_difference(deep, other)],
    }


@drawn("verdicts", 4.8, width=4.2)
def verdict_figure(axes: Axes) -> None:
    """How far the equilibrium is ahead of the best cheap network after training, by verdict before it."""
    judged, trained = (
        json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))
        for name in ("verdicts", "verdicts-trained")
    )
    order = sorted(trained, key=lambda name: trained[name]["ahead"])
    answers = ("keep", "replace", "unsure")
    for place, name in enumerate(order):
        found, answer = trained[name], judged[name]["answer"]
        number = answers.index(answer)
        right = answer == ("keep" if found["ahead"] > 1.0 else "replace")
        ends = np.abs(np.array([found["interval"]]).T - found["ahead"])
        style = {"color": COLOURS[number]} | ({"marker": MARKERS[number], "markersize": 4.0} if right else {})
        axes.errorbar(found["ahead"], place, xerr=ends, elinewidth=0.8, linestyle="none", **(CROSS | style))
    for number in (0, 1):
        axes.plot([], [], **marked(number, label=f"verdict “{answers[number]}”"))
    for number, label in ((0, "wrong “keep”"), (2, "“unsure”, counted as wrong")):
        axes.plot([], [], label=label, linestyle="none", **CROSS | {"color": COLOURS[number]})
    axes.axvline(1.0, color=GREY, linewidth=0.8, linestyle=":", label="one point")
    short = {" of nodes have": "", " nodes have": "", "connected with a mark": "connected"}
    axes.set_yticks(range(len(order)), [_shortened(name, short) for name in order])
    axes.set_ylim(-0.7, len(order) - 0.3)
    axes.set(xlabel="equilibrium ahead by (points)")
    legend_below(axes, -0.09)


def _shortened(name: str, replacements: dict[str, str]) -> str:
    for long, short in replacements.items():
        name = name.replace(long, short)
    return name


@marked_table("verdicts", "verdicts")
def verdict_table() -> list[Row]:
    """Verdicts before training by what was right after it."""
    judged, trained = (
        json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))
        for name in ("verdicts", "verdicts-trained")
    )
    truth = {name: "keep" if found["ahead"] > 1.0 else "replace" for name, found in trained.items()}
    return [
        {"verdict": answer}
        | {
            f"“{right}” was right": str(
                sum(judged[name]["answer"] == answer for name in truth if truth[name] == right)
            )
            for right in ("keep", "replace")
        }
        for answer in ("keep", "replace", "unsure")
    ]


def main() -> None:
    """Judge or train what is not yet recorded."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--judge", action="store_true", help="only the verdicts, before training")
    parser.add_argument("--development", action="store_true", help="other settings")
    options = with_figure_only(parser)
    torch.set_num_threads(1)
    settings, ending = (DEVELOPMENT, "-development") if options.development else (SETTINGS, "")
    files = [RESULTS / f"{one}{ending}.json" for one in ("verdicts", "verdicts-trained")]
    verdicts, truths = (json.loads(one.read_text(encoding="utf-8")) if one.exists() else {} for one in files)
    for title, setting in settings.items():
        if options.judge and title not in verdicts:
            verdicts[title] = judged(setting)
            write_json(files[0], verdicts)
        if not options.judge and title in verdicts and title not in truths:
            truths[title] = truth(setting)
            write_json(files[1], truths)
            print(title, truths[title], flush=True)
    if not options.development:
        publish()


if __name__ == "__main__":
    main()
