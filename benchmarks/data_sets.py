"""The section "data" of run.py: CK+NTK of every built-in activation on data as people have them.

Real images and features scaled to norm 1, raw (0…1 and 0…255), standardised by column and with unit rows;
scikit-learn's small tables as they are; rows shifted by a constant; nearly parallel rows.  Each case is timed in turn
with the product of the same rows, in one process, and compared with the independent solver of `oracle.py` on a few.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import oracle
from cases import ACTIVATIONS, mixture
from harness import LIMITS, Row, interleave
from sklearn import datasets

import notsodeep as nsd
from notsodeep.data.datasets import load

IMAGES = ("mnist", "fashion_mnist", "cifar10", "cifar10_vgg19", "digits")
TABLES: dict[str, Callable[[], Any]] = {
    "iris": datasets.load_iris,
    "wine": datasets.load_wine,
    "breast_cancer": datasets.load_breast_cancer,
    "diabetes": datasets.load_diabetes,
}
FEEDBACKS = (0.1, 0.2, 0.5)
CUSTOM = {"custom x·tanh(x)": lambda: nsd.custom_activation(lambda x: x * np.tanh(x)),
          "formula": lambda: nsd.activation("formula", expression="x * sigmoid(x)")}  # fmt: skip


@dataclass(frozen=True)
class Case:
    """Rows, and what is asked of them: a ratio to the product, or seconds."""

    data: str
    rows: np.ndarray
    ratio: float | None = None
    seconds: float | None = None


def scaled(x: np.ndarray) -> dict[str, np.ndarray]:
    """The scalings of the section."""
    norms = np.linalg.norm(x, axis=1, keepdims=True)
    spread = x.std(axis=0)
    return {
        "norm 1": x / np.sqrt(np.mean(norms**2)),
        "raw": x,
        "raw 0…255": 255.0 * x,
        "standardised": (x - x.mean(axis=0)) / np.where(spread > 0, spread, 1.0),
        "unit rows": x / np.where(norms > 0, norms, 1.0),
    }


def cases(n: int, folder: Path | None) -> Iterator[Case]:
    """All data of the section; those of a folder only where there is one."""
    yield Case("mixture, p = 0.8 n", mixture(n, int(0.8 * n)), ratio=3.0)
    for name in IMAGES if folder is not None else ("digits",):
        size = min(n, 1437) if name == "digits" else n
        x = np.asarray(load(name, n=size, data_dir=folder).X, dtype=np.float64)
        for how, rows in scaled(x).items():
            if how == "raw 0…255" and name in ("cifar10_vgg19", "digits"):
                continue
            yield Case(f"{name}, {how}", rows, ratio=8.0 if how == "norm 1" else 15.0)
    for name, read in TABLES.items():
        x = np.asarray(read().data, dtype=np.float64)[:600]
        yield Case(f"{name}, raw", x, seconds=2.0)
        yield Case(f"{name}, X + 3", x + 3.0, seconds=2.0)
    generator = np.random.default_rng(0)
    base = generator.standard_normal(64) / 8.0
    for gap in (1e-3, 1e-6, 1e-9, 1e-12):
        noise = generator.standard_normal((min(n, 500), 64)) / 8.0
        yield Case(f"near duplicates, 1 - cos = {gap:g}", base + np.sqrt(gap) * noise, seconds=2.0)


def measure(case: Case, name: str, feedback: float, repeats: int) -> Row:
    """One activation on one case: the first call, then calls in turn with the product."""
    phi = CUSTOM[name]() if name in CUSTOM else nsd.activation(name, **ACTIVATIONS[name])
    model = nsd.DEQ(phi, sigma_a2=feedback)
    x = case.rows
    begin = time.perf_counter()
    ck, ntk, info = nsd.kernels.both_kernels(model, x, return_info=True)
    first = time.perf_counter() - begin
    times = interleave(
        {"product": lambda: x @ x.T, "both": lambda: nsd.kernels.both_kernels(model, x)}, repeats
    )
    row: Row = {
        "data": case.data, "n": len(x), "p": x.shape[1], "activation": name, "σ_a²": feedback,
        "first (s)": first, "CK+NTK (s)": times["both"].median,
        "CK+NTK / X Xᵀ": times["both"].median / times["product"].median,
        "ways": ", ".join(info.ways), "stated bound": float(info.error_bound),
    }  # fmt: skip
    row[LIMITS] = {"first (s)": case.seconds} if case.seconds else {"CK+NTK / X Xᵀ": case.ratio}
    chosen = np.random.default_rng(1).choice(len(x), min(5, len(x)), replace=False)
    try:
        truth = oracle.kernels(model, x[chosen])
        block = np.ix_(chosen, chosen)
        row["error"] = max(oracle.largest_error(k[block], t) for k, t in zip((ck, ntk), truth, strict=True))
    except RuntimeError:
        row["error"] = None
    return row


def section(n: int, repeats: int, folder: Path | None, *, every: bool) -> list[Row]:
    """For each data set the worst activation and the median one; all of them with `every`."""
    rows: list[Row] = []
    for case in cases(n, folder):
        found = []
        for name in (*ACTIVATIONS, *CUSTOM):
            for feedback in FEEDBACKS if every else (0.2,):
                try:
                    found.append(measure(case, name, feedback, repeats))
                except nsd.ConvergenceError:
                    continue  # a polynomial that outgrows its variance has no kernel at these norms
        column = "first (s)" if case.seconds else "CK+NTK / X Xᵀ"
        found.sort(key=lambda row: row[column])
        worst, middle = found[-1], found[len(found) // 2]
        worst["median of all"] = middle[column]
        worst["largest error"] = max(row["error"] or 0.0 for row in found)
        rows.append(worst)
        print(
            f"{case.data:40s} {column} median {middle[column]:.3g}, worst {worst[column]:.3g} "
            f"({worst['activation']}, σ_a² = {worst['σ_a²']}), largest error {worst['largest error']:.1e}",
            flush=True,
        )
    return rows
