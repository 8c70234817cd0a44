"""The atlas: is `verdict` right? Every setting is judged first, then run for real.

  python benchmarks/atlas.py --judge --data-dir DATA     verdicts, made before anything is trained
  python benchmarks/atlas.py --run --data-dir DATA       the truth, setting by setting; the next call goes on
  python benchmarks/atlas.py --publish                   docs/atlas.md from what is done

Kinds of settings, and what is run for each:

  readout    hidden weights as drawn, the readout by ridge regression (its ridge by leaving samples out), DEQ and twin
  all        all weights by Adam, for each network the better of two rates, DEQ and twin
  regression as readout, for a table of numbers
  images     as readout, convolutional networks on images of digits
  chain      as images: two marks at the ends of a sequence, the class is whether they are alike; noise between them
  trained    a DEQ is trained on the labels of one half with all weights; then `distill` replaces it, without labels,
             on the other half, which the verdict sees too

The twin does, if its test accuracy is at most one point below that of the DEQ in the mean over seeds (regression: its
error at most a tenth above; trained: if the distilled network agrees with the DEQ on 99 % of the test samples) and it
is at least 1.2 times as fast.  A verdict is right if it is "yes" where the twin does and "no" where it does not;
"uncertain" is counted apart, and is not right.  Settings that are marked as tuning served to choose the limits of
`verdicts/rules.py`; the others did not.

Journals: results/atlas-verdicts.jsonl and results/atlas-truth.jsonl, one line for each setting.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from atlas_page import publish
from harness import RESULTS, Row, commit
from sklearn import datasets as tables

import notsodeep as nsd
from notsodeep.data import Preprocessing, as_images, load
from notsodeep.errors import ConvergenceError, InputError
from notsodeep.files import atomic_append
from notsodeep.learning.labelled import Labelled
from notsodeep.nets import SolverOptions, compute_features, distill, explicit_twin, fit
from notsodeep.nets.modules import network_of
from notsodeep.nets.twins import speed_ratios

VERDICTS, TRUTH = RESULTS / "atlas-verdicts.jsonl", RESULTS / "atlas-truth.jsonl"
TRAIN, TEST = 1500, 1500
# Seeds at least and at most: as many as it takes to know the gap to a quarter of what is allowed.
SEEDS = {"readout": (5, 30), "regression": (5, 30), "all": (3, 3), "images": (4, 12), "chain": (4, 8)}
SOLVER = SolverOptions(max_steps=1000)
EPOCHS, RATES = 10, (3e-4, 1e-3)
POINT, TENTH, UNTIL, FASTER = 0.01, 0.10, 0.99, 1.2
RIDGES = 10.0 ** np.arange(-8.0, 2.1, 0.5)


@dataclass(frozen=True)
class Setting:
    """One case: what is trained on what; `width` is units, for images channels."""

    kind: str
    data: str
    activation: str
    sigma_a2: float
    sigma_b2: float
    width: int
    readout: str = ""

    @property
    def name(self) -> str:
        form = f", {self.readout}" if self.readout else ""
        return f"{self.kind}: {self.data}, {self.activation} {self.sigma_a2:g}/{self.sigma_b2:g}, {self.width}{form}"


# Known when the rule for trained networks was chosen, besides every fifth setting.
TUNING = (
    "trained: digits, relu 0.2/0.8, 64",
    "trained: digits, tanh 0.5/0.5, 256",
    "trained: digits, gelu 0.8/0.2, 512",
    "trained: mnist, tanh 0.5/0.5, 64",
    "trained: mnist, gelu 0.8/0.2, 256",
)


def settings() -> list[Setting]:
    """All settings; every fifth one is for tuning."""
    return list(_settings())


def _settings() -> Iterator[Setting]:
    activations = ("relu", "tanh", "gelu", "softplus", "erf")
    rows = ("digits", "mnist", "fashion_mnist", "cifar10", "cifar10_vgg19", "breast_cancer", "moons", "blobs")
    for i, data in enumerate(rows):
        for j, width in enumerate((32, 128, 512)):
            sigma = (0.2, 0.5, 0.8)[(i + j) % 3]
            yield Setting("readout", data, activations[(i + 2 * j) % 5], sigma, round(1.0 - sigma, 2), width)
    # Feedback near the limit: the drive is larger, so that networks of finite width have an equilibrium.
    for data, activation, sigma in (
        ("mnist", "tanh", 0.95),
        ("cifar10", "erf", 0.9),
        ("digits", "relu", 1.2),
    ):
        yield Setting("readout", data, activation, sigma, 1.0, 256)
    for i, data in enumerate(
        ("digits", "mnist", "fashion_mnist", "cifar10", "cifar10_vgg19", "breast_cancer")
    ):
        for j, width in enumerate((32, 128, 256)):
            sigma = (0.5, 0.2, 0.8)[(i + j) % 3]
            yield Setting("all", data, activations[(2 * i + j) % 5], sigma, round(1.0 - sigma, 2), width)
    for i, data in enumerate(("diabetes", "friedman", "ripples", "deq")):
        for sigma in (0.2, 0.8):
            yield Setting("regression", data, activations[i % 3], sigma, 1.0 - sigma, 256)
    for i, (readout, sigma) in enumerate(itertools.product(("flatten", "pool"), (0.2, 0.5, 0.8))):
        yield Setting("images", "digits", activations[i % 3], sigma, 1.0, 16, readout)
    for length in (4, 6, 8, 10, 12, 16):
        yield Setting("chain", f"chain {length}", "relu", 0.8, 1.0, 32, "pool")
    for activation, sigma in (("softplus", 0.8), ("gelu", 0.8), ("relu", 0.3)):
        yield Setting("chain", "chain 8", activation, sigma, 1.0, 32, "pool")
    for i, data in enumerate(("digits", "mnist", "fashion_mnist", "cifar10")):
        for j, width in enumerate((64, 256, 512)):
            sigma = (0.2, 0.5, 0.8)[(i + j) % 3]
            yield Setting("trained", data, activations[(i + j) % 3], sigma, round(1.0 - sigma, 2), width)
    for length in (8, 12):
        yield Setting("trained", f"chain {length}", "relu", 0.8, 1.0, 32, "pool")


# --- data -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Parts:
    X: np.ndarray
    y: np.ndarray
    X_test: np.ndarray
    y_test: np.ndarray

    @property
    def halves(self) -> tuple[Parts, np.ndarray]:
        """Half of the training part, and the rows of the other half: a trained network is surer of its own rows."""
        own, others = np.array_split(np.random.default_rng(0).permutation(len(self.X)), 2)
        return Parts(self.X[own], self.y[own], self.X_test, self.y_test), self.X[others]


def parts_of(setting: Setting, folder: Path | None) -> Parts:
    """Training and test part, scaled by what the training part says."""
    if setting.data.startswith("chain"):
        length = int(setting.data.split()[1])
        n = 1200 if setting.kind == "trained" else 600
        return Parts(*chain(n, length, 0), *chain(TEST, length, 1))
    if setting.data in SMALL:
        return _split(*SMALL[setting.data]())
    n = 1400 if setting.data == "digits" else 2 * TRAIN if setting.kind == "trained" else TRAIN
    train = load(setting.data, split="train", n=n, data_dir=folder)
    test = load(setting.data, split="test", data_dir=folder)
    scaling = Preprocessing.fit(train.X)
    X, X_test = scaling.apply(train.X), scaling.apply(test.X[:TEST])
    if setting.kind == "images":
        X, X_test = (as_images(setting.data, one) for one in (X, X_test))
        size = math.sqrt(np.prod(X.shape[2:]))
        X, X_test = size * X, size * X_test
    return Parts(X, train.y, X_test, test.y[:TEST])


def chain(n: int, length: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """A mark ±2 at either end of a sequence of small noise; are they alike?"""
    generator = np.random.default_rng([length, seed])
    x = 0.02 * generator.standard_normal((n, 1, length))
    ends = generator.choice([-2.0, 2.0], (n, 2))
    x[:, 0, 0], x[:, 0, -1] = ends.T
    # Two marks carry all the energy: |x(s)|² = 1 on average.
    return x * math.sqrt(length / 8.0), (ends[:, 0] == ends[:, 1]).astype(np.intp)


def _table(read: Callable[[], Any]) -> Callable[[], tuple[np.ndarray, np.ndarray]]:
    return lambda: (np.asarray(read().data, dtype=np.float64), np.asarray(read().target))


def _friedman() -> tuple[np.ndarray, np.ndarray]:
    return tables.make_friedman1(n_samples=1200, noise=0.5, random_state=0)


def _ripples() -> tuple[np.ndarray, np.ndarray]:
    """A wave in two dimensions: low-dimensional rows, a target that is not smooth at their scale."""
    generator = np.random.default_rng(2)
    X = generator.standard_normal((1200, 2))
    return X, np.sin(4.0 * X[:, 0]) * np.cos(3.0 * X[:, 1]) + 0.05 * generator.standard_normal(1200)


def _deq() -> tuple[np.ndarray, np.ndarray]:
    """A function drawn from a DEQ with strong feedback, without noise."""
    X = np.random.default_rng(3).standard_normal((1200, 10)) / math.sqrt(10.0)
    net = nsd.nets.DEQNet(nsd.DEQ("tanh", 0.9, 1.0), 10, 2000, 1, seed=0, dtype=torch.float64)
    with torch.no_grad():
        outputs = net(torch.as_tensor(X)).numpy()[:, 0]
    return X, outputs / outputs.std() + 1e-6


SMALL: dict[str, Callable[[], tuple[np.ndarray, np.ndarray]]] = {
    "breast_cancer": _table(tables.load_breast_cancer),
    "moons": lambda: tables.make_moons(2000, noise=0.25, random_state=0),
    "blobs": lambda: tables.make_blobs(2000, 5, centers=8, cluster_std=3.0, random_state=0),
    "diabetes": _table(tables.load_diabetes),
    "friedman": _friedman,
    "ripples": _ripples,
    "deq": _deq,
}


def _split(X: np.ndarray, y: np.ndarray) -> Parts:
    order = np.random.default_rng(0).permutation(len(X))
    X, y = X[order], y[order]
    n = 2 * len(X) // 3
    spread = X[:n].std(axis=0)
    rows = (X - X[:n].mean(axis=0)) / np.where(spread > 0, spread, 1.0)
    rows /= math.sqrt(np.mean(np.sum(rows[:n] ** 2, axis=1)))
    if y.dtype.kind == "f" and not np.array_equal(y, np.round(y)):
        y = (y - y[:n].mean()) / y[:n].std()
    elif len(np.unique(y)) > 20:
        y = (y - y[:n].mean()) / y[:n].std() + 1e-6
    return Parts(rows[:n], y[:n], rows[n:], y[n:])


def model_of(setting: Setting) -> nsd.DEQ | nsd.ConvDEQ:
    if setting.readout:
        return nsd.ConvDEQ(setting.activation, setting.sigma_a2, setting.sigma_b2, readout=setting.readout)
    return nsd.DEQ(setting.activation, setting.sigma_a2, setting.sigma_b2)


def training_of(setting: Setting) -> str:
    return "all" if setting.kind in ("all", "trained") else "readout"


# --- the verdict ----------------------------------------------------------------------------------------------------


def judged(setting: Setting, folder: Path | None) -> Row:
    """The verdict, before the setting is run: it sees the training part alone."""
    parts, model = parts_of(setting, folder), model_of(setting)
    begin = time.process_time()
    if setting.kind == "trained":
        own, others = parts.halves
        found = nsd.verdict(teacher_of(setting, own), others, until=UNTIL)
    else:
        found = nsd.verdict(model, parts.X, parts.y, width=setting.width, train=training_of(setting))
    return {**found.as_dict(), "seconds": time.process_time() - begin}


# --- the truth ------------------------------------------------------------------------------------------------------


def truth(setting: Setting, folder: Path | None) -> Row:
    """What really happens."""
    parts, model = parts_of(setting, folder), model_of(setting)
    if setting.kind == "trained":
        return distilled(setting, parts)
    run = trained_accuracy if setting.kind == "all" else ridge_accuracy
    labelled = Labelled.of(parts.y, len(parts.y))
    outputs = 1 if labelled.codes is None else len(labelled.classes)
    figures: dict[str, list[float]] = {"deq": [], "twin": []}
    regression = labelled.codes is None
    limit, error, (least, most) = TENTH if regression else POINT, math.inf, SEEDS[setting.kind]
    while len(figures["deq"]) < least or (error > limit / 4.0 and len(figures["deq"]) < most):
        # Seeds that the verdict has not seen.
        seed = len(figures["deq"])
        net = network_of(
            model,
            parts.X.shape[1:],
            setting.width,
            outputs,
            train=training_of(setting),
            seed=1000 + seed,
            solver=SOLVER,
        )
        if seed == 0:
            design = explicit_twin(net, parts.X, evidence=False).design.network
        twin_net = net.counterpart(design, seed=2000 + seed)
        for name, one in (("deq", net), ("twin", twin_net)):
            figures[name].append(run(one, parts, labelled))
        deq, twin = (np.array(figures[name]) for name in ("deq", "twin"))
        gap = twin / deq.mean() - deq / deq.mean() if regression else deq - twin
        error = float(gap.std(ddof=1) / math.sqrt(len(gap))) if len(gap) > 1 else math.inf
    forward, training = speed_ratios(net, twin_net, torch.as_tensor(parts.X[:256], dtype=torch.float32))
    speed = max(forward, training if net.train_mode == "all" else 0.0)
    return {
        "deq": float(deq.mean()), "twin": float(twin.mean()), "gap": float(gap.mean()), "error": error, "speed": speed,
        "regression": regression, "does": bool(gap.mean() <= limit and speed >= FASTER), "seeds": len(gap),
    }  # fmt: skip


def ridge_accuracy(net: Any, parts: Parts, labelled: Labelled) -> float:
    """Test accuracy (or squared error) of a readout by ridge, the ridge by leaving training samples out."""
    train, test = (
        np.asarray(compute_features(net, torch.as_tensor(one, dtype=torch.float32)), dtype=np.float64)
        for one in (parts.X, parts.X_test)
    )
    centre, goal = train.mean(axis=0), labelled.targets.mean(axis=0)
    left, values, right = np.linalg.svd(train - centre, full_matrices=False)
    squares, rotated = values**2, left.T @ (labelled.targets - goal)
    best, weights = np.inf, None
    for ridge in squares.mean() * RIDGES:
        shrink = squares / (squares + ridge)
        fitted = left @ (shrink[:, None] * rotated)
        left_out = (labelled.targets - goal - fitted) / (1.0 - (left**2 @ shrink))[:, None]
        if np.mean(left_out**2) < best:
            best, weights = np.mean(left_out**2), right.T @ ((values / (squares + ridge))[:, None] * rotated)
    scores = (test - centre) @ weights + goal
    if labelled.codes is None:
        return float(np.mean((scores[:, 0] - parts.y_test) ** 2))
    found = (scores[:, 0] > 0).astype(int) if scores.shape[1] == 1 else scores.argmax(axis=1)
    return float(np.mean(labelled.classes[found] == parts.y_test))


def trained_accuracy(net: Any, parts: Parts, labelled: Labelled) -> float:
    """Test accuracy after all weights were trained, at the better of two rates."""
    codes = {value: code for code, value in enumerate(labelled.classes)}
    y, y_test = (np.array([codes[one] for one in part]) for part in (parts.y, parts.y_test))
    start = {name: value.clone() for name, value in net.state_dict().items()}
    found = []
    for rate in RATES:
        net.load_state_dict(start)
        history = fit(net, (parts.X, y), (parts.X_test, y_test), epochs=EPOCHS, batch_size=64, lr=rate)
        found.append(history.last.test_accuracy if history.last is not None else 0.0)
    return max(found)


def teacher_of(setting: Setting, parts: Parts) -> Any:
    """A DEQ trained on labels; the weights of the chain's are as drawn, and its readout is fitted by ridge."""
    labelled = Labelled.of(parts.y, len(parts.y), one_hot=True)
    model, outputs = model_of(setting), len(labelled.classes)
    options: dict[str, Any] = {} if setting.readout else {"solver": SolverOptions(tolerance=1e-4)}
    net = network_of(model, parts.X.shape[1:], setting.width, outputs, train="all", seed=0, **options)
    if not setting.readout:
        fit(net, (parts.X, labelled.codes), epochs=EPOCHS, batch_size=64)
        return net
    features = compute_features(net, torch.as_tensor(parts.X, dtype=torch.float32)).double()
    square = features.mT @ features
    square.diagonal().add_(1e-10 * float(square.diagonal().mean()))
    goal = features.mT @ torch.as_tensor(labelled.targets)
    with torch.no_grad():
        net.readout.copy_(torch.linalg.solve(square, goal).mT / net.factors["readout"])
    return net


