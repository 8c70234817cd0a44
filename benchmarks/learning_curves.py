"""Predicted test accuracy beside measured: on mixtures without data, and on real data from a pool of samples.

  python benchmarks/learning_curves.py                      everything that is not done yet
  python benchmarks/learning_curves.py --part mixture       mixtures alone (half an hour on one core)
  python benchmarks/learning_curves.py --minutes 3          as much as fits; the next call goes on
  python benchmarks/learning_curves.py --summary            the tables from what is done
  NOTSODEEP_DATA names the folder with the data sets

Mixture: two classes, ‖μ_a‖ = 1.2, C_2 = (1 + 6/√p) C_1, the exact CK of a DEQ with σ_a² = 0.2 on drawn samples, five
ridges; measured with 4000 test samples (balanced) for each training set, the mean of several training sets, with its
standard error.

Sample: pools of 1000 rows (digits: 200); n = a quarter of the pool to four times the pool; the kernel and networks of
width 256 and 1024; ridges 0.01 and 1. Measured by really training on other rows of the data set, 2000 test rows: three
training sets within the pool's size, two beyond. Beside the prediction: eigenlearning, (11.1) and (11.2) with the
pool's own eigenvalues and coefficients in the place of the population's, and plain GCV at n, for the squared error.
Results: learning_curves.jsonl in --out, finished tasks in one piece.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from harness import RESULTS, Row
from rich.console import Console
from rich.progress import track
from rich.table import Table
from scipy.linalg import cho_factor, cho_solve

from notsodeep.data import GaussianMixture, Preprocessing, load
from notsodeep.files import atomic_append
from notsodeep.kernels import conjugate_kernel
from notsodeep.learning import Spectrum, learning_curve, ridge_error
from notsodeep.learning.sample_curve import Pool, sample_curve
from notsodeep.models import DEQ

CONSOLE = Console(highlight=False, width=150)
RIDGES = (0.001, 0.01, 0.1, 1.0, 10.0)
TEST = 4000

Array = np.ndarray[Any, np.dtype[np.float64]]


# --- mixtures -----------------------------------------------------------------------------------------------------


def mixture_tasks() -> list[Row]:
    return [
        {"part": "mixture", "n": n, "ratio": ratio, "activation": activation, "centred": centred}
        for n in (500, 2000)
        for ratio in (0.3, 0.8, 2.0)
        for activation, centred in (("tanh", False), ("relu", False), ("relu", True), ("swish", True))
    ]


def mixture_rows(task: Row) -> Iterator[Row]:
    """Measured and predicted accuracy for each ridge of one mixture."""
    n, p = task["n"], int(task["ratio"] * task["n"])
    mixture = GaussianMixture(1.2 * np.eye(2, p), [1.0, 1.0 + 6.0 / math.sqrt(p)])
    model = DEQ(task["activation"], 0.2)
    if task["centred"]:
        model = model.centred(math.sqrt(1.0 + 3.0 / math.sqrt(p)))
    draws = 10 if n <= 500 else 3
    measured = np.array([mixture_draw(model, mixture, n, seed) for seed in range(draws)])
    for number, ridge in enumerate(RIDGES):
        start = time.process_time()
        curve = learning_curve(model, mixture, n, ridge)
        accuracy, mse = measured[:, number].T
        yield {
            "ridge": ridge,
            "measured": float(accuracy.mean()),
            "error": float(accuracy.std(ddof=1) / math.sqrt(draws)),
            "predicted": float(curve.accuracy[0]),
            "measured_mse": float(mse.mean()),
            "predicted_mse": float(curve.mse[0]),
            "inside": float(np.mean((accuracy >= curve.interval[0, 0]) & (accuracy <= curve.interval[0, 1]))),
            "draws": draws,
            "seconds": time.process_time() - start,
        }


def mixture_draw(model: DEQ, mixture: GaussianMixture, n: int, seed: int) -> list[tuple[float, float]]:
    """Accuracy and squared error at each ridge, for one training set."""
    X, y = mixture.sample(n, seed=seed)
    Z, t = mixture.sample(TEST, seed=10_000 + seed)
    values, vectors = np.linalg.eigh(conjugate_kernel(model, X))
    rotated = conjugate_kernel(model, Z, X) @ vectors
    signs, goal = 2.0 * y - 1.0, 2.0 * t - 1.0
    target = vectors.T @ (signs - signs.mean())
    found = []
    for ridge in RIDGES:
        scores = rotated @ (target / (values + ridge)) + signs.mean()
        found.append((float(np.mean((scores > 0) == (goal > 0))), float(np.mean((scores - goal) ** 2))))
    return found


def mixture_summary(rows: list[Row]) -> None:
    table = Table(
        title="mixtures, no data: |predicted - measured| accuracy in points (standard error of the measurement)"
    )
    for column in (
        "n",
        "cases",
        "median",
        "worst",
        "median standard error",
        "mse, relative, median",
        "in the band",
    ):
        table.add_column(column)
    for n in sorted({row["n"] for row in rows}):
        some = [row for row in rows if row["n"] == n]
        gaps = [100.0 * abs(row["predicted"] - row["measured"]) for row in some]
        relative = [abs(row["predicted_mse"] / row["measured_mse"] - 1.0) for row in some]
        table.add_row(
            str(n), str(len(some)), f"{np.median(gaps):.2f}", f"{max(gaps):.2f}",
            f"{100 * np.median([row['error'] for row in some]):.2f}", f"{100 * np.median(relative):.2f} %",
            f"{100 * np.mean([row['inside'] for row in some]):.0f} %",
        )  # fmt: skip
    CONSOLE.print(table)
    worst = sorted(rows, key=lambda row: -abs(row["predicted"] - row["measured"]))[:5]
    for row in worst:
        CONSOLE.print(
            f"  n {row['n']}, p/n {row['ratio']}, {row['activation']}{' centred' if row['centred'] else ''}, "
            f"ridge {row['ridge']}: {row['measured']:.3f} ± {row['error']:.3f}, predicted {row['predicted']:.3f}"
        )


# --- samples ------------------------------------------------------------------------------------------------------

DATA = ("mnist", "fashion_mnist", "cifar10_vgg19", "digits", "cifar10")
WIDTHS = (None, 256, 1024)
FEW_RIDGES = (0.01, 1.0)
SIGMA = 0.2


def sample_tasks() -> list[Row]:
    return [
        {"part": "sample", "data": data, "activation": activation}
        for activation in ("relu", "tanh")
        for data in DATA
    ]


def sample_rows(task: Row) -> Iterator[Row]:
    """Measured and predicted accuracy at each n, ridge and width of one data set."""
    is_small = task["data"] == "digits"
    size = 200 if is_small else 1000
    most = 4 * size
    train = load(task["data"], n=None if is_small else size + most, seed=1)
    test = load(task["data"], split="test", n=None if is_small else 2000, seed=2)
    scaling = Preprocessing.fit(train.X)
    order = np.random.default_rng(0).permutation(len(train.X))
    rows, labels = np.asarray(scaling.apply(train.X))[order], train.y[order]
    new, wanted = np.asarray(scaling.apply(test.X)), test.y
    if is_small:
        # The published order of the digits is by writer: the test part would be of others.
        new, wanted = rows[size + most :], labels[size + most :]
        rows, labels = rows[: size + most], labels[: size + most]
    model = DEQ(task["activation"], SIGMA)
    sizes = np.array([size // 4, size // 2, size, 2 * size, min(4 * size, most)])
    pool = Pool(model, rows[:size], labels[:size], "ck")
    rest, answers = rows[-most:], labels[-most:]
    cross = {None: (conjugate_kernel(model, rest), conjugate_kernel(model, new, rest))}
    for width in WIDTHS[1:]:
        both = deq_features(model, np.vstack([rest, new]), width)
        cross[width] = both[: len(rest)], both[len(rest) :]
    for width in WIDTHS:
        for ridge in FEW_RIDGES:
            curve = sample_curve(pool, sizes, ridge, width, kernel="ck", model=model)
            for row, n in enumerate(sizes.tolist()):
                draws = 3 if n <= size else 2
                found = [
                    trained(
                        cross[width],
                        answers,
                        wanted,
                        np.roll(np.arange(len(rest)), -draw * n)[:n],
                        ridge,
                        width,
                    )
                    for draw in range(draws)
                ]
                accuracy, mse = np.array(found).T
                yield {
                    "n": n, "pool": size, "width": width, "ridge": ridge,
                    "measured": float(accuracy.mean()), "spread": float(accuracy.std(ddof=1)),
                    "predicted": float(curve.accuracy[row]), "low": float(curve.interval[row, 0]),
                    "high": float(curve.interval[row, 1]), "extrapolated": bool(curve.extrapolated[row]),
                    "measured_mse": float(mse.mean()), "predicted_mse": float(curve.mse[row]),
                    "eigenlearning_mse": eigenlearning(pool, n, ridge, width), "gcv_mse": gcv(pool, n, ridge, width),
                }  # fmt: skip


def deq_features(model: DEQ, rows: Array, width: int) -> Array:
    """The equilibria of one random network, divided by √m."""
    rng = np.random.default_rng(width)
    recurrent = rng.standard_normal((width, width)) * math.sqrt(model.sigma_a2 / width)
    drive = rows @ (rng.standard_normal((rows.shape[1], width)) * math.sqrt(model.sigma_b2))
    state = model.activation(drive)
    for _ in range(25):
        state = model.activation(state @ recurrent.T + drive)
    return np.asarray(state / math.sqrt(width))


def trained(
    matrices: tuple[Array, Array], labels: Array, wanted: Array, used: Array, ridge: float, width: int | None
) -> tuple[float, float]:
    """Accuracy and squared error on the test rows of one regression that is really solved."""
    classes = int(labels.max()) + 1
    targets = np.eye(classes)[labels[used]]
    mean = targets.mean(axis=0)
    own, new = matrices
    if width is None:
        system = own[np.ix_(used, used)] + ridge * np.eye(len(used))
        scores = new[:, used] @ cho_solve(cho_factor(system, overwrite_a=True), targets - mean) + mean
    else:
        features = own[used]
        system = features.T @ features + ridge * np.eye(width)
        scores = new @ cho_solve(cho_factor(system), features.T @ (targets - mean)) + mean
    error = np.mean((scores - np.eye(classes)[wanted]) ** 2)
    return float(np.mean(scores.argmax(axis=1) == wanted)), float(error)


def eigenlearning(pool: Pool, n: int, ridge: float, width: int | None) -> float:
    """(11.2) and (11.5) with eigenvalues and coefficients of the pool in the place of the population's."""
    whole = pool._training(pool.size, 0)[0]
    squares = np.mean((whole.vectors.T @ whole.targets) ** 2, axis=1) / pool.size
    return ridge_error(Spectrum(whole.values / pool.size), squares, n, ridge, width=width).mse


