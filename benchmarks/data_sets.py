"""The section "data" of run.py: CK and NTK of every built-in activation on real data.

Real images and features scaled to norm 1, raw (0…1 and 0…255), standardised by column and with unit rows;
scikit-learn's small tables as they are; rows shifted by a constant; nearly parallel rows; close to the limit of
stability; functions of the user's.  Each case is timed in turn with the product of the same rows, in one process (the
processor time of the better of two rounds; hold both to one thread, OPENBLAS_NUM_THREADS=1 NUMBA_NUM_THREADS=1), and
compared with the independent solver of `oracle.py` on a few rows.  Every measurement is appended to a file, so that a
run that was interrupted, or held to some of the data, is continued by the next one.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import oracle
from cases import ACTIVATIONS, mixture
from harness import LIMITS, Row, commit
from sklearn import datasets

import notsodeep as nsd
from notsodeep_lab.papers.data_files import load

IMAGES = ("mnist", "fashion_mnist", "cifar10", "cifar10_vgg19", "digits")
TABLES: dict[str, Callable[[], Any]] = {
    "iris": datasets.load_iris,
    "wine": datasets.load_wine,
    "breast_cancer": datasets.load_breast_cancer,
    "diabetes": datasets.load_diabetes,
}
# The middle one first: a run that is cut short has a whole column.
FEEDBACKS = (0.2, 0.5, 0.1)
CUSTOM: dict[str, Callable[[], Any]] = {
    "custom x·tanh(x)": lambda: nsd.custom_activation(lambda x: x * np.tanh(x)),
    "formula x·sigmoid(x)": lambda: nsd.activation("formula", expression="x * sigmoid(x)"),
}
# Their slopes need the angle of nearly parallel rows to more digits than an inner product has.
PIECEWISE = ("relu", "leaky_relu", "abs", "hard_tanh", "hard_sigmoid", "piecewise_linear")
# With Lipschitz constant 1, so that σ_a² E[φ'²] is close to 1.
STEEP = ("relu", "hard_tanh", "tanh", "arctan", "softsign", "elu")
LIMIT = 0.97
# Data that are also measured with functions of the user's and close to the limit of stability.
OTHER_MODELS = (("mnist", "norm 1"), ("mnist", "raw"), ("cifar10", "raw"), ("breast_cancer", "raw"))
# Rows that are compared with the oracle, others for each activation.
COMPARED = 2


@dataclass(frozen=True)
class Case:
    """Rows, their limit (a ratio to the product, or seconds of the first call) and the models."""

    data: str
    rows: np.ndarray
    ratio: float | None = None
    seconds: float | None = None
    activations: tuple[str, ...] = tuple(ACTIVATIONS)
    feedbacks: tuple[float, ...] = FEEDBACKS

    @property
    def column(self) -> str:
        return "first (s)" if self.seconds else "CK+NTK / X Xᵀ"

    @property
    def limit(self) -> float | None:
        return self.seconds or self.ratio


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
            limit = 8.0 if how == "norm 1" else 15.0
            yield Case(f"{name}, {how}", rows, ratio=limit)
            if (name, how) in OTHER_MODELS:
                yield from _other_models(Case(f"{name}, {how}", rows, ratio=limit))
    for name, read in TABLES.items():
        x = np.asarray(read().data, dtype=np.float64)[:600]
        yield Case(f"{name}, raw", x, seconds=2.0)
        if (name, "raw") in OTHER_MODELS:
            yield from _other_models(Case(f"{name}, raw", x, seconds=2.0))
        yield Case(f"{name}, X + 3", x + 3.0, seconds=2.0)
    generator = np.random.default_rng(0)
    base = generator.standard_normal(64) / 8.0
    for gap in (1e-3, 1e-6, 1e-9, 1e-12):
        noise = generator.standard_normal((min(n, 500), 64)) / 8.0
        yield Case(f"near duplicates, 1 - cos = {gap:g}", base + np.sqrt(gap) * noise, seconds=2.0)


def _other_models(case: Case) -> Iterator[Case]:
    """The same rows for functions of the user's and close to the limit of stability."""
    yield replace(case, data=f"{case.data}, user's functions", activations=tuple(CUSTOM))
    yield replace(case, data=f"{case.data}, σ_a² = {LIMIT}", activations=STEEP, feedbacks=(LIMIT,))


def measure(case: Case, name: str, feedback: float, repeats: int) -> Row:
    """One activation on one case: the first call, then rounds of the product and of the kernels."""
    phi = CUSTOM[name]() if name in CUSTOM else nsd.activation(name, **ACTIVATIONS[name])
    model = nsd.DEQ(phi, sigma_a2=feedback)
    x = case.rows
    begin = time.process_time()
    ck, ntk, info = nsd.kernels.both_kernels(model, x, return_info=True)
    first = time.process_time() - begin
    chosen = np.random.default_rng([*ACTIVATIONS, *CUSTOM].index(name)).choice(
        len(x), min(COMPARED, len(x)), replace=False
    )
    block = np.ix_(chosen, chosen)
    found = ck[block], ntk[block]
    del ck, ntk
    rounds = [
        (_seconds(lambda: x @ x.T), _seconds(lambda: nsd.kernels.both_kernels(model, x)))
        for _ in range(1 if case.seconds else repeats)
    ]
    product, both = (min(part) for part in zip(*rounds, strict=True))
    row: Row = {
        "data": case.data, "n": len(x), "p": x.shape[1], "activation": name, "σ_a²": feedback,
        "first (s)": first, "CK+NTK (s)": both, "CK+NTK / X Xᵀ": both / product,
        "ways": ", ".join(info.methods), "stated bound": float(info.error_bound),
    }  # fmt: skip
    try:
        if case.data.startswith("near duplicates") and name in PIECEWISE:
            parameters = ACTIVATIONS[name]
            row["error"] = oracle.nearly_parallel_error(
                name, parameters, model, x[chosen[:2]], found[1][:2, :2]
            )
            return row
        truth = oracle.kernels(model, x[chosen])
        row["error"] = max(oracle.largest_error(k, t) for k, t in zip(found, truth, strict=True))
    except RuntimeError:
        row["error"] = None
    return row