def distilled(setting: Setting, parts: Parts) -> Row:
    """The distilled network beside its teacher on the test part."""
    own, others = parts.halves
    teacher = teacher_of(setting, own)
    small = distill(teacher, others, until=UNTIL, batch_size=128)
    rows = torch.as_tensor(parts.X_test, dtype=torch.float32)
    with torch.no_grad():
        wanted, found = (one(rows).argmax(1) for one in (teacher, small.network))
    agreement, speed = float((wanted == found).double().mean()), small.fidelity.speed
    return {
        "agreement": agreement, "speed": speed, "does": agreement >= UNTIL and speed >= FASTER, "student": small.name,
        "regression": False, "accuracy": float((wanted.numpy() == parts.y_test).mean()), "seeds": 1,
    }  # fmt: skip


# --- journals -------------------------------------------------------------------------------------------------------


def known(path: Path) -> dict[str, Row]:
    if not path.exists():
        return {}
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    return {row["name"]: row for row in rows}


def go_on(path: Path, task: Callable[[Setting, Path | None], Row], arguments: argparse.Namespace) -> None:
    """Work through the settings that the journal does not have."""
    done, begin = known(path), time.monotonic()
    for number, setting in enumerate(settings()):
        if setting.name in done or (arguments.only and arguments.only not in setting.name):
            continue
        if task is truth and setting.name not in known(VERDICTS):
            continue  # the verdict comes first
        if time.monotonic() - begin > 60.0 * arguments.minutes:
            break
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                found = task(setting, arguments.data_dir)
        except (ConvergenceError, InputError) as error:
            found = {"failed": str(error)}
        row = {
            "name": setting.name,
            "tuning": number % 5 == 0 or setting.name in TUNING,
            **asdict(setting),
            **found,
            "commit": commit(),
        }
        atomic_append(path, (json.dumps(row, ensure_ascii=False) + "\n").encode())
        shown = found.get("answer") or found.get("failed") or f"does {found['does']}, gap {found.get('gap')}"
        print(f"{setting.name:60s} {shown}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--judge", action="store_true")
    parser.add_argument("--run", action="store_true")
    parser.add_argument("--publish", action="store_true")
    parser.add_argument("--only", default="", help="settings whose name has this in it")
    parser.add_argument("--minutes", type=float, default=math.inf)
    parser.add_argument("--data-dir", type=Path)
    parser.add_argument("--threads", type=int, default=1)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    if arguments.judge:
        go_on(VERDICTS, judged, arguments)
    if arguments.run:
        go_on(TRUTH, truth, arguments)
    if arguments.publish:
        publish(known(VERDICTS), known(TRUTH))


if __name__ == "__main__":
    main()
