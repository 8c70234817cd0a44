"""Is the predicted order of models right?

`compare(models, (X, y))` predicts a DEQ (σ_a² = 0.5), its twin of two injected layers, one plain layer, two plain
layers and the Gaussian kernel from 1000 labelled rows (digits: 600), as kernels and as networks of width 128, each
with the ridge that it finds best. Then all of them are trained with that ridge on other rows, three disjoint sets of
1000 (digits: one of 600), and tested on 1500 others (digits: on the rows that are left). Data sets and activations:
`CASES`; of the activations only ReLU and tanh were looked at while the method was made. A pair of models counts where
the measured accuracies differ by more than a point; it is right where `compare` names the better one first.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations

import numpy as np
from harness import Row, markdown_table
from scipy.linalg import cho_factor, cho_solve

from learning.journal import Array, Part, chosen
from learning.real_data import rows_of
from notsodeep.designs import design
from notsodeep.kernels import exact_kernel, random_features
from notsodeep.learning import compare, gaussian_kernel
from notsodeep.models import DEQ, Explicit, Model
from notsodeep.validation import root_mean_square_norm

SIGMA_A2, WIDTH, SETS, TEST = 0.5, 128, 3, 1500
SIZES = {"digits": 600}
CASES = (
    ("digits", "gelu"),
    ("digits", "relu"),
    ("digits", "abs"),
    ("mnist", "relu"),
    ("mnist", "gelu"),
    ("fashion_mnist", "relu"),
    ("fashion_mnist", "abs"),
    ("cifar10", "swish"),
    ("cifar10", "relu"),
    ("cifar10_vgg19", "gelu"),
)


def tasks() -> list[Row]:
    return [
        {"data": data, "activation": activation, "width": width}
        for width in (WIDTH, None)
        for data, activation in CASES
    ]


def models_of(activation: str, X: Array) -> dict[str, Model]:
    deq = DEQ(activation, SIGMA_A2)
    twin = design(deq, root_mean_square_norm(X), "ck", family="injected", layers=2).network
    return {
        "DEQ": deq,
        "twin": twin,
        "plain layer": Explicit([activation]),
        "two plain layers": Explicit([activation] * 2),
        "Gaussian kernel": gaussian_kernel(),
    }


def rows(task: Row) -> Iterator[Row]:
    X, y = rows_of(task["data"])
    size = SIZES.get(task["data"], 1000)
    models = models_of(task["activation"], X[:size])
    found = compare(models, (X[:size], y[:size]), width=task["width"])
    sets = [np.arange(start, start + size) for start in range(size, len(X) - size + 1, size)][:SETS]
    if task["data"] == "digits":
        sets = sets[:1]
    last = int(sets[-1][-1]) + 1
    parts = X[size:last], X[last : last + TEST]
    for place, name in enumerate(found.names):
        reached = [
            _accuracy(*kernels, y[used], y[last : last + TEST], found.ridge[place])
            for used, kernels in zip(sets, _kernels(models[name], parts, size, task["width"]), strict=True)
        ]
        yield {
            "model": name,
            "place": place,
            "predicted": found.accuracy[place],
            "behind": found.behind[place],
            "uncertainty": found.uncertainty[place],
            "matters": found.matters,
            "ridge": found.ridge[place],
            "measured": float(np.mean(reached)),
            "error": float(np.std(reached, ddof=1) / np.sqrt(len(reached))) if len(reached) > 1 else None,
        }


def _kernels(
    model: Model, parts: tuple[Array, Array], size: int, width: int | None
) -> Iterator[tuple[Array, Array]]:
    """For each training set the kernel on it and with the test rows; of a new network each at finite width."""
    train, test = parts
    for number in range(len(train) // size):
        used = train[number * size : (number + 1) * size]
        if width is None:
            yield exact_kernel(model, used, kernel="ck"), exact_kernel(model, test, used, kernel="ck")
        else:
            rng = np.random.default_rng([number, width])
            features = random_features(model, np.vstack([used, test]), width, rng)
            own, new = features[:size], features[size:]
            yield own @ own.T, new @ own.T


def _accuracy(own: Array, cross: Array, y: Array, wanted: Array, ridge: float) -> float:
    targets = np.eye(int(max(y.max(), wanted.max())) + 1)[y]
    mean = targets.mean(axis=0)
    factor = cho_factor(own + ridge * np.eye(len(own)), lower=True)
    scores = cross @ cho_solve(factor, targets - mean) + mean
    return float(np.mean(scores.argmax(axis=1) == wanted))


def pairs_of(found: list[Row]) -> list[Row]:
    """All pairs of models of one task: the measured difference, the predicted one, and whether the order is right."""
    listed = []
    for task in tasks():
        for one, other in combinations(chosen(found, **task), 2):
            measured = one["measured"] - other["measured"]
            predicted = one["predicted"] - other["predicted"]
            names = {"pair": f"{one['model']}, {other['model']}"}
            listed.append(
                task
                | names
                | {"measured": measured, "predicted": predicted, "right": measured * predicted > 0.0}
            )
    return listed


def page(found: list[Row]) -> str:
    about = "\n".join((__doc__ or "").split("\n")[2:]).strip()
    pairs = pairs_of(found)
    kinds = {"all": pairs, "kernels": chosen(pairs, width=None), f"width {WIDTH}": chosen(pairs, width=WIDTH)}
    kinds |= {data: chosen(pairs, data=data) for data in dict.fromkeys(row["data"] for row in pairs)}
    kinds |= {
        name: chosen(pairs, activation=name) for name in dict.fromkeys(row["activation"] for row in pairs)
    }
    lines = []
    for kind, some in kinds.items():
        apart = [row for row in some if abs(row["measured"]) > 0.01]
        if apart:
            share = np.mean([row["right"] for row in apart])
            lines.append(
                {
                    "what": kind,
                    "pairs": len(some),
                    "more than a point apart": len(apart),
                    "order right": f"{sum(row['right'] for row in apart)}, {100 * share:.0f} %",
                }
            )
    wrong = [row for row in pairs if abs(row["measured"]) > 0.01 and not row["right"]]
    listed = [
        {
            **{name: row[name] for name in ("data", "activation", "pair")},
            "width": row["width"] or "kernel",
            "measured difference, points": f"{100 * row['measured']:.2f}",
            "predicted": f"{100 * row['predicted']:.2f}",
        }
        for row in wrong
    ]
    text = ["### Which model?", about, markdown_table(lines)]
    return "\n\n".join([*text, "Wrong:", markdown_table(listed)] if listed else text) + "\n"


PART = Part("choices", tasks, rows, page)
