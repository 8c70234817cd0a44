"""Full-batch gradient descent: predicted loss and accuracy after t steps beside `nets.fit(optimizer="gd")`.

200 rows of MNIST to train on, 500 to test with, squared loss, a rate of 0.8 n/λ_max; DEQs (σ_a² = 0.2) and plain one-
layer networks with tanh and ReLU; the readout alone or all weights; widths 64, 256 and 1024 (all weights of plain
networks: 4096 too); t = 1, 3, 10, 30, 100 (and 300 for the readout); two networks each. Two predictions: "this
network", from its own kernel and outputs at the beginning (`descent_curve(net, …)`), and "before any network is
drawn", the mean over wide random networks (`descent_curve(model, …)`), compared with the mean of the two. "drift" is
the distance of the weights from where they began over √m, as predicted; the prediction calls a training lazy up to 1.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

import numpy as np
import torch
from harness import Row, markdown_table

from learning.journal import Array, Part, chosen
from notsodeep.data import Preprocessing, load
from notsodeep.learning import descent_curve
from notsodeep.learning.descent_curve import LAZY
from notsodeep.models import DEQ, Explicit
from notsodeep.nets import DEQNet, ExplicitNet, fit

STEPS = {"readout": (1, 3, 10, 30, 100, 300), "all": (1, 3, 10, 30, 100)}
SEEDS = 2
WIDTHS = (64, 256, 1024, 4096)


def tasks() -> list[Row]:
    return [
        {"network": network, "activation": activation, "train": train, "width": width}
        for train in ("all", "readout")
        for network in ("plain", "DEQ")
        for width in WIDTHS
        for activation in ("tanh", "relu")
        if width < max(WIDTHS) or (train, network) == ("all", "plain")
    ]


@lru_cache(maxsize=1)
def parts() -> tuple[tuple[Array, Array], tuple[Array, Array]]:
    rows = load("mnist", n=200, seed=0)
    test = load("mnist", split="test", n=500, seed=0)
    scaling = Preprocessing.fit(rows.X)
    return (scaling.apply(rows.X), rows.y), (scaling.apply(test.X), test.y)


def rows(task: Row) -> Iterator[Row]:
    torch.set_num_threads(1)
    train, test = parts()
    steps = STEPS[task["train"]]
    model = DEQ(task["activation"], 0.2) if task["network"] == "DEQ" else Explicit([task["activation"]])
    kernel = "ck" if task["train"] == "readout" else "ntk"
    fastest = descent_curve(model, train, test, [1], kernel=kernel).lr
    lr = 0.8 * fastest
    mean = descent_curve(model, train, test, steps, lr, kernel, width=task["width"])
    found = []
    for seed in range(SEEDS):
        build = DEQNet if task["network"] == "DEQ" else ExplicitNet
        net = build(model, train[0].shape[1], task["width"], 10, train=task["train"], seed=seed)
        own = descent_curve(net, train, test, steps, lr)
        history = fit(net, train, test, optimizer="gd", lr=lr, epochs=max(steps), loss="squared").rows
        for place, step in enumerate(steps):
            if step > len(history):
                continue
            row = {
                "seed": seed,
                "steps": step,
                "measured": float(history[step - 1].test_accuracy),
                "measured_loss": float(history[step - 1].test_loss),
                "own": float(own.test_accuracy[place]),
                "own_loss": float(own.test_loss[place]),
                "drift": float(own.drift[place]),
                "predicted": float(mean.test_accuracy[place]),
                "predicted_loss": float(mean.test_loss[place]),
            }
            found.append(row)
    yield from found


def page(found: list[Row]) -> str:
    about = "\n".join((__doc__ or "").split("\n")[2:]).strip()
    lines = []
    for train in STEPS:
        for width in WIDTHS:
            some = chosen(found, train=train, width=width)
            if some:
                lines.append(_line(some, {"trained": train, "width": width}))
    by_steps = []
    for step in STEPS["all"]:
        line: Row = {"steps": step}
        for width in WIDTHS:
            some = chosen(found, train="all", network="plain", width=width, steps=step)
            if some:
                off = [abs(row["own_loss"] / row["measured_loss"] - 1.0) for row in some]
                drift = np.median([row["drift"] for row in some])
                line[f"width {width}"] = f"{100 * np.median(off):.2f} % (drift {drift:.2f})"
        by_steps.append(line)
    by_drift = []
    for low, high in ((0.0, 0.25), (0.25, 0.5), (0.5, LAZY), (LAZY, 2.0), (2.0, np.inf)):
        some = [row for row in found if row["train"] == "all" and low < row["drift"] <= high]
        if some:
            by_drift.append(_line(some, {"drift": f"{low:g} to {high:g}"}))
    return "\n".join(
        [
            f"### Gradient descent\n\n{about}\n",
            markdown_table(lines),
            "All weights of plain networks, by width: distance of the loss of this network, and drift:\n",
            markdown_table(by_steps),
            "All weights trained, by the predicted drift:\n",
            markdown_table(by_drift),
        ]
    )


def _line(some: list[Row], first: Row) -> Row:
    own_loss = np.array([abs(row["own_loss"] / row["measured_loss"] - 1.0) for row in some])
    own = np.array([abs(row["own"] - row["measured"]) for row in some])
    # The mean over seeds beside the prediction that knows no network.
    groups: dict[tuple[object, ...], list[Row]] = {}
    for row in some:
        key = tuple(row[name] for name in ("network", "activation", "train", "width", "steps"))
        groups.setdefault(key, []).append(row)
    loss = [
        abs(group[0]["predicted_loss"] / np.mean([row["measured_loss"] for row in group]) - 1.0)
        for group in groups.values()
    ]
    accuracy = [
        abs(group[0]["predicted"] - np.mean([row["measured"] for row in group])) for group in groups.values()
    ]
    return {
        **first,
        "cases": len(some),
        "this network: loss, median and worst": f"{100 * np.median(own_loss):.2g} %, {100 * own_loss.max():.2g} %",
        "accuracy, points": f"{100 * np.median(own):.2f}, {100 * own.max():.2f}",
        "before any network is drawn: loss": f"{100 * np.median(loss):.2g} %, {100 * max(loss):.2g} %",
        "accuracy of it, points": f"{100 * np.median(accuracy):.2f}, {100 * max(accuracy):.2f}",
    }


PART = Part("descent", tasks, rows, page)