def gcv(pool: Pool, n: int, ridge: float, width: int | None) -> float | None:
    """Generalised cross-validation of the kernel at n samples of the pool; it knows neither widths nor n > N."""
    if width is not None or n > pool.size:
        return None
    one = pool._training(n, 0)[0]
    left = ridge / (one.values + ridge)
    residual = np.mean((left[:, None] * (one.vectors.T @ one.targets)) ** 2)
    return float(residual / np.mean(left) ** 2)


def sample_summary(rows: list[Row]) -> None:
    table = Table(title="samples: |predicted - measured| accuracy in points; relative error of the mse")
    for column in (
        "n",
        "width",
        "cases",
        "median",
        "worst",
        "in the band",
        "mse ours",
        "eigenlearning",
        "GCV",
    ):
        table.add_column(column)
    for label, chosen in (
        ("≤ pool", [row for row in rows if not row["extrapolated"]]),
        ("2 × pool", [row for row in rows if row["n"] == 2 * row["pool"]]),
        ("4 × pool", [row for row in rows if row["n"] > 2 * row["pool"]]),
    ):
        for width in (*WIDTHS, "all"):
            some = [row for row in chosen if width in ("all", row["width"])]
            if not some:
                continue
            gaps = [100.0 * abs(row["predicted"] - row["measured"]) for row in some]
            inside = [row["low"] <= row["measured"] <= row["high"] for row in some]
            cells = [f"{np.median(gaps):.2f}", f"{max(gaps):.2f}", f"{100 * np.mean(inside):.0f} %"]
            for field in ("predicted_mse", "eigenlearning_mse", "gcv_mse"):
                known = [
                    abs(row[field] / row["measured_mse"] - 1.0) for row in some if row[field] is not None
                ]
                cells.append(f"{100 * np.median(known):.1f} %" if known else "")
            table.add_row(label, str(width), str(len(some)), *cells)
    CONSOLE.print(table)
    for row in sorted(rows, key=lambda row: -abs(row["predicted"] - row["measured"]))[:8]:
        CONSOLE.print(
            f"  {row['data']}, {row['activation']}, n {row['n']} of {row['pool']}, width {row['width']}, ridge "
            f"{row['ridge']}: measured {row['measured']:.3f}, predicted {row['predicted']:.3f} "
            f"({row['low']:.3f} to {row['high']:.3f})"
        )


