"""Do explicit twins of convolutional equilibrium models train as these do, and how long does it take?

    python benchmarks/convolutional_training.py                  # everything that is not done yet, an hour or two
    python benchmarks/convolutional_training.py --minutes 20     # as much as fits; the next call goes on
    python benchmarks/convolutional_training.py --publish        # only write what is done into docs/results.md
    python benchmarks/convolutional_training.py --n 5000 --test 10000 --shrink 1 --epochs 20        # hours

readout   hidden weights as drawn; the readout by ridge regression on one-hot targets, its ridge the best of seven on
          the held-out images
all       every weight trained by Adam, cross-entropy, batches of 64; each network with the best of two learning rates
          (that of `fit`, and 0.3 of it), chosen on the held-out images of the first seed; the DEQ's solver stops at a
          residual of 1e-4 or after 40 steps

Networks: the convolutional DEQ (σ_a² = 0.3, 3 × 3, zeros, weights for every position); its injected twin, fitted to
unlabelled training images; plain layers with the DEQ's own activation, as many as the twin has and one; the DEQ cut
after as many steps.  Fashion-MNIST and the CIFAR-10 subset, images averaged over `--shrink` × `--shrink` pixels, less
the mean image, |x(s)|² = 1 on average.  Accuracy on test images in percent, mean ± standard error over seeds;
"twin − DEQ" is the difference of the same seed; "agree" the share of test images with the class of the DEQ of the same
seed (for the DEQ: of the other seeds).  Seconds are processor time of one thread.

Every finished training is kept in a file of lines in `--out`; a second call goes on where the first one ended, and
`--minutes` ends a call between two trainings.  Times of a batch, beside TorchDEQ: peers/torchdeq/convolutional.py.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from harness import RESULTS, ROOT, Row, filled, markdown_table, write_atomically
from rich.console import Console
from torch.nn.functional import one_hot

from notsodeep.data import as_images, load
from notsodeep.designs import design
from notsodeep.files import atomic_append
from notsodeep.models import ConvDEQ, ConvExplicit
from notsodeep.nets import ConvDEQNet, ConvExplicitNet, Net, SolverOptions, compute_features, default_lr, fit

CONSOLE = Console()
PAGE = ROOT / "docs" / "results.md"
MARKS = "<!-- measured: convolutional training -->", "<!-- end: convolutional training -->"
TITLES = {"fashion_mnist": "Fashion-MNIST", "cifar10": "CIFAR-10"}
DATA = tuple(TITLES)
SECTIONS = ("readout", "all")
SIGMA_A2, BATCH, TOLERANCE, MOST_STEPS = 0.3, 64, 1e-4, 40
RIDGES = 10.0 ** np.arange(-6.0, 1.0)
RATES = (0.3, 1.0)
# Points of accuracy by which a twin may be behind its DEQ before it is named.
BEHIND = 1.0
NAMES = {
    "deq": "ConvDEQ",
    "twin": "twin",
    "cut": "cut DEQ",
    "plain": "plain, the twin's depth",
    "plain 1": "plain, one layer",
}


@dataclass(frozen=True)
class Setting:
    """What all trainings of a call share, and rows of other calls must agree with."""

    n: int
    held_out: int
    test: int
    shrink: int
    layers: int
    epochs: int
    readout: str
    activation: str

    def as_row(self) -> Row:
        return dict(vars(self))


@dataclass(frozen=True, eq=False)
class Parts:
    """Images and labels for training, for choosing rates and ridges, and for the test."""

    train: tuple[torch.Tensor, torch.Tensor]
    held_out: tuple[torch.Tensor, torch.Tensor]
    test: tuple[torch.Tensor, torch.Tensor]


@lru_cache(maxsize=2)
def parts_of(data: str, setting: Setting) -> Parts:
    """The images, less the mean of the training part, with |x(s)|² = 1 on average there."""

    def images(split: Any, n: int) -> tuple[np.ndarray, torch.Tensor]:
        loaded = load(data, n=n, split=split, dtype="float32")
        X, step = as_images(data, loaded.X), setting.shrink
        sides = [side // step for side in X.shape[2:]]
        small = X.reshape(len(X), X.shape[1], sides[0], step, sides[1], step).mean(axis=(3, 5))
        return small, torch.as_tensor(loaded.y)

    X, y = images("train", setting.n + setting.held_out)
    X_test, y_test = images("test", setting.test)
    order = torch.as_tensor(np.random.default_rng(0).permutation(len(X)))
    mean = X[order[: setting.n]].mean(axis=0)
    scale = float(np.sqrt(np.mean(np.sum((X[order[: setting.n]] - mean) ** 2, axis=1))))
    ready, ready_test = (torch.as_tensor((one - mean) / scale) for one in (X, X_test))
    first, rest = order[: setting.n], order[setting.n :]
    return Parts((ready[first], y[first]), (ready[rest], y[rest]), (ready_test, y_test))


@lru_cache(maxsize=8)
def networks(data: str, section: str, setting: Setting) -> dict[str, ConvDEQ | ConvExplicit]:
    """The models to compare; the twin has the kernel that the training sees."""
    deq = ConvDEQ(setting.activation, SIGMA_A2, readout=setting.readout)
    images = parts_of(data, setting).train[0][:200].double().numpy()
    kernel = "ck" if section == "readout" else "ntk"
    made = design(deq, kernel=kernel, family="injected", layers=setting.layers, X=images)

    def plain(depth: int) -> ConvExplicit:
        return ConvExplicit([deq.activation] * depth, readout=setting.readout)

    twin, cut = made.network, deq.unrolled(setting.layers)
    return {"deq": deq, "twin": twin, "cut": cut, "plain": plain(setting.layers), "plain 1": plain(1)}


def built(spec: Any, parts: Parts, channels: int, train: str, seed: int) -> Net:
    """A network with finitely many channels."""
    shape = parts.train[0].shape[1:]
    sizes = (shape[0], channels, 10, tuple(shape[1:]))
    if isinstance(spec, ConvDEQ):
        # As most code does, a batch goes on with what the solver has after its last step.
        solver = SolverOptions(tolerance=TOLERANCE, max_steps=MOST_STEPS)
        return ConvDEQNet(spec, *sizes, train=train, seed=seed, solver=solver, on_failure="ignore")
    return ConvExplicitNet(spec, *sizes, train=train, seed=seed)


# --- trainings --------------------------------------------------------------------------------------------------------


def by_ridge(net: Net, parts: Parts) -> Row:
    """The best ridge readout on held-out images, by the Gram matrix of the training images: features are more."""
    began = time.process_time()
    features = compute_features(net, parts.train[0])
    seconds = time.process_time() - began
    targets = one_hot(parts.train[1], 10).double() - 0.1
    values, vectors = torch.linalg.eigh((features @ features.T).double())
    held_out = (compute_features(net, parts.held_out[0]) @ features.T).double()
    best, dual = -1.0, targets
    for ridge in RIDGES:
        weights = vectors @ ((vectors.T @ targets) / (values.clamp(min=0.0) + ridge * len(targets))[:, None])
        hit = share((held_out @ weights).argmax(1), parts.held_out[1])
        if hit > best:
            best, dual = hit, weights
    scores = (compute_features(net, parts.test[0]) @ features.T).double() @ dual
    return {"held_out_accuracy": best, "seconds": seconds} | judged(scores.argmax(1), parts)


def by_training(spec: Any, parts: Parts, channels: int, seed: int, rate: float, epochs: int) -> Row:
    """All weights trained; seconds of an epoch."""
    net = built(spec, parts, channels, "all", seed)
    lr = rate * default_lr(net, parts.train[0], "adam", "cross_entropy", BATCH)
    began = time.process_time()
    history = fit(net, parts.train, optimizer="adam", lr=lr, epochs=epochs, batch_size=BATCH, seed=seed)
    seconds = time.process_time() - began
    hit = share(predicted(net, parts.held_out[0]), parts.held_out[1])
    row: Row = {"held_out_accuracy": hit, "rate": rate, "lr": lr, "stopped": history.stopped}
    row["seconds"] = seconds / len(history.rows) if history.rows else None
    row["contraction"] = history.rows[-1].contraction if history.rows else None
    row["forward_steps"] = history.rows[-1].forward_steps if history.rows else None
    return row | judged(predicted(net, parts.test[0]), parts)


@torch.no_grad()
def predicted(net: Net, X: torch.Tensor) -> torch.Tensor:
    return torch.cat([net(block).argmax(1) for block in X.split(256)])


def judged(classes: torch.Tensor, parts: Parts) -> Row:
    """Accuracy, and the classes of all test images as one text of digits."""
    return {"accuracy": share(classes, parts.test[1]), "classes": "".join(map(str, classes.tolist()))}


def share(one: torch.Tensor, other: torch.Tensor) -> float:
    return float((one == other).double().mean())


def measured(key: Row, setting: Setting, done: list[Row]) -> Row:
    """One training, or one regression."""
    parts = parts_of(key["data"], setting)
    spec = networks(key["data"], key["section"], setting)[key["model"]]
    if key["section"] == "readout":
        return by_ridge(built(spec, parts, key["channels"], "readout", key["seed"]), parts)
    known = [row["rate"] for row in done if all(row[k] == key[k] for k in key if k != "seed")]
    rates = known[:1] or RATES
    found = [by_training(spec, parts, key["channels"], key["seed"], rate, setting.epochs) for rate in rates]
    return max(found, key=lambda row: float(row["held_out_accuracy"]))


def compared(row: Row, done: list[Row]) -> Row:
    """The row with the shares of test images on which it agrees with DEQs; only the classes of DEQs are kept."""
    same = [
        one for one in done if one["model"] == "deq" and all(one[k] == row[k] for k in ("data", "channels"))
    ]
    if row["model"] != "deq":
        same = [one for one in same if one["seed"] == row["seed"]]
    agrees = [
        statistics.mean(a == b for a, b in zip(row["classes"], one["classes"], strict=True)) for one in same
    ]
    kept = row if row["model"] == "deq" else {name: row[name] for name in row if name != "classes"}
    return kept | {"agrees": agrees}


def tasks(section: str, wanted: argparse.Namespace) -> Iterator[Row]:
    """What is to be trained; few channels and one seed of everything first."""
    for channels in wanted.channels:
        for seed in range(wanted.seeds):
            for data in wanted.data:
                for model in NAMES:
                    yield {
                        "section": section, "data": data, "channels": channels, "seed": seed, "model": model,
                    }  # fmt: skip


def journal(file: Path) -> list[Row]:
    """All finished trainings."""
    return [json.loads(line) for line in file.read_text("utf-8").splitlines()] if file.exists() else []


def train(section: str, wanted: argparse.Namespace, setting: Setting, file: Path, until: float) -> None:
    """The trainings of a section that are not done yet."""
    lines = journal(file)
    mine = {"section": section, **setting.as_row()}
    done = [row for row in lines if all(row.get(name) == value for name, value in mine.items())]
    for key in tasks(section, wanted):
        if any(all(row[name] == value for name, value in key.items()) for row in done):
            continue
        if time.monotonic() > until:
            CONSOLE.print(f"{section}: out of time; the same command goes on.")
            return
        row = compared(mine | key | measured(key, setting, done), done)
        done.append(row)
        file.parent.mkdir(parents=True, exist_ok=True)
        atomic_append(file, (json.dumps(row) + "\n").encode())
        words = f"{key['data']}, {key['channels']} channels, seed {key['seed']}, {key['model']}"
        CONSOLE.print(f"{section}: {words}: {100 * row['accuracy']:.1f} %")


# --- tables -----------------------------------------------------------------------------------------------------------


def table(rows: list[Row]) -> list[Row]:
    """One line for each data set and number of channels, the networks side by side."""
    lines: list[Row] = []
    for data, channels in sorted({(row["data"], row["channels"]) for row in rows}):
        here = [row for row in rows if (row["data"], row["channels"]) == (data, channels)]
        by = {name: {row["seed"]: row for row in here if row["model"] == name} for name in NAMES}
        line: Row = {"data": TITLES[data], "channels": channels}
        for name, words in NAMES.items():
            line[words] = mean_and_error([100.0 * row["accuracy"] for row in by[name].values()])
        gains = [
            100.0 * (row["accuracy"] - by["deq"][seed]["accuracy"])
            for seed, row in by["twin"].items()
            if seed in by["deq"]
        ]
        line["twin − DEQ"] = mean_and_error(gains, "+")
        agreements = (
            [100.0 * share for row in by[name].values() for share in row["agrees"]]
            for name in ("twin", "plain", "deq")
        )
        line["agree with the DEQ: twin, plain, another DEQ"] = ", ".join(
            f"{statistics.mean(found):.1f}" if found else "–" for found in agreements
        )
        times = (
            statistics.median(row["seconds"] for row in by[name].values())
            for name in ("deq", "twin", "plain")
            if by[name]
        )
        line["seconds: DEQ, twin, plain"] = ", ".join(f"{seconds:.2g}" for seconds in times)
        lines.append(line)
    return lines


def verdict(rows: list[Row]) -> str:
    """Where the twin is more than a point behind its DEQ, in the mean over seeds and with single ones."""
    accuracy = {
        tuple(row[key] for key in ("data", "channels", "seed", "model")): row["accuracy"] for row in rows
    }
    gains: dict[str, list[float]] = {}
    for *place, seed, model in accuracy:
        if model == "twin" and (*place, seed, "deq") in accuracy:
            gain = 100.0 * (accuracy[*place, seed, "twin"] - accuracy[*place, seed, "deq"])
            gains.setdefault(f"{TITLES[place[0]]}, {place[1]} channels", []).append(gain)
    means = {place: statistics.mean(found) for place, found in gains.items()}
    pairs = [(place, gain) for place, found in gains.items() for gain in found]
    single = sum(gain < -BEHIND for _, gain in pairs)
    return (
        f"The twin is more than a point behind its DEQ in the mean over seeds: {_listed(means.items())}. "
        f"With single seeds, {single} of {len(pairs)}: {_listed(pairs)}."
    )


def _listed(gains: Iterable[tuple[str, float]]) -> str:
    """The places of losses beyond a point."""
    behind = [f"{place} ({gain:.1f})" for place, gain in gains if gain < -BEHIND]
    return "; ".join(behind) or "nowhere"


def mean_and_error(values: list[float], sign: str = "") -> str:
    """Mean ± standard error."""
    if len(values) < 2:
        return f"{values[0]:{sign}.1f}" if values else "–"
    return f"{statistics.mean(values):{sign}.1f} ± {statistics.stdev(values) / len(values) ** 0.5:.1f}"


def sections(rows: list[Row]) -> str:
    """The tables of all settings."""
    words = {
        "readout": "Readout by ridge regression; seconds: the features of the training images",
        "all": "All weights trained by Adam; seconds: an epoch",
    }
    names = [entry.name for entry in fields(Setting)]
    texts = []
    for values in dict.fromkeys(tuple(row[name] for name in names) for row in rows):
        setting = Setting(*values)
        for section in SECTIONS:
            mine = {"section": section, **setting.as_row()}
            part = [row for row in rows if all(row[name] == value for name, value in mine.items())]
            if not part:
                continue
            seeds = len({row["seed"] for row in part})
            head = (
                f"{words[section]}. {setting.activation}, {setting.readout}, twin of {setting.layers} layers; "
                f"{setting.n} images, {setting.held_out} to choose on, {setting.test} to test, averaged over "
                f"{setting.shrink}×{setting.shrink} pixels"
                + (f"; {setting.epochs} epochs" if section == "all" else "")
                + f"; {seeds} seeds:"
            )
            texts += [head, "", markdown_table(table(part)).rstrip(), "", verdict(part), ""]
    return "\n".join(texts)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", nargs="+", default=list(SECTIONS), choices=SECTIONS)
    parser.add_argument("--data", nargs="+", default=list(DATA), choices=DATA)
    parser.add_argument("--channels", nargs="+", type=int, default=[32, 64, 128])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--n", type=int, default=2000, help="training images")
    parser.add_argument(
        "--held-out", type=int, default=500, help="images that rates and ridges are chosen on"
    )
    parser.add_argument("--test", type=int, default=2000, help="test images")
    parser.add_argument("--shrink", type=int, default=2, help="pixels that are averaged along each axis")
    parser.add_argument("--layers", type=int, default=2, help="of the twin")
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--readout", default="flatten", choices=["flatten", "pool"])
    parser.add_argument("--activation", default="relu")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="start nothing after so many")
    parser.add_argument("--publish", action="store_true", help="only write what is done into docs/results.md")
    parser.add_argument("--out", type=Path, default=RESULTS, help="folder of the results")
    wanted = parser.parse_args()
    setting = Setting(
        wanted.n, wanted.held_out, wanted.test, wanted.shrink, wanted.layers, wanted.epochs, wanted.readout,
        wanted.activation,
    )  # fmt: skip
    torch.set_num_threads(1)
    # That a trained map need not contract is a column of the rows.
    warnings.simplefilter("ignore", RuntimeWarning)
    file, until = wanted.out / "convolutional_training.jsonl", time.monotonic() + 60.0 * wanted.minutes
    for section in [] if wanted.publish else wanted.only:
        train(section, wanted, setting, file, until)
    found = sections(journal(file))
    print(found)
    if wanted.publish:
        write_atomically(PAGE, filled(PAGE.read_text(encoding="utf-8"), *MARKS, found))


if __name__ == "__main__":
    main()
