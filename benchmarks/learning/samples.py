"""From a sample: predictions from pools of labelled rows beside what is really trained on other rows.

Pools of 2000 and 4000 rows (digits: 200 and 800) of MNIST, Fashion-MNIST, VGG-19 features of CIFAR-10, CIFAR-10 and
digits; ReLU and tanh, σ_a² = 0.2; the conjugate kernel, the tangent kernel and networks of width 128, 512 and 4096
whose readout is trained by ridge; ridges 0.001, 0.03 and 1; n = 100 … 8000 (digits: 50 … 800). Up to four pools of one
size. How the data sets are cut, and how often each figure was measured: learning/real_data.py, learning/trained.py.

Beside the prediction, for the squared error: "eigenlearning", the formula of Simon et al. (11.1) and (11.2) with the
pool's own eigenvalues and coefficients in the place of the population's (and (11.5) for networks), and plain
generalised cross-validation, which knows neither widths nor n beyond the pool.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from harness import Row

from learning.journal import Part
from learning.real_data import CUTS, DATA, POOLS, SIZES, USUAL_POOLS, USUAL_SIZES, pool_numbers, pool_of
from learning.trained import ACTIVATIONS, NETWORKS, RIDGES, SIGMA_A2
from notsodeep.learning import Spectrum, ridge_error
from notsodeep.learning.sample_curve import sample_curve
from notsodeep.learning.sample_pool import Pool
from notsodeep.models import DEQ


def tasks() -> list[Row]:
    return [
        {"data": data, "cut": cut, "activation": activation, "kernel": kernel, "pool": size, "number": number}
        for data in DATA
        for size in POOLS.get(data, USUAL_POOLS)
        for cut in range(CUTS[data][2])
        for number in pool_numbers(data, size)
        for activation in ACTIVATIONS
        for kernel in ("ck", "ntk")
    ]


def widths_of(task: Row) -> tuple[int | None, ...]:
    """Networks are predicted from the first pools of each size."""
    few = task["number"] < (1 if task["pool"] == max(POOLS.get(task["data"], USUAL_POOLS)) else 2)
    return (None, *NETWORKS) if task["kernel"] == "ck" and task["cut"] < 2 and few else (None,)


def rows(task: Row) -> Iterator[Row]:
    """All predictions from one pool."""
    model = DEQ(task["activation"], SIGMA_A2)
    X, y = pool_of(task["data"], task["cut"], task["pool"], task["number"])
    pool = Pool(model, X, y, task["kernel"])
    sizes = np.array(SIZES.get(task["data"], USUAL_SIZES))
    for width in widths_of(task):
        for ridge in RIDGES:
            curve = sample_curve(pool, sizes, ridge, width, kernel=task["kernel"], model=model)
            for place, n in enumerate(sizes.tolist()):
                yield {
                    "width": width,
                    "n": n,
                    "ridge": ridge,
                    "predicted": float(curve.accuracy[place]),
                    "low": float(curve.interval[place, 0]),
                    "high": float(curve.interval[place, 1]),
                    "extrapolated": bool(curve.extrapolated[place]),
                    "predicted_mse": float(curve.mse[place]),
                    "eigenlearning_mse": eigenlearning(pool, n, ridge, width),
                    "gcv_mse": gcv(pool, n, ridge, width),
                }


def eigenlearning(pool: Pool, n: int, ridge: float, width: int | None) -> float:
    """(11.2) and (11.5) with eigenvalues and coefficients of the pool in the place of the population's."""
    whole = pool.whole
    squares = np.mean((whole.vectors.T @ whole.targets) ** 2, axis=1) / pool.size
    return ridge_error(Spectrum(whole.values / pool.size), squares, n, ridge, width=width).mse


def gcv(pool: Pool, n: int, ridge: float, width: int | None) -> float | None:
    """Generalised cross-validation of the kernel at n samples of the pool; it knows neither widths nor n > N."""
    if width is not None or n > pool.size:
        return None
    one = pool.fold(n, 0).trained
    left = ridge / (one.values + ridge)
    residual = np.mean((left[:, None] * (one.vectors.T @ one.targets)) ** 2)
    return float(residual / np.mean(left) ** 2)


def page(found: list[Row]) -> str:
    return ""


PART = Part("samples", tasks, rows, page)