def _seconds(task: Callable[[], Any]) -> float:
    """Processor time of one call, which other processes do not affect."""
    begin = time.process_time()
    task()
    return time.process_time() - begin


@dataclass(frozen=True)
class Selection:
    """The measurements of the section, and where they are stored.

    Attributes:
        activations: names; empty for all.
        data: parts of the names of data sets; empty for all.
        feedbacks: values of σ_a²; empty for all.
        minutes: no measurement begins later than this after the first one.
        file: measurements, one to a line: those of an earlier run are not repeated.
    """

    activations: Sequence[str] = ()
    data: Sequence[str] = ()
    feedbacks: Sequence[float] = ()
    minutes: float = np.inf
    file: Path | None = None

    def wants(self, case: Case, name: str, feedback: float) -> bool:
        return (
            name in case.activations
            and feedback in case.feedbacks
            and (not self.activations or name in self.activations)
            and (not self.data or any(part in case.data for part in self.data))
            and (not self.feedbacks or feedback in self.feedbacks)
        )

    def known(self) -> dict[tuple[str, int, str, float], Row]:
        if self.file is None or not self.file.exists():
            return {}
        rows = [json.loads(line) for line in self.file.read_text(encoding="utf-8").splitlines()]
        return {(row["data"], row["n"], row["activation"], row["σ_a²"]): row for row in rows}

    def keep(self, row: Row) -> None:
        if self.file is not None:
            self.file.parent.mkdir(parents=True, exist_ok=True)
            with self.file.open("a", encoding="utf-8") as stream:
                stream.write(json.dumps({**row, "commit": commit()}, ensure_ascii=False) + "\n")


def section(n: int, repeats: int, folder: Path | None, selection: Selection) -> list[Row]:
    """For each data set the median and the worst activation at each σ_a²."""
    everything, known = list(cases(n, folder)), selection.known()
    found: dict[str, list[Row]] = {case.data: [] for case in everything}
    begin = time.monotonic()
    for feedback in (*FEEDBACKS, LIMIT):
        for case in everything:
            for name in (*ACTIVATIONS, *CUSTOM):
                if not selection.wants(case, name, feedback):
                    continue
                row = known.get((case.data, len(case.rows), name, feedback))
                if row is None and time.monotonic() - begin < 60.0 * selection.minutes:
                    try:
                        row = measure(case, name, feedback, repeats)
                    except nsd.ConvergenceError as error:
                        # A polynomial that outgrows its variance has no kernel at these norms.
                        row = {"data": case.data, "n": len(case.rows), "activation": name, "σ_a²": feedback,
                               "refused": str(error)}  # fmt: skip
                    selection.keep(row)
                if row is not None and "refused" not in row:
                    found[case.data].append(row)
            told = [row for row in found[case.data] if row["σ_a²"] == feedback]
            if told:
                print(f"{case.data:44s} σ_a² = {feedback:<5g} {_summary(case, told)[0]}", flush=True)
    return [_row(case, found[case.data]) for case in everything if found[case.data]]


def _summary(case: Case, rows: list[Row]) -> tuple[str, float]:
    """Median and worst in words, and the worst."""
    ordered = sorted(rows, key=lambda row: row[case.column])
    middle, worst = ordered[len(ordered) // 2], ordered[-1]
    return f"{middle[case.column]:.2g}; {worst[case.column]:.2g} ({worst['activation']})", worst[case.column]


def _row(case: Case, found: list[Row]) -> Row:
    unit = "s" if case.seconds else "products"
    row: Row = {"data": case.data, "n": len(case.rows), "p": case.rows.shape[1], "in": unit}
    worst = 0.0
    for feedback in (0.1, 0.2, 0.5, LIMIT):
        rows = [each for each in found if each["σ_a²"] == feedback]
        words, size = _summary(case, rows) if rows else (None, 0.0)
        row[f"σ_a² = {feedback:g}: median; worst"] = words
        worst = max(worst, size)
    over = sorted({each["activation"] for each in found if each[case.column] > (case.limit or np.inf)})
    row |= {
        "worst": worst,
        "above the limit": f"{len(over)} of {len({each['activation'] for each in found})}",
        "largest error": max((each["error"] or 0.0 for each in found), default=None),
        "ways": sorted({way for each in found for way in each["ways"].split(", ")}),
        "missed by": over,
        LIMITS: {"worst": case.limit},
    }
    return row