# --- running and reading ------------------------------------------------------------------------------------------

PARTS = {
    "mixture": (mixture_tasks, mixture_rows, mixture_summary),
    "sample": (sample_tasks, sample_rows, sample_summary),
}


def done(path: Path) -> list[Row]:
    """The rows of finished tasks."""
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def run(options: argparse.Namespace, path: Path) -> None:
    finished = done(path)
    limit = time.monotonic() + 60.0 * options.minutes
    tasks = [
        (task, rows)
        for part in options.part
        for task in PARTS[part][0]()
        for rows in [PARTS[part][1]]
        if not any(all(row.get(key) == value for key, value in task.items()) for row in finished)
    ]
    for task, rows in track(tasks, "learning curves", console=CONSOLE):
        if time.monotonic() > limit:
            break
        lines = [json.dumps({**task, **row}) + "\n" for row in rows(task)]
        atomic_append(path, "".join(lines).encode())


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--part", nargs="+", choices=list(PARTS), default=list(PARTS))
    parser.add_argument("--minutes", type=float, default=math.inf)
    parser.add_argument("--summary", action="store_true")
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    path = options.out / "learning_curves.jsonl"
    if not options.summary:
        options.out.mkdir(parents=True, exist_ok=True)
        run(options, path)
    for part in options.part:
        rows = [row for row in done(path) if row["part"] == part]
        if rows:
            PARTS[part][2](rows)


if __name__ == "__main__":
    main()
