"""Real data for learning curves: pools that predictions are made from, and other rows to train on and to test with.

The published training and test parts are put together, shuffled once and scaled by one number (an unlabelled step), so
that all rows come from one distribution. Where rows are plenty (MNIST, Fashion-MNIST, VGG-19 features) training rows,
test rows and pools are disjoint. CIFAR-10 (12 000 rows here) is cut three times and digits (1797) ten times into pools
and the others; there the other rows are both training and test rows, and those that a regression was trained on are
scored by leaving each of them out, in closed form, which is exact.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from learning.journal import Array
from notsodeep.data import Preprocessing, load

DATA = ("mnist", "cifar10", "fashion_mnist", "digits", "cifar10_vgg19")
# Rows to train on, rows to test with (0: the training rows, left out), and how often the rows are cut anew.
CUTS = {
    "mnist": (8000, 10_000, 1),
    "fashion_mnist": (8000, 10_000, 1),
    "cifar10_vgg19": (8000, 8000, 1),
    "cifar10": (8000, 0, 3),
    "digits": (997, 0, 10),
}
POOLS = {"digits": (200, 800)}
USUAL_POOLS = (2000, 4000)
SIZES = {"digits": (50, 100, 200, 400, 800)}
USUAL_SIZES = (100, 300, 1000, 2000, 4000, 8000)
# Most training sets of one n, and of a small n.
MOST_SETS, MOST_SMALL_SETS, SMALL = 8, 24, 300
# Further training sets where 24 of them leave more than half a point open: the data and the n.
FURTHER_DATA, FURTHER_SIZE = ("cifar10_vgg19", "mnist"), 100


@dataclass(frozen=True, eq=False)
class Cut:
    """One division of a data set.

    Attributes:
        X, y: rows to train on.
        X_test, y_test: rows to test with; empty where the training rows serve.
        X_pools, y_pools: rows of pools.
    """

    X: Array
    y: Array
    X_test: Array
    y_test: Array
    X_pools: Array
    y_pools: Array

    @property
    def classes(self) -> int:
        return int(self.y.max()) + 1


@lru_cache(maxsize=2)
def rows_of(data: str) -> tuple[Array, Array]:
    """All rows of a data set, shuffled and scaled."""
    parts = [load(data, split=split) for split in ("train", "test")]
    X, y = np.vstack([part.X for part in parts]), np.concatenate([part.y for part in parts])
    order = np.random.default_rng(0).permutation(len(X))
    # As many as are used: 8000 + 10 000 + 16 000 at most.
    order = order[:34_000]
    X = np.asarray(Preprocessing.fit(X[order]).apply(X[order]), dtype=np.float64)
    return X, y[order]


@lru_cache(maxsize=1)
def cut_of(data: str, number: int) -> Cut:
    X, y = rows_of(data)
    train, test, _ = CUTS[data]
    largest = max(POOLS.get(data, USUAL_POOLS))
    if test:
        rows, new, pools = np.split(np.arange(len(X)), [train, train + test])
    else:
        # Disjoint pools as long as there are rows, then in a new order.
        again, place = divmod(number, len(X) // largest)
        order = np.random.default_rng(again).permutation(len(X)) if again else np.arange(len(X))
        before, pools, after = np.split(order, [place * largest, (place + 1) * largest])
        rows, new = np.concatenate([before, after]), np.arange(0)
    return Cut(X[rows], y[rows], X[new], y[new], X[pools], y[pools])


def pool_of(data: str, cut: int, size: int, number: int) -> tuple[Array, Array]:
    one = cut_of(data, cut)
    rows = slice(number * size, (number + 1) * size)
    return one.X_pools[rows], one.y_pools[rows]


def training_sets(data: str, *, further: bool = False) -> dict[tuple[int, int], Array]:
    """Disjoint sets of n training rows by (n, number): those of the table, or the further ones."""
    found = {}
    for n in SIZES.get(data, USUAL_SIZES):
        most = MOST_SMALL_SETS if n <= SMALL else MOST_SETS
        for number, start in enumerate(range(0, CUTS[data][0] - n + 1, n)):
            if (number < most) != further and not (further and n != FURTHER_SIZE):
                found[n, number] = np.arange(start, start + n)
    return found
