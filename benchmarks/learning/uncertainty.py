"""Gaussian processes with the kernel of a DEQ: do intervals hold what they say?

`make_pipeline(StandardScaler(), RowScaler(), GaussianProcessRegressor(ConstantKernel() * DEQKernel(φ, bias2=0.1) +
WhiteKernel(), normalize_y=True))`, all hyperparameters by the marginal likelihood, on three tables of scikit-learn
that need no download: diabetes (442 rows), Friedman 1 and 3 (442 drawn rows each, noise of standard deviation 1 and
0.1), 150 rows to train and the others to test. ReLU and tanh, conjugate and tangent kernel, and the Gaussian kernel
(RBF with its length scale) in the same pipeline. Four random divisions. Coverage is the share of test rows inside the
central interval of 50, 80, 90 and 95 %; NLPD is the mean negative logarithm of the predicted density in units of the
standardised target (smaller is better).
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator

import numpy as np
from harness import Row, markdown_table
from scipy.stats import norm
from sklearn.datasets import load_diabetes, make_friedman1, make_friedman3
from sklearn.exceptions import ConvergenceWarning
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, Kernel, WhiteKernel
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from learning.journal import Array, Part, chosen
from notsodeep.estimators import DEQKernel, RowScaler

TABLES = ("diabetes", "friedman 1", "friedman 3")
KERNELS = ("relu, ck", "Gaussian", "tanh, ck", "relu, ntk", "tanh, ntk")
LEVELS = (0.5, 0.8, 0.9, 0.95)
DIVISIONS, TRAIN = 4, 150


def tasks() -> list[Row]:
    return [{"table": table, "kernel": kernel} for kernel in KERNELS for table in TABLES]


def table_of(name: str) -> tuple[Array, Array]:
    if name == "diabetes":
        return load_diabetes(return_X_y=True)
    make, noise = (make_friedman1, 1.0) if name == "friedman 1" else (make_friedman3, 0.1)
    return make(n_samples=442, noise=noise, random_state=0)


def kernel_of(name: str) -> Kernel:
    if name == "Gaussian":
        return ConstantKernel() * RBF() + WhiteKernel()
    activation, which = name.split(", ")
    # A length scale is an amplitude for a homogeneous activation.
    bounds = "fixed" if activation == "relu" else (0.1, 10.0)
    return (
        ConstantKernel() * DEQKernel(activation, kernel=which, bias2=0.1, length_scale_bounds=bounds)
        + WhiteKernel()
    )


def divisions(rows: int) -> list[tuple[Array, Array]]:
    """Training and test rows."""
    orders = [np.random.default_rng(seed).permutation(rows) for seed in range(DIVISIONS)]
    return [(order[:TRAIN], order[TRAIN:]) for order in orders]


def rows(task: Row) -> Iterator[Row]:
    X, y = table_of(task["table"])
    spread = float(y.std())
    for number, (train, test) in enumerate(divisions(len(y))):
        regressor = GaussianProcessRegressor(kernel_of(task["kernel"]), normalize_y=True)
        process = make_pipeline(StandardScaler(), RowScaler(), regressor)
        with warnings.catch_warnings():
            # A hyperparameter at its bound is a finding of the likelihood, not a failure.
            warnings.simplefilter("ignore", ConvergenceWarning)
            process.fit(X[train], y[train])
        mean, deviation = process.predict(X[test], return_std=True)
        away = (y[test] - mean) / deviation
        yield {
            "division": number,
            "test_rows": len(test),
            **{
                f"inside {level:g}": int(np.sum(np.abs(away) <= norm.ppf(0.5 + level / 2)))
                for level in LEVELS
            },
            "squared_error": float(np.sum((y[test] - mean) ** 2)) / spread**2,
            "density": float(np.sum(0.5 * away**2 + np.log(deviation / spread) + 0.5 * np.log(2 * np.pi))),
            "width": float(np.sum(deviation)) / spread,
            "found": str(process[-1].kernel_),
        }


def page(found: list[Row]) -> str:
    about = "\n".join((__doc__ or "").split("\n")[2:]).strip()
    lines = []
    for table in TABLES:
        for kernel in KERNELS:
            some = chosen(found, table=table, kernel=kernel)
            if not some:
                continue
            count = sum(row["test_rows"] for row in some)
            line: Row = {"table": table, "kernel": kernel, "test rows": count}
            for level in LEVELS:
                share = sum(row[f"inside {level:g}"] for row in some) / count
                line[f"inside {100 * level:.0f} %"] = f"{100 * share:.1f} %"
            line["R²"] = f"{1.0 - sum(row['squared_error'] for row in some) / count:.3f}"
            line["NLPD"] = f"{sum(row['density'] for row in some) / count:.3f}"
            line["mean deviation"] = f"{sum(row['width'] for row in some) / count:.3f}"
            lines.append(line)
    return f"### Uncertainty: Gaussian processes\n\n{about}\n\n{markdown_table(lines)}"


PART = Part("uncertainty", tasks, rows, page)
